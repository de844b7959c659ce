"""Tests: number of episodes, their distribution over environments, equal seeds, rotating line-ups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.core.seeds import child_seed
from marltrain.envs import make_vector
from marltrain.trainer.evaluating.episode_log import EpisodeLog
from marltrain.trainer.evaluating.evaluation import Evaluation, TestResult, bootstrap
from marltrain.trainer.seats.seats import Seating
from tests.envs.test_recorded import Counting
from tests.toys import Auction, Crowd, Identity, Relay
from tests.trainer.running import change, changed, dqn, ppo, tables, trainer, weights


def bidding(number):
    return mt.FunctionAgent(lambda observation: number)


@pytest.fixture
def auction():
    Auction.started = []
    return Auction


def seeds(run_seed, role, env, count):
    return [child_seed(run_seed, "episode", role, env, k) for k in range(count)]


def test_number_of_episodes_is_exact_and_distributed_over_environments(auction):
    """7 episodes in 3 environments: environment 0 plays 0, 3 and 6, environment 1 plays 1 and 4, 2 plays 2 and 5."""
    run = trainer(auction, num_test_envs=3, seed=5)
    result = run.test([bidding(0), bidding(4), bidding(2)], episodes=7)
    own = [seeds(5, "test", e, 3) for e in range(3)]
    lengths = [1 + own[j % 3][j // 3] % 2 for j in range(7)]
    assert len(set(lengths)) == 2
    assert result.lengths.tolist() == lengths
    assert result.returns.tolist() == [[-n, 2 * n, -n] for n in lengths]
    assert result.seats.tolist() == [[0, 1, 2]] * 7
    assert result.wins is not None and result.wins.tolist() == [0, 7, 0]
    assert result.losses is not None and result.losses.tolist() == [7, 0, 7]
    assert result.mean == 0.0
    assert set(own[0] + own[1][:2] + own[2][:2]) <= set(auction.started)
    assert run.test([bidding(0), bidding(4), bidding(2)], episodes=2).lengths.tolist() == lengths[:2]
    assert len(run.test([bidding(0)] * 3).returns) == run.settings.episodes_per_test


def test_tests_use_the_same_seeds_which_training_never_uses(auction):
    run = trainer(
        auction, num_test_envs=2, num_train_envs=2, seed=5, episodes_per_test=3, test_freq=4, episodes_per_train=11
    )
    lengths = []

    def metric(rewards):
        lengths.append(np.abs(rewards).max(1).tolist())
        return 0.0

    change(run, reward_metric=metric)
    run.train(ppo(auction), [1, 1, 1], plot=False)
    assert len(lengths) == 4
    assert all(played == lengths[0] for played in lengths)
    training = set(seeds(5, "train", 0, 20) + seeds(5, "train", 1, 20))
    testing = set(seeds(5, "test", 0, 20) + seeds(5, "test", 1, 20))
    assert not training & testing
    assert set(auction.started) - {0} <= training | testing  # 0: the look at the spaces before anything runs


@pytest.mark.parametrize("make", [ppo, dqn])
def test_tests_do_not_advance_training_streams(make):
    """With more and longer tests in more environments, weights and training episodes are the same, bit for bit."""
    results, states = [], []
    more: dict[str, Any] = {"test_freq": 3, "episodes_per_test": 7, "num_test_envs": 5}
    for often in ({}, more):
        agents = make()
        results.append(trainer(steps_per_train=60, **often).train([*agents], [1, 1], plot=False))
        states.append((weights(agents), [agent.learner_.export(agent.row).info for agent in agents]))
    assert len(results[1]["history"]) > len(results[0]["history"])
    assert changed(states[0][0], states[1][0]) == [False, False]
    assert states[0][1] == states[1][1]
    assert tables(results[0])[1] == tables(results[1])[1]


def test_random_agent_in_a_test_does_not_advance_training_streams():
    results = []
    more: dict[str, Any] = {"test_freq": 3, "episodes_per_test": 7}
    for often in ({}, more):
        agents = [ppo()[0], mt.RandomAgent(seed=3)]
        results.append(tables(trainer(steps_per_train=60, **often).train(agents, [1, 0], plot=False))[1])
    assert results[0] == results[1]


# Tests that are cut ---------------------------------------------------------------------------------------------------

ENDLESS = {"players": 2, "length": 10**6}
KNOWING = [mt.FunctionAgent(lambda symbol: int(symbol))] * 2  # earns 1 a step in Identity


def test_endless_episode_is_cut_and_counts_with_its_return():
    """2 environments, at most 7 env steps: 4 batch steps. Three episodes have not begun."""
    run = trainer(Identity, ENDLESS, max_test_steps=7)
    with pytest.warns(
        UserWarning, match=r"max_test_steps=7 cut a test of 5 episodes: 2 were running, .*; 3 had"
    ) as data:
        result = run.test(KNOWING, episodes=5)
    assert [warning.filename for warning in data] == [__file__]
    assert result.returns.tolist() == [[4, 4]] * 2
    assert (result.lengths.tolist(), result.unfinished.tolist(), result.num_unfinished) == ([4, 4], [True, True], 2)
    assert result.in_seat(1, "player_1").num_unfinished == 2
    assert result.in_seat(1, "player_0").num_unfinished == 0


@pytest.mark.filterwarnings("ignore:max_test_steps")
def test_cut_test_omits_episodes_that_have_not_begun(auction):
    """7 episodes of 1 or 2 steps in 3 environments, cut at every step, compared with a simple count."""
    own = [seeds(5, "test", e, 3) for e in range(3)]
    lengths = [1 + own[j % 3][j // 3] % 2 for j in range(7)]
    begins = [sum(lengths[j % 3 : j : 3]) for j in range(7)]
    plays = [sum(lengths[e::3]) for e in range(3)]
    for limit in range(1, sum(lengths) + 2):
        result = trainer(auction, num_test_envs=3, seed=5, max_test_steps=limit).test([bidding(n) for n in range(3)], 7)
        steps = next((t for t in range(1, 9) if sum(min(t, each) for each in plays) >= limit), max(plays))
        begun = [j for j in range(7) if begins[j] < steps]
        assert result.lengths.tolist() == [min(lengths[j], steps - begins[j]) for j in begun]
        assert result.unfinished.tolist() == [begins[j] + lengths[j] > steps for j in begun]
        assert (result.returns == np.outer(result.lengths, [-1, -1, 2])).all()
    assert len(begun) == 7 and not result.num_unfinished


def test_limit_that_is_reached_exactly_does_not_cut():
    result = trainer(max_test_steps=15, num_test_envs=3).test(KNOWING, episodes=5)
    assert (result.lengths.tolist(), result.num_unfinished) == ([3] * 5, 0)
    assert trainer(max_test_steps=None).settings.max_test_steps is None
    assert trainer().settings.max_test_steps == 100_000


def test_env_steps_of_a_test_exclude_idle_environments():
    """4 episodes of 3 steps in 3 environments: the first plays two, the others one."""
    seen = []

    class Watch(mt.Callback):
        def on_test_step(self, moment):
            seen.append(tuple(moment.data[name] for name in ("finished", "episodes", "steps")))

    trainer(num_test_envs=3, episodes_per_test=4, test_freq=None, test_freq_steps=10**6, steps_per_train=3,
            callbacks=[Watch()]).train(ppo(), [1, 1], plot=False)  # fmt: skip
    assert seen == [(0, 4, 3), (0, 4, 6), (3, 4, 9), (3, 4, 10), (3, 4, 11), (4, 4, 12)] * 2


def test_run_with_cut_tests_warns_once():
    result = trainer(Identity, ENDLESS, max_test_steps=7, test_freq=None, test_freq_steps=9, steps_per_train=18)
    with pytest.warns(UserWarning, match="max_test_steps=7 cut a test of 2 episodes: 2 were running") as data:
        history = result.train(ppo(), [1, 1], plot=False)["history"]
    assert [warning.filename for warning in data if "cut a test" in str(warning.message)] == [__file__]
    assert history["num_unfinished"].tolist() == [2, 2, 2]
    assert (history["return/player_0"] <= 4).all()


# Line-ups -------------------------------------------------------------------------------------------------------------


def test_line_up_rotates_by_one_seat_per_episode(auction):
    """Entries A, B and C; in episode j entry i sits in seat (i + j) mod 3. Columns stay with the entries.

    A bids the place it sees, so the seats can be read from the result: it wins only against 1 and 0 from place 2.
    """
    line_up = [mt.FunctionAgent(lambda observation: 2 * int(observation[0])), bidding(3), bidding(1)]
    results = []

    class Keep(mt.Callback):
        def on_test_end(self, moment):
            results.append(moment.data["result"])

    run = trainer(auction, num_test_envs=2, episodes_per_test=7, steps_per_train=3, callbacks=[Keep()])
    run.train(ppo(auction), [1, 1, 1], plot=False, test_agents=line_up)
    result = results[0]
    assert result.seats.tolist() == [[(i + j) % 3 for i in range(3)] for j in range(7)]
    n = result.lengths
    winner = [0 if j % 3 == 2 else 1 for j in range(7)]  # A bids 0, 2, 4, 0, ... against 3 and 1
    assert result.returns.tolist() == [[2 * n[j] if i == w else -n[j] for i in range(3)] for j, w in enumerate(winner)]
    assert result.wins.tolist() == [2, 5, 0]
    assert result.in_seat(0, "bidder_2").wins.tolist() == [2, 0, 0]
    assert result.in_seat(0, "bidder_2").seats.tolist() == [[2, 0, 1]] * 2
    assert len(result.in_seat(1, "bidder_0").returns) == 2  # episodes 2 and 5


def test_line_up_rotates_among_seats_of_equal_spaces():
    """Crowd's seats are red, blue, red: blue's entry stays."""
    results = []

    class Keep(mt.Callback):
        def on_test_end(self, moment):
            results.append(moment.data["result"])

    agents = ppo(Crowd)
    trainer(Crowd, episodes_per_test=4, steps_per_train=3, callbacks=[Keep()]).train(
        agents, [1, 1, 1], plot=False, test_agents=[agents[0], agents[1], mt.RandomAgent()]
    )
    assert results[0].seats.tolist() == [[0, 1, 2], [2, 1, 0], [0, 1, 2], [2, 1, 0]]


def test_default_metric_of_a_line_up(auction):
    agents = ppo(auction)
    run = trainer(auction, episodes_per_test=6, steps_per_train=3)
    stats = run.train(agents, [1, 0, 0], plot=False, test_agents=[bidding(4), agents[0], agents[1]])[
        "reward_metric_stats"
    ]
    assert stats[0] < 0  # agents[0] loses to the bid of 4 wherever it sits; the mean over all columns would be 0
    lengths = run.test([bidding(0)] * 3, episodes=6).lengths
    assert stats[0] >= -lengths.mean()


def test_line_up_rotates_in_a_turn_based_game():
    agents = ppo(Relay)
    run = trainer(Relay, episodes_per_test=5, steps_per_train=6)
    result = run.train(
        agents, [1, 1, 1], plot=False, test_agents=[agents[0], mt.RandomAgent(), mt.FrozenAgent(agents[0])]
    )
    assert len(result["reward_metric_stats"]) == 2


def test_invalid_line_up_is_an_error_before_training():
    with pytest.raises(AgentError, match="2 players"):
        trainer().train(ppo(), [1, 1], plot=False, test_agents=[mt.RandomAgent()])


# Results --------------------------------------------------------------------------------------------------------------


def result_of(returns):
    returns = np.array(returns, float)
    episodes, players = returns.shape
    seats = np.tile(np.arange(players), (episodes, 1))
    return TestResult(returns, np.ones(episodes, np.int64), seats, tuple("abc"[:players]), np.zeros(episodes, bool))


def test_wins_and_losses():
    result = result_of([[1, -1], [-1, 1], [0, 0], [2, -2]])
    assert result.outcomes.tolist() == [[1, -1], [-1, 1], [0, 0], [1, -1]]
    assert (result.wins.tolist(), result.losses.tolist()) == ([2, 1], [1, 2])
    assert result_of([[1, 1, -2]]).outcomes.tolist() == [[0, 0, 0]]  # two best: a draw
    assert result_of([[1, 1], [1, -1]]).wins is None
    assert result_of([[1], [2]]).losses is None


def test_the_interval_is_a_bootstrap_over_episodes(monkeypatch):
    returns = np.random.default_rng(0).normal(3, 2, (400, 2))
    low, high = result_of(returns).interval
    spread = 1.96 * returns.mean(1).std() / 20
    assert low == pytest.approx(returns.mean() - spread, abs=0.15 * spread)
    assert high == pytest.approx(returns.mean() + spread, abs=0.15 * spread)
    monkeypatch.setattr("marltrain.trainer.evaluating.evaluation.AT_ONCE", 3_000)  # 7 resamples at once
    assert result_of(returns).interval == (low, high)
    assert bootstrap(np.array([1.0])) == (float("-inf"), float("inf"))


def test_number_of_episodes_must_be_positive():
    with pytest.raises(ConfigError, match="episodes must be at least 1, got 0"):
        trainer().test(ppo(), episodes=0)


def test_trainer_test_does_not_change_agents():
    agents = ppo()
    before = weights(agents), [agent.learner_.export(agent.row).info for agent in agents]
    run = trainer(Identity)
    assert run.test(agents, 9).returns.tolist() == run.test(agents, 9).returns.tolist()
    assert changed(before[0], weights(agents)) == [False, False]
    assert before[1] == [agent.learner_.export(agent.row).info for agent in agents]


def test_recorded_values_and_the_log_of_episodes(tmp_path):
    """Numbers, texts and none; the seeds and actions of the log play the same episodes again."""
    envs = make_vector(Counting, num_envs=3, role="test", record=["clock", "winner"])
    log = EpisodeLog()
    with envs:
        agents = [mt.RandomAgent() for _ in range(3)]
        seats = Seating(envs.spec, agents, 0, stack=False).learners
        result = Evaluation(envs, 11, None).play(seats, 7, log=log)
    assert result.records["clock"].tolist() == result.lengths.tolist()
    assert result.records["winner"].tolist() == ["ann" if length % 2 else None for length in result.lengths]
    share = (result.lengths % 2).mean()
    means = result.record_means
    assert means["record/clock"] == result.lengths.mean()
    assert (means["record/winner=ann"], means["record/winner=None"]) == pytest.approx((share, 1 - share))
    assert sorted(log.episodes) == list(range(7))
    for j, (seed, (moves,)) in log.episodes.items():
        env = Counting()
        env.reset(seed=seed)
        names, returns = env.possible_agents, dict.fromkeys(env.possible_agents, 0.0)
        for row in moves:
            while env.terminations[env.agent_selection]:
                env.step(None)
            env.step(int(row[names.index(env.agent_selection)]))
            for name, reward in env.rewards.items():
                returns[name] += reward
        assert [returns[name] for name in names] == result.returns[j].tolist()


def test_tests_of_a_run_record(tmp_path):
    agents = mt.make_agents("dqn", Counting, seed=0)
    trainer = mt.DecentralizedTrainer(
        Counting, num_train_envs=2, num_test_envs=2, episodes_per_test=4, test_freq_steps=30, steps_per_train=60,
        seed=0, record=["clock", "winner"], run_dir=tmp_path / "r", progress=False,
    )  # fmt: skip
    history = trainer.train(agents, [1, 1, 1], plot=False)["history"]
    played = trainer.test(agents, 4)
    assert set(played.records) == {"clock", "winner"}
    assert history["record/clock"].between(4, 6).all()
    shares = history[[name for name in history.columns if name.startswith("record/winner=")]].fillna(0).sum(1)
    assert shares.tolist() == [1.0] * len(history)
