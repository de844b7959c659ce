"""Workers that hang, are killed or end: what it costs, and what goes on."""

import multiprocessing
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marltrain.core.errors import ConfigError, EnvError, WorkerError
from marltrain.core.seeds import child_seed
from marltrain.envs import SubprocVectorEnv, make_vector
from marltrain.envs.workers import pool, processes
from marltrain.processes.children import PATIENCE
from tests.envs.driving import act, random_run, same
from tests.faulty_toys import Broken, Flaky
from tests.toys import Identity

SURVIVING: dict[str, Any] = {"vector": "subproc", "num_workers": 2, "on_fault": "restart", "max_env_restarts": 50}
KINDS = {"kill": "died", "exit": "died", "hang": "timeout"}


def run_of(broken: list[list[int]], fault_every: int = 5) -> int:
    """A run's seed with which, of the first two episodes, exactly these are broken: [environment, episode]."""

    def found(run: int) -> list[list[int]]:
        return [
            [e, k] for e in range(4) for k in (0, 1) if child_seed(run, "episode", "train", e, k) % fault_every == 0
        ]

    return next(run for run in range(100_000) if found(run) == broken)


@pytest.mark.parametrize("fault", KINDS)
def test_a_worker_that_is_lost_in_a_step_costs_its_own_environments_running_episodes(fault):
    """Environment 2, of worker 1, breaks in step 3 of its first episode."""
    run = run_of([[2, 0]])
    with make_vector(Flaky, {"fault": fault, "at": 3, "every": 5}, 4, env_timeout=2.0, **SURVIVING) as vector:
        assert isinstance(vector, SubprocVectorEnv)
        first = [process.pid for process in vector._pool._processes]
        vector.reset(run)
        for _ in range(2):
            vector.step(act(vector.spec, 4))
        step = vector.step(act(vector.spec, 4))
        (data,) = vector.faults
        seed = child_seed(run, "episode", "train", 2, 0)
        assert data[:5] == (KINDS[fault], 2, 0, seed, 3) and data.cut == (2, 3)
        assert data.message.startswith(f"environment 2 (Flaky), episode 0 (seed {seed}), step 3: worker 1, which held ")
        assert step.ended.tolist() == [False, False, True, True]
        assert step.episode.tolist() == [0, 0, 1, 1]
        assert step.reward.tolist() == [[1, 1, 0, 0]] * 2
        assert not step.truncated.any() and not step.terminated.any() and step.turn[0].all()
        obs = step.obs[0]
        assert isinstance(obs, np.ndarray) and np.allclose(obs[0, :, 0], [0.3, 0.3, 0, 0])
        second = [process.pid for process in vector._pool._processes]
        assert second[0] == first[0] and second[1] != first[1]
        step = vector.step(act(vector.spec, 4))  # all play on
        assert not vector.faults and not step.ended.any() and (step.reward == 1).all()
        assert not os.path.exists(f"/proc/{first[1]}")


def test_a_worker_that_is_lost_in_a_reset_begins_with_the_next_episodes():
    run = run_of([[0, 0]])
    with make_vector(Flaky, {"fault": "kill", "at": 0, "every": 5}, 4, **SURVIVING) as vector:
        for _ in range(2):
            step = vector.reset(run)
            (data,) = vector.faults
            assert data[:5] == ("died", 0, 0, child_seed(run, "episode", "train", 0, 0), 0) and data.cut == ()
            assert step.episode.tolist() == [1, 1, 0, 0] and not step.ended.any() and step.turn[0].all()
            for _ in range(9):
                vector.step(act(vector.spec, 4))


def test_in_the_place_of_a_lost_worker_no_environment_is_new_to_its_code():
    """By default an exception in an environment's first episode is an error, but these have begun one already."""
    run = run_of([[1, 1]])
    with make_vector(Flaky, {"every": 5}, 2, **{**SURVIVING, "on_fault": None}) as vector:
        assert isinstance(vector, SubprocVectorEnv)
        vector.reset(run)
        os.kill(vector._pool._processes[1].pid, signal.SIGKILL)
        for t in range(4):
            vector.step(act(vector.spec, 2))
            assert [fault.kind for fault in vector.faults] == {0: ["died"], 3: ["exception"]}.get(t, [])


def test_a_worker_that_is_lost_when_an_episode_ends_costs_that_one_too():
    """Environment 0 ends its first episode, and its second one kills the worker when it begins."""
    run = run_of([[0, 1]])
    with make_vector(Flaky, {"fault": "kill", "at": 0, "every": 5}, 4, **SURVIVING) as vector:
        vector.reset(run)
        for _ in range(9):
            vector.step(act(vector.spec, 4))
        step = vector.step(act(vector.spec, 4))
        (data,) = vector.faults
        assert data[:3] == ("died", 0, 1) and data.cut == (0, 1)
        assert step.episode.tolist() == [2, 1, 1, 1] and step.ended.all()
        assert step.truncated.tolist() == [[False, False, True, True]] * 2


