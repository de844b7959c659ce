"""What adapters refuse: names that are no text, players that were never declared, text in the place of numbers."""

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo.utils import BaseParallelWrapper
from pettingzoo.utils.conversions import parallel_to_aec

from marltrain.core.errors import EnvError
from marltrain.envs import DummyVectorEnv, check_env, probe, resolve
from tests.envs.driving import act, run_seed
from tests.gymnasium_toys import MaskedByInfo
from tests.toys import Crowd, Identity, Relay


def with_turns(env):
    env.render_mode = None
    return parallel_to_aec(env)


class Spoiled(Crowd):
    """Crowd, one of whose answers is spoiled with step 2."""

    def __init__(self, spoil):
        super().__init__()
        self.spoil = spoil

    def step(self, actions):
        answer = super().step(actions)
        if self.t == 2:
            self.spoil(*answer)
        return answer


def unknown_reward(seen, rewards, *_):
    rewards["green"] = 1.0


def unknown_observation(seen, *_):
    seen["green"] = seen["red_0"]


def text_reward(seen, rewards, *_):
    rewards["red_0"] = "1.5"


def text_seen(seen, *_):
    seen["red_0"] = np.array(["1", "2"])


def object_seen(seen, *_):
    seen["blue"] = np.array([1, "2", 3], object)


def text_terminated(seen, rewards, terminated, *_):
    terminated["blue"] = "False"


def text_truncated(seen, rewards, terminated, truncated, _):
    truncated["blue"] = "False"


SPOILS = [
    (unknown_reward, r"rewards are given for 'green', not in possible_agents \('red_0', 'blue', 'red_1'\)"),
    (unknown_observation, "observations are given for 'green', not in possible_agents"),
    (text_reward, "player 'red_0': reward is the text '1.5', expected a number"),
    (text_seen, "player 'red_0': observation is an array of dtype <U1, its space .* holds real numbers"),
    (object_seen, "player 'blue': observation is an array of dtype object"),
    (text_terminated, "player 'blue': terminated is the text 'False', expected True or False"),
    (text_truncated, "player 'blue': truncated is the text 'False', expected True or False"),
]


@pytest.mark.parametrize(("spoil", "said"), SPOILS)
def test_text_and_unknown_players_are_faults(spoil, said):
    vector = DummyVectorEnv(resolve(Spoiled, {"spoil": spoil}), 1)
    vector.reset(run_seed([0]))
    vector.step(act(vector.spec))
    with pytest.raises(EnvError, match=rf"environment 0 \(Spoiled\), episode 0 .*, step 2: .*{said}"):
        vector.step(act(vector.spec))
    report = check_env(Spoiled, {"spoil": spoil}, strict=False)
    assert not report.ok and all("EnvError" in problem for problem in report.problems if "Error" in problem)


class UnknownSeen(Crowd):
    def reset(self, seed=None, options=None):
        seen, infos = super().reset(seed=seed)
        return seen | {"green": seen["red_0"]}, infos


def test_an_observation_of_an_unknown_player_is_an_error_at_the_reset_too():
    with pytest.raises(EnvError, match="observations are given for 'green'"):
        DummyVectorEnv(UnknownSeen, 1).reset(run_seed([0]))


class SpoiledTurns(Relay):
    """Relay, whose `what` is spoiled with move 1."""

    def __init__(self, what):
        super().__init__()
        self.what = what

    def step(self, action):
        super().step(action)
        if self.t == 2:
            if self.what == "unknown":
                self._cumulative_rewards["dan"] = 1.0
            elif self.what == "reward":
                self._cumulative_rewards |= {"cat": "1.5"}  # type: ignore[dict-item]
            elif self.what == "flag":
                self.truncations |= {"cat": "False"}  # type: ignore[dict-item]

    def observe(self, agent):
        seen = super().observe(agent)
        if self.what == "mask" and self.t == 2:
            seen["action_mask"] = np.array(["0", "1", "0"])
        return seen


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("unknown", "rewards are given for 'dan', not in possible_agents"),
        ("reward", "player 'cat': reward is the text '1.5', expected a number"),
        ("flag", "player 'cat': truncated is the text 'False', expected True or False"),
        ("mask", "player 'cat': 'action_mask' has dtype <U1, expected 0 and 1"),
    ],
)
def test_text_and_unknown_players_are_faults_in_turn_based_games(what, said):
    vector = DummyVectorEnv(resolve(SpoiledTurns, {"what": what}), 1)
    vector.reset(run_seed([0]))
    vector.step(act(vector.spec))
    with pytest.raises(EnvError, match=f"step 2: {said}"):
        vector.step(act(vector.spec))


