"""Round robins at the tests of a run: tables, logged numbers and pictures, exact resume, wrong line-ups."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.rivals.rated_now import trained_league
from tests.rivals.leagues import ROCKS, league_of, trainer as trainer_of
from tests.toys import Identity
from tests.trainer.running import SMALL, ppo, tables

HANDS = ("rock", "paper", "scissors")


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def hand(number: int) -> mt.FunctionAgent:
    return mt.FunctionAgent(lambda observation: number)


def run(steps: int, folder: Any, *, rated: bool = True, resume: Any = None) -> tuple[dict[str, Any], Any]:
    """A learner against the three hands and its versions, with tests after 0, 48, 96, ... env steps."""
    learner = ppo(ROCKS)[0]
    pool = mt.OpponentPool(
        learner, members={name: hand(i) for i, name in enumerate(HANDS)}, every_steps=36, size=3, choose="uniform"
    )
    callbacks = [mt.Checkpoint(every_steps=48), *([mt.LeagueRatings(episodes=4, resamples=5)] if rated else [])]
    trainer = trainer_of(
        env_args={"num_rounds": 1}, steps_per_train=steps, test_freq_steps=48, run_dir=folder, callbacks=callbacks
    )
    return trainer.train([learner, pool], [1, 0], rotate=True, plot=False, resume=resume), learner


def written(folder: str) -> list[str]:
    return [pd.read_parquet(Path(folder) / f"{name}.parquet").to_csv() for name in ("payoffs", "ratings")]


def test_results_are_those_of_a_round_robin_and_change_nothing():
    """The three hands are a cycle; the learner's games are those that `round_robin` plays with the run's seed."""
    result, learner = run(96, "run")
    plain, _ = run(96, "plain", rated=False)
    history = result["history"]
    assert tables({**result, "history": history.drop(columns=[name for name in history if "league/" in name])}) == (
        tables(plain)
    )
    pairs = pd.read_parquet("run/payoffs.parquet")
    assert pairs["env_steps"].unique().tolist() == history["env_steps"].tolist() == [0, 48, 96]
    last = pairs[pairs["env_steps"] == 96].set_index(["first", "second"])
    assert [last.loc[pair, "score"] for pair in (HANDS[:2], HANDS[1:], HANDS[::2])] == [0.0, 0.0, 1.0]
    players = {"now": learner, **{name: hand(i) for i, name in enumerate(HANDS)}, "random": mt.RandomAgent()}
    expected = mt.round_robin(players, ROCKS, {"num_rounds": 1}, episodes=4, num_test_envs=2, seed=0).pairs()
    for row in expected.to_dict("records"):
        assert last.loc[row["first"], row["second"]][["wins", "draws", "losses"]].tolist() == [
            row["wins"], row["draws"], row["losses"],
        ]  # fmt: skip
    rated = pd.read_parquet("run/ratings.parquet")
    rated = rated[rated["env_steps"] == 96].set_index("player")
    assert rated.loc[["at 36", "now"], "entered"].tolist() == [36, 96]
    assert rated.loc["now", "learner"] == "player_0" and rated["nash"].sum() == pytest.approx(1)
    logged = history.iloc[-1]
    assert logged["league/cycles"] >= 1 and logged["league/nash_players"] == (rated["nash"] >= 0.01).sum()
    assert logged["league/nash/player_0"] == rated.loc["now", "nash"]
    ratings = rated["rating"].to_dict()
    assert logged["league/rating/player_0"] == pytest.approx(ratings["now"] - ratings["random"])
    board = EventAccumulator("run").Reload()
    assert [point.step for point in board.Images("league/payoffs")] == [0, 48, 96]
    assert [point.value for point in board.Scalars("league/cycles")] == history["league/cycles"].tolist()


def test_resume_is_exact():
    expected, _ = run(96, "whole")
    run(48, "half")
    result, _ = run(96, "half", resume="half")
    assert tables(result) == tables(expected)
    assert written("half") == written("whole")


def test_a_league():
    """Each learner has its numbers; only main agents can regress."""
    league = league_of(ppo(ROCKS, {})[0], exploiters=1, league_exploiters=0)
    result = trainer_of(
        env_args={"num_rounds": 1}, num_train_envs=4, steps_per_train=60, test_freq_steps=60, run_dir="run",
        callbacks=[mt.LeagueRatings(episodes=1, resamples=2)],
    ).train(league, rotate=True, plot=False)  # fmt: skip
    numbers = {name for name in result["history"] if name.startswith("league/")}
    assert numbers == {
        "league/cycles", "league/nash_players", "league/regressions/main_0",
        *(f"league/{what}/{name}" for what in ("rating", "nash", "nash_rating") for name in ("main_0", "exploiter_0")),
    }  # fmt: skip
    rated = pd.read_parquet("run/ratings.parquet")
    names = set(rated[rated["env_steps"] == 60]["player"])
    assert names == {"main_0 now", "exploiter_0 now", "main_0 at 0", "main_0 at 52", "random"}


def test_a_team_is_rated_in_training_and_in_the_report():
    """Both seats of a side hold agents of one version."""
    args = {"players": 4, "length": 3}
    team = mt.make_agents("ppo", Identity, env_args=args, seed=0, network=SMALL)[:2]
    pool = mt.OpponentPool([tuple(team)], every_steps=30, size=2)
    trainer = mt.DecentralizedTrainer(
        Identity, env_args=args, num_train_envs=3, num_test_envs=2, update_freq=10, test_freq=None, test_freq_steps=45,
        steps_per_train=45, episodes_per_test=2, seed=0, run_dir="run", progress=False,
        callbacks=[mt.LeagueRatings(episodes=3, resamples=5)],
    )  # fmt: skip
    trainer.train([*team, *pool.seats], [1, 1, 0, 0], plot=False)
    rated = pd.read_parquet("run/ratings.parquet")
    assert set(rated[rated["env_steps"] == 45]["player"]) == {"now", "at 0", "at 30", "random"}
    report = mt.league_report("run", episodes=3, resamples=5, env=Identity, players={"mine": [mt.RandomAgent()] * 2})
    assert set(report.ratings.index) == {"final", "at 0", "at 30", "random", "mine"}
    assert report.ratings.loc["final", "learner"] == "player_0+player_1"
    sides = (["player_0", "player_1"], ["player_2", "player_3"])
    versions = {name: [seat.member(number) for seat in pool.seats] for number, name in enumerate(("at 0", "at 30"))}
    expected = mt.round_robin(
        {"final": team, **versions}, Identity, args, sides=sides, episodes=3, num_test_envs=16, seed=0
    )
    with pytest.raises(ConfigError, match="2 agents in each team, and 'alone' has 1"):
        mt.round_robin({"final": team, "alone": team[0]}, Identity, args, sides=sides)
    with pytest.raises(ConfigError, match=r"two teams with equal spaces, \[\['player_0'\], \['player_2'\]\]"):
        mt.round_robin({"final": team, **versions}, Identity, args, sides=(["player_0"], ["player_2"]))
    order = list(expected.names)
    assert np.nan_to_num(report.payoffs.loc[order, order]).tolist() == np.nan_to_num(expected.scores).tolist()


def test_wrong_line_ups_and_runs_are_refused():
    agents = ppo(ROCKS)
    with pytest.raises(ConfigError, match=r"OpponentPool.*got PPO, RandomAgent"):
        trained_league({"player_0": agents[0], "player_1": mt.RandomAgent()})
    pool = mt.OpponentPool(agents[0], every_steps=30)
    with pytest.raises(ConfigError, match=r"two players.*player_0, player_1, player_2"):
        trained_league({"player_0": agents[0], "player_1": pool, "player_2": agents[1]})
    with pytest.raises(ConfigError, match="test_freq"):
        trainer_of(callbacks=[mt.LeagueRatings()], steps_per_train=60).train([agents[0], pool], [1, 0], plot=False)
    with pytest.raises(ConfigError, match=r"members.*1"):
        mt.LeagueRatings(members=1)
