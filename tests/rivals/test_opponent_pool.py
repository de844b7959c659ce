"""Pools of opponents: who plays which episode, results, versions that enter and leave, resume."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from gymnasium import spaces
from scipy.stats import chisquare

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.rivals.laws import by_rating, latest, prioritized, uniform
from marltrain.rivals.standings import Standing, Standings
from tests.toys import Identity
from tests.trainer.running import SMALL, Student, ppo, tables, weights

ROCKS, FOUR, TOE = "marltrain/rock_paper_scissors_v1", "marltrain/connect_four_v3", "marltrain/tictactoe_v3"


def trainer(env: Any = ROCKS, **settings: Any) -> mt.DecentralizedTrainer:
    few = {"num_train_envs": 4, "num_test_envs": 2, "update_freq": 16, "test_freq": None, "seed": 0, "progress": False,
           "run_dir": False, **settings}  # fmt: skip
    return mt.DecentralizedTrainer(env, **few)


def hand(number: int) -> Any:
    return mt.FunctionAgent(lambda observation: number)


def hands() -> dict[str, Any]:
    return {name: hand(number) for number, name in enumerate(("rock", "paper", "scissors"))}


def standing(scores: Any, ratings: Any = (0, 0, 0), games: int = 10) -> Standing:
    """Members with these scores and ratings, and numbers of games."""
    found, numbers = Standings(1.0), np.arange(len(scores))
    found.points, found.games, found.rating = np.array(scores), np.ones(len(scores)), np.array(ratings)
    found.losses = found.draws = 0 * numbers
    found.wins = found.losses + games
    return Standing(found, numbers, numbers)


class TestLaws:
    def test_prioritized_weights_are_the_formulas(self):
        members = standing([0.5, 0.9, 1.0])
        np.testing.assert_allclose(prioritized("hard", 2.0)(members), [0.25, 0.01, 0.0], atol=1e-12)
        np.testing.assert_allclose(prioritized("hard", 1.0)(members), [0.5, 0.1, 0.0], atol=1e-12)
        np.testing.assert_allclose(prioritized("even", 2.0)(members), [0.25, 0.09, 0.0], atol=1e-12)
        assert prioritized("hard", 2.0)(standing([1.0, 1.0])).tolist() == [1, 1]

    def test_missing_games_count_as_draws(self):
        """Four won games of ten: (4 + 6 / 2) / 10 = 0.7 of the points; none: 0.5."""
        np.testing.assert_allclose(prioritized("hard", 1.0)(standing([1.0, 0.0], games=4)), [0.3, 0.7])
        np.testing.assert_allclose(prioritized("hard", 1.0)(standing([1.0, 0.0], games=0)), [0.5, 0.5])

    def test_others(self):
        members = standing([0.5, 0.9, 1.0], [0.0, 400.0, -400.0])
        assert latest(members).tolist() == [0, 0, 1] and uniform(members).tolist() == [1, 1, 1]
        np.testing.assert_allclose(by_rating(members), [1 / 4, 10 / 121, 10 / 121])


def test_standings_by_hand():
    """Two wins, a draw and a loss with decay 0.5: 0.5 / 2 + 1 / 4 + 1 / 8 points of 1 + 1 / 2 + 1 / 4 + 1 / 8 games."""
    found = Standings(decay=0.5)
    found.enter()
    points = [found.add(0, own, others) for own, others in ((-1, 1), (-1, 1), (0, 0), (2, -1))]
    assert points == [1.0, 1.0, 0.5, 0.0]
    assert (found.wins[0], found.draws[0], found.losses[0], found.played[0]) == (2, 1, 1, 4)
    assert (found.own[0], found.others[0], found.scores[0]) == (0, 1, 0.625 / 1.875)
    one = Standings(decay=1.0)
    one.enter()
    one.add(0, -1, 1)
    assert (one.learners, one.rating[0]) == (8.0, -8.0)
    one.enter()
    assert one.rating.tolist() == [-8.0, 8.0] and one.scores.tolist() == [1.0, 0.5]


def test_episodes_are_drawn_by_the_law_and_recorded():
    """Three hands with shares 0.6, 0.3 and 0.1; each environment draws its own."""
    mixed = mt.MixedAgent(hands(), [6, 3, 1])
    run = trainer(env_args={"num_rounds": 1}, steps_per_train=1000)
    result = run.train([ppo(ROCKS)[0], mixed], [1, 0], plot=False)
    counts = result["episodes"]["member/player_1"].value_counts().reindex([0, 1, 2]).to_numpy()
    assert counts.sum() == len(result["episodes"]) >= 990
    assert chisquare(counts, counts.sum() * np.array([0.6, 0.3, 0.1])).pvalue > 0.01
    by_env = result["episodes"].groupby("env")["member/player_1"].agg(list)
    assert not any(by_env[0] == by_env[env] for env in (1, 2, 3))


def test_prioritized_draws_of_three_hands_equal_the_formula():
    """A learner that always shows rock: 1/2 against rock, 0 against paper, 1 against scissors."""
    learner = Student(lambda observation: 0)
    pool = mt.OpponentPool(members=hands(), choose="prioritised")
    run = trainer(env_args={"num_rounds": 1}, steps_per_train=3000)
    episodes = run.train([learner, pool], [1, 0], plot=False)["episodes"]
    table = pool.table()
    np.testing.assert_allclose(table["score"], [0.5, 0.0, 1.0])
    np.testing.assert_allclose(table["share"], [0.2, 0.8, 0.0])
    later = episodes["member/player_1"][300:].value_counts().reindex([0, 1, 2], fill_value=0).to_numpy()
    assert later[2] == 0
    assert chisquare(later[:2], later.sum() * np.array([0.2, 0.8])).pvalue > 0.01
    assert table[["wins", "draws", "losses"]].to_numpy()[:2].tolist() == [
        [0, table.games[0], 0],
        [0, 0, table.games[1]],
    ]
    played = episodes["member/player_1"].value_counts()
    assert table["games"].tolist() == [played.get(number, 0) for number in range(3)]


def test_only_the_learners_rows_are_learned():
    """The learner's batches hold exactly its own decisions; the agents of the pool never change."""
    student, other = Student(lambda observation: 1), ppo(ROCKS, seed=3)[1]
    before = weights([other])
    pool = mt.OpponentPool(members=[other], choose="latest")
    trainer(env_args={"num_rounds": 3}, steps_per_train=48).train([student, pool], [1, 0], plot=False)
    actions = np.concatenate([batch.action for batch in student.seen])
    assert len(actions) >= 32 and (actions == 1).all()
    assert all((a[name] == b[name]).all() for a, b in zip(before, weights([other]), strict=True) for name in a)


