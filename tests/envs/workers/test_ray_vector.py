"""Environments in Ray actors: the same episodes as in one process, and every way in which an actor can fail."""

import threading
import time
from typing import Any

import numpy as np
import pytest

from marltrain.core.errors import ConfigError, EnvError, WorkerError
from marltrain.envs import make_vector
from tests.envs.driving import act, random_run, same
from tests.envs.test_vector import GAMES
from tests.envs.test_vector_state import steps
from tests.envs.workers.test_pool import run_of
from tests.faulty_toys import Broken, Flaky
from tests.tiers import LONG
from tests.toys import Identity, Relay

pytestmark = pytest.mark.usefixtures("ray_cluster")
NATIVE: Any = ("marltrain/CartPole-v1", {})
CASES = [(*game[:2], workers) for game in [*GAMES, NATIVE] for workers in (1, 2, 3)] if LONG else [(Relay, {}, 2)]


@pytest.mark.parametrize(("env", "env_args", "workers"), CASES)
def test_ray_equals_dummy_bit_for_bit_and_continues_from_its_state(env, env_args, workers):
    with make_vector(env, env_args, 5, recording=True, with_state=True) as dummy:
        expected = random_run(dummy, 30, seed=3)
        steps(dummy, dummy.reset(4), 17, seed=0)
        state = dummy.state()
        continued = steps(dummy, dummy._step, 20, seed=1)
        later = dummy.state()
    place: Any = {"vector": "ray", "num_workers": workers}
    with make_vector(env, env_args, 5, recording=True, with_state=True, **place) as vector:
        assert all(same(a, b) for a, b in zip(expected, random_run(vector, 30, seed=3), strict=True))
        step, lost = vector.restore(state)
        assert lost == [] and all(np.array_equal(array, state[name]) for name, array in vector.state().items())
        assert all(same(a, b) for a, b in zip(continued, steps(vector, step, 20, seed=1), strict=True))
        assert all(np.array_equal(array, later[name]) for name, array in vector.state().items())


SURVIVING: dict[str, Any] = {"vector": "ray", "num_workers": 2, "on_fault": "restart", "max_env_restarts": 50}


KINDS = {"kill": ("died", "ended: its worker process has died"), "hang": ("timeout", "did not answer within 3 s")}


@pytest.mark.parametrize("fault", KINDS if LONG else ["kill"])
def test_an_actor_that_is_lost_in_a_step_is_replaced_and_costs_its_running_episodes(fault):
    """Environment 2, of actor 1, breaks in step 3 of its first episode."""
    kind, told_of = KINDS[fault]
    arguments = {"fault": fault, "at": 3, "every": 5}
    with make_vector(Flaky, arguments, 4, env_timeout=3.0, **SURVIVING) as vector:
        vector.reset(run_of([[2, 0]]))
        for _ in range(3):
            step = vector.step(act(vector.spec, 4))
        (data,) = vector.faults
        assert data[:5] == (kind, -1, -1, -1, -1) and data.cut == (2, 3)
        assert data.message.startswith("actor 1, which held environments 2 to 3 (Flaky), on node ")
        assert told_of in data.message
        assert step.ended.tolist() == [False, False, True, True] and step.episode.tolist() == [0, 0, 1, 1]
        assert step.reward.tolist() == [[1, 1, 0, 0]] * 2 and not step.truncated.any()
        step = vector.step(act(vector.spec, 4))
        assert not vector.faults and not step.ended.any() and (step.reward == 1).all()
        obs = step.obs[0]
        assert isinstance(obs, np.ndarray) and np.allclose(obs[0, :, 0], [0.4, 0.4, 0.1, 0.1])


def test_an_environment_that_raises_shows_its_traceback():
    with make_vector(Broken, {"fault": "raise", "at": 3}, 3, vector="ray", num_workers=1) as vector:
        vector.reset(0)
        with pytest.raises(EnvError, match=r"environment 0 \(Broken\), episode 0 .*step 3: Zero") as raised:
            for _ in range(3):
                vector.step(act(vector.spec, 3))
        assert "The traceback of actor 0" in str(raised.value) and "toys.py" in str(raised.value)
        assert vector.reset(0).turn[0].all()  # the actor lives on


if LONG:  # the limit is waited for

    def test_an_environment_that_hangs_ends_all():
        arguments = {"fault": "hang", "at": 3}
        with make_vector(Broken, arguments, 3, vector="ray", num_workers=1, timeout=15.0) as vector:
            vector.reset(0)
            text = r"actor 0, which held environments 0 to 2 .*, on node \S+, did not answer within 15 s \(timeout\)"
            with pytest.raises(WorkerError, match=text):
                for _ in range(3):
                    vector.step(act(vector.spec, 3))
            with pytest.raises(WorkerError, match="closed"):
                vector.reset(0)


def unpicklable() -> Any:
    lock = threading.Lock()
    return lambda: (Identity(), lock)[0]


@pytest.mark.parametrize(
    ("env", "arguments", "message"),
    [
        (Identity, {"resources": {"num_cpus": 99}}, r"needs \{'CPU': 99\}, which no node of the Ray cluster has"),
        (
            Identity,
            {"resources": {"rare": 2}},
            r"'rare': 2\}, which no node .* have: \{.*'rare': 1.0.*Change resources",
        ),
        (Identity, {"address": "127.0.0.1:1"}, r"this process is connected to the Ray cluster at .*ray.shutdown\(\)"),
        (Identity, {"num_workers": 4}, r"num_workers must be between 1 and num_envs \(3\), got 4"),
        (unpicklable(), {}, "cannot be sent to another process .*cannot pickle '_thread.lock' object"),
    ],
)
def test_what_the_cluster_cannot_do_is_refused_within_seconds(env, arguments, message):
    begun = time.monotonic()
    with pytest.raises(ConfigError, match=message):
        make_vector(env, None, 3, vector="ray", **arguments)
    assert time.monotonic() - begun < 20
