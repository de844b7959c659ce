"""Global states at the end of an episode: needed after a truncation, and by nobody after a termination."""

from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import Env, spaces
from gymnasium.wrappers import TimeLimit
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseWrapper
from pettingzoo.utils.conversions import parallel_to_aec

import marltrain as mt
from marltrain.core.errors import EnvError
from marltrain.envs import DummyVectorEnv, make_vector
from tests.envs.driving import act, random_run, same

SEEN, ACTS = spaces.Box(0, 9, (1,), np.float32), spaces.Discrete(2)


class Bodies(ParallelEnv):
    """Players a and b for three steps; the state after step t is [t, 10 * t]. Player a is truncated where `cuts_a`.

    broken: what `state` does after the end: "raises", "NaN", "none", "short"; "" for [3, 30].
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "bodies", "is_parallelizable": True}
    render_mode = None

    def __init__(self, broken="", cuts_a=False):
        self.broken, self.cuts_a, self.possible_agents, self.asked = broken, cuts_a, ["a", "b"], 0

    def observation_space(self, agent):
        return SEEN

    def action_space(self, agent):
        return ACTS

    def reset(self, seed=None, options=None):
        self.t, self.agents = 0, ["a", "b"]
        return self._each(np.zeros(1, np.float32)), {"a": {}, "b": {}}

    def step(self, actions):
        self.t += 1
        over = self.t == 3
        self.agents = [] if over else ["a", "b"]
        cut = {"a": over and self.cuts_a, "b": False}
        ended = {"a": over and not self.cuts_a, "b": over}
        return self._each(np.full(1, self.t, np.float32)), self._each(1.0), ended, cut, {"a": {}, "b": {}}

    def state(self):
        self.asked += 1
        usual = np.array([self.t, 10 * self.t], np.float32)
        if self.t < 3 or not self.broken:
            return usual
        if self.broken == "raises":
            raise IndexError("no bodies")
        return {"NaN": usual * np.nan, "none": None, "short": usual[:1]}[self.broken]

    def _each(self, value):
        return dict.fromkeys(["a", "b"], value)


class OwnLast(BaseWrapper):
    def last(self, observe=True):
        return super().last(observe)


INTERFACES = {
    "parallel": (lambda **how: Bodies(**how), 1),
    "turns": (lambda **how: parallel_to_aec(Bodies(**how)), 2),
    "last": (lambda **how: OwnLast(parallel_to_aec(Bodies(**how))), 2),
}


def final_states(interface, **how):
    make, moves = INTERFACES[interface]
    vector = DummyVectorEnv(lambda: make(**how), 1, with_state=True)
    vector.reset(0)
    for _ in range(3 * moves):
        step = vector.step(act(vector.spec))
    assert step.ended[0] and step.final_state is not None and step.state is not None
    assert step.state[0].tolist() == [0, 0]
    return step.final_state[0].tolist()


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("broken", ["raises", "NaN", "none", "short"])
def test_a_termination_needs_no_state(interface, broken):
    assert final_states(interface, broken=broken) == [0, 0]


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("cuts_a", [False, True])
def test_a_state_that_is_there_is_kept(interface, cuts_a):
    assert final_states(interface, cuts_a=cuts_a) == [3, 30]


@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("raises", "cannot be computed at the end of a truncated episode, .*: IndexError"),
        ("NaN", "holds NaN or an infinity"),
        ("none", "has dtype object, expected an array of real numbers"),
        ("short", "has 1 values, and had 2 at the start"),
    ],
)
def test_a_truncation_of_one_player_needs_it(interface, broken, said):
    with pytest.raises(EnvError, match=f"the global state .*{said}"):
        final_states(interface, broken=broken, cuts_a=True)


class Lone(Env[Any, Any]):
    """One player, whose episode ends after three steps, and whose state raises then."""

    observation_space, action_space = SEEN, ACTS

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t == 3, False, {}

    def state(self):
        return np.array([[5], [6], [7]][self.t])


def test_of_one_player():
    vector = DummyVectorEnv(Lone, 1, with_state=True)
    vector.reset(0)
    step = [vector.step(act(vector.spec)) for _ in range(3)][-1]
    assert step.final_state is not None and step.ended[0] and step.final_state.tolist() == [[0]]
    cut = DummyVectorEnv(lambda: TimeLimit(Lone(), 2), 1, with_state=True)
    cut.reset(0)
    step = [cut.step(act(cut.spec)) for _ in range(2)][-1]
    assert step.final_state is not None and step.ended[0] and step.final_state.tolist() == [[7]]


def test_workers_write_the_same():
    def make():
        return Bodies("raises")

    local = make_vector(make, None, 3, with_state=True)
    with make_vector(make, None, 3, vector="subproc", num_workers=2, with_state=True) as workers:
        assert all(same(*pair) for pair in zip(random_run(local, 7), random_run(workers, 7), strict=True))


def test_agents_that_read_no_state_do_not_compute_it():
    result: list[Bodies] = []

    def make():
        result.append(Bodies())
        return result[-1]

    for algorithm, asked in (("ppo", False), ("mappo", True)):
        result.clear()
        agents = mt.make_agents(algorithm, make, seed=0, network=mt.MLP((4,)), epochs=1)
        trainer = mt.DecentralizedTrainer(
            make, num_train_envs=2, update_freq=16, steps_per_train=16, test_freq=None, seed=0, progress=False,
            run_dir=False,
        )  # fmt: skip
        trainer.train(agents, [1, 1], plot=False)
        assert any(env.asked for env in result) == asked, algorithm


@pytest.mark.parametrize("algorithm", ["mappo", "qmix", "coma"])
def test_a_state_out_of_proportion_is_refused_before_its_memory_is_taken(algorithm):
    class Picture(Bodies):
        def state(self):
            return np.zeros((300, 300, 3), np.uint8)

    said = (
        r"the global state \(env.state\(\)\) of 270,000 values takes 1.1 MB as float32 for each env step .* at most "
        r'262,144 values are accepted: make agents that read the joined observations instead \(critic_input="joint"'
    )
    with pytest.raises(mt.ConfigError, match=said):
        mt.make_agents(algorithm, Picture, seed=0)
    joined = {"qmix": {"mixer_input": "joint"}}.get(algorithm, {"critic_input": "joint"})
    for made_by in ((algorithm, joined), "ppo"):
        assert len(mt.make_agents(made_by, Picture, seed=0, network=mt.MLP((4,)))) == 2
    report = mt.check_env(Picture, strict=False)
    assert report.ok and "the global state has 270,000 values" in str(report)


def test_joined_observations_out_of_proportion_are_refused():
    class Wide(Bodies):
        def observation_space(self, agent):
            return spaces.Box(0, 9, (400, 400), np.float32)

        def _each(self, value):
            return super()._each(np.zeros((400, 400), np.float32) if isinstance(value, np.ndarray) else value)

    with pytest.raises(mt.ConfigError, match=r"the joined observations of all players, a global state, of 320,002 val"):
        mt.make_agents("mappo", Wide, seed=0, critic_input="joint")
