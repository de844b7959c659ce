"""Train one row with one seed, from its last checkpoint if there is one, and test the final agents."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import marltrain as mt
from benchmarks.learn import results
from benchmarks.learn.rows import RANDOM, Row
from benchmarks.learn.tasks import Task
from marltrain.core.layout import Array
from marltrain.envs import DummyVectorEnv, resolve

RUNS = results.ROOT / "runs" / "learn"
TESTS = 20
"""Points of a learning curve after its start."""
EPISODES_OF_A_TEST = 20
UNSEEN = 1_000_000
"""The final test's seed is this plus the run's seed, so that its episodes are not those of the curve."""
MINUTES = 5.0
"""Minutes between checkpoints."""


class Interrupted(Exception):  # noqa: N818  # nothing went wrong
    """Training was interrupted; the run can be continued."""


def train(row: Row, seed: int, folder: Path = results.RESULTS, runs: Path = RUNS) -> Path:
    """Train a row with a seed and write its result; return the file.

    runs: folder of the runs; an unfinished run there is continued.
    Raises Interrupted after Ctrl-C.
    """
    content = {
        "row": row.name, "seed": seed, "command": f"python -m benchmarks.learn {row.name} --seed {seed}",
        "versions": results.versions(), "machine": results.machine(), "settings": settings_of(row),
        **(_random_play(row, seed) if row.algo == RANDOM else _trained(row, seed, runs / row.name / str(seed))),
    }  # fmt: skip
    path = results.path_of(row, seed, folder)
    results.write(path, content)
    return path


def settings_of(row: Row, more: Mapping[str, Mapping[str, Any]] | None = None) -> dict[str, dict[str, Any]]:
    """Return all arguments of the trainer and of `make_agents`; more: changes, for the choice of settings."""
    chosen, more = row.settings(), more or {}
    if row.algo == RANDOM:
        return {"trainer": {}, "agents": {}}
    trainer = {
        **chosen["trainer"], "steps_per_train": row.steps, "test_freq": None, "test_freq_steps": row.steps // TESTS,
        "episodes_per_test": EPISODES_OF_A_TEST, "num_test_envs": EPISODES_OF_A_TEST, **more.get("trainer", {}),
    }  # fmt: skip
    agents = {"device": "cpu", "jit_compile": row.compiled, **chosen["agents"], **more.get("agents", {})}
    return {"trainer": trainer, "agents": agents}


def try_settings(
    row: Row, seed: int, more: Mapping[str, Mapping[str, Any]], save: Path | None = None
) -> dict[str, Any]:
    """Train with changed settings and return the result, which is not written: for the choice of settings.

    save: folder for the final agents; None: they are not saved.
    """
    settings = settings_of(row, more)
    agents = mt.make_agents(row.algo, row.task.env, env_args=row.task.env_args, seed=seed, **settings["agents"])
    result = _run(row, seed, agents, settings["trainer"], run_dir=False)
    if save is not None:
        mt.save(save, agents)
    return _result(row, seed, agents, result)


def score_on_original(row: Row, seed: int, runs: Path = RUNS) -> float:
    """Return the score of the agents that the run saved at its end on the task's original environment."""
    assert row.task.original is not None
    agents = mt.load(runs / row.name / str(seed) / "last")
    original = replace(row, task=replace(row.task, env=row.task.original))
    return float(results.returns_of(row.task, _unseen(original, seed, agents)).mean())


def _trained(row: Row, seed: int, run_dir: Path) -> dict[str, Any]:
    """Train, or continue to train, in a folder; test the agents that the run saved."""
    settings = settings_of(row)
    agents = mt.make_agents(row.algo, row.task.env, env_args=row.task.env_args, seed=seed, **settings["agents"])
    begun = (run_dir / "checkpoints").is_dir()
    callbacks = [*settings["trainer"].get("callbacks", ()), mt.Checkpoint(every_minutes=MINUTES, keep=1)]
    trainer = {**settings["trainer"], "callbacks": callbacks}
    start = time.process_time()
    result = _run(row, seed, agents, trainer, run_dir=run_dir, resume=run_dir if begun else None)
    processor = {} if begun else {results.PROCESSOR: round(time.process_time() - start, 1)}
    return {**_result(row, seed, mt.load(Path(result["run_dir"]) / "last"), result), **processor}


def _run(
    row: Row, seed: int, agents: list[mt.Agent], settings: Mapping[str, Any], *, run_dir: Any, resume: Any = None
) -> dict[str, Any]:
    trainer = mt.DecentralizedTrainer(
        row.task.env, row.task.env_args, seed=seed, run_dir=run_dir, progress=False, reward_metric=_metric(row.task),
        **settings,
    )  # fmt: skip
    result = trainer.train(agents, [1] * len(agents), plot=False, resume=resume)
    if result["stop_reason"] == "interrupted":
        raise Interrupted(f"{row.name}, seed {seed}: interrupted after {result['num_collected_steps']:,} env steps")
    return result


def _metric(task: Task) -> Callable[[Array], float] | None:
    """Return the metric of the tests: the mean over the players that count; None: over all players."""
    if task.scored == "*":
        return None
    with DummyVectorEnv(resolve(task.env, task.env_args), 1) as envs:
        counts = [fnmatch(name, task.scored) for name in envs.spec.names]
    return lambda rewards: float(rewards[:, counts].mean())


def _result(row: Row, seed: int, agents: list[mt.Agent], result: Mapping[str, Any]) -> dict[str, Any]:
    tests = result["history"]
    return {
        "env_steps": result["num_collected_steps"], "gradient_steps": result["num_gradient_steps"],
        "seconds": round(result["training_time"], 1),
        "curve": [[int(steps), float(metric)] for steps, metric in zip(tests.env_steps, tests.metric, strict=True)],
        "returns": _unseen(row, seed, agents), results.SAMPLED: _unseen(row, seed, agents, sampled=True),
    }  # fmt: skip


def _random_play(row: Row, seed: int) -> dict[str, Any]:
    agents = mt.make_agents(RANDOM, row.task.env, env_args=row.task.env_args, seed=seed)
    returns = _unseen(row, seed, agents)
    return {"env_steps": 0, "gradient_steps": 0, "seconds": 0.0, "curve": [], "returns": returns}


def _unseen(row: Row, seed: int, agents: list[mt.Agent], *, sampled: bool = False) -> dict[str, list[float]]:
    """Return each player's returns in the final test, without exploration, or with it (`sampled`)."""
    trainer = mt.DecentralizedTrainer(
        row.task.env, row.task.env_args, num_test_envs=EPISODES_OF_A_TEST, seed=UNSEEN + seed, progress=False,
        max_test_steps=None,
    )  # fmt: skip
    test = trainer.test(agents, results.EPISODES, sampled)
    return {name: [float(value) for value in column] for name, column in zip(test.names, test.returns.T, strict=True)}
