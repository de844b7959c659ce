"""Simultaneous and single-player environments as arrays, worked out by hand (see tests.toys, tests.gymnasium_toys)."""

import gymnasium
import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import SpecError
from marltrain.core.seeds import child_seed
from marltrain.envs import DummyVectorEnv, probe, resolve
from tests.envs.driving import act, column, rewards, run_seed
from tests.gymnasium_toys import Film, MaskedByInfo
from tests.toys import Crowd, Identity, Motley


def crowd(parities=(0, 0), **arguments):
    vector = DummyVectorEnv(resolve(Crowd, arguments), 1, with_state=True)
    return vector, vector.spec, vector.reset(run_seed(list(parities)))


def test_players_of_different_spaces_form_groups_in_order():
    _, spec, step = crowd()
    assert spec.names == ("red_0", "blue", "red_1")
    assert [group.players for group in spec.groups] == [(0, 2), (1,)]
    assert spec.state_shape == (2,) and not spec.turn_based
    assert isinstance(step.obs[0], np.ndarray) and step.obs[0].shape == (2, 1, 2)
    assert isinstance(step.obs[1], np.ndarray) and step.obs[1].shape == (1, 1, 3)


@pytest.mark.parametrize("truncate", [True, False])
def test_every_step_of_an_episode_by_hand(truncate):
    vector, spec, step = crowd(truncate=truncate)
    assert column(spec, step) == {
        "reward": {"red_0": 0, "blue": 0, "red_1": 0},
        "turn": {"red_0": True, "blue": True, "red_1": True},
        "alive": {"red_0": True, "blue": True, "red_1": True},
        "obs": {"red_0": [0, 0], "blue": [0, 2, 0], "red_1": [0, 1]},
    }
    step = vector.step(act(spec, red_0=2, blue=1, red_1=1))
    assert rewards(spec, step) == [2, 60, 1]  # blue's actions are 5 and 6
    assert column(spec, step)["obs"] == {"red_0": [1, 0], "blue": [1, 2, 3], "red_1": [1, 1]}

    step = vector.step(act(spec, red_0=0, blue=0, red_1=2))
    said = column(spec, step)
    assert rewards(spec, step) == [0, 50, 2]
    assert said["terminated"] == {"red_1": True} and said["final_obs"] == {"red_1": [2, 1]}
    assert list(said["turn"]) == list(said["alive"]) == ["red_0", "blue"] and not step.ended[0]

    step = vector.step(act(spec, red_0=1, blue=0, red_1=2))  # red_1 is dead: its action is ignored
    assert rewards(spec, step) == [1, 50, 0] and "terminated" not in column(spec, step)
    assert column(spec, step)["obs"] == {"red_0": [3, 0], "blue": [3, 2, 1]}
    assert step.state is not None and step.state[0].tolist() == [3, 1]

    step = vector.step(act(spec, red_0=2, blue=1))
    said = column(spec, step)
    assert said == {
        "reward": {"red_0": 2, "blue": 60, "red_1": 0},
        "truncated" if truncate else "terminated": {"red_0": True, "blue": True},
        "final_obs": {"red_0": [4, 0], "blue": [4, 2, 2]},
        "turn": {"red_0": True, "blue": True, "red_1": True},
        "alive": {"red_0": True, "blue": True, "red_1": True},
        "obs": {"red_0": [0, 0], "blue": [0, 2, 0], "red_1": [0, 1]},
    }
    assert step.ended[0] and step.episode[0] == 1
    assert step.state is not None and step.state[0].tolist() == [0, 0]
    assert step.final_state is not None and step.final_state[0].tolist() == [4, 2]


def test_absent_for_an_episode_and_back_in_the_next():
    vector, spec, step = crowd(parities=(1, 0))
    assert list(column(spec, step)["alive"]) == ["red_0", "red_1"]
    for t in range(4):
        step = vector.step(act(spec, red_0=1, red_1=1, blue=1))
        assert rewards(spec, step) == [1, 0, 1 if t < 2 else 0]
        assert not step.truncated[1, 0] and not step.terminated[1, 0]
    assert step.ended[0] and list(column(spec, step)["alive"]) == ["red_0", "blue", "red_1"]


