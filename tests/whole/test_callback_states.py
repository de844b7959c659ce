"""Every callback of marltrain, resumed in the middle of a run, goes on with what it knew.

The folder of a run is copied after a checkpoint, and the copy resumed with new callbacks. All that a callback holds
must be the same as it was at the checkpoint, and at the end the same as in the run that was not interrupted. A new
class without a case here, or without a state for what it holds, turns these tests red.
"""

from __future__ import annotations

import ast
import io
import shutil
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import SaveError
from marltrain.policies.agents.agent import Agent
from marltrain.trainer.events.callbacks import CallbackList
from marltrain.trainer.events.due import Budgets
from marltrain.trainer.jobs import job as jobs
from marltrain.trainer.jobs.messages import Report, RunProgress
from marltrain.trainer.reporting.dashboard import Dashboard
from marltrain.trainer.reporting.progress import Progress, ProgressPrinter
from marltrain.trainer.reporting.scalar_logger import ScalarLogger
from marltrain.trainer.reporting.speed import Speed
from marltrain.trainer.reporting.tensorboard import TensorBoard
from tests.tools.loggers.test_run_logger import mlflow, wandb  # noqa: F401, fixtures
from tests.trainer.running import ppo, tables, trainer

PACKAGE = Path(mt.__file__).parent
STEPS, AT = 210, 120
"""Env steps of a run, and of the checkpoint from which it is resumed."""
WITHOUT_CHECKPOINTS = {
    "Recorder": "records the trainings of find, tune and PBT: test_find_resumed.py and test_pbt_resumed.py resume it",
}
BUDGETS = Budgets(episodes=None, env_steps=STEPS, updates=None)


class Quiet:
    """A screen that shows nothing."""

    def show(self, view):
        pass

    def close(self):
        pass


class Unconnected:
    """In place of the connection of a job to its actor: keeps the reports."""

    def __init__(self, *arguments: Any) -> None:
        self.given_up, self.cluster = False, SimpleNamespace(address="here")
        self.sent: list[Report] = []

    def received(self, now):
        return None

    def free(self, now):
        return True

    def send(self, report, now):
        self.sent.append(report)

    def end(self, report):
        self.sent.append(report)


def following(follower: Any) -> list[mt.Callback]:
    """A callback that takes points, and the logger that makes them."""
    logger = ScalarLogger(every=1e9)
    logger.followers.append(follower.point)
    return [follower, logger]