def test_versions_enter_and_leave():
    agent = ppo(FOUR)[0]
    pool = mt.OpponentPool(agent, every_steps=40, size=2, members={"random": mt.RandomAgent()}, choose="uniform")
    result = trainer(FOUR, steps_per_train=200, update_freq=40).train([agent, pool], [1, 0], plot=False)
    assert [(m.number, m.name, m.env_steps, m.given) for m in pool.members] == [
        (0, "random", 0, True), (4, "at 160", 160, False), (5, "at 200", 200, False),
    ]  # fmt: skip
    assert set(result["episodes"]["member/player_1"]) <= set(range(6))
    obs = np.zeros((1, 6, 7, 2), np.int8)
    newest = pool.member(5)
    assert newest is not agent and (weights([newest])[0]["net/actor/head0.weight"]
                                    == weights([agent])[0]["net/actor/head0.weight"]).all()  # fmt: skip
    assert newest.act(obs, np.ones((1, 7), bool)).shape == (1,)
    with pytest.raises(AgentError, match=r"no member 1; it has 0, 4, 5"):
        pool.member(1)


def test_ratings_and_results_are_in_the_tables_of_the_run(tmp_path):
    """A row of the tests has the means over the updates since the previous test, here one; files hold the same."""
    learner = ppo(ROCKS)[0]
    pool = mt.OpponentPool(learner, every_steps=64, size=2, members={"rock": hand(0)}, choose="uniform")
    seen: list[dict[str, float]] = []
    observed = mt.LambdaCallback(on_update_end=lambda moment: seen.append(pool.metrics()))
    run = trainer(
        env_args={"num_rounds": 1}, steps_per_train=192, test_freq=None, test_freq_steps=16, episodes_per_test=2,
        run_dir=tmp_path / "run", callbacks=[mt.CSVLogger(every=1000), observed],
    )  # fmt: skip
    history = run.train([learner, pool], [1, 0], test_agents=[learner, mt.RandomAgent()], plot=False)["history"]
    table = pool.table()
    assert pool.metrics() == {
        "elo/learner": pool.standings.learners, "elo/highest": table["rating"].max(), "members": 3,
        "elo/mean": pytest.approx(table["rating"].mean()), "elo/lowest": table["rating"].min(),
        "score": pytest.approx(table["score"][table["games"] > 0].mean()),
    }  # fmt: skip
    logged = pd.read_csv(tmp_path / "run" / "scalars.csv")
    for name in seen[-1]:
        column = f"player_1/{name}"
        np.testing.assert_allclose(history[column][1:], [each[name] for each in seen])
        np.testing.assert_allclose(logged[column].dropna(), history[column][1:], rtol=1e-6)
    assert (history["player_1/members"].diff().dropna() >= 0).all() and history["player_1/elo/learner"].nunique() > 2
    written = pd.read_parquet(tmp_path / "run" / "members.parquet")
    pd.testing.assert_frame_equal(written.drop(columns="player"), pool.results())
    assert set(written["player"]) == {"player_1"} and list(written["name"]) == [
        "rock",
        *(f"at {64 * i}" for i in (1, 2, 3)),
    ]
    assert written["in_pool"].tolist() == [True, False, True, True] and written["games"].sum() > 100


