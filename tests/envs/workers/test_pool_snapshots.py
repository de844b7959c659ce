"""Snapshots of worker processes: taken and restored while workers are lost."""

import os
import signal
import time

import numpy as np

from marltrain.core.seeds import child_seed
from marltrain.envs import SubprocVectorEnv, make_vector
from tests.envs.driving import act, same, snapshot
from tests.envs.workers.test_pool import SURVIVING, Slow, run_of
from tests.faulty_toys import Flaky
from tests.toys import Identity


def test_a_snapshot_is_taken_although_a_worker_is_gone(tmp_path):
    with make_vector(Identity, None, 4, recording=True, **SURVIVING) as vector:
        assert isinstance(vector, SubprocVectorEnv)
        vector.reset(0)
        for _ in range(3):
            kept = snapshot(vector.step(act(vector.spec, 4)))
        os.kill(vector._pool._processes[0].pid, signal.SIGKILL)
        saved = vector.state()
        vector.step(act(vector.spec, 4))
        assert [fault.cut for fault in vector.faults] == [(0, 1)]
    with make_vector(Identity, None, 4, recording=True) as again:
        step, lost = again.restore(saved)
        assert [e for e, _ in lost] == [0, 1] and "is shown another observation" in lost[0][1]
        obs = step.obs[0]
        assert isinstance(obs, np.ndarray) and np.array_equal(obs[:, 2:], kept["obs 0 0"][:, 2:])
        assert step.ended.tolist() == [True, True, False, False]


def test_a_snapshot_after_a_loss_leads_to_where_all_are():
    with make_vector(Identity, None, 4, recording=True, **SURVIVING) as vector:
        assert isinstance(vector, SubprocVectorEnv)
        vector.reset(0)
        for t in range(17):
            if t == 4:
                os.kill(vector._pool._processes[0].pid, signal.SIGKILL)
            kept = snapshot(vector.step(act(vector.spec, 4)))
        saved = vector.state()
        after = snapshot(vector.step(act(vector.spec, 4)))
    with make_vector(Identity, None, 4, recording=True, on_fault="restart") as again:
        step, lost = again.restore(saved)
        assert not lost and same(snapshot(step), kept)
        assert same(snapshot(again.step(act(again.spec, 4))), after)
        assert again.state()["faults"].tobytes().count(b"killed by signal 9") == 1


def test_playing_again_may_take_as_long_as_playing_did():
    """Three steps of two environments of 0.3 s each take 1.8 s; four orders may take 4 x 1.5 s."""
    with make_vector(Identity, None, 2, recording=True) as vector:
        vector.reset(0)
        for _ in range(3):
            vector.step(act(vector.spec, 2))
        saved = vector.state()
    with make_vector(Slow, None, 2, recording=True, env_timeout=1.5, **{**SURVIVING, "num_workers": 1}) as again:
        _, lost = again.restore(saved)
        assert not lost and not again.faults


def test_a_worker_that_is_lost_while_episodes_are_played_again_begins_the_next_ones():
    with make_vector(Sleeper, None, 4, recording=True) as vector:
        vector.reset(0)
        for _ in range(3):
            kept = snapshot(vector.step(act(vector.spec, 4)))
        saved = vector.state()
    with make_vector(Sleeper, {"asleep_in": child_seed(0, "episode", "train", 3, 0)}, 4, recording=True,
                     env_timeout=1.0, **SURVIVING) as again:  # fmt: skip
        step, lost = again.restore(saved)
        assert [e for e, _ in lost] == [2, 3] and "did not answer within" in lost[0][1]
        (data,) = again.faults
        assert data[:3] == ("timeout", 3, 0) and data.cut == ()
        assert step.ended.tolist() == [False, False, True, True] and step.episode.tolist() == [0, 0, 1, 1]
        obs = step.obs[0]
        assert isinstance(obs, np.ndarray) and np.array_equal(obs[:, :2], kept["obs 0 0"][:, :2])
        again.step(act(again.spec, 4))


class Sleeper(Identity):
    """Hangs in the second step of the episode with one seed."""

    def __init__(self, asleep_in: int = -1) -> None:
        super().__init__()
        self.asleep_in, self.seed = asleep_in, 0

    def reset(self, seed=None, options=None):
        self.seed, self.played = seed, 0
        return super().reset(seed=seed)

    def step(self, actions):
        self.played += 1
        if self.seed == self.asleep_in and self.played == 2:
            time.sleep(60)
        return super().step(actions)


def test_code_that_has_worked_before_the_snapshot_is_proven():
    run = run_of([[1, 1]])
    with make_vector(Flaky, {"every": 5}, 2, recording=True) as vector:
        vector.reset(run)
        for _ in range(12):
            vector.step(act(vector.spec, 2))
        saved = vector.state()
    with make_vector(Flaky, {"every": 5}, 2, recording=True, on_fault=None) as again:
        again.restore(saved)
        again.step(act(again.spec, 2))
        assert [fault.cut for fault in again.faults] == [(1,)]


class Counted(Flaky):
    built = 0

    def __init__(self, **arguments) -> None:
        super().__init__(**arguments)
        Counted.built += 1


def test_an_episode_that_raises_when_it_is_played_again_begins_anew_in_a_new_object():
    with make_vector(Flaky, {"fault": ""}, 2, recording=True) as vector:
        vector.reset(run_of([[1, 0]]))
        for _ in range(4):
            vector.step(act(vector.spec, 2))
        saved = vector.state()
    with make_vector(Counted, {"fault": "raise", "every": 5}, 2, recording=True, on_fault="restart") as again:
        before = Counted.built
        step, lost = again.restore(saved)
        assert Counted.built == before + 1
        ((e, what),) = lost
        assert e == 1 and "played again, it raised ZeroDivisionError" in what
        assert step.episode.tolist() == [0, 0] and step.ended.tolist() == [False, True]
        for t in range(3):
            again.step(act(again.spec, 2))
            assert [fault.cut for fault in again.faults] == ([(1,)] if t == 2 else [])
    with make_vector(Flaky, {"fault": "raise", "at": 0, "every": 5}, 2, recording=True, on_fault="restart") as again:
        step, lost = again.restore(saved)
        assert [e for e, _ in lost] == [1] and [f.step for f in again.faults] == [0]
        assert step.episode.tolist() == [0, 1]