def test_the_other_environments_play_as_if_nothing_had_happened():
    with make_vector(Flaky, {"fault": "kill", "every": 9}, 4, **SURVIVING) as vector:
        run = random_run(vector, 40, seed=next(run for run in range(9999) if _only_in_last(run)))
    with make_vector(Flaky, {"fault": ""}, 4) as whole:
        expected = random_run(whole, 40, seed=next(run for run in range(9999) if _only_in_last(run)))
    assert not all(same(a, b) for a, b in zip(expected, run, strict=True))
    for name in ("reward", "truncated", "turn", "obs"):
        for a, b in zip(expected, run, strict=True):
            assert np.array_equal(a[f"{name} 0 0"][:, :2], b[f"{name} 0 0"][:, :2])


def _only_in_last(run: int) -> bool:
    broken = [e for e in range(4) for k in range(4) if child_seed(run, "episode", "train", e, k) % 9 == 0]
    return broken == [3] and child_seed(run, "episode", "train", 3, 3) % 9 > 0


def test_a_worker_killed_between_steps_is_replaced_at_the_next():
    with make_vector(Identity, None, 4, **SURVIVING) as vector:
        assert isinstance(vector, SubprocVectorEnv)
        vector.reset(0)
        vector.step(act(vector.spec, 4))
        os.kill(vector._pool._processes[1].pid, signal.SIGKILL)
        step = vector.step(act(vector.spec, 4))
        (data,) = vector.faults
        assert data[:5] == ("died", -1, -1, -1, -1) and data.cut == (2, 3)
        assert data.message == "worker 1, which held environments 2 to 3 (Identity), was killed by signal 9 (SIGKILL)"
        assert step.episode.tolist() == [0, 0, 1, 1]


def test_both_workers_may_be_lost_at_once():
    with make_vector(Identity, None, 4, **SURVIVING) as vector:
        assert isinstance(vector, SubprocVectorEnv)
        vector.reset(0)
        for process in vector._pool._processes:
            os.kill(process.pid, signal.SIGKILL)
        step = vector.step(act(vector.spec, 4))
        assert [fault.cut for fault in vector.faults] == [(0, 1), (2, 3)]
        assert step.ended.all() and step.episode.tolist() == [1] * 4


def test_too_many_lost_workers_stop_with_the_whole_story():
    settings = {**SURVIVING, "max_env_restarts": 2}
    with make_vector(Flaky, {"fault": "exit", "at": 1, "every": 1}, 2, **settings) as vector:
        vector.reset(0)
        vector.step(act(vector.spec, 2))
        assert [fault.env for fault in vector.faults] == [0, 1]
        with pytest.raises(EnvError, match=r"4 faults within") as raised:
            vector.step(act(vector.spec, 2))
        assert str(raised.value).count("ended with exit code 7") == 4


def test_a_worker_that_never_gets_up_again_stops_with_the_whole_story():
    settings = {**SURVIVING, "max_env_restarts": 2}
    with make_vector(Flaky, {"fault": "kill", "at": 0, "every": 1}, 2, **settings) as vector:
        with pytest.raises(EnvError, match=r"faults within") as raised:
            vector.reset(0)
        assert str(raised.value).count("killed by signal 9") == 6  # three of each worker
        assert "environment 1 (Flaky), episode 2 " in str(raised.value)


class Fragile(Identity):
    """Cannot be built where a file says so."""

    def __init__(self, file: str) -> None:
        super().__init__()
        if Path(file).exists():
            raise OSError("no such screen")


def test_a_worker_whose_environments_cannot_be_built_again_is_told(tmp_path):
    settings = {**SURVIVING, "max_env_restarts": 1}
    with make_vector(Fragile, {"file": str(tmp_path / "broken")}, 2, env_timeout=5.0, **settings) as vector:
        assert isinstance(vector, SubprocVectorEnv)
        vector.reset(0)
        (tmp_path / "broken").touch()
        os.kill(vector._pool._processes[0].pid, signal.SIGKILL)
        with pytest.raises(EnvError, match=r"2 faults .*\n.*killed by signal 9") as raised:
            vector.step(act(vector.spec, 2))
        why = "cannot be started again: environment 0 (Fragile) cannot be built: OSError: no such screen"
        assert why in str(raised.value)


