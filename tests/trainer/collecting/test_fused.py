"""Fused batch steps equal single batch steps: complete runs, bit for bit.

The short tier has every setting once, with one of the two algorithms, in as few games as can be: each pair of a game
and an algorithm is a program of its own to compile. The long tier has the other algorithm, and a third game.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.envs.native.game import TERMINATED, Game
from marltrain.policies.memory.needs import Needs
from marltrain.trainer.collecting.fused import FusedCollector, can_fuse
from marltrain.trainer.collecting.rollout import SyncCollector
from marltrain.trainer.collecting.stepped import SteppedCollector
from marltrain.trainer.events.callbacks import Callback
from tests.envs.native.toys import Crowd
from tests.tiers import LONG
from tests.trainer.running import dqn, ppo, tables, trainer, weights

SPREAD, ADVERSARY, TAG = (f"marltrain/simple_{name}_v3" for name in ("spread", "adversary", "tag"))
CARTPOLE, PENDULUM = "marltrain/CartPole-v1", "marltrain/Pendulum-v1"
ENVS = 5
SETTINGS: dict[str, Any] = {
    "num_train_envs": ENVS, "update_freq": 73, "test_freq": 15, "episodes_per_test": 3, "steps_per_train": 402,
}  # fmt: skip
"""Nothing divides: an update every 15 batch steps, 81 in all; episodes of 25 steps, or of any length in CartPole."""
PPO, DQN = [ppo, dqn] if LONG else [ppo], [ppo, dqn] if LONG else [dqn]
"""Algorithms of the tests: one in the short tier."""


def mappo(env, **settings):
    """Agents whose critics read the global state."""
    return mt.make_agents("mappo", env, seed=0, network=mt.MLP((4,)), minibatches=2, epochs=1, **settings)


class Looking(Callback):
    """A callback on single steps disables fused steps."""

    def on_step(self, moment):
        pass


class Beginnings(Callback):
    """Records the start of each episode."""

    only_watches: ClassVar[bool] = True

    def __init__(self) -> None:
        self.told: list[tuple[int, int, int, int]] = []

    def on_episode_start(self, moment):
        self.told.append((moment.episodes, moment.env_steps, moment.data["env"], moment.data["episode"]))


class Counting(Callback):
    """Records the number of batch steps of each call."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_collect(self, moment):
        self.steps.append(moment.data["steps"])
        assert moment.env_steps == ENVS * sum(self.steps)


def train(env, agents, mask=None, callbacks=(), exploring=None, rotate=False, **settings):
    """Train; return the trainer and its results: weights, tables, counts, random streams."""
    output = trainer(env, {}, callbacks=callbacks, **{**SETTINGS, **settings})
    learning = [1] * len(agents) if mask is None else mask
    result = output.train(agents, learning, exploring, plot=False, rotate=rotate)
    counts = [result[name] for name in ("num_collected_steps", "num_gradient_steps", "num_updates", "stop_reason")]
    inner = [agent.inner if isinstance(agent, mt.FrozenAgent) else agent for agent in agents]
    infos = [agent.state().info["learner"] if hasattr(agent, "learner_") else {} for agent in inner]
    arrays = weights([agent for agent in inner if hasattr(agent, "learner_")])
    return output, (arrays, infos, tables(result), result["reward_metric_stats"], counts)


def assert_same(one, other):
    """Weights, moments and targets in every bit, and everything else."""
    for mine, theirs in zip(one[0], other[0], strict=True):
        assert mine.keys() == theirs.keys()
        for name, array in mine.items():
            np.testing.assert_array_equal(array, theirs[name], err_msg=name)
    assert one[1:] == other[1:]


def hold(env, make, *, at_once=2.0, **settings):
    """Compare a run with the same run in single steps; `at_once`: least mean number of batch steps per call."""
    counting, begun, begun_singly = Counting(), Beginnings(), Beginnings()
    quick, result = train(env, make(), callbacks=[counting, begun], run_dir="quick", **settings)
    slow, expected = train(env, make(), callbacks=[Looking(), begun_singly], run_dir="slow", **settings)
    assert isinstance(quick.run.collector, FusedCollector)
    assert isinstance(slow.run.collector, SyncCollector)
    assert_same(result, expected)
    assert begun.told == begun_singly.told != []
    assert ENVS * sum(counting.steps) == result[4][0]
    assert sum(counting.steps) >= at_once * len(counting.steps)
    return result