class Alone(MaskedByInfo):
    def __init__(self, spoil):
        super().__init__()
        self.spoil = spoil

    def step(self, action):
        seen, reward, *flags, info = super().step(action)
        terminated, truncated = flags
        return seen, self.spoil.get("reward", reward), self.spoil.get("terminated", terminated), truncated, info


@pytest.mark.parametrize("spoil", [{"reward": "1.5"}, {"reward": b"2"}, {"terminated": "False"}])
def test_text_is_a_fault_of_a_gymnasium_environment(spoil):
    vector = DummyVectorEnv(resolve(Alone, {"spoil": spoil}), 1)
    vector.reset(0)
    with pytest.raises(EnvError, match=f"step 1: player 'player_0': {next(iter(spoil))} is the text"):
        vector.step(act(vector.spec, player_0=1))


class Growing(Crowd):
    """Each object, or each episode, gives `who` one action more."""

    built = 0

    def __init__(self, who, of_objects):
        super().__init__()
        type(self).built += 1
        self.who, self.more = who, type(self).built - 1 if of_objects else 0
        self.of_objects = of_objects

    def reset(self, seed=None, options=None):
        self.more += not self.of_objects
        return super().reset(seed=seed)

    def action_space(self, agent):
        if agent != self.who:
            return super().action_space(agent)
        return spaces.Discrete(7 + self.more) if self.of_objects else spaces.Discrete(6 + self.more)


@pytest.mark.parametrize(("of_objects", "episode"), [(True, 0), (False, 1)])
@pytest.mark.parametrize("wrap", [lambda env: env, BaseParallelWrapper, with_turns], ids=["plain", "wrapped", "turns"])
def test_an_action_space_that_changes_is_an_error(wrap, of_objects, episode):
    """The probe is of the first object and its first episode, with 7 actions of blue; blue is in all episodes here."""
    Growing.built = 0
    vector = DummyVectorEnv(lambda: wrap(Growing("blue", of_objects)), 1)
    said = rf"episode {episode} .*player 'blue': its action space is Discrete\(8\), and was Discrete\(7\) when"
    with pytest.raises(EnvError, match=said):
        vector.reset(run_seed([0, 0]))
        for _ in range(20):
            vector.step(act(vector.spec))


class TextState(Crowd):
    def state(self):
        return super().state().astype(str)


def test_a_global_state_of_text_is_refused():
    with pytest.raises(
        EnvError, match=r"global state \(env.state\(\)\) has dtype <U32, expected an array of real numbers"
    ):
        DummyVectorEnv(TextState, 1, with_state=True)


class WrongState(Crowd):
    """A state of its own, with a misspelled attribute."""

    def state(self):
        return self.positions


@pytest.mark.parametrize("wrap", [lambda env: env, BaseParallelWrapper], ids=["plain", "wrapped"])
def test_an_error_of_the_environments_own_state_names_it(wrap):
    expected = (
        r"environment .*: the global state \(env.state\(\)\) cannot be computed after reset: AttributeError: "
        r"'WrongState' object has no attribute 'positions'. Correct it, or let it raise NotImplementedError"
    )
    with pytest.raises(EnvError, match=expected):
        probe(lambda: wrap(WrongState()), with_state=True)


class Stateless(Identity):
    render_mode = None  # the wrappers of PettingZoo ask for it


@pytest.mark.parametrize(
    "wrap", [lambda env: env, BaseParallelWrapper, parallel_to_aec], ids=["plain", "wrapped", "aec"]
)
def test_an_environment_without_a_state_has_none(wrap):
    assert probe(lambda: wrap(Stateless()), with_state=True).state_shape is None


def test_an_attribute_state_of_another_meaning_is_no_global_state():
    assert probe("gymnasium/CartPole-v1", with_state=True).state_shape is None


class OldRender(Identity):
    """An environment whose `render` has the interface of before Gymnasium 0.26."""

    def __init__(self, render_mode=None):
        super().__init__()
        self.render_mode = render_mode

    def render(self, mode="human"):
        return np.full((2, 2, 3), 7, np.uint8) if mode == "rgb_array" else True


def test_a_render_method_of_the_old_interface_is_given_the_mode():
    for render_mode, expected in (("rgb_array", 7), ("human", 1)):
        vector = DummyVectorEnv(OldRender, 1, render_mode=render_mode)
        vector.reset(0)
        assert np.max(vector.render()) == expected
