"""Worker processes: the same episodes as in one process, and every way in which a worker can fail."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from marltrain.core.errors import ConfigError, EnvError, WorkerError
from marltrain.envs import DummyVectorEnv, SubprocVectorEnv, VectorEnv, make_vector, resolve
from tests.envs.driving import act, random_run, same
from tests.faulty_toys import Broken
from tests.gymnasium_toys import Film
from tests.tiers import rounds
from tests.toys import Crowd, Identity, Motley, Relay


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and was not yet waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pids, seconds=60.0) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(alive, pids))


GAMES = [
    ("mpe2/simple_tag_v3", {"max_cycles": 7}, rounds(40, 300)),
    ("gymnasium/CartPole-v1", {}, rounds(150, 300)),
    (Relay, {}, 300),
    (Crowd, {}, 300),
    (Motley, {}, 100),
]


@pytest.mark.parametrize(("env", "env_args", "steps"), GAMES)
def test_subproc_equals_dummy_bit_for_bit_with_1_2_and_3_workers(env, env_args, steps):
    with make_vector(env, env_args, 5, with_state=True) as dummy:
        expected = random_run(dummy, steps, seed=3)
    for workers in (1, 2, 3):
        with make_vector(env, env_args, 5, vector="subproc", num_workers=workers, with_state=True) as subproc:
            run = random_run(subproc, steps, seed=3)
        assert all(same(a, b) for a, b in zip(expected, run, strict=True))


def test_environments_do_not_depend_on_how_many_there_are():
    few, many = DummyVectorEnv(Identity, 2), DummyVectorEnv(Identity, 5)
    a, b = few.reset(4), many.reset(4)
    for _ in range(25):
        for one, other in zip(a.obs, b.obs, strict=True):
            assert isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and np.array_equal(one, other[:, :2])
        a, b = few.step(act(few.spec, 2)), many.step(act(many.spec, 5))


def test_workers_are_even_and_as_many_as_asked():
    with SubprocVectorEnv(Film, 5, num_workers=3) as vector:
        assert [(task.low, task.high) for task in vector._pool._tasks] == [(0, 1), (1, 3), (3, 5)]


def faulty(fault: str, at: int = 3, **rest) -> SubprocVectorEnv:
    return SubprocVectorEnv(resolve(Broken, {"fault": fault, "at": at, **rest}), 4, num_workers=2)


def run_until_it_fails(vector: VectorEnv) -> None:
    vector.reset(0)
    for _ in range(25):
        vector.step(act(vector.spec, 4))


@pytest.mark.parametrize(("at", "where"), [(3, "episode 0 .*step 3"), (0, "episode 1 .*step 0")])
def test_a_worker_that_raises_shows_its_own_traceback_and_lives_on(at, where):
    with faulty("raise", at, episode=0 if at else 1) as vector:
        with pytest.raises(EnvError, match=rf"environment 0 \(Broken\), {where}: ZeroDivisionError") as raised:
            run_until_it_fails(vector)
        assert not isinstance(raised.value, WorkerError)
        assert "The traceback of worker 0" in str(raised.value) and "toys.py" in str(raised.value)
        if at:  # an environment that fails at a step can be reset
            assert vector.reset(0).turn[0].all()


def test_dummy_and_subproc_say_the_same_of_a_broken_environment():
    said = []
    for vector in (DummyVectorEnv(resolve(Broken, {"fault": "nan"}), 4), faulty("nan")):
        with pytest.raises(EnvError) as raised, vector:
            run_until_it_fails(vector)
        said.append(str(raised.value).split("\n")[0])
    assert said[0] == said[1]


@pytest.mark.parametrize(("fault", "fate"), [("kill", r"killed by signal 9 \(SIGKILL\)"), ("exit", "exit code 7")])
def test_a_worker_that_dies_is_reported_and_nothing_hangs(fault, fate):
    vector = faulty(fault)
    pids = [process.pid for process in vector._pool._processes]
    with pytest.raises(
        WorkerError, match=rf"worker [01], which held environments (0 to 1|2 to 3) \(Broken\), .*{fate}"
    ):
        run_until_it_fails(vector)
    assert gone(pids)
    with pytest.raises(WorkerError, match="closed"):
        vector.reset(0)
    vector.close()


def test_a_worker_killed_between_steps_is_reported():
    with SubprocVectorEnv(Crowd, 4, num_workers=2) as vector:
        vector.reset(0)
        process = vector._pool._processes[1]
        process.kill()
        process.join()
        with pytest.raises(WorkerError, match=r"worker 1, which held environments 2 to 3"):
            vector.step(act(vector.spec, 4))


class BornBroken(Crowd):
    """Cannot be built in a worker."""

    def __init__(self, home: int) -> None:
        super().__init__()
        if os.getpid() != home:
            raise OSError("no such screen")


def test_an_environment_that_cannot_be_built_in_a_worker_is_reported():
    with pytest.raises(EnvError, match=r"environment 0 \(BornBroken\) cannot be built: OSError: no such screen"):
        make_vector(BornBroken, {"home": os.getpid()}, 2, vector="subproc", num_workers=2)


def test_closing_leaves_no_process_and_no_shared_memory():
    before = set(os.listdir("/dev/shm"))
    vector = SubprocVectorEnv(Film, 4, num_workers=2)
    pids = [process.pid for process in vector._pool._processes]
    vector.reset(0)
    vector.send(act(vector.spec, 4))  # closed in the middle of a step
    vector.close()
    vector.close()
    assert gone(pids) and set(os.listdir("/dev/shm")) <= before


def test_forgetting_a_vector_environment_ends_its_workers():
    vector = SubprocVectorEnv(Crowd, 2, num_workers=2)
    pids = [process.pid for process in vector._pool._processes]
    assert all(map(alive, pids))
    del vector
    assert gone(pids)


SCRIPT = """
import os, signal, sys, threading
import numpy as np
from marltrain.envs import make_vector
from tests.toys import Crowd