class Latecomer(Crowd):
    """Blue joins with step 0; red_1 is dropped with step 1 without a word or an observation."""

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.agents = ["red_0", "red_1"]
        return self._observations(self.agents), {name: {} for name in self.agents}

    def step(self, actions):
        if self.t == 0:
            super().step(actions)
            self.agents = ["red_1", "red_0", "blue"]
            flags = dict.fromkeys(["red_0", "red_1"], False)
            return self._observations(self.agents), {"red_0": 1.0, "red_1": 1.0}, flags, flags, {}
        observations, rewards, terminated, truncated, infos = super().step(actions)
        for said in (observations, rewards, terminated, truncated, infos):
            said.pop("red_1", None)
        return observations, rewards, terminated, truncated, infos


class BothFlags(Crowd):
    """Flags the end in both ways."""

    def step(self, actions):
        observations, rewards, terminated, truncated, infos = super().step(actions)
        return observations, rewards, {n: terminated[n] or truncated[n] for n in terminated}, truncated, infos


def test_who_is_flagged_in_both_ways_has_terminated():
    vector = DummyVectorEnv(BothFlags, 1)
    step = vector.reset(run_seed([0]))
    for _ in range(4):
        step = vector.step(act(vector.spec))
        assert not step.truncated.any()
    assert step.terminated[:, 0].tolist() == [True, True, False]


def test_players_may_join_late_and_be_dropped_without_a_word():
    vector = DummyVectorEnv(Latecomer, 1)
    spec, step = vector.spec, vector.reset(0)
    assert list(column(spec, step)["turn"]) == ["red_0", "red_1"]
    step = vector.step(act(spec))
    assert column(spec, step)["obs"] == {"red_0": [1, 0], "blue": [1, 2, 0], "red_1": [1, 1]}
    step = vector.step(act(spec, blue=1))
    assert rewards(spec, step) == [0, 60, 0]
    assert column(spec, step)["terminated"] == {"red_1": True}
    assert column(spec, step)["final_obs"] == {"red_1": [1, 1]}  # its latest


def test_gymnasium_is_one_player_and_truncation_is_not_termination():
    vector = DummyVectorEnv(resolve("gymnasium/CartPole-v1", {"max_episode_steps": 4}), 1)
    spec, step = vector.spec, vector.reset(3)
    assert spec.names == ("player_0",)
    ends = []
    for t in range(8):
        step = vector.step(act(spec, player_0=t % 2))
        ends.append((bool(step.ended[0]), bool(step.truncated[0, 0]), bool(step.terminated[0, 0])))
    assert ends == [(False, False, False)] * 3 + [(True, True, False)] + [(False, False, False)] * 3 + [
        (True, True, False)
    ]

    # The same numbers as Gymnasium's own loop.
    vector = DummyVectorEnv("gymnasium/CartPole-v1", 1)
    step = vector.reset(run := run_seed([0]))
    env = gymnasium.make("CartPole-v1")
    seen, _ = env.reset(seed=child_seed(run, "episode", "train", 0, 0))
    terminated = False
    while not terminated:
        assert isinstance(step.obs[0], np.ndarray) and np.array_equal(step.obs[0][0, 0], seen)
        step = vector.step(act(vector.spec, player_0=1))
        seen, reward, terminated, _, _ = env.step(1)
        assert step.reward[0, 0] == reward
    (obs,), (final_obs,) = step.obs, step.final_obs
    assert step.terminated[0, 0] and isinstance(obs, np.ndarray) and isinstance(final_obs, np.ndarray)
    assert np.array_equal(final_obs[0, 0], seen) and not np.array_equal(obs, final_obs)


def test_legal_moves_from_the_info():
    vector = DummyVectorEnv(MaskedByInfo, 1)
    spec, step = vector.spec, vector.reset(0)
    assert spec.players[0].masked and column(spec, step)["legal"] == {"player_0": [1, 2]}
    step = vector.step(act(spec, player_0=1))
    assert column(spec, step)["legal"] == {"player_0": [0, 2]}