@pytest.mark.parametrize(
    ("env", "make", "at_once"),
    [
        pytest.param(SPREAD, lambda: ppo(SPREAD, {}), 4, id="ppo"),
        pytest.param(SPREAD, lambda: mappo(SPREAD), 4, id="mappo, with global states"),
        pytest.param(SPREAD, lambda: dqn(SPREAD, {}, share=True, identify=True), 4, id="an agent of all players"),
        *LONG * [
            pytest.param(ADVERSARY, lambda: mappo(ADVERSARY), 4, id="mappo in two groups"),
            pytest.param(ADVERSARY, lambda: mappo(ADVERSARY, critic_input="joint"), 4, id="joint observations"),
            pytest.param(SPREAD, lambda: ppo(SPREAD, {}, network=mt.MLP(()), epochs=2), 4, id="no hidden layers"),
            pytest.param(SPREAD, lambda: dqn(SPREAD, {}, capacity=203), 4, id="dqn whose ring wraps"),
            pytest.param(SPREAD, lambda: dqn(SPREAD, {}, capacity=5), 1.0, id="dqn that keeps one batch step"),
            pytest.param(ADVERSARY, lambda: ppo(ADVERSARY, {}), 4, id="ppo in two groups"),
            pytest.param(ADVERSARY, lambda: dqn(ADVERSARY, {}, target_sync=3), 4, id="dqn in two groups"),
            pytest.param(TAG, lambda: dqn(TAG, {}), 4, id="dqn in two groups of other sizes"),
        ],
        pytest.param(SPREAD, lambda: dqn(SPREAD, {}, capacity=90, n_step=3, tau=0.1), 3, id="dqn over 3 steps"),
        pytest.param(CARTPOLE, lambda: ppo(CARTPOLE, {}), 2, id="ppo whose episodes end at any time"),
        pytest.param(PENDULUM, lambda: ppo(PENDULUM, {}, jit_compile=True), 4, id="ppo with continuous actions"),
        pytest.param(
            CARTPOLE, lambda: dqn(CARTPOLE, {}, capacity=151, network=mt.MLP((7, 3), "relu")), 1.5,
            id="dqn whose ring wraps over ends",
        ),
    ],
)  # fmt: skip
def test_fused_run_equals_single_steps(env, make, at_once):
    steps, passes, updates, reason = hold(env, make, at_once=at_once)[4]
    assert (steps, reason) == (405, "steps_per_train")
    assert passes >= updates >= 5


def test_fused_call_ends_when_a_test_is_due_by_env_steps():
    """Batch steps of 5 env steps: multiples of 64 are reached at 65, 130, 195, 260 and 320."""
    often = {"test_freq": None, "test_freq_steps": 64}
    result, (*_, counts) = train(SPREAD, dqn(SPREAD, {}), steps_per_train=330, update_freq=10_000, **often)
    assert isinstance(result.run.collector, FusedCollector)
    assert result.run.history.tests["env_steps"].tolist() == [0, 65, 130, 195, 260, 320, 330]
    hold(SPREAD, lambda: dqn(SPREAD, {}), steps_per_train=330, **often)
    assert counts[0] == 330


@pytest.mark.parametrize("make", PPO)
def test_fused_run_with_tensorflow(make):
    hold(SPREAD, lambda: make(SPREAD, {}, backend="tensorflow"), at_once=3, steps_per_train=201)


class Fading(Game):
    """Of three players, in episodes of nine steps, the second waits in the fourth; the first dies in the seventh."""

    name = "fading_v0"

    def __init__(self) -> None:
        sees = spaces.Box(-99, 99, (2,))
        super().__init__({name: (sees, spaces.Discrete(3)) for name in "abc"}, {"count": int}, limit=9)

    @staticmethod
    def reset(s, rules):
        s.count = 0

    @staticmethod
    def step(s, rules):
        s.count += 1
        for p in range(3):
            if s.turn[p]:
                s.reward[p] = s.action[p] - p
        if s.present[1]:
            s.turn[1] = s.count != 3
        if s.count == 7:
            s.over[0] = TERMINATED

    @staticmethod
    def observe(s, rules, p, obs):
        obs[0], obs[1] = s.count, p


@pytest.mark.parametrize(
    ("game", "at_once", "make"),
    [*((Fading, 1.1, make) for make in (lambda env, _: mappo(env), *PPO)), *((Crowd, 1.0, make) for make in DQN)],
)
def test_fused_run_with_players_that_wait_die_or_join(game, at_once, make):
    hold(game, lambda: make(game, {}), at_once=at_once, steps_per_train=200)


@pytest.mark.parametrize("make", DQN)
def test_fused_run_with_asynchronous_updates(make):
    hold(SPREAD, lambda: make(SPREAD, {}), collect="overlap", steps_per_train=305)


