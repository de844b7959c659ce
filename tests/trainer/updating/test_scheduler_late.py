"""Metrics that a GPU has not computed yet when the environments go on: equal to those that are waited for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import marltrain as mt
from marltrain.policies.backends.torch.places import cpu_as_gpu
from marltrain.policies.backends.torch.recorded_capture import RecordedCapture
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.trainer.training.updates import Updates
from marltrain.trainer.updating.scheduler import NotFiniteError, UpdateScheduler
from tests.gpu import runs
from tests.gpu.runs import SPREAD
from tests.trainer.running import tables

CART = "gymnasium/CartPole-v1"


def trained(*, watches: bool, env: Any = CART, **settings: Any) -> tuple[Any, list[dict[str, float]], list[int]]:
    """Return the result, the metrics that a callback saw, and how often the environments went on before each.

    watches: whether the callback only watches; metrics may then be late.
    """
    seen: list[tuple[dict[str, float], int]] = []

    def note(moment: mt.Moment) -> None:
        (values,) = moment.data["metrics"].values()
        seen.append((values, moment.env_steps))

    with cpu_as_gpu(RecordedCapture()):
        agents = make(env)
        trainer = mt.DecentralizedTrainer(
            env, num_train_envs=2, update_freq=4, batch_size=8, seed=5, run_dir=False, progress=False,
            callbacks=[mt.LambdaCallback(only_watches=watches, on_update_end=note)],
            **{"test_freq_steps": 24, "test_freq": None, "episodes_per_test": 1, "steps_per_train": 64, **settings},
        )  # fmt: skip
        result = trainer.train(agents, [1], plot=False)
    return result, [values for values, _ in seen], [steps for _, steps in seen]


def make(env: Any) -> list[mt.Agent]:
    own: dict[str, Any] = {"network": mt.MLP((8,)), "learning_starts": 8, "capacity": 100}
    return mt.make_agents("dqn" if env == CART else "ddpg", env, seed=3, device="cpu", jit_compile=True, **own)


def noted(method: Any, letter: str, order: list[str]) -> Any:
    """Return a method that adds a letter to `order` at each call."""

    def call(*given: Any, **named: Any) -> Any:
        order.append(letter)
        return method(*given, **named)

    return call


def test_late_metrics_are_those_of_the_same_updates(monkeypatch):
    """They are read after the next update has begun, while a GPU computes it."""
    order: list[str] = []
    for cls, name in ((AlgorithmLearner, "begin_update"), (UpdateScheduler, "_finish_update")):
        monkeypatch.setattr(cls, name, noted(getattr(cls, name), name.strip("_")[0], order))
    waited, expected, at = trained(watches=False)
    assert set("".join(order).split("f")) == {"b", ""}
    order.clear()
    late, found, later = trained(watches=True)
    assert "".join(order).startswith("bbfbfbfbff")  # a test waits for the last one
    assert len(expected) > 10 and found == expected
    assert [b - a for a, b in zip(at, later, strict=True)].count(4) > 5  # the next update returns them
    assert all(0 <= b - a <= 4 for a, b in zip(at, later, strict=True))
    assert tables(waited) == tables(late)
    for name in ("num_updates", "num_gradient_steps"):
        assert waited[name] == late[name] > 0


class Exploding(gym.Wrapper[Any, Any, Any, Any]):
    """Pendulum, whose rewards are very large after a while."""

    def __init__(self) -> None:
        super().__init__(gym.make("Pendulum-v1"))
        self.steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, 1e30 if self.steps > 20 else reward, terminated, truncated, info


def test_a_late_loss_that_is_not_finite_names_its_own_update():
    errors = []
    for watches in (False, True):
        with pytest.raises(NotFiniteError) as error:
            trained(watches=watches, env=Exploding, test_freq_steps=None, steps_per_train=200)
        errors.append(str(error.value))
    assert "env step" in errors[0] and errors[0] == errors[1]


def test_checkpoints_hold_late_metrics(tmp_path):
    with cpu_as_gpu(RecordedCapture()):
        whole, part, again = (runs.make("dqn", "cpu", jit_compile=True) for _ in range(3))
        expected = runs.train("dqn", whole, 192)
        runs.train("dqn", part, 128, tmp_path / "run")
        found = runs.train("dqn", again, 192, tmp_path / "run", resume=True)
    assert not runs.different(whole, again)
    assert found["num_gradient_steps"] == expected["num_gradient_steps"] > 0


def test_metrics_of_learners_of_which_one_waits_are_recorded_together():
    """The third agent computes without captures: all metrics of an update come with one call, and none after it."""
    seen: list[tuple[int, int, int]] = []
    own: dict[str, Any] = {"network": mt.MLP((8,)), "learning_starts": 8, "capacity": 100}
    other = mt.make_agents("dqn", SPREAD, seed=3, device="cpu", **own)[2:]
    with cpu_as_gpu(RecordedCapture()):
        agents = mt.make_agents("dqn", SPREAD, seed=3, device="cpu", jit_compile=True, **own)[:2] + other

        def note(moment: mt.Moment) -> None:
            seen.append((moment.updates, moment.env_steps, len(moment.data["metrics"])))

        trainer = mt.DecentralizedTrainer(
            SPREAD, num_train_envs=2, update_freq=4, batch_size=8, seed=5, run_dir=False, progress=False,
            test_freq=None, callbacks=[mt.LambdaCallback(only_watches=True, on_update_end=note)], steps_per_train=20,
        )  # fmt: skip
        trainer.train(agents, [1, 1, 1], plot=False)
    assert seen == [(1, 8, 3), (2, 12, 3), (3, 16, 3), (4, 20, 3)]


@pytest.mark.parametrize(
    ("lags", "captured", "learning", "expected"),
    [
        ([None, None], [True, True], [True, True], True),
        ([None, 2], [True, True], [True, True], False),
        ([None, None], [True, False], [True, True], False),
        ([None, None], [True, False], [True, False], True),
    ],
)
def test_metrics_are_late_if_those_of_all_learners_are(lags, captured, learning, expected):
    """A lag is recorded with the metrics of its own update."""
    updates: Any = object.__new__(Updates)
    updates._callbacks_act = False
    updates.schedulers = [
        SimpleNamespace(
            lag=lag, seated=SimpleNamespace(learner=SimpleNamespace(begins_updates=begins)), learn=np.array([learns])
        )
        for lag, begins, learns in zip(lags, captured, learning, strict=True)
    ]
    assert updates._defers is expected
