"""Leagues: who plays which episode, the rows that are learned, exploiters that begin again, resume, wrong input."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces
from scipy.stats import chisquare

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError, SaveError
from marltrain.rivals.league_results import LeagueResults
from tests.rivals.leagues import ROCKS, TOE, league_of, trainer
from tests.toys import Identity
from tests.trainer.running import SMALL, noted_batches, ppo, tables, weights

NAMES = ("main_0", "exploiter_0", "league_exploiter_0")


def agents_of(league: mt.League) -> list[Any]:
    return [player.agent for player in league.learners]


class TestDraws:
    def test_each_learner_has_its_own_opponents(self):
        """In 3,000 draws of each match: shares of the laws, from results that are set by hand."""
        league = league_of(ppo(ROCKS, {}), exploiters=1, league_exploiters=1, present=0.4, choose="prioritized")
        pool = league.pool
        pool.start(0, 0)
        assert [member.name for member in pool.members] == ["main_0 at 0", "main_1 at 0"]
        pool.standings.points[0, 4:], pool.standings.games[0, 4:] = [0.5, 0.0], 1.0  # (1 - p)^2: 1 to 4
        pool.standings.points[3, 4:], pool.standings.games[3, 4:] = [1.0, 0.5], 1.0  # 0 to 1
        pool.standings.wins[[0, 3], 4:] = 10  # enough for these scores
        matches = np.tile(np.arange(4), 3000)
        drawn = pool.draw(matches)
        assert set(drawn[matches == 2]) == {-1}  # the main exploiter meets main_0 as it is
        assert set(drawn[matches == 3]) == {1}
        for match, law in ((0, [0.2, 0.2, 0.12, 0.48]), (1, [0.2, 0.2, 0.3, 0.3])):
            counts = [(drawn[matches == match] == number).sum() for number in (-1, -2, 0, 1)]
            assert chisquare(counts, 3000 * np.array(law)).pvalue > 0.01
            own = league.table()[league.table()["learner"] == f"main_{match}"]
            assert dict(zip(own["member"], own["share"].round(6), strict=True)) == dict(
                zip((-1, -2, 0, 1), law, strict=True)
            )

    def test_the_table_of_episodes_tells_who_played(self):
        """Members and matches as they were drawn; the exploiter plays main_0 alone; seats alternate."""
        league = league_of(ppo(ROCKS, {})[0], every_steps=100)
        run = trainer(env_args={"num_rounds": 1}, steps_per_train=600)
        episodes = run.train(league, rotate=True, plot=False)["episodes"]
        assert (episodes["match"] == np.array(NAMES)[episodes["env"] // 2]).all()
        members = episodes.groupby("match")["member/player_1"].agg(set)
        assert members["exploiter_0"] == {-1} and min(members["league_exploiter_0"]) == 0 > min(members["main_0"])
        assert set(episodes["seat/player_0"]) == {0, 1}
        played = league.ratings().set_index("learner")["games"]
        assert played["main_0"] == (episodes["match"] == "main_0").sum()


def test_each_learner_learns_from_its_own_match_and_all_are_one_stack(monkeypatch):
    """A batch has a row for each learner; in the match of a learner the other player is another entry."""
    batches = noted_batches(monkeypatch)
    league = league_of(ppo(ROCKS, {})[0], wins=1.0)
    result = trainer(env_args={"num_rounds": 3}, steps_per_train=48 * 3, update_freq=16).train(league, plot=False)
    stacks = {id(agent.learner_) for agent in agents_of(league)}
    assert len(stacks) == 1 and [agent.row for agent in agents_of(league)] == [0, 1, 2]
    assert {batch.action.shape[:2] for batch in batches} == {(3, 16)}  # update_freq counts a match's own env steps
    assert result["num_updates"] == 3 == len(batches)
    assert [len({batch.obs[k].tobytes() for batch in batches}) for k in range(3)] == [3, 3, 3]


class TestExploiters:
    @pytest.mark.parametrize("reset", ["initial", "new"])
    def test_a_winner_becomes_a_version_and_begins_again(self, reset):
        league = league_of(ppo(ROCKS, {})[0], reset=reset, wins=0.7, least_games=3, every_steps=96)
        before = weights(agents_of(league))
        trainer(env_args={"num_rounds": 3}, steps_per_train=96).train(league, [1, 1, 1, 0, 0, 0], plot=False)
        pool, exploiter = league.pool, league["exploiter_0"]
        trained = weights([exploiter])[0]
        one = np.ones(1)
        pool.standings.begin_again(1)
        for _ in range(3):
            assert not pool.collected(100, 0, np.zeros(6, np.int64))
            pool.finished(np.array([-1]), -one, one, np.array([1]))
        assert pool.collected(100, 0, np.zeros(6, np.int64)) == [1]
        version = pool.members[-1]
        assert (version.name, version.env_steps) == ("exploiter_0 at 100", 100)
        after, kept = weights([exploiter])[0], weights([pool.member(version.number)])[0]
        nets = [name for name in after if name.startswith("net/")]
        assert all((kept[name] == trained[name]).all() for name in nets)
        same = [(after[name] == before[1][name]).all() for name in nets]
        assert all(same) if reset == "initial" else not all(same)
        assert any((trained[name] != before[1][name]).any() for name in nets)
        assert not any(array.any() for name, array in after.items() if name.startswith("optimizer/"))
        assert pool.resets.tolist() == [0, 1, 0] and pool.standings.count[1] == 0

    def test_after_the_longest_time_it_begins_again_and_its_running_episodes_are_no_results(self):
        """Episodes end after 4, 8 and 12 steps of 6 environments, and exploiters begin again after 5 and 10."""
        league = league_of(ppo(ROCKS, {})[0], longest=30, wins=1.0, every_steps=60, size=16)
        run = trainer(env_args={"num_rounds": 4}, steps_per_train=84)
        episodes = run.train(league, plot=False)["episodes"]
        assert league.pool.resets.tolist() == [0, 2, 2]
        assert [m.name for m in league.pool.members if m.name.startswith("exploiter")] == [
            "exploiter_0 at 30", "exploiter_0 at 60"
        ]  # fmt: skip
        table = league.ratings().set_index("learner")
        assert table.loc["main_0", "games"] == (episodes["match"] == "main_0").sum() == 6
        assert table.loc["exploiter_0", "games"] == 0 and table.loc["exploiter_0", "began"] == 60

    def test_the_longest_time_counts_in_each_run(self):
        """A further run counts env steps from 0: exploiters that began at 60 of the first one begin again at 30."""
        league = league_of(ppo(ROCKS, {})[0], longest=30, wins=1.0, every_steps=60, size=16)
        trainer(env_args={"num_rounds": 4}, steps_per_train=72).train(league, plot=False)
        assert league.pool.began.tolist() == [0, 60, 60]
        trainer(env_args={"num_rounds": 4}, steps_per_train=60, update_freq=8).train(league, plot=False)
        assert league.pool.resets.tolist() == [0, 4, 4] and league.pool.began.tolist() == [0, 60, 60]

    def test_decisions_before_it_began_again_are_in_no_rollout(self, monkeypatch):
        batches = noted_batches(monkeypatch)
        league = league_of(ppo(ROCKS, {})[0], longest=60, wins=1.0, every_steps=1000, league_exploiters=0)
        trainer(env_args={"num_rounds": 4}, num_train_envs=4, update_freq=20, steps_per_train=1000).train(
            league, plot=False, exploration_mask=None
        )
        rows = [(batch.weight[0] > 0).sum() for batch in batches], [(batch.weight[1] > 0).sum() for batch in batches]
        assert set(rows[0]) == {20} and min(rows[1]) < 20


def test_versions_leave_but_the_newest_of_each_main_agent():
    league = league_of(ppo(ROCKS, {}), size=3, every_steps=10, exploiters=0, league_exploiters=0, leaves="weakest")
    pool = league.pool
    pool.start(0, 0)
    pool.collected(10, 0, np.zeros(1, np.int64))
    assert [member.number for member in pool.members] == [1, 2, 3]  # all scores are equal: the oldest leaves
    one = np.ones(2)
    pool.finished(np.array([1, 2]), np.array([1.0, -1.0]), np.array([-1.0, 1.0]), np.array([0, 1]))
    pool.collected(20, 0, np.zeros(1, np.int64))
    assert [member.number for member in pool.members] == [1, 4, 5] and len(one) == 2


def test_results_by_hand():
    """Learner 0 beats learner 1 as it is and draws with member 0, which then has its rating; decay 0.5."""
    found = LeagueResults(2, 0.5)
    found.enter("member", 0, 4.0)
    found.add(0, -2, 1.0, -1.0)
    assert found.ratings.tolist() == [8.0, -8.0, 4.0] and found.played.tolist() == [[0, 1, 0], [0, 0, 0]]
    found.add(0, -1, 3.0, -3.0)  # against itself: no rating changes
    found.add(0, 0, 0.0, 0.0)
    assert found.ratings[0] == pytest.approx(8 - 16 * (1 / (1 + 10 ** (-4 / 400)) - 0.5)) and found.ratings[1] == -8
    assert found.recent.tolist() == [[1.25, 1.75], [0, 0]] and found.returns[0].tolist() == [3.0, 1.0, 0.0]
    assert found.of(0).scores.tolist() == [0.5] and found.of(0).played.tolist() == [1]
    found.begin_again(0)
    assert found.ratings[0] == 0 and found.played.sum() == 0 and found.count.tolist() == [0, 0]


@pytest.mark.parametrize("kind", ["ppo", "dqn", "three players"])
def test_resume_is_exact(kind, tmp_path, monkeypatch):
    """Stopped after exploiters began again, in the middle of episodes, and resumed by new objects."""
    monkeypatch.chdir(tmp_path)
    env, args = (Identity, {"players": 3, "length": 3}) if kind == "three players" else (TOE, {})

    def league() -> mt.League:
        own: dict[str, Any] = {"learning_starts": 0} if kind == "dqn" else {}
        agent = mt.make_agents(kind if kind == "dqn" else "ppo", env, env_args=args, seed=0, network=SMALL, **own)[0]
        reset = "new" if kind == "dqn" else "initial"
        return league_of(agent, longest=50, every_steps=40, size=3, reset=reset, members={"random": mt.RandomAgent()})

    def run(given: mt.League, steps: int, **more: Any) -> Any:
        settings = {"callbacks": [mt.Checkpoint(every_steps=1000)], "test_freq": 10, "episodes_per_test": 3}
        mine = trainer(env, env_args=args, steps_per_train=steps, run_dir=more.pop("folder", None), **settings)
        return mine.train(given, rotate=True, plot=False, **more)

    whole, rest = league(), league()
    expected = run(whole, 240, folder="whole")
    run(league(), 120, folder="half")
    result = run(rest, 240, resume="half")
    assert tables(result) == tables(expected)
    assert whole.pool.resets[1] >= 4
    assert rest.table().to_string() == whole.table().to_string()
    assert rest.ratings().to_string() == whole.ratings().to_string()
    same = zip(weights(agents_of(rest)), weights(agents_of(whole)), strict=True)
    assert all((a[name] == b[name]).all() for a, b in same for name in a)
    if kind == "ppo":
        _check_files(Path("whole"), league, run)


def _check_files(folder: Path, league: Any, run: Any) -> None:
    """Columns and agents are named by the learners; another league cannot resume the run."""
    tests = pd.read_parquet(folder / "history.parquet")
    assert {f"{name}/{what}" for name in NAMES for what in ("loss/total", "elo/learner", "score")} <= set(tests.columns)
    assert tests["exploiter_0/resets"].max() >= 3 and tests["main_0/resets"].max() == 0
    results = pd.read_parquet(folder / "members.parquet")
    assert list(dict.fromkeys(results["player"])) == list(NAMES)
    assert results[results["player"] == "exploiter_0"]["name"].tolist() == ["main_0"]
    assert results["name"].str.startswith("exploiter_0 at").any()
    assert set(pd.read_parquet(folder / "episodes.parquet")["match"]) == set(NAMES)
    assert len(mt.load(folder / "last")) == 6
    other = mt.League(league()["main_0"], choose="uniform", longest=50, every_steps=40, size=3)
    with pytest.raises(ConfigError, match="choose"):
        run(other, 480, resume=folder)
    with pytest.raises(SaveError, match="learners is main_0, exploiter_0, league_exploiter_0"):
        league_of(league()["main_0"], exploiters=2).pool.restore(league().pool.state())


class TestErrors:
    def test_environments(self):
        with pytest.raises(ConfigError, match=r"num_train_envs=4 .* 3 matches .* give 3 or 6"):
            trainer(num_train_envs=4, steps_per_train=100).train(league_of(ppo(ROCKS, {})[0]), plot=False)
        with pytest.raises(ConfigError, match=r"num_train_envs=2 .* give 3"):
            trainer(num_train_envs=2, steps_per_train=100).train(league_of(ppo(ROCKS, {})[0]), plot=False)

    @pytest.mark.parametrize("settings", [{"shared_memory": True}, {"on_fault": "restart"}, {"team_reward": "mean"}])
    def test_settings_of_the_trainer(self, settings):
        with pytest.raises(ConfigError, match=next(iter(settings))):
            trainer(steps_per_train=100, **settings).train(league_of(ppo(ROCKS, {})[0]), plot=False)

    def test_other_spaces(self):
        agents = ppo(ROCKS, {})
        other = mt.PPO(spaces.Box(-1, 1, (9,)), spaces.Discrete(2), seed=0)
        with pytest.raises(AgentError, match="equal spaces"):
            mt.League(agents[0], exploiters=[other])
        with pytest.raises(AgentError, match=r"main_0.*space"):
            trainer(TOE, steps_per_train=100).train(league_of(agents[0]), plot=False)
        with pytest.raises(AgentError, match="at least two"):
            trainer("marltrain/CartPole-v1", steps_per_train=100).train(league_of(agents[0]), plot=False)

    def test_a_pool_that_is_never_filled(self):
        with pytest.raises(ConfigError, match=r"every_steps=50,000, and training ends after 90 steps"):
            trainer(steps_per_train=90).train(mt.League(ppo(ROCKS, {})[0]), plot=False)
        with pytest.raises(AgentError, match="give train"):
            trainer(steps_per_train=90).train([ppo(ROCKS, {})[0], league_of(ppo(ROCKS, {})[0]).pool], plot=False)

    @pytest.mark.parametrize("kind", [mt.League, mt.OpponentPool])
    def test_members_that_are_no_list(self, kind):
        with pytest.raises(AgentError, match=rf"{kind.__name__}: members= .* RandomAgent"):
            kind(ppo(ROCKS, {})[0], members=mt.RandomAgent())

    def test_learners(self):
        agents = ppo(ROCKS, {})
        with pytest.raises(AgentError, match="given twice"):
            mt.League(agents, exploiters=[agents[0]])
        with pytest.raises(AgentError, match="RandomAgent"):
            mt.League(mt.RandomAgent())
        with pytest.raises(ConfigError, match="at least one main agent"):
            mt.League([])
        with pytest.raises(ConfigError, match="exploiters must be at least 0, got -1"):
            mt.League(agents, exploiters=-1)
        with pytest.raises(ConfigError, match="size=1"):
            mt.League(agents, size=1)
        with pytest.raises(AgentError, match="MAPPO"):
            mt.League(mt.make_agents("mappo", ROCKS, seed=0)[0])
        with pytest.raises(ConfigError, match="main_0, exploiter_0"):
            league_of(agents[0])["main"]

    def test_criteria_over_episodes(self):
        stopping = mt.EarlyStopping(target=1.0, episodes=10)
        with pytest.raises(ConfigError, match=r"EarlyStopping\(episodes"):
            trainer(steps_per_train=100, callbacks=[stopping]).train(league_of(ppo(ROCKS, {})[0]), plot=False)