@pytest.mark.parametrize(
    "line_up",
    [
        pytest.param(lambda: [*dqn(SPREAD, {})[:1], *map(mt.FrozenAgent, ppo(SPREAD, {})[1:])], id="another kind"),
        pytest.param(lambda: [*map(mt.FrozenAgent, dqn(SPREAD, {})[:2]), *dqn(SPREAD, {})[2:]], id="one kind"),
        pytest.param(lambda: ppo(SPREAD, {})[:1] * 2 + ppo(SPREAD, {}, seed=3)[:1], id="one agent in two seats"),
        pytest.param(lambda: ppo(SPREAD, {}, share=True), id="one agent in all seats"),
        pytest.param(lambda: [*ppo(SPREAD, {})[:2], *ppo(SPREAD, {}, network=mt.MLP((3,), "relu"))[2:]],
                     id="two networks"),
    ],
)  # fmt: skip
def test_fused_run_with_different_line_ups(line_up):
    frozen = [isinstance(agent, mt.FrozenAgent) for agent in line_up()]
    hold(SPREAD, line_up, at_once=3, mask=[not still for still in frozen], steps_per_train=200)


def test_fused_run_with_a_group_without_records():
    """The adversary is frozen, and alone in its group: its log-probabilities have no column."""
    hold(ADVERSARY, lambda: [mt.FrozenAgent(ppo(ADVERSARY, {})[0]), *ppo(ADVERSARY, {})[1:]], mask=[0, 1, 1])


@pytest.mark.parametrize(
    ("env", "make", "team_reward"),
    [
        (SPREAD, lambda: ppo(SPREAD, {}), "sum"),
        (ADVERSARY, lambda: dqn(ADVERSARY, {}), {"good": ["agent_*"]}),
        *LONG
        * [
            (SPREAD, lambda: mt.make_agents("vdac", SPREAD, seed=0, network=mt.MLP((4,))), "mean"),
            (SPREAD, lambda: mt.make_agents("qmix", SPREAD, seed=0, learning_starts=50), "mean"),
        ],
    ],
)
def test_fused_run_with_team_rewards(env, make, team_reward):
    hold(env, make, at_once=3, team_reward=team_reward, steps_per_train=200)


def test_fused_run_with_shared_memory():
    hold(SPREAD, lambda: dqn(SPREAD, {}, capacity=150), shared_memory=True, steps_per_train=200)


def test_fused_run_with_partial_exploration_and_schedules():
    def make():
        first, *others = dqn(SPREAD, {}, epsilon=mt.linear(1.0, 0.0, 300))
        first.hyper.learning_rate = mt.linear(0.01, 0.0, 350)
        others[0].hyper.epsilon = 0.0
        return [first, *others]

    hold(SPREAD, make, exploring=[1, 0, 1])


@pytest.mark.parametrize("make", DQN)
def test_fused_run_with_changing_masks(make):
    """Another seat learns after every 5 episodes; the first one explores every other time."""

    def alternating():
        output: list[mt.DecentralizedTrainer] = []

        def train_fn(episodes, steps):
            run = output[0]
            run.learning_mask = np.arange(3) == episodes // 5 % 3
            run.exploration_mask = [episodes % 2, 1, 1]

        return output, train_fn

    runs = []
    for callback in (Counting(), Looking()):
        output, train_fn = alternating()
        agents = make(SPREAD, {})
        output.append(trainer(SPREAD, {}, callbacks=[callback], train_fn=train_fn, run_dir=type(callback).__name__,
                            **SETTINGS))  # fmt: skip
        result = output[0].train(agents, [1, 1, 0], plot=False)
        runs.append((weights(agents), [agent.state().info for agent in agents], tables(result)))
    assert_same(*runs)


def test_test_in_a_hook_does_not_change_the_run():
    class Testing(Callback):
        def on_collect(self, moment):
            moment.trainer.test(agents, 1)

    runs = []
    for callbacks in ([], [Testing()]):
        agents = dqn(SPREAD, {})
        runs.append(train(SPREAD, agents, callbacks=callbacks, run_dir=f"run{len(callbacks)}", steps_per_train=100)[1])
    assert_same(*runs)


def test_fused_run_with_two_calls_of_train():
    """The second call continues with the ring buffers and the random streams of the first call."""
    runs = []
    for callback in (Counting(), Looking()):
        agents = dqn(CARTPOLE, {}, capacity=151)
        output: Any = trainer(
            CARTPOLE, {}, callbacks=[callback], **{**SETTINGS, "run_dir": None, "steps_per_train": 302}
        )
        output.train(agents, [1], plot=False)
        if isinstance(callback, Counting):
            callback.steps.clear()
        result = output.train(agents, [1], plot=False)
        ring = output.run.context.streams.rings[0]
        columns = [
            ring.next,
            ring.reward,
            ring.action,
            ring.obs["vector"],
            ring.drawable_count,
            ring.acted,
            ring.learnable,
        ]
        runs.append((weights(agents), tables(result), [column.tolist() for column in columns]))
    assert_same(*runs)


