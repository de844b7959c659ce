"""SubprocVectorEnv in two halves: each steps by itself, and in the end there is nothing else to see."""

import os
import signal
from typing import Any

import numpy as np
import pytest

from marltrain.core.errors import EnvError, WorkerError
from marltrain.core.spec import empty_actions
from marltrain.envs import SubprocVectorEnv, make_vector
from tests.envs.driving import act, same, snapshot
from tests.envs.workers.test_pool import SURVIVING, run_of
from tests.faulty_toys import Broken, Flaky
from tests.toys import Identity

STEPS = 40


def halved(env=Identity, env_args=None, num_envs=5, num_workers=3, **settings) -> SubprocVectorEnv:
    vector = make_vector(env, env_args, num_envs, vector="subproc", num_workers=num_workers, **settings)
    assert isinstance(vector, SubprocVectorEnv)
    return vector


def plans(spec, num_envs, steps=STEPS):
    """Random actions of so many batch steps."""
    rng = np.random.default_rng(0)
    result = [empty_actions(spec, num_envs) for _ in range(steps)]
    for actions in result:
        for group, array in zip(spec.groups, actions, strict=True):
            array[...] = rng.integers(group.action_space.n, size=array.shape)
    return result


def part(vector, half, step) -> dict:
    """A snapshot of one half's columns of a Step of all."""
    envs = vector.halves[half]
    return snapshot(step.part(envs.start, envs.stop))


@pytest.mark.parametrize(
    ("num_envs", "workers", "halves"),
    [(5, 3, [(0, 3), (3, 5)]), (5, 2, [(0, 2), (2, 5)]), (4, 4, [(0, 2), (2, 4)]), (7, 5, [(0, 4), (4, 7)])],
)
def test_halves_are_those_of_the_first_workers_and_of_the_others(num_envs, workers, halves):
    with halved(num_envs=num_envs, num_workers=workers) as vector:
        assert [(half.start, half.stop) for half in vector.halves] == halves


@pytest.mark.parametrize(("env", "env_args"), [(Identity, None), ("gymnasium/CartPole-v1", None)])
def test_halves_that_step_in_turn_play_what_all_play_together(env, env_args):
    """The first half is a step ahead of the second all the time."""
    with make_vector(env, env_args, 5) as dummy, halved(env, env_args) as vector:
        expected = dummy.reset(3)
        assert same(snapshot(expected), snapshot(vector.reset(3)))
        sent = plans(vector.spec, 5)
        vector.send_half(0, sent[0])
        for t, actions in enumerate(sent):
            expected = dummy.step(actions)
            first = vector.recv_half(0)
            assert same(snapshot(first), part(vector, 0, expected))
            vector.send_half(1, actions)
            if t + 1 < STEPS:
                vector.send_half(0, sent[t + 1])
            assert same(snapshot(vector.recv_half(1)), part(vector, 1, expected))
        assert same(snapshot(vector._step), snapshot(expected))
        assert same(snapshot(vector.step(sent[0])), snapshot(dummy.step(sent[0])))  # and together again


def test_only_the_columns_of_a_half_are_taken():
    with halved() as vector:
        vector.reset(0)
        ones = tuple(np.ones_like(array) for array in empty_actions(vector.spec, 5))
        vector.send_half(0, ones)
        assert [array.tolist() for array in vector._actions] == [[[1, 1, 1, 0, 0]] * 2]
        vector.recv_half(0)


def test_faults_of_both_halves_are_told_of_one_step():
    """Environments 0 and 3, one of each half, break in step 3 of their first episodes."""
    run = run_of([[0, 0], [3, 0]])
    settings: dict[str, Any] = {"on_fault": "restart", "max_env_restarts": 2}
    with (
        make_vector(Flaky, {"every": 5}, 4, **settings) as dummy,
        halved(Flaky, {"every": 5}, 4, 2, **settings) as vector,
    ):
        dummy.reset(run), vector.reset(run)
        actions = empty_actions(vector.spec, 4)
        for t in range(1, 5):
            expected = dummy.step(actions)
            for half in (0, 1):
                vector.send_half(half, actions)
            first = vector.recv_half(0)
            assert [fault.env for fault in vector.faults] == ([0] if t == 3 else [])
            second = vector.recv_half(1)
            assert [fault[:7] for fault in vector.faults] == [fault[:7] for fault in dummy.faults]
            assert same(snapshot(first), part(vector, 0, expected))
            assert same(snapshot(second), part(vector, 1, expected))
        assert vector._env_steps == dummy._env_steps == 16


def test_too_many_faults_in_the_second_half_name_those_of_the_first():
    run = run_of([[0, 0], [3, 0]])
    with halved(Flaky, {"every": 5}, 4, 2, on_fault="restart", max_env_restarts=1) as vector:
        vector.reset(run)
        actions = empty_actions(vector.spec, 4)
        for _ in range(2):
            vector.step(actions)
        for half in (0, 1):
            vector.send_half(half, actions)
        vector.recv_half(0)
        with pytest.raises(EnvError, match=r"2 faults within 10,000 env steps; max_env_restarts=1 are survived"):
            vector.recv_half(1)
        assert [fault.env for fault in vector.faults] == [0, 3]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_worker_that_dies_takes_nothing_of_the_other_half_with_it(lost):
    """Both halves are under way when the worker of one is killed: it begins new episodes, the other plays on."""
    with halved(Identity, None, 4, 2, **{key: SURVIVING[key] for key in ("on_fault", "max_env_restarts")}) as vector:
        vector.reset(0)
        actions = empty_actions(vector.spec, 4)
        vector.step(actions)
        process = vector._pool._processes[lost]
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        for half in (0, 1):
            vector.send_half(half, actions)
        steps = [vector.recv_half(half) for half in (0, 1)]
        (data,) = vector.faults
        assert data.kind == "died" and data.cut == ((0, 1) if lost == 0 else (2, 3))
        assert [step.ended.tolist() for step in steps] == [[half == lost] * 2 for half in (0, 1)]
        assert [step.episode.tolist() for step in steps] == [[int(half == lost)] * 2 for half in (0, 1)]
        assert not vector.step(actions).ended.any() and not vector.faults


def test_a_worker_that_dies_where_that_is_not_survived_ends_both_halves():
    with halved(Broken, {"fault": "kill", "at": 1}, 4, 2) as vector:
        vector.reset(0)
        for half in (0, 1):
            vector.send_half(half, act(vector.spec, 4))
        with pytest.raises(WorkerError, match=r"worker 0, .* was killed by signal 9"):
            vector.recv_half(0)
        with pytest.raises(WorkerError, match="are closed"):
            vector.recv_half(1)


def test_a_half_that_was_not_sent_is_not_received():
    with halved() as vector:
        vector.reset(0)
        actions = empty_actions(vector.spec, 5)
        vector.send_half(0, actions)
        with pytest.raises(RuntimeError, match=r"recv_half\(1\) without a send_half\(1\)"):
            vector.recv_half(1)
        with pytest.raises(RuntimeError, match=r"recv\(\) without a send\(\)"):
            vector.recv()
        vector.recv_half(0)


def test_a_reset_while_a_half_is_under_way_forgets_its_step():
    with make_vector(Identity, None, 5) as dummy, halved() as vector:
        vector.reset(0)
        actions = empty_actions(vector.spec, 5)
        vector.send_half(0, actions)
        assert same(snapshot(vector.reset(7)), snapshot(dummy.reset(7)))
        with pytest.raises(RuntimeError, match="without a send"):
            vector.recv_half(0)
        assert same(snapshot(vector.step(actions)), snapshot(dummy.step(actions)))