class Mine(Crowd):
    pass

print("script", flush=True)
vector = make_vector(lambda: Mine(length=3), None, 4, vector="subproc", num_workers=2)
vector.reset(0)
print(*[process.pid for process in vector._pool._processes], flush=True)
{ending}
"""


def script(tmp_path: Path, ending: str) -> subprocess.CompletedProcess:
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(SCRIPT.format(ending=ending)))
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=170)


@pytest.mark.parametrize(
    ("ending", "code"),
    [("", 0), ("vector.close()", 0), ("raise KeyError('x')", 1), ("os.kill(os.getpid(), signal.SIGKILL)", -9)],
)
def test_workers_end_with_a_script_however_it_ends_and_do_not_run_it_again(tmp_path, ending, code):
    """The script guards nothing, and defines its environment itself."""
    ended = script(tmp_path, ending)
    lines = ended.stdout.split("\n")
    assert ended.returncode == code and lines[0] == "script" and len(lines) == 3, ended.stderr
    assert gone([int(pid) for pid in lines[1].split()])
    if code == 0:
        assert ended.stderr == ""


def test_ctrl_c_interrupts_the_script_and_not_its_workers(tmp_path):
    ending = """
try:
    os.killpg(os.getpgid(0), signal.SIGINT)
    threading.Event().wait(5)
except KeyboardInterrupt:
    print(vector.reset(1).turn[0].all())
    vector.close()
"""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(ending=ending))
    ended = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, timeout=170, start_new_session=True
    )
    assert ended.stdout.endswith("True\n") and ended.stderr == "", ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"vector": "subprocess"}, r"unknown vector 'subprocess'.* Did you mean 'subproc'\?"),
        ({"vector": "subproc", "num_workers": 4}, r"num_workers must be between 1 and num_envs \(3\), got 4"),
        ({"vector": "subproc", "num_workers": 0}, r"num_workers must be between 1 and num_envs \(3\), got 0"),
        ({"vector": "dummy", "num_workers": 2}, r'num_workers=2 has no meaning with vector="dummy"'),
    ],
)
def test_wrong_settings_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        make_vector(Crowd, None, 3, **arguments)


@pytest.mark.parametrize("kind", [DummyVectorEnv, SubprocVectorEnv])
def test_recv_needs_a_send(kind):
    with kind(Crowd, 1) as vector:
        vector.reset(0)
        with pytest.raises(RuntimeError, match="without a send"):
            vector.recv()


class Slow(Identity):
    """Takes its time, so that an interrupt meets a step under way."""

    def step(self, actions):
        time.sleep(0.05)
        return super().step(actions)


def test_a_reset_in_the_middle_of_a_step_forgets_the_step():
    """As after Ctrl-C: the answer to the abandoned step may not be taken for another's."""
    with SubprocVectorEnv(Slow, 4, num_workers=2) as vector, DummyVectorEnv(Identity, 4) as dummy:
        vector.reset(0)
        vector.send(act(vector.spec, 4))
        run, expected = random_run(vector, 3, seed=1), random_run(dummy, 3, seed=1)
        assert all(same(a, b) for a, b in zip(expected, run, strict=True))


def test_rendering_one_environment():
    vector = DummyVectorEnv(Relay, 2, render_mode="rgb_array")
    vector.reset(0)
    vector.step(act(vector.spec, 2))
    assert (vector.render(1) == 1).all()


def test_importing_environments_and_workers_loads_no_framework():
    heavy = ("torch", "tensorflow", "tianshou", "ray", "pandas", "numba", "matplotlib")
    code = f"import sys, marltrain.envs, marltrain.envs.workers.worker; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