def test_a_version_enters_when_the_pool_is_beaten():
    learner = ppo(ROCKS)[0]
    pool = mt.OpponentPool(learner, beats=0.5, least_games=3, decay=1.0, choose="latest")
    pool.start(0, 0)
    pool.finished(np.array([0, 0]), np.array([-1.0, -1.0]), np.array([1.0, 1.0]), np.zeros(2, np.int64))
    pool.collected(10, 2, np.zeros(1, np.int64))
    assert len(pool.members) == 1  # two games are too few
    pool.finished(np.array([0, 0]), np.array([1.0, 1.0]), np.array([-1.0, -1.0]), np.zeros(2, np.int64))
    pool.collected(20, 4, np.zeros(1, np.int64))
    assert [m.env_steps for m in pool.members] == [0, 20]  # 2 of 4 points


def test_the_weakest_leaves():
    learner = ppo(ROCKS)[0]
    pool = mt.OpponentPool(learner, every_episodes=1, size=3, leaves="weakest", choose="latest")
    pool.start(0, 0)
    for episodes in (1, 2):
        pool.collected(10 * episodes, episodes, np.zeros(1, np.int64))
    pool.finished(np.array([0, 1, 2]), np.array([1.0, -1.0, 0.0]), np.array([-1.0, 1.0, 0.0]), np.zeros(3, np.int64))
    pool.collected(30, 3, np.zeros(1, np.int64))
    assert [m.number for m in pool.members] == [0, 2, 3]


def test_a_share_of_games_is_against_the_present_agents():
    agent = ppo(ROCKS)[0]
    pool = mt.OpponentPool(agent, present=0.5, choose="latest", every_episodes=100)
    run = trainer(env_args={"num_rounds": 1}, steps_per_train=400)
    episodes = run.train([agent, pool], [1, 0], plot=False)["episodes"]
    present = (episodes["member/player_1"] == -1).sum()
    assert chisquare([present, len(episodes) - present]).pvalue > 0.01
    table, returns = pool.table(), episodes["return/player_0"]
    assert table.loc[-1, "games"] == present and table["games"].sum() == len(episodes)
    assert table["share"].tolist() == [0.5, 0, 0, 0, 0, 0.5]
    assert table.loc[-1, "wins"] == (returns[episodes["member/player_1"] == -1] > 0).sum() > 0
    assert (
        pool.results()["member"].tolist() == list(range(-1, 5)) and table.loc[-1, "rating"] == pool.standings.learners
    )


