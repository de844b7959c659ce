"""Leagues with runners: each runner holds parts of some matches."""

from pathlib import Path
from typing import Any

import pytest

import marltrain as mt
from marltrain.trainer.cluster.collector import RunnerCollector
from tests.tiers import LONG
from tests.trainer.cluster.local_runners import local_runners  # noqa: F401 - a fixture
from tests.trainer.cluster.test_acting_set import DQN, ROCKS, TOE, Losses
from tests.trainer.cluster.training import assert_equal


def trained(
    algo: str = "ppo", env: str = TOE, made: Any = None, folder: Path | None = None, league: Any = None, **settings: Any
) -> tuple[Any, list[Any]]:
    """Return the result of a league's run with rotating seats, and the states of its agents and its pool.

    Exploiters begin again in the middle of fragments of 20 batch steps.
    """
    agent = mt.make_agents(algo, env, seed=0, **(made or {}))[0]
    rules = {"every_steps": 100, "size": 2, "longest": 250, "seed": 0, **(league or {})}
    few = {"num_train_envs": 9, "num_test_envs": 2, "update_freq": 60, "steps_per_train": 603, "test_freq": None,
           "seed": 0, "progress": False, "run_dir": folder or False, **settings}  # fmt: skip
    resume = folder if folder is not None and folder.exists() else None
    matches = mt.League(agent, **rules)
    result = mt.DecentralizedTrainer(env, **few).train(matches, rotate=True, plot=False, resume=resume)
    return result, [each.state() for each in matches.agents]


def test_fragments_of_one_batch_step_equal_one_process(local_runners):  # noqa: F811
    """Six environments of two matches in three runners, without games against agents as they are."""
    given: dict[str, Any] = {
        "algo": "dqn", "made": DQN, "update_freq": 3, "num_train_envs": 6, "league": {"present": 0.0, "exploiters": 0},
    }  # fmt: skip
    assert_equal(trained(**given), trained(**given, runners=3), tolerance=0.0)


RUNS: dict[str, dict[str, Any]] = {"synchronous": {}, "asynchronous": {"sync": False}}
if LONG:
    RUNS |= {"elastic": {"min_runners": 1}, "recurrent": {"env": ROCKS, "made": {"network": mt.GRU((8,))}}}


@pytest.mark.parametrize("run", RUNS if LONG else ["asynchronous"])
def test_results_depend_neither_on_the_number_of_runners_nor_on_losses(local_runners, run):  # noqa: F811
    """Nine environments of three matches: runner 0 of two holds one and a part of the second."""
    found = trained(**RUNS[run], runners=2, callbacks=[Losses(18, 43, 60)])
    assert found[0]["num_faults"] >= 2
    tolerance = 1e-6 if run == "recurrent" else 0.0
    assert_equal(trained(**RUNS[run], runners=1), found, tolerance=tolerance)


@pytest.mark.parametrize("run", RUNS if LONG else ["synchronous"])
def test_a_resumed_run_equals_one_that_was_not_stopped(local_runners, tmp_path, run):  # noqa: F811
    given = {**RUNS[run], "runners": 2}

    def checkpointed(name: str, **more: Any) -> Any:
        return trained(folder=tmp_path / name, callbacks=[mt.Checkpoint(every_episodes=7)], **given, **more)

    expected = checkpointed("whole")
    checkpointed("parts", episodes_per_train=42)
    assert_equal(expected, checkpointed("parts"), tolerance=0.0)


def test_exploiters_that_begin_again_act_with_their_new_weights_at_once(local_runners, monkeypatch):  # noqa: F811
    """Both begin again after 252 and 504 env steps: then, and at the end, runners return to the present Step."""
    settle, at = RunnerCollector.settle, list[int]()

    def noted(collector: Any) -> None:
        at.append(collector._given)
        settle(collector)

    monkeypatch.setattr(RunnerCollector, "settle", noted)
    _, states = trained(runners=2)
    assert states[-1].arrays["resets"].tolist() == [0, 2, 2]
    assert len(at) == 3 and all(at)