def test_mappings_pictures_and_every_kind_of_action():
    vector = DummyVectorEnv(Motley, 2)
    spec, step = vector.spec, vector.reset(0)
    mixed, steered = spec.groups
    # digit (one-hot of 3, from -1), two bits, one-hots of 2 and 3; the picture stands beside them
    assert mixed.layout.shapes == {"vector": ((10,), np.float32), "screen": ((4, 5), np.uint8)}
    assert mixed.action_shape == (3,) and steered.action_shape == (2,)
    obs = step.obs[0]
    assert isinstance(obs, dict) and obs["screen"][0, 1].tolist() == [[10] * 5] * 4
    assert obs["vector"][0, 1].tolist() == [1, 0, 0, 1, 0, 1, 0, 1, 0, 0]
    step = vector.step(act(spec, 2, mixed=[1, 0, 3], steered=[0.5, -1.5]))
    assert step.reward.tolist() == [[2 + 1 + 4] * 2, [-1.0] * 2]
    obs = step.obs[0]
    assert isinstance(obs, dict) and obs["vector"][0, 0].tolist() == [0, 1, 0, 1, 0, 0, 1, 0, 1, 0]


def test_discrete_observations_are_one_hot():
    vector = DummyVectorEnv(resolve(Identity, {"choices": 4}), 3)
    step = vector.reset(0)
    (obs,) = step.obs
    assert isinstance(obs, np.ndarray) and obs.shape == (2, 3, 4) and (obs.sum(-1) == 1).all()
    step = vector.step((obs.argmax(-1),))
    assert (step.reward == 1).all()


def test_pictures_stay_pictures():
    step = DummyVectorEnv(Film, 2).reset(0)
    (obs,) = step.obs
    assert isinstance(obs, np.ndarray) and obs.shape == (1, 2, 84, 84) and obs.dtype == np.uint8


class Folded(Film):
    def __init__(self):
        super().__init__()
        self.observation_space = gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(2))

    def _frame(self):
        return ()


def test_a_space_that_arrays_cannot_hold_names_the_player():
    with pytest.raises(SpecError, match=r"player 'player_0': observation space.* is a Sequence"):
        probe(Folded)


class Satchel(MaskedByInfo):
    """MaskedByInfo, whose mask is in the observation, beside a mapping or a tuple."""

    def __init__(self, kind="mapping"):
        super().__init__()
        box, digit = gymnasium.spaces.Box(0, 10, (2,), np.float32), gymnasium.spaces.Discrete(3)
        pair = gymnasium.spaces.Tuple((digit, box))
        self.kind, mask = kind, gymnasium.spaces.MultiBinary(3)
        inner = pair if kind == "tuple" else gymnasium.spaces.Dict(deep=pair, flat=box)
        self.observation_space = gymnasium.spaces.Dict(observation=inner, action_mask=mask)

    def _seen(self):
        seen, info = super()._seen()
        pair = (self.t % 3, np.array([seen[0], 7], np.float32))
        inner = pair if self.kind == "tuple" else {"deep": pair, "flat": pair[1]}
        return {"observation": inner, **info}, {}


@pytest.mark.parametrize(("kind", "tail"), [("mapping", [[0, 7], [1, 7], [4, 7]]), ("tuple", [[]] * 3)])
def test_a_mask_may_stand_beside_a_mapping_or_a_tuple(kind, tail):
    vector = DummyVectorEnv(resolve(Satchel, {"kind": kind}), 1)
    step = vector.reset(0)
    assert column(vector.spec, step)["obs"] == {"player_0": [1, 0, 0, 0, 7, *tail[0]]}
    assert column(vector.spec, step)["legal"] == {"player_0": [1, 2]}
    step = vector.step(act(vector.spec, player_0=1))
    assert column(vector.spec, step)["obs"] == {"player_0": [0, 1, 0, 1, 7, *tail[1]]}
    assert column(vector.spec, step)["legal"] == {"player_0": [0, 2]}
    for action in (0, 0, 1):
        step = vector.step(act(vector.spec, player_0=action))
    assert column(vector.spec, step)["final_obs"] == {"player_0": [0, 1, 0, 4, 7, *tail[2]]}

    (agent,) = mt.make_agents("dqn", Satchel, env_args={"kind": kind}, seed=0, network=mt.MLP(hidden=(3,)))
    observation, _ = Satchel(kind).reset()
    assert agent.act(observation) in (1, 2)
