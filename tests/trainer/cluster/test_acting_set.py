"""Sets of policies and rotating seats with runners: the driver draws and records members, runners act with them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.trainer.cluster.runners import RunnerPool, runner_envs
from tests.tiers import LONG
from tests.trainer.cluster.local_runners import local_runners  # noqa: F401 - a fixture
from tests.trainer.cluster.training import assert_equal
from tests.trainer.running import Student

TOE, ROCKS = "marltrain/tictactoe_v3", "marltrain/rock_paper_scissors_v1"
DQN: dict[str, Any] = {"learning_starts": 60, "batch_size": 16}


def trained(
    algo: str = "ppo", env: str = TOE, pool: Any = None, made: Any = None, folder: Path | None = None, **settings: Any
) -> tuple[Any, list[Any]]:
    """Return the result of a run against a pool with rotating seats, and the states of the agent and the pool."""
    agent = mt.make_agents(algo, env, seed=0, **(made or {}))[0]
    members = {"random": mt.RandomAgent(), "first": mt.FunctionAgent(lambda obs, legal: int(np.argmax(legal)))}
    rules = {"every_episodes": 8, "size": 1, **(pool or {})}
    opponents = mt.OpponentPool(agent, members=members if rules.pop("scripted", False) else (), **rules)
    few = {"num_train_envs": 5, "num_test_envs": 2, "update_freq": 100, "steps_per_train": 400, "test_freq": None,
           "seed": 0, "progress": False, "run_dir": folder or False, **settings}  # fmt: skip
    resume = folder if folder is not None and folder.exists() else None
    trainer = mt.DecentralizedTrainer(env, **few)
    result = trainer.train([agent, opponents], [1, 0], rotate=True, plot=False, resume=resume)
    return result, [agent.state(), opponents.state()]


def test_fragments_of_one_batch_step_equal_one_process(local_runners):  # noqa: F811
    """The law of the draws is then that of each batch step, as in one process."""
    given: dict[str, Any] = {"algo": "dqn", "made": DQN, "update_freq": 5}
    assert_equal(trained(**given), trained(**given, runners=2), tolerance=0.0)


class Losses(mt.Callback):
    """Ends a runner at each of some batch steps."""

    def __init__(self, *at: int) -> None:
        self.at, self.steps = at, 0

    def on_step(self, moment):
        self.steps += 1
        if self.steps in self.at:
            runner_envs(moment.trainer.run.context.envs).pool._actors[self.steps % 2].kill()


RUNS: dict[str, dict[str, Any]] = {
    "synchronous": {"pool": {"scripted": True, "present": 0.2}},
    "asynchronous": {"sync": False, "pool": {"present": 0.2}},
}
if LONG:
    RUNS |= {
        "elastic": {"min_runners": 1},
        "short": {"algo": "dqn", "made": DQN, "update_freq": 10, "sync": False, "max_lag": 4},
        "recurrent": {"env": ROCKS, "made": {"network": mt.GRU((8,))}, "pool": {"every_episodes": 4}},
    }


@pytest.mark.parametrize("run", RUNS if LONG else ["synchronous"])
def test_results_depend_neither_on_the_number_of_runners_nor_on_losses(local_runners, run):  # noqa: F811
    """Versions enter and leave while runners are lost, which repeat fragments with the members of that time."""
    found = trained(**RUNS[run], runners=2, callbacks=[Losses(18, 43, 70)])
    assert found[0]["num_faults"] >= 2
    tolerance = 1e-6 if run == "recurrent" else 0.0
    assert_equal(trained(**RUNS[run], runners=1), found, tolerance=tolerance)


@pytest.mark.parametrize("run", RUNS if LONG else ["asynchronous"])
def test_a_resumed_run_equals_one_that_was_not_stopped(local_runners, tmp_path, run):  # noqa: F811
    """Checkpoints lie within fragments: those members of later episodes that were drawn are drawn again."""
    given = {**RUNS[run], "runners": 2}

    def checkpointed(name: str, **more: Any) -> Any:
        return trained(folder=tmp_path / name, callbacks=[mt.Checkpoint(every_episodes=7)], **given, **more)

    expected = checkpointed("whole")
    checkpointed("parts", episodes_per_train=14)
    assert_equal(expected, checkpointed("parts"), tolerance=0.0)


def test_each_member_is_sent_once_to_each_runner(local_runners, monkeypatch):  # noqa: F811
    request, sent = RunnerPool.request, list[tuple[int, int]]()

    def noted(pool: Any, w: int, asked: Any, acting: Any) -> Any:
        for news in asked.members.values():
            sent.extend((w, row) for arrived in news.arrived.values() for row in arrived)
        return request(pool, w, asked, acting)

    monkeypatch.setattr(RunnerPool, "request", noted)
    _, states = trained(runners=2, pool={"every_episodes": 8, "size": 100})
    number = max(row for _, row in sent) + 1  # later versions entered after the last fragment was ordered
    assert 3 < number <= len(states[1].info["pool"]["members"])
    assert sorted(sent) == [(w, row) for w in range(2) for row in range(number)]


def test_members_are_drawn_by_the_law(local_runners):  # noqa: F811
    """Games of one round: each batch step begins an episode in each of 6 environments."""
    shares = np.array([0.2, 0.5, 0.3])
    hands = [mt.FunctionAgent(lambda obs, hand=hand: hand) for hand in range(3)]
    short = {"num_rounds": 1}
    agent = mt.make_agents("ppo", ROCKS, seed=0, env_args=short)[0]
    trainer = mt.DecentralizedTrainer(
        ROCKS, env_args=short, num_train_envs=6, update_freq=240, steps_per_train=3_600, test_freq=None, seed=1,
        progress=False, run_dir=False, runners=2,
    )  # fmt: skip
    result = trainer.train([agent, mt.MixedAgent(hands, shares)], [1, 0], plot=False)
    played = result["episodes"]["member/player_1"].value_counts().reindex(range(3), fill_value=0)
    assert played.sum() == 3_600
    assert chisquare(played, shares * played.sum()).pvalue > 0.01


def test_members_that_runners_cannot_hold_are_refused(local_runners):  # noqa: F811
    agent, _ = mt.make_agents("ppo", ROCKS, seed=0)
    with pytest.raises(ConfigError, match=r"runners.*player_1.*Student"):
        trainer = mt.DecentralizedTrainer(ROCKS, num_train_envs=2, steps_per_train=8, runners=2, run_dir=False)
        trainer.train([agent, mt.MixedAgent([agent, Student(np.argmax)])], [1, 0], plot=False)


@pytest.mark.usefixtures("ray_cluster")
def test_in_actors_of_ray():
    given: dict[str, Any] = {"algo": "dqn", "made": DQN, "update_freq": 5, "steps_per_train": 200}
    assert_equal(trained(**given), trained(**given, runners=1), tolerance=0.0)