@pytest.mark.parametrize("kind", ["ppo", "gru", "dqn"])
def test_resume_is_exact(kind, tmp_path, monkeypatch):
    """Stopped in the middle of episodes whose members have left the pool, and resumed by new objects."""
    monkeypatch.chdir(tmp_path)

    def line_up() -> list[Any]:
        network = mt.GRU(hidden=(), units=4) if kind == "gru" else SMALL
        own: dict[str, Any] = {"learning_starts": 0} if kind == "dqn" else {}
        agent = mt.make_agents("dqn" if kind == "dqn" else "ppo", TOE, seed=0, network=network, **own)[0]
        members = {"random": mt.RandomAgent(), "first": mt.FunctionAgent(lambda observation, legal: legal.argmax())}
        return [agent, mt.OpponentPool(agent, every_steps=8, size=2, present=0.2, members=members)]

    whole, half, rest = line_up(), line_up(), line_up()
    settings = {"callbacks": [mt.Checkpoint(every_steps=1000)], "test_freq": 10, "episodes_per_test": 3}
    expected = trainer(TOE, steps_per_train=120, run_dir="whole", **settings).train(whole, [1, 0], plot=False)
    trainer(TOE, steps_per_train=60, run_dir="half", **settings).train(half, [1, 0], plot=False)
    settings = {"callbacks": [], "test_freq": 10, "episodes_per_test": 3}
    result = trainer(TOE, steps_per_train=120, run_dir=None, **settings).train(rest, [1, 0], plot=False, resume="half")
    assert tables(result) == tables(expected)
    assert rest[1].table().to_string() == whole[1].table().to_string()
    same = zip(weights(rest[:1]), weights(whole[:1]), strict=True)
    assert all((a[name] == b[name]).all() for a, b in same for name in a)
    if kind == "ppo":
        other = line_up()
        other[1] = mt.OpponentPool(
            other[0], every_steps=8, size=2, present=0.2, choose=lambda members: members.scores + 1
        )
        with pytest.raises(ConfigError, match=r"choose is '.*lambda>', and was 'prioritized'"):
            trainer(TOE, steps_per_train=120, run_dir=None, **settings).train(other, [1, 0], plot=False, resume="half")
        _check_saved(Path("whole/last"))


def _check_saved(folder: Path) -> None:
    """A saved pool is loaded as a set of the same members."""
    with pytest.raises(mt.SaveError, match="FunctionAgent"):
        mt.load(folder)
    first = mt.FunctionAgent(lambda observation, legal: legal.argmax())
    loaded = mt.load(folder, custom_objects={"FunctionAgent": lambda: first})[1]
    assert [member.name for member in loaded.members] == ["random", "first", "at 112", "at 120"]


def test_a_player_is_added_between_two_calls(tmp_path, monkeypatch):
    """An added agent, of another kind than the pool's, stays; a resumed run has it without adding it again."""
    monkeypatch.chdir(tmp_path)
    agent, other = ppo(ROCKS)[0], ppo(ROCKS, network=mt.MLP((3,)))[1]
    pool = mt.OpponentPool(agent, every_steps=40, size=1, choose="uniform")
    settings = {"env_args": {"num_rounds": 1}, "callbacks": [mt.Checkpoint(every_steps=1000)]}
    run = trainer(steps_per_train=80, run_dir="run", **settings)
    run.train([agent, pool], [1, 0], plot=False)
    assert pool.add(other, "exploiter") == 3
    episodes = run.train([agent, pool], [1, 0], plot=False, go_on=True)["episodes"]
    assert [(m.number, m.name) for m in pool.members] == [(3, "exploiter"), (5, "at 160")]
    assert set(episodes["member/player_1"][85:]) <= {2, 3, 4, 5}
    with pytest.raises(ConfigError, match="each of 1 seats, got 2"):
        pool.add([agent, other], "both")
    agent = ppo(ROCKS)[0]
    again = mt.OpponentPool(agent, every_steps=40, size=1, choose="uniform")
    run = trainer(steps_per_train=168, run_dir=None, env_args={"num_rounds": 1})
    run.train([agent, again], [1, 0], plot=False, resume="run")
    assert [m.number for m in again.members] == [3, 5]
    assert again.standings.played.sum() > pool.standings.played.sum()


