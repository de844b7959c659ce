"""End of a fused call: updates, tests, checkpoints, interrupts and errors."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import EnvError
from marltrain.envs.native.game import Game
from marltrain.trainer.collecting.fused import FusedCollector
from marltrain.trainer.events.callbacks import Callback
from marltrain.trainer.saving.checkpoint import Checkpoint
from tests.tiers import LONG
from tests.trainer.collecting.test_fused import CARTPOLE, SETTINGS, SPREAD, Counting, Looking, assert_same, mappo, train
from tests.trainer.running import dqn, ppo, tables, trainer, weights


class TestStops:
    """The fused call returns when other work is due."""

    def test_updates_and_tests(self):
        """An update every 15 batch steps, 5 episodes of 25 and a test at 10: 15, 30, 45, 50, ..., in calls of 1, 2, ...

        Acts are drawn ahead. No call ends with the episodes at 25 and 75.
        """
        counting = Counting()
        train(SPREAD, ppo(SPREAD, {}), callbacks=[counting], steps_per_train=500, test_freq=10)
        ends = np.cumsum(counting.steps).tolist()
        assert {15, 30, 45, 50, 60, 75, 90, 100} <= set(ends)
        assert not {25, 26} & set(ends)
        assert max(counting.steps) == 15
        assert ends[-1] == 100

    @pytest.mark.parametrize("watching", [True, False])
    def test_ends_of_episodes_with_a_callback(self, watching):
        class Ends(Callback):
            only_watches = watching

            def __init__(self):
                self.told: list[tuple[int, int, int]] = []

            def on_episode_end(self, moment):
                self.told.append((moment.env_steps, moment.episodes, moment.data["env"]))

        counting, ends = Counting(), Ends()
        train(SPREAD, ppo(SPREAD, {}), callbacks=[counting, ends], steps_per_train=300, test_freq=100)
        assert ({25, 50} <= set(np.cumsum(counting.steps).tolist())) is not watching
        assert ends.told == [(steps, 5 * round + e + 1, e) for round, steps in enumerate((125, 250)) for e in range(5)]

    def test_functions_and_budgets_by_episodes(self):
        """`train_fn` is called after multiples of 5 episodes; training ends with the twelfth."""
        told: list[tuple[int, int]] = []
        result = train(
            CARTPOLE,
            ppo(CARTPOLE, {}),
            steps_per_train=None,
            episodes_per_train=12,
            train_fn=lambda episodes, steps: told.append((episodes, steps)),
        )[1]
        expected: list[tuple[int, int]] = []
        singly = train(
            CARTPOLE,
            ppo(CARTPOLE, {}),
            steps_per_train=None,
            episodes_per_train=12,
            callbacks=[Looking()],
            train_fn=lambda episodes, steps: expected.append((episodes, steps)),
            run_dir="singly",
        )[1]
        assert told == expected
        assert result[4] == singly[4]
        assert result[4][3] == "episodes_per_train"

    def test_end_of_a_budget(self):
        counting = Counting()
        train(SPREAD, dqn(SPREAD, {}), callbacks=[counting], steps_per_train=33, update_freq=1000)
        assert sum(counting.steps) == 7

    def test_stop_by_a_callback(self):
        class Stopping(Callback):
            def on_collect(self, moment):
                if moment.env_steps >= 100:
                    moment.stop("enough")

        counting = Counting()
        result = train(SPREAD, dqn(SPREAD, {}), callbacks=[counting, Stopping()])[1]
        assert result[4][3] == "enough"
        assert 20 <= sum(counting.steps) < 40

    def test_interrupt_and_exact_resume(self):
        class Interrupting(Callback):
            def on_collect(self, moment):
                if moment.env_steps >= 200 and not moment.trainer.run.interrupts.asked:
                    os.kill(os.getpid(), signal.SIGINT)

        callbacks = [Interrupting(), Checkpoint(every_steps=10_000)]
        _, stopped = train(SPREAD, ppo(SPREAD, {}), callbacks=callbacks)
        assert stopped[4][3] == "interrupted"
        again = ppo(SPREAD, {})
        output = trainer(SPREAD, {}, **{**SETTINGS, "run_dir": None})
        result = output.train(again, [1, 1, 1], plot=False, resume="run")
        _, whole = train(SPREAD, agents := ppo(SPREAD, {}), run_dir="whole")
        assert_same((weights(again), tables(result)), (weights(agents), whole[2]))


def recurrent():
    network = mt.GRU((6,), units=7, sequence_length=4)
    return mt.make_agents("ppo", CARTPOLE, seed=0, jit_compile=True, network=network, minibatches=2, epochs=1)


@pytest.mark.parametrize(("env", "make"), [(SPREAD, lambda: mappo(SPREAD)), (CARTPOLE, recurrent)])
def test_calls_go_on_over_ends_of_episodes(env, make):
    """With global states and with carries: in 15 calls at most, where ends of episodes would make 19 and more."""
    counting = Counting()
    train(env, make(), callbacks=[counting])
    assert sum(counting.steps) == 81
    assert len(counting.steps) <= 15


def on_policy():
    return ppo(SPREAD, {})


def off_policy():
    """The ring wraps."""
    return dqn(CARTPOLE, {}, capacity=151)


@pytest.mark.parametrize(
    ("env", "make", "collect"),
    [
        (SPREAD, on_policy, "serial"), (CARTPOLE, off_policy, "overlap"),
        *([(SPREAD, on_policy, "overlap"), (CARTPOLE, off_policy, "serial")] if LONG else []),
    ],
)  # fmt: skip
def test_resume_in_the_middle_of_an_episode(env, make, collect, tmp_path):
    """A checkpoint every 83 env steps: at 85, 170, 250, ..., where a fused call ends."""
    callbacks = [Checkpoint(every_steps=83, keep=9)]
    train(env, make(), callbacks=callbacks, collect=collect)
    assert (tmp_path / "run/checkpoints").is_dir()
    written = sorted(int(path.name) for path in (tmp_path / "run/checkpoints").iterdir())
    assert written == [85, 170, 250, 335, 405]
    agents, again = make(), make()
    output: Any = trainer(env, {}, **{**SETTINGS, "collect": collect, "run_dir": None})
    result = output.train(again, [1] * len(again), plot=False, resume="run/checkpoints/170")
    assert isinstance(output.run.collector, FusedCollector)
    _, whole = train(env, agents, collect=collect, run_dir="whole")
    assert_same((weights(again), tables(result)), (weights(agents), whole[2]))


class Trap(Game):
    """Two players observe the step number, of nine; after four steps of the second episode, one has no legal move."""

    name = "trap_v0"

    def __init__(self) -> None:
        mask = spaces.Box(0, 1, (3,), np.int8)
        sees = spaces.Dict({"observation": spaces.Box(-99, 99, (1,)), "action_mask": mask})
        super().__init__({"a": (sees, spaces.Discrete(3)), "b": (sees, spaces.Discrete(3))}, {"doors": int}, limit=9)

    @staticmethod
    def reset(s, rules):
        s.doors = 0

    @staticmethod
    def step(s, rules):
        s.doors += 1

    @staticmethod
    def observe(s, rules, p, obs):
        obs[0] = s.doors

    @staticmethod
    def legal(s, rules, p, mask):
        for i in range(3):
            mask[i] = (i + s.doors) % 3 > 0 and (p == 0 or s.episode == 0 or s.doors < 4)


@pytest.mark.parametrize("make", [ppo, dqn])
def test_illegal_action_raises_the_same_error_and_keeps_the_rings_valid(make):
    """Batch step 14 fails, within a call: noise of 8 acts was drawn with the eighth, and the episode ended at 9."""
    data, rings = [], []
    for callback in (Counting(), Looking()):
        agents = make(Trap, {})
        few = {"num_test_envs": 1, "episodes_per_test": 1, "run_dir": type(callback).__name__}
        result: Any = trainer(Trap, {}, callbacks=[callback], **{**SETTINGS, **few})
        with pytest.raises(EnvError, match=r"^environment 0 .*, episode 1 .*, step 4: .*'b'") as raised:
            result.train(agents, [1, 1], plot=False)
        data.append((str(raised.value), agents[0].state().info["learner"]["rngs"]))
        assert not result.run.context.streams.torn
        if isinstance(callback, Counting):
            assert sum(callback.steps) < 13
        ring = result.run.context.streams.rings[0]
        rings.append((ring.now, ring.coming, ring.drawable_count.tolist(), ring.next.tolist(), ring.action.tolist()))
    assert data[0] == data[1]
    assert rings[0] == rings[1]


def test_streams_are_not_reused_after_an_interrupt_in_a_call(monkeypatch):
    """A second Ctrl-C arrives between the compiled call and the update of the counters."""
    agents = ppo(SPREAD, {})
    result: Any = trainer(SPREAD, {}, **{**SETTINGS, "run_dir": None})

    def interrupted(self, *_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("marltrain.policies.memory.ring.Ring.advanced", interrupted)
        result.train(agents, [1, 1, 1], plot=False)
    before = result.run.context.streams
    assert before.torn
    result.train(agents, [1, 1, 1], plot=False)
    assert result.run.context.streams is not before