CASES: dict[str, Any] = {
    "Progress": lambda: [Progress(BUDGETS, ProgressPrinter(every_episodes=7), file=io.StringIO())],
    "Dashboard": lambda: following(Dashboard(BUDGETS, Quiet(), "game")),
    "Job": lambda: following(jobs.Job(RunProgress("x", "game", ("a",), "here", None, {}), None, 1.0)),
    "ScalarLogger": lambda: [ScalarLogger(every=1e9)],
    "TensorBoard": lambda: [TensorBoard("events", every=1e9)],
    "CSVLogger": lambda: [mt.CSVLogger(every=1e9)],
    "JSONLinesLogger": lambda: [mt.JSONLinesLogger(every=1e9)],
    "MLflowLogger": lambda: [mt.MLflowLogger(every=1e9)],
    "WandbLogger": lambda: [mt.WandbLogger(every=1e9)],
    "Checkpoint": lambda: [mt.Checkpoint(every_steps=AT, keep=9)],
    "EarlyStopping": lambda: [mt.EarlyStopping(patience=99, tests=2)],
    "ReduceOnPlateau": lambda: [mt.ReduceOnPlateau(patience=2, episodes=4)],
    "Adapt": lambda: [
        mt.Adapt("learning_rate", by="entropy", low=1e-4, high=1e-2, target=0.6, direction="up", every=2),
        mt.Adapt("entropy_coef", by="plateau", low=1e-4, high=1e-1, direction="up", patience=2),
        mt.Adapt("clip", by="absent", low=0.1, high=0.3, target=0.6, direction="up"),
    ],
    "LambdaCallback": lambda: [mt.LambdaCallback(on_test_end=lambda moment: None)],
    "Film": lambda: [mt.Film("game", every=3)],
    "LeagueRatings": lambda: [mt.LeagueRatings(every=3, episodes=1, resamples=1)],
    "LearningRateRangeTest": lambda: [
        mt.LearningRateRangeTest(1e-4, 1e-2, env_steps=STEPS, stop_at=None, players="player_0"),
        mt.LearningRateRangeTest(1e-3, 1e-1, env_steps=STEPS, stop_at=None, restore=False, players="player_1"),
    ],
}
"""What makes the callbacks of a class."""
OF_THIS_PROCESS = {
    "Progress": {"_shown_at": "seconds", "_file": "where it shows"},
    "Dashboard": {"_drawn_at": "seconds", "_cost": "seconds"},
    "RunView": {"episodes": "set at each drawing", "env_steps": "the same", "updates": "the same",
                "seconds": "the same", "note": "the same"},
    "RunProgress": {"seconds": "a time", "note": "set at each event", "stop_reason": "set at the end",
                    "episodes": "set at each report", "env_steps": "the same", "updates": "the same",
                    "gradient_steps": "the same"},
    "Job": {"_look_at": "seconds", "_report_at": "seconds", "_points": "in the view of the state",
            "_view": "compared by its state", "_restored": "the actor of this process lacks the view"},
    "Means": {"_found": "the sums by other keys", "_rows": "the same"},
    "ScalarLogger": {"_updates": "begin of the rate"},
    "TensorBoard": {"_file": "each process has its own", "path": "of that file"},
    "ScalarFile": {"_place": "in the folder of the run"},
    "RunLogger": {"_begun": "of the service's run in this process", "_folder": "of the run"},
    "MLflowLogger": {"_held": "what the service holds, asked at the begin", "_client": "of this process"},
    "WandbLogger": {"_run": "of this process", "_recent": "compared by the state: its times are those of this process"},
}  # fmt: skip
"""Attributes that begin anew in each process, by class, and why."""
TIMES = {"_last", "last", "seconds", "latest"}
"""Attributes with times, which differ at the end of two runs."""


def classes() -> dict[str, list[str]]:
    """Return the bases of every class of the package by name."""
    found: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name] = [base.id for base in node.bases if isinstance(base, ast.Name)]
    return found


def callbacks_of_the_package() -> set[str]:
    """Return the names of all subclasses of Callback that are no bases of others, and of those that are used."""
    bases = classes()

    def derived(name: str) -> bool:
        return any(base == "Callback" or derived(base) for base in bases.get(name, ()))

    abstract = {"CriterionCallback", "RunLogger", "ScalarFile"}
    return {name for name in bases if derived(name)} - abstract


def held_by(value: Any, but: set[str] = frozenset()) -> Any:  # type: ignore[assignment]
    """Return plain values of all that an object holds; of agents, functions and foreign objects only the class."""
    if value is None or isinstance(value, bool | int | str | Path):
        return str(value) if isinstance(value, Path) else value
    if isinstance(value, float | np.generic):
        return repr(float(value))
    if isinstance(value, np.ndarray):
        return [str(value.dtype), value.tolist()]
    if isinstance(value, Mapping):
        return {str(key): held_by(inner, but) for key, inner in value.items() if key not in but}
    if isinstance(value, list | tuple | set | frozenset | deque):
        return [held_by(inner, but) for inner in value]
    kind = type(value)
    if (
        isinstance(value, Agent | Speed)
        or not kind.__module__.startswith("marltrain")
        or not hasattr(value, "__dict__")
    ):
        return kind.__name__
    own = {name for each in kind.__mro__ for name in OF_THIS_PROCESS.get(each.__name__, ())} | but
    return {name: held_by(inner, but) for name, inner in vars(value).items() if name not in own}


def held_of(callbacks: list[mt.Callback], but: set[str] = frozenset()) -> list[Any]:  # type: ignore[assignment]
    return [[held_by(callback, but), held_by(callback.state_dict(), but)] for callback in callbacks]


class Look(mt.Callback):
    """Notes what callbacks hold after the checkpoint, or once they are restored; copies the folder after it."""

    def __init__(self, callbacks: list[mt.Callback]) -> None:
        self.callbacks = callbacks
        self.held: list[Any] = []

    def on_checkpoint(self, moment):
        if moment.data["path"].name == str(AT) and not self.held:
            self.held = held_of(self.callbacks)
            shutil.copytree(moment.run_dir, "killed")

    def state_dict(self):
        return {"any": 1}

    def load_state_dict(self, state):
        self.held = held_of(self.callbacks)


