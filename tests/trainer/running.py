"""Short training runs and their results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.policies.batches.batch import Experience
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.memory.streams import Streams
from marltrain.trainer.events.callbacks import EVENTS, Callback, Moment
from tests.toys import Identity

SMALL = mt.MLP(hidden=(4,))
SHORT = {"players": 2, "length": 3}


def trainer(env: Any = Identity, env_args: Mapping[str, Any] | None = None, **settings: Any) -> mt.DecentralizedTrainer:
    """A trainer of few environments without progress display; by default Identity with two players and 3 steps."""
    few = {
        "num_train_envs": 3, "num_test_envs": 2, "update_freq": 10, "test_freq": 10_000, "episodes_per_test": 2,
        "seed": 0, "progress": False, "run_dir": "run", **settings,
    }  # fmt: skip
    return mt.DecentralizedTrainer(env, (SHORT if env is Identity else {}) if env_args is None else env_args, **few)


def change(trainer: mt.DecentralizedTrainer, **arguments: Any) -> None:
    """Give a trainer other arguments between two calls of `train`."""
    trainer.setup = dataclasses.replace(trainer.setup, **arguments)


def streams_of(trainer: mt.DecentralizedTrainer) -> Streams:
    """The streams of the last run of a trainer."""
    assert trainer.run is not None
    return trainer.run.context.streams


def ppo(env: Any = Identity, env_args: Mapping[str, Any] | None = None, **settings: Any) -> list[Any]:
    args = (SHORT if env is Identity else {}) if env_args is None else env_args
    return mt.make_agents(
        "ppo", env, env_args=args, **{"seed": 0, "network": SMALL, "minibatches": 2, "epochs": 1, **settings}
    )


def dqn(env: Any = Identity, env_args: Mapping[str, Any] | None = None, **settings: Any) -> list[Any]:
    args = (SHORT if env is Identity else {}) if env_args is None else env_args
    own = {"seed": 0, "network": SMALL, "learning_starts": 0, "update_per_step": 0.2, "epsilon": 0.5, **settings}
    return mt.make_agents(own.pop("algo", "dqn"), env, env_args=args, **own)


def weights(agents: Sequence[Any]) -> list[dict[str, np.ndarray]]:
    """Weights, targets and moments of each agent."""
    return [agent.learner_.export(agent.row).arrays for agent in agents]


def noted_batches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that receives the batch of every update of an algorithm's learner."""
    seen: list[Any] = []
    update = AlgorithmLearner.update

    def noting(learner: Any, batch: Any, **more: Any) -> Any:
        seen.append(batch)
        return update(learner, batch, **more)

    monkeypatch.setattr(AlgorithmLearner, "update", noting)
    return seen


def changed(before: Sequence[Mapping[str, np.ndarray]], after: Sequence[Mapping[str, np.ndarray]]) -> list[bool]:
    """Return for each agent whether any array differs in any bit."""
    return [any((b[name] != a[name]).any() for name in b) for b, a in zip(before, after, strict=True)]


def tables(result: Mapping[str, Any]) -> list[Any]:
    """The tables of a run as plain values, without times."""
    output = [result["history"].drop(columns="seconds"), result["episodes"].drop(columns="seconds")]
    return [frame.to_csv() for frame in output]


def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the plots of runs by empty files: drawing takes longer than training for a few steps."""

    def empty(tests: object, episodes: object, path: Path, **told: object) -> None:
        path.touch()

    monkeypatch.setattr("marltrain.trainer.reporting.run_picture.draw_run", empty)


class Recorder(Callback):
    """Records every event: its name, the counters, and selected data."""

    def __init__(self, calls: list[Any] | None = None, only: Sequence[str] = EVENTS) -> None:
        self.calls, self.only = ([] if calls is None else calls), only

    def _note(self, moment: Moment) -> None:
        if moment.event in self.only:
            self.calls.append((moment.event, moment.episodes, moment.env_steps))

    def on_train_start(self, moment):
        self._note(moment)

    def on_episode_start(self, moment):
        self._note(moment)

    def on_step(self, moment):
        self._note(moment)

    def on_episode_end(self, moment):
        self._note(moment)

    def on_collect(self, moment):
        self._note(moment)

    def on_update_start(self, moment):
        self._note(moment)

    def on_update_end(self, moment):
        self._note(moment)

    def on_test_start(self, moment):
        self._note(moment)

    def on_test_end(self, moment):
        self._note(moment)

    def on_checkpoint(self, moment):
        self._note(moment)

    def on_train_end(self, moment):
        self._note(moment)


class At(Callback):
    """Calls a function at one batch step, numbered from 1."""

    def __init__(self, number: int, function: Any) -> None:
        self.number, self.function, self.steps = number, function, 0

    def on_step(self, moment):
        self.steps += 1
        if self.steps == self.number:
            self.function(moment)


class Student(mt.Agent):
    """A custom agent: plays `policy(observation)`, and stores every batch that it receives."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy
        self.seen: list[Experience] = []
        self.told: list[int] = []

    def act(self, observation, legal=None, explore=False):
        assert self.layout is not None
        obs, batched = self.layout.encode(observation)
        chosen = np.array([self.policy(row) for row in (obs if batched else obs[None])])  # type: ignore[index]
        return chosen if batched else chosen[0]

    def observe(self, batch):
        self.seen.append(batch)

    def update(self, env_steps):
        self.told.append(env_steps)
        return {"rows": len(self.seen[-1].reward)}