def test_a_team_plays_a_pool_of_teams(tmp_path, monkeypatch):
    """Both seats of the pool hold agents of the same version; the run resumes exactly."""
    monkeypatch.chdir(tmp_path)

    def line_up() -> list[Any]:
        team = mt.make_agents("ppo", Identity, env_args={"players": 4, "length": 3}, seed=0, network=SMALL)[:2]
        pool = mt.OpponentPool([tuple(team)], every_steps=9, size=2, present=0.2, members=[(mt.RandomAgent(),) * 2])
        return [*team, *pool.seats]

    def run(agents: list[Any], steps: int, folder: Any, **more: Any) -> Any:
        settings = {"num_train_envs": 3, "callbacks": [mt.Checkpoint(every_steps=1000)], "run_dir": folder}
        mine = trainer(Identity, env_args={"players": 4, "length": 3}, steps_per_train=steps, **settings)
        return mine.train(agents, [1, 1, 0, 0], plot=False, **more)

    whole, rest = line_up(), line_up()
    expected = run(whole, 90, "whole")
    episodes, names = expected["episodes"], [f"member/player_{p}" for p in (2, 3)]
    assert (episodes[names[0]] == episodes[names[1]]).all() and episodes[names[0]].nunique() > 2
    assert whole[2].pool.numbers.tolist() == whole[3].pool.numbers.tolist() == [0, 9, 10]
    for seat, agent in enumerate(whole[:2]):
        version = weights([whole[2 + seat].member(10)])[0]
        assert all((version[n] == a).all() for n, a in weights([agent])[0].items() if n.startswith("net/"))
    run(line_up(), 45, "half")
    result = run(rest, 90, None, resume="half")
    assert tables(result) == tables(expected)
    assert rest[2].table().to_string() == whole[2].table().to_string()
    with pytest.raises(AgentError, match=r"give \*pool.seats"):
        run([*line_up()[:3], mt.RandomAgent()], 90, "other")


class TestErrors:
    def test_an_empty_pool(self):
        with pytest.raises(ConfigError, match="nothing would ever fill it"):
            mt.OpponentPool()

    def test_rules_without_agents(self):
        with pytest.raises(ConfigError, match="there are none"):
            mt.OpponentPool(members=hands(), every_steps=5)

    def test_a_pool_that_is_never_filled(self):
        agents = ppo(ROCKS)
        with pytest.raises(ConfigError, match=r"every_steps=50,000, and training ends after 100 steps"):
            trainer(steps_per_train=100).train([agents[0], mt.OpponentPool(agents[0])], [1, 0], plot=False)
        with pytest.raises(AgentError, match="is not among the agents of this call"):
            pool = mt.OpponentPool(agents[1], every_steps=5)
            trainer(steps_per_train=100).train([agents[0], pool], [1, 0], plot=False)

    def test_other_spaces(self):
        agents = ppo(ROCKS)
        with pytest.raises(AgentError, match=r"equal spaces: the observation space of one"):
            mt.OpponentPool([agents[0], mt.PPO(spaces.Box(-1, 1, (9,)), spaces.Discrete(2), seed=0)])
        toe = mt.make_agents("ppo", TOE, seed=0)[0]
        with pytest.raises(AgentError, match=r"player_1.*space"):
            trainer(steps_per_train=100).train([agents[0], mt.OpponentPool(members=[toe])], [1, 0], plot=False)

    def test_weights_of_a_function(self):
        pool = mt.OpponentPool(members=hands(), choose=lambda members: np.ones(2))
        with pytest.raises(ConfigError, match="3 finite weights"):
            pool.draw(np.zeros(1, np.int64))

    def test_unknown_choices(self):
        with pytest.raises(ConfigError, match=r"uniform"):
            mt.OpponentPool(members=hands(), choose="unifrom")
