"""Autoreset, episode seeds, rebuilding, and what is refused, with the words that say where."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from marltrain.core.errors import ConfigError, EnvError
from marltrain.core.seeds import child_seed
from marltrain.envs import DummyVectorEnv, probe, resolve
from tests.envs.driving import act, random_run, run_seed, same, snapshot
from tests.faulty_toys import Broken, Forgetful
from tests.toys import Crowd, Identity, Relay


class Diary(Identity):
    """Writes down the seeds of its episodes."""

    seeds: list[int] = []  # noqa: RUF012

    def reset(self, seed=None, options=None):
        Diary.seeds.append(seed)
        return super().reset(seed=seed)


def diary(num_envs, role="train", run=7):
    """Seeds of two episodes per environment."""
    vector = DummyVectorEnv(resolve(Diary, {"length": 2}), num_envs, role=role)
    Diary.seeds = []
    vector.reset(run)
    for _ in range(2):
        vector.step(act(vector.spec, num_envs))
    return list(Diary.seeds)


def test_episode_seeds_come_from_run_role_environment_and_episode():
    expected = [child_seed(7, "episode", "train", e, k) for k in (0, 1) for e in (0, 1, 2)]
    assert diary(3) == expected and len(set(expected)) == 6


def test_episode_seeds_do_not_depend_on_how_many_environments_there_are():
    three, five = diary(3), diary(5)
    assert three[:3] == five[:3] and three[3:] == five[5:8]


def test_test_episodes_are_never_training_episodes():
    assert not set(diary(4)) & set(diary(4, role="test"))


def test_resetting_starts_the_same_episodes_again():
    vector = DummyVectorEnv(Identity, 3)
    one = random_run(vector, 10)  # to where the first episodes end, so that every array has been written
    two = random_run(vector, 25)
    three = random_run(vector, 25)
    assert all(same(a, b) for a, b in zip(one[10:], two[10:11], strict=True))
    assert all(same(a, b) for a, b in zip(two[10:], three[10:], strict=True))
    assert not same(one[10], random_run(vector, 10, seed=1)[10])


def test_finished_environments_restart_at_once_and_alone():
    vector = DummyVectorEnv(lambda: Lengths(), 3)
    step = vector.reset(0)
    ended, episodes = [], []
    for _ in range(6):
        step = vector.step(act(vector.spec, 3))
        ended.append(step.ended.tolist())
        episodes.append(step.episode.tolist())
    lengths = [child_seed(0, "episode", "train", e, 0) % 3 + 1 for e in range(3)]
    for e in range(3):
        assert ended[lengths[e] - 1][e] and not any(ended[t][e] for t in range(lengths[e] - 1))
        assert episodes[lengths[e] - 1][e] == 1


class Lengths(Identity):
    """Episodes of 1 to 3 steps, by their seed."""

    def reset(self, seed=None, options=None):
        self.length = (seed or 0) % 3 + 1
        return super().reset(seed=seed)


def test_impure_environments_are_rebuilt_for_every_episode():
    fresh = DummyVectorEnv(resolve(Forgetful, {"flaw": "impure", "declared": True}), 1)
    pure = DummyVectorEnv(resolve(Forgetful, {"flaw": ""}), 1)
    undeclared = DummyVectorEnv(resolve(Forgetful, {"flaw": "impure"}), 1)
    runs = [random_run(vector, 12) for vector in (fresh, pure, undeclared)]
    assert all(same(a, b) for a, b in zip(runs[0], runs[1], strict=True))
    assert not all(same(a, b) for a, b in zip(runs[0], runs[2], strict=True))


def test_an_environment_that_cannot_be_repeated_says_so():
    assert probe(Forgetful).reproducible
    assert not probe(Forgetful, {"flaw": "random", "declared": True}).reproducible
    assert not probe(lambda: gymnasium.wrappers.NormalizeObservation(gymnasium.make("CartPole-v1"))).reproducible


FAULTS = [
    ("raise", r"ZeroDivisionError: a fault of the environment's own"),
    ("outside", r"player 'right': observation leaves its space .*entry 1 is 1\.5"),
    ("nan", r"player 'right': observation leaves its space .*entry 1 is nan"),
    ("reward", r"player 'right': reward inf is not finite"),
    ("shape", r"player 'right': .*has shape \(3,\), its space says \(2,\)"),
    ("missing", r"player 'right' is in env\.agents but was given no observation"),
    ("truncated", r"player 'right' was truncated without a last observation"),
    ("stranger", r"env\.agents holds 'nobody', which is not in possible_agents"),
    ("no moves", r"player 'right' must move, but its action_mask allows no action"),
    ("no mask", r"player 'right': its observation has no 'action_mask'"),
]


@pytest.mark.parametrize(("fault", "message"), FAULTS)
def test_a_fault_is_named_with_its_environment_episode_seed_and_step(fault, message):
    vector = DummyVectorEnv(resolve(Broken, {"fault": fault, "at": 3, "episode": 1}), 2)
    vector.reset(5)
    for _ in range(12):
        vector.step(act(vector.spec, 2))
    seed = child_seed(5, "episode", "train", 0, 1)
    where = rf"environment 0 \(Broken\), episode 1 \(seed {seed}\), step 3: "
    with pytest.raises(EnvError, match=where + message) as raised:
        vector.step(act(vector.spec, 2))
    if fault == "raise":
        assert isinstance(raised.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("fault", ["outside", "nan"])
def test_a_fault_in_a_last_observation_is_named_in_the_episode_that_was(fault):
    vector = DummyVectorEnv(resolve(Broken, {"fault": fault, "at": 10}), 1)
    vector.reset(5)
    with pytest.raises(EnvError, match=r"episode 0 \(seed \d+\), step 10: player 'right'"):
        for _ in range(10):
            vector.step(act(vector.spec))


def test_a_fault_at_a_reset_is_step_0():
    vector = DummyVectorEnv(resolve(Broken, {"fault": "raise", "at": 0, "episode": 1}), 1)
    vector.reset(5)
    with pytest.raises(EnvError, match=r"episode 1 \(seed \d+\), step 0: ZeroDivisionError"):
        for _ in range(10):
            vector.step(act(vector.spec))


def test_an_environment_that_cannot_be_built_says_why():
    with pytest.raises(EnvError, match=r"cannot be built: ZeroDivisionError"):
        probe(lambda: 1 // 0)
    with pytest.raises(EnvError, match=r"expected a PettingZoo .* got dict"):
        probe(dict)


@pytest.mark.parametrize(
    ("env", "actions", "message"),
    [
        (Crowd, {"red_0": 3}, r"player 'red_0': action 3 is not legal; expected Discrete\(3\), counted from 0"),
        (Crowd, {"blue": -1}, r"player 'blue': action -1 is not legal"),
        (Relay, {"ann": 3}, r"player 'ann': action 3 is not legal; expected one of \[0, 1, 2\]"),
    ],
)
def test_actions_outside_their_space_are_refused(env, actions, message):
    vector = DummyVectorEnv(env, 1)
    vector.reset(run_seed([0]))
    with pytest.raises(EnvError, match=message):
        vector.step(act(vector.spec, **actions))


def test_actions_that_are_not_finite_are_refused():
    vector = DummyVectorEnv("gymnasium/Pendulum-v1", 1)
    vector.reset(0)
    with pytest.raises(EnvError, match=r"player 'player_0': action \[nan\] is not legal"):
        vector.step((np.full((1, 1, 1), np.nan, np.float32),))


class OffTheScale(Identity):
    """Sees a symbol that its space does not have."""

    def _draw(self, names=None):
        drawn = super()._draw(names)
        return {name: 3 if self.t == 2 and name == "player_1" else symbol for name, symbol in drawn.items()}


def test_a_symbol_outside_its_space_is_refused():
    vector = DummyVectorEnv(OffTheScale, 1)
    vector.reset(0)
    with pytest.raises(EnvError, match=r"step 2: player 'player_1': observation leaves its space Discrete\(3\)"):
        for _ in range(4):
            vector.step(act(vector.spec))


SEEN = [
    (spaces.Box(0, 255, (2, 2), np.uint8), np.full((2, 2), 0.5), r"entry \(0, 0\) is 0\.5"),
    (spaces.Box(0, 255, (2, 2), np.uint8), np.full((2, 2), 300), r"entry \(0, 0\) is 300"),
    (spaces.Box(0, 3, (2, 2), np.uint8), np.full((2, 2), 200, np.uint8), r"entry \(0, 0\) is 200"),
    (spaces.Box(0, 3, (2,), np.int8), np.array([1, 7]), r"entry 1 is 7\.0, expected 0\.0 to 3\.0"),
    (spaces.Box(0, 3, (2,), np.int8), np.array([1, 0.5]), r"entry 1 is 0\.5"),
    (spaces.MultiBinary(2), np.array([1, 7]), r"entry 1 is 7\.0, expected 0\.0 to 1\.0"),
    (spaces.MultiDiscrete([2, 3]), np.array([1, 3]), "entry 1 is 3, expected a whole number from 0 to 2"),
    (spaces.Discrete(3, start=4), 7, "the value is 7, expected a whole number from 4 to 6"),
    (
        spaces.Box(-np.inf, np.inf, (2,)),
        np.array([0, 1e300]),
        "entry 1 is inf as float32, expected a finite number of float32",
    ),
]


class Glimpse(gymnasium.Env):
    """Gives the least observation of its space and, in the last of its three steps, another one."""

    action_space = spaces.Discrete(2)

    def __init__(self, space, wrong):
        self.observation_space, self.wrong = spaces.Dict({"seen": space}), wrong
        self.least = space.start if hasattr(space, "start") else getattr(space, "low", np.zeros(space.shape))
        self.least = np.nan_to_num(self.least, neginf=0)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return {"seen": self.least}, {}

    def step(self, action):
        self.t += 1
        return {"seen": self.wrong if self.t == 3 else self.least}, 0.0, self.t == 3, False, {}


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize(("space", "wrong", "message"), SEEN)
def test_a_value_outside_of_its_space_is_refused_even_if_it_is_the_last(space, wrong, message):
    vector = DummyVectorEnv(resolve(Glimpse, {"space": space, "wrong": wrong}), 2)
    vector.reset(0)
    where = (
        r"environment 0 \(Glimpse\), episode 0 \(seed \d+\), step 3: player 'player_0': observation part 'seen' leaves"
    )
    with pytest.raises(EnvError, match=f"{where} .*{message}"):
        for _ in range(3):
            vector.step(act(vector.spec, 2))


class Lost(Crowd):
    def state(self):
        return np.array([self.t, np.nan if self.t == self.length else 0], np.float32)


def test_a_global_state_that_is_not_finite_is_refused():
    vector = DummyVectorEnv(Lost, 1, with_state=True)
    vector.reset(0)
    with pytest.raises(EnvError, match=r"episode 0 .*step 4: the global state .* holds NaN"):
        for _ in range(4):
            vector.step(act(vector.spec))


def test_dead_players_stale_observations_are_not_checked():
    """Their cells hold what they saw last, or zeros that their space may not contain."""

    class Far(Crowd):
        def observation_space(self, agent):
            box = super().observation_space(agent)
            return gymnasium.spaces.Box(50, 200, box.shape, np.float32)

        def _observations(self, names):
            return {name: seen + 50 for name, seen in super()._observations(names).items()}

    vector = DummyVectorEnv(Far, 3)
    assert len(random_run(vector, 20)) == 21


def test_there_must_be_an_environment():
    with pytest.raises(ConfigError, match="num_envs must be at least 1, got 0"):
        DummyVectorEnv(Crowd, 0)


def test_snapshots_are_copies():
    vector = DummyVectorEnv(Identity, 1)
    first = snapshot(vector.reset(0))
    kept = {name: array.copy() for name, array in first.items()}
    vector.step(act(vector.spec))
    assert same(first, kept)