def train(kind: str, folder: str, **arguments: Any) -> tuple[Any, Look, list[mt.Callback]]:
    own = CASES[kind]()
    look = Look(own)
    others = [] if kind == "Checkpoint" else [mt.Checkpoint(every_steps=AT, keep=9)]
    result = trainer(
        steps_per_train=STEPS, update_freq=12, test_freq=5, callbacks=[*own, *others, look], run_dir=folder
    )
    agents = ppo()
    if kind == "LeagueRatings":
        agents[1] = mt.OpponentPool(agents[0], every_steps=60)
    return result.train(agents, [1, kind != "LeagueRatings"], plot=False, **arguments), look, own


@pytest.fixture
def _offline(monkeypatch, mlflow, wandb):  # noqa: F811
    monkeypatch.setattr(jobs, "Connection", Unconnected)
    monkeypatch.setattr("marltrain.tools.film.play", lambda *arguments, out, **more: out.touch())
    monkeypatch.setattr("marltrain.tools.finding.range_test.LearningRateRangeTest.plot", lambda self, path: path)


def test_every_callback_of_the_package_has_a_case():
    assert callbacks_of_the_package() == {*CASES, *WITHOUT_CHECKPOINTS}


DAMAGES: list[Any] = [None, "text", -1, float("nan"), [], [[]], [[1.0]], {}, {"a": 1}, 2**60, True]


@pytest.mark.usefixtures("_offline")
@pytest.mark.parametrize("kind", CASES)
def test_a_callback_goes_on_where_the_checkpoint_was_written_and_refuses_damaged_states(kind):
    whole, there, first = train(kind, "whole")
    resumed, here, second = train(kind, "killed", resume="killed")
    assert there.held and there.held == here.held
    assert held_of(first, TIMES) == held_of(second, TIMES)
    assert tables(whole) == tables(resumed)
    if kind != "LambdaCallback":
        refuses_or_survives_damages(first)


def refuses_or_survives_damages(own: list[mt.Callback]) -> None:
    """Replace each value of a state by others: it is restored, or refused with a SaveError, and saved again."""
    callbacks = CallbackList(own)
    state = callbacks.state()
    for place, entry in enumerate(state.info["all"]):
        for name in entry["state"]:
            for damage in DAMAGES:
                forged = replace(state, info={"all": [*state.info["all"]]})
                forged.info["all"][place] = {**entry, "state": {**entry["state"], name: damage}}
                try:
                    callbacks.restore(forged)
                except SaveError as error:
                    assert type(own[place]).__name__ in str(error)
                callbacks.restore(state)
            lacking = {key: value for key, value in entry["state"].items() if key != name}
            forged = replace(state, info={"all": [*state.info["all"]]})
            forged.info["all"][place] = {**entry, "state": lacking}
            with pytest.raises(SaveError, match=type(own[place]).__name__):
                callbacks.restore(forged)


@pytest.mark.usefixtures("_offline")
def test_a_stateful_callback_without_a_state_is_found(monkeypatch):
    class Counting(ScalarLogger):
        tests = 0

        def on_test_start(self, moment):
            self.tests += 1

    Counting.__module__ = "marltrain.new"
    monkeypatch.setitem(CASES, "Counting", lambda: [Counting(every=1e9)])
    train("Counting", "whole")
    _, here, _ = train("Counting", "killed", resume="killed")
    assert here.held[0][0].get("tests", 0) == 0, "it has lost its count, which the test above finds"


@pytest.mark.usefixtures("_offline")
def test_the_actor_of_a_resumed_job_gets_the_curves_before():
    _, _, first = train("Job", "whole")
    _, _, second = train("Job", "killed", resume="killed")
    reports = second[0]._connection.sent  # type: ignore[attr-defined]
    assert reports[0].view is not None and not any(report.view for report in reports[1:])
    assert reports[0].view.metric.steps == [step for step in first[0]._view.metric.steps if step <= AT]  # type: ignore[attr-defined]
    assert reports[0].progress.best is not None