def test_workers_that_do_not_end_share_one_wait(monkeypatch):
    """Three processes outlive their closed pipes: together they get PATIENCE seconds of a clock that joining moves."""
    now = [100.0]
    monkeypatch.setattr("marltrain.envs.workers.processes.time.monotonic", lambda: now[0])

    class Sleeping:
        killed = False

        def join(self, timeout=0.0):
            now[0] += timeout

        def is_alive(self):
            return not self.killed

        def kill(self):
            self.killed = True

        def close(self):
            assert self.killed

    sleeping = [Sleeping() for _ in range(3)]
    processes._finish(sleeping, [])
    assert now[0] == 100.0 + PATIENCE and sleeping == []


class Unbuilt(Identity):
    """Cannot be built in a worker: its constructor hangs there."""

    def __init__(self):
        super().__init__()
        if multiprocessing.parent_process() is not None:
            threading.Event().wait()


def test_a_worker_that_hangs_while_it_builds_is_an_error(monkeypatch):
    monkeypatch.setattr(pool, "STARTING", 0.25)
    text = r"environments 0 to 2 \(Unbuilt\), did not build them within 0.5 s \(env_timeout, and 0.25 s to start\)"
    with pytest.raises(WorkerError, match=text):
        make_vector(Unbuilt, None, 3, vector="subproc", num_workers=1, env_timeout=0.25)


@pytest.mark.parametrize("free", [0, 2])
def test_too_many_open_files_are_an_error_with_a_remedy(free):
    """As many files are open as may be, but for some; a worker takes three.

    The fork server may have to be started first, which reads a file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 8, hard))
    held: list[int] = []
    try:
        with pytest.raises(OSError):
            while True:
                held.append(os.dup(0))
        for _ in range(free):
            os.close(held.pop())
        with pytest.raises(WorkerError, match=r"Too many open files.*\. Use fewer workers .* \(ulimit -n\)"):
            make_vector(Identity, None, 5, vector="subproc", num_workers=5)
    finally:
        for file in held:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def forked(work: Callable[[], Any]) -> Any:
    """Return what `work` returns in a process that this one forks."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as pool:
        return pool.submit(work).result()


def first_rewards() -> list[float]:
    with make_vector(Identity, None, 3, vector="subproc", num_workers=1) as vector:
        vector.reset(5)
        return list(vector.step(act(vector.spec, 3)).reward[:, 2].tolist())


def test_a_forked_process_has_workers_of_its_own():
    assert first_rewards() == forked(first_rewards)


def test_a_forked_process_leaves_its_parents_workers_alone():
    with make_vector(Identity, None, 3, vector="subproc", num_workers=1) as vector:
        vector.reset(0)
        vector.step(act(vector.spec, 3))
        child = os.fork()
        if not child:
            vector.close()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        vector.step(act(vector.spec, 3))


def test_a_daemonic_process_is_told_that_it_may_start_none():
    with (
        multiprocessing.get_context("fork").Pool(1) as pool,
        pytest.raises(ConfigError, match='use vector="dummy", or'),
    ):
        pool.apply(first_rewards)


@pytest.mark.parametrize("fault", ["hang", "kill"])
def test_a_lost_worker_is_an_error_where_faults_are(fault):
    vector = make_vector(Broken, {"fault": fault}, 4, vector="subproc", num_workers=2, env_timeout=2.0)
    assert isinstance(vector, SubprocVectorEnv)
    pids = [process.pid for process in vector._pool._processes]
    vector.reset(0)
    data = {"hang": r"did not answer within 2 s \(env_timeout\)", "kill": "killed by signal 9"}[fault]
    with pytest.raises(WorkerError, match=rf"worker \d, which held environments . to . \(Broken\), .*{data}"):
        for _ in range(3):
            vector.step(act(vector.spec, 4))
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_the_limit_is_of_one_step():
    """Two environments of 0.3 s in one worker: each step takes 0.6 s, five steps exceed the limit of 2.5 s."""
    with make_vector(Slow, None, 2, env_timeout=2.5, **{**SURVIVING, "num_workers": 1}) as vector:
        vector.reset(0)
        for _ in range(5):
            vector.step(act(vector.spec, 2))
            assert not vector.faults


class Slow(Identity):
    def step(self, actions):
        time.sleep(0.3)
        return super().step(actions)


def test_the_workers_step_at_the_same_time(tmp_path):
    """An environment ends its step when the environment of the other worker has begun its own."""
    with make_vector(Meeting, {"folder": str(tmp_path)}, 2, vector="subproc", num_workers=2) as vector:
        vector.reset(0)
        vector.step(act(vector.spec, 2))
    assert len(list(tmp_path.iterdir())) == 2


class Meeting(Identity):
    """Waits in each step until two processes have left a file in a folder."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = Path(folder)

    def step(self, actions):
        (self.folder / str(os.getpid())).touch()
        while len(list(self.folder.iterdir())) < 2:
            time.sleep(0.01)
        return super().step(actions)


# Snapshots
