"""Reports of leagues: players of saved runs, ratings by hand, and the HTML page."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError, SaveError
from marltrain.policies.agents.files import write_agents
from marltrain.rivals.rate_league import report_of
from marltrain.rivals.round_robin import RoundRobin
from marltrain.rivals.saved_league import RatedPlayer, read_league
from tests.cli.running import refused, said
from tests.trainer.running import ppo

ROCKS = "marltrain/rock_paper_scissors_v1"
SECTIONS = ["Ratings", "Rating over training", "Regressions", "Payoffs", "Cycles", "Nash averaging", "All pairs"]


def run_of(folder: Path, line_up: Any, mask: Any, steps: int = 96, callbacks: Any = ()) -> Path:
    trainer = mt.DecentralizedTrainer(
        ROCKS, env_args={"num_rounds": 1}, num_train_envs=4, num_test_envs=2, update_freq=16, test_freq=None, seed=0,
        progress=False, run_dir=folder, steps_per_train=steps, callbacks=list(callbacks),
    )  # fmt: skip
    trainer.train(line_up, mask, rotate=True, plot=False)
    return folder


@pytest.fixture(scope="module")
def pool_run(tmp_path_factory: Any) -> tuple[Path, Any]:
    """A run with a pool of three versions and a random player, and its pool; the last checkpoint is of its end."""
    learner = ppo(ROCKS)[0]
    pool = mt.OpponentPool(learner, every_steps=32, size=3, members={"chance": mt.RandomAgent()}, choose="uniform")
    folder = tmp_path_factory.mktemp("league") / "pool"
    return run_of(folder, [learner, pool], [1, 0], callbacks=[mt.Checkpoint(every_steps=48)]), pool


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory: Any) -> Path:
    """A run of two learners without a pool, with checkpoints after 32, 64 and 96 env steps."""
    folder = tmp_path_factory.mktemp("league") / "plain"
    return run_of(folder, ppo(ROCKS), [1, 1], callbacks=[mt.Checkpoint(every_steps=32, keep=9)])


def hands() -> list[tuple[str, RatedPlayer]]:
    """Rock at the end of training, its versions paper and scissors, and another rock, which never learned."""
    agent = mt.RandomAgent()
    players = [
        RatedPlayer("rock", (agent,), "player_0", True, env_steps=200.0, elo=30.0),
        RatedPlayer("scissors", (agent,), "player_0", env_steps=100.0, elo=20.0),
        RatedPlayer("paper", (agent,), "player_0", env_steps=0.0, elo=10.0),
        RatedPlayer("stone", (agent,)),
    ]
    return [("run", player) for player in players]


def results_of_hands(games: int = 40) -> RoundRobin:
    moves = np.array([0, 2, 1, 0])
    won = (moves[:, None] - moves) % 3 == 1
    drawn = moves[:, None] == moves
    outcomes = games * np.stack([won, drawn & ~np.eye(4, dtype=bool), won.T], -1).astype(np.int64)
    return RoundRobin(tuple(player.name for _, player in hands()), outcomes, *np.zeros((2, 4, 4)))


def test_a_report_by_hand(tmp_path):
    """Rock wins against scissors, and loses to paper: it regresses against this version alone."""
    report = report_of(results_of_hands(), hands(), "Three hands.", resamples=50, seed=0)
    found = report.regressions.set_index("player")
    assert found["regresses"].to_dict() == {"scissors": False, "paper": True}
    assert found["score"].to_dict() == {"scissors": 1.0, "paper": 0.0} and set(found["final"]) == {"rock"}
    assert report.cycles == [("rock", "scissors", "paper"), ("scissors", "paper", "stone")]
    assert report.history["player"].tolist() == ["paper", "scissors", "rock"]
    assert report.history["env_steps"].tolist() == [0, 100, 200]
    both = report.ratings.dropna(subset="elo")
    assert both["elo"].mean() == pytest.approx(both["rating"].mean())
    assert both.loc[["rock", "scissors", "paper"], "elo"].diff().dropna().tolist() == pytest.approx([-10, -10])
    assert report.ratings.loc[["rock", "stone"], "nash"].sum() == pytest.approx(1 / 3, abs=0.01)
    said_of = repr(report)
    assert "rock > scissors > paper > rock" in said_of and '"rock" regresses: 1 of 2' in said_of
    page = report.save(tmp_path / "hands.html").read_text(encoding="utf-8")
    assert re.findall("<h2>(.*?)</h2>", page) == SECTIONS
    assert "rock wins against scissors wins against paper wins against rock" in page
    assert not re.search(r"href=|<script|@import|url\(|https?://", page)
    assert page.count("data:image/png;base64,") == page.count("src=") == 2
    with pytest.raises(ConfigError, match=r"\.html"):
        report.save(tmp_path / "hands.txt")


def test_single_results_do_not_make_a_cycle():
    """One game of each pair has no confidence of 95 %; `RoundRobin.cycles()` counts it."""
    results = results_of_hands(games=1)
    assert report_of(results, hands(), "", resamples=5, seed=0).cycles == []
    assert len(results.cycles()) == 2
    with pytest.raises(ConfigError, match=r"got 0\.3"):
        results.cycles(0.3)


def test_players_of_a_pool(pool_run):
    folder, pool = pool_run
    league = read_league(folder, members=9)
    table = pool.table()
    versions = [(f"at {steps}", "player_0", False, steps) for steps in (32, 64)]
    players = [(player.name, player.learner, player.final, player.env_steps) for player in league.players]
    assert players == [
        ("final", "player_0", True, 96),
        *versions,
        ("chance", "", False, pytest.approx(np.nan, nan_ok=True)),
    ]
    first = table["rating"].to_numpy()[0]
    assert [player.elo for player in league.players] == [
        pool.standings.learners, *table["rating"][table["name"].isin(["at 32", "at 64"])], first,
    ]  # fmt: skip
    assert league.source == "last/" and (league.env, league.env_args) == (ROCKS, {"num_rounds": 1})


def test_a_killed_run_is_read_from_its_checkpoint(pool_run, tmp_path):
    """Without the files of its end, the players are those of the newest checkpoint, here of the same env step."""
    killed = shutil.copytree(pool_run[0], tmp_path / "killed")
    shutil.rmtree(killed / "last")
    assert read_league(killed, members=9).source == "checkpoints/96"
    reports = [mt.league_report(run, episodes=3, resamples=5) for run in (pool_run[0], killed)]
    assert (reports[0].results.outcomes == reports[1].results.outcomes).all()
    assert reports[0].ratings.drop(columns="run").equals(reports[1].ratings.drop(columns="run"))
    shutil.rmtree(killed / "checkpoints")
    with pytest.raises(SaveError, match="checkpoint"):
        mt.league_report(killed)


def test_versions_of_a_run_without_a_pool_are_its_checkpoints(plain_run):
    """Of each learner the first and the last version are chosen."""
    league = read_league(plain_run, members=2)
    assert league.players[0].env_steps == 96
    assert [player.name for player in league.players] == [
        "player_0 final", "player_1 final", "player_0 at 32", "player_1 at 32", "player_0 at 64", "player_1 at 64",
        "random",
    ]  # fmt: skip
    for player in league.players[:2]:
        last = mt.load(plain_run / "last")[int(player.learner[-1])]
        found, expected = player.agents[0].state().arrays, last.state().arrays
        assert found.keys() == expected.keys() and all((found[name] == array).all() for name, array in expected.items())


def test_best_agents_tell_their_env_steps_themselves(plain_run, tmp_path):
    """Tables are written more rarely than agents: of a killed run the row of the best test may be missing."""
    killed = shutil.copytree(plain_run, tmp_path / "killed")
    best, players = mt.load(killed / "last"), ["player_0", "player_1"]
    for steps, found in ((None, []), (70, [f"player_{i} best 70" for i in (0, 1)])):
        write_agents(killed / "best", best, players=players, env_steps=steps)
        names = [player.name for player in read_league(killed, members=9).players]
        assert names[2:] == [f"player_{i} at {at}" for at in (32, 64) for i in (0, 1)] + found + ["random"]


def test_learners_and_versions_of_a_league(tmp_path):
    """Elo is that of the league; regressions are those of the main agent alone."""
    league = mt.League(ppo(ROCKS)[0], exploiters=1, league_exploiters=0, every_steps=32)
    folder = run_of(tmp_path / "league", league, None)
    saved = read_league(folder, members=9)
    assert [player.name for player in saved.players if player.learner] == [
        "main_0 final", "exploiter_0 final", *(f"main_0 at {steps}" for steps in (0, 32, 64)),
    ]  # fmt: skip
    ratings = league.ratings()["rating"].tolist()
    assert [player.elo for player in saved.players[:2]] == ratings and ratings[0] != ratings[1]
    table = league.table()
    of_main = table[(table["learner"] == "main_0") & (table["member"] >= 0)]
    assert [player.elo for player in saved.players[2:5]] == of_main["rating"].tolist()[:3]
    report = mt.league_report(folder, episodes=1, resamples=5)
    assert set(report.regressions["final"]) == {"main_0 final"} and len(report.regressions) == 3


def test_runs_beside_each_other(pool_run, plain_run, tmp_path):
    report = mt.league_report(
        [pool_run[0], plain_run], members=2, episodes=1, resamples=5, players={"mine": mt.RandomAgent()}
    )
    assert set(report.ratings["run"]) == {"pool", "plain", ""}
    plain = [f"plain player_{i} at {steps}" for steps in (32, 64) for i in (0, 1)]
    assert report.regressions.groupby("final")["player"].agg(list).to_dict() == {
        "pool final": ["pool at 32", "pool at 64"], "plain player_0 final": plain, "plain player_1 final": plain,
    }  # fmt: skip
    assert list(report.payoffs.index).count("random") == 1 and "mine" in report.payoffs.index
    assert report.save(tmp_path / "both.html").stat().st_size > 10_000
    other = shutil.copytree(plain_run, tmp_path / "other")
    config = (other / "config.json").read_text(encoding="utf-8").replace('"num_rounds": 1', '"num_rounds": 2')
    (other / "config.json").write_text(config, encoding="utf-8")
    with pytest.raises(ConfigError, match="num_rounds"):
        mt.league_report([plain_run, other])


def test_wrong_arguments_are_refused(pool_run, tmp_path):
    with pytest.raises(ConfigError, match="members=1"):
        mt.league_report(pool_run[0], members=1)
    with pytest.raises(ConfigError, match="'final'"):
        mt.league_report(pool_run[0], players={"final": mt.RandomAgent()})
    with pytest.raises(SaveError, match=r"config\.json"):
        mt.league_report(tmp_path)
    frozen = [mt.FrozenAgent(ppo(ROCKS)[0]), mt.RandomAgent()]
    mt.save(tmp_path / "frozen" / "last", frozen, players=["player_0", "player_1"])
    shutil.copy(pool_run[0] / "config.json", tmp_path / "frozen")
    with pytest.raises(ConfigError, match="learned"):
        mt.league_report(tmp_path / "frozen")


def test_command(pool_run, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = said(capsys, "league", pool_run[0], "--members", 2, "--episodes", 1, "--greedy", "--out", "found/page.html")
    assert "greedy" in out and "at 64" in out and out.endswith("found/page.html\n")
    page = Path("found/page.html").read_text(encoding="utf-8")
    assert re.findall("<h2>(.*?)</h2>", page) == SECTIONS
    assert ".html" in refused(capsys, "league", pool_run[0], "--members", 2, "--episodes", 1, "--out", "page.txt")