def test_fused_run_with_growing_rings():
    """A reader is added after the first update and never reads a row: 17 slots become 34, 68 and 136."""

    class Holding(Callback):
        reader: Any = None

        def on_update_end(self, moment):
            if self.reader is None:
                self.reader = moment.trainer.run.context.streams.reader([[0]], Needs(on_policy=True))

    runs = []
    for callback in (Counting(), Looking()):
        agents = ppo(SPREAD, {})
        result, left = train(SPREAD, agents, callbacks=[callback, Holding()], run_dir=type(callback).__name__,
                           steps_per_train=702)  # fmt: skip
        assert result.run.context.streams.rings[0].capacity == 136
        runs.append(left)
    assert_same(*runs)


class Steps(Callback):
    only_watches: ClassVar[bool] = True
    kind: Any = None
    most = 0

    def on_collect(self, moment):
        self.most = max(self.most, moment.data["steps"])
        self.kind = type(moment.trainer.run.collector)


class Loud(mt.Agent):
    """A custom agent."""

    def act(self, observation, legal=None, explore=False):
        return 1 if np.ndim(observation) == 1 else np.ones(len(observation), np.int64)


@pytest.mark.parametrize(
    "line_up",
    [
        pytest.param(lambda: dqn(SPREAD, {}, dueling=True), id="dueling"),
        pytest.param(lambda: ppo(SPREAD, {}, network=mt.MLP((4,), "elu")), id="elu"),
        pytest.param(lambda: [*ppo(SPREAD, {})[:2], mt.RandomAgent()], id="at random"),
        pytest.param(lambda: [*dqn(SPREAD, {})[:2], Loud()], id="a user's own"),
        pytest.param(lambda: [*ppo(SPREAD, {})[:2], *dqn(SPREAD, {})[2:]], id="a column that one does not give"),
        pytest.param(lambda: [*ppo(SPREAD, {})[:1], *ppo(SPREAD, {}, network=mt.MLP((3,)))[:1], *ppo(SPREAD, {})[:1]],
                     id="seats that are no slice"),
        pytest.param(lambda: ppo(SPREAD, {}, network=mt.MLP((2,) * 9)), id="ten layers"),
    ],
)  # fmt: skip
def test_unsupported_agents_act_in_python(line_up):
    agents, steps = line_up(), Steps()
    mask = [hasattr(agent, "learner_") for agent in agents]
    _, result = train(SPREAD, agents, mask, callbacks=[steps], steps_per_train=100)
    assert (steps.kind, steps.most) == (SteppedCollector, 15)
    _, expected = train(SPREAD, line_up(), mask, callbacks=[Looking()], steps_per_train=100, run_dir="slow")
    assert_same(result, expected)


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        pytest.param(SPREAD, {"team_reward": np.median}, id="team reward by a function"),
        *LONG * [pytest.param(CARTPOLE, {"vector": "subproc", "num_workers": 2}, id="worker processes")],
    ],
)
def test_callbacks_on_single_steps_disable_fused_steps(env, settings):
    steps = Steps()
    train(env, dqn(env, {}), callbacks=[steps], steps_per_train=100, **settings)
    assert (steps.kind, steps.most) == (SyncCollector, 1)


def test_agents_work_in_other_environments_after_a_fused_run(tmp_path):
    """Trained in the native CartPole, then in Gymnasium's: equal to agents that were saved and loaded in between."""
    runs = []
    for loaded in (False, True):
        agents = ppo(CARTPOLE, {})
        train(CARTPOLE, agents, run_dir=f"first{loaded}", steps_per_train=150)
        if loaded:
            agents = mt.load(tmp_path / f"first{loaded}/last")
        runs.append(train("gymnasium/CartPole-v1", agents, run_dir=f"second{loaded}", steps_per_train=150)[1])
    assert_same(*runs)


def test_too_many_learners_use_single_steps(monkeypatch):
    agents = [ppo(SPREAD, {}, network=mt.MLP((3 + i,)))[i] for i in range(3)]
    result = train(SPREAD, agents, steps_per_train=50)[0]
    sync = result.run.collector.sync
    assert can_fuse(sync)
    monkeypatch.setattr("marltrain.trainer.collecting.fused.MOST", 2)
    assert not can_fuse(sync)
