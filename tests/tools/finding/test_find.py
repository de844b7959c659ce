"""Finders: the best candidate is found, with its interval."""

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from tests.tools.bandit import RATES, SETTINGS, TRAINER, Bandit, Regressor
from tests.tools.search.test_candidates import digest
from tests.toys import Identity
from tests.trainer.running import SHORT, SMALL, dqn, ppo

FEW: dict[str, Any] = {"num_train_envs": 3, "num_test_envs": 2, "update_freq": 12, "episodes_per_test": 3}


def rates(by="metric", wanted=RATES, seeds=4, **settings):
    trainer = {**TRAINER, "test_freq_steps": 8}
    return mt.find_learning_rate(
        Regressor, Bandit, wanted, seeds=seeds, steps=48, final=1.0, by=by, trainer=trainer, **SETTINGS, **settings
    )


@pytest.mark.parametrize("by", ["metric", "loss"])
def test_the_best_rate_of_a_quadratic_bandit_is_found(by):
    """Gradient descent on a loss whose Hessian is about 1: the rate 1 is the best of nine; more than 2 diverge."""
    result = rates(by)
    assert result.best == 1.0 and result.interval in ((1.0, 1.0), (0.5, 1.0))
    table = result.table.set_index("value")
    assert table["first"][1.0] > 0.9 and table.index[-1] == 8.0
    assert table["low"][1.0] <= table["score"][1.0] <= table["high"][1.0]
    assert len(result.curves) == 9 * 4 * 7 and "best learning_rate by" in repr(result)


def test_agents_that_are_compared_stay_unchanged_bit_for_bit():
    agents = [dqn()[0], mt.RandomAgent()]
    before = digest(agents[0]), agents[0].learner_, agents[0].seed, agents[1].seed
    result = mt.find_learning_rate(
        agents, Identity, [1e-3, 1e-1], seeds=2, steps=60, by="loss", env_args=SHORT, trainer=FEW
    )
    assert (digest(agents[0]), agents[0].learner_, agents[0].seed, agents[1].seed) == before
    assert result.best in (1e-3, 1e-1) and not len(result.errors)
    started = result.curves.query("env_steps == 0").groupby("seed")["metric"].nunique()
    assert (started == 1).all()  # the first test of a seed is played by the same weights


def test_optimizers_are_compared_with_settings_of_their_own():
    wanted = {"sgd": {"optimizer": "sgd", "learning_rate": 1.0}, "slow": {"optimizer": "adam", "learning_rate": 1e-4}}
    own = {name: value for name, value in SETTINGS.items() if name != "optimizer"}
    result = mt.find_optimizer(
        Regressor, Bandit, wanted, seeds=[3, 4], steps=64, trainer={**TRAINER, "test_freq_steps": 32}, **own
    )
    assert result.best == wanted["sgd"] and result.interval is None
    assert result.table["candidate"].tolist() == ["sgd", "slow"] and sorted(set(result.curves["seed"])) == [3, 4]


def test_rates_that_are_equal_in_three_digits_are_compared():
    close = [0.001, 0.001004, 0.001008]
    result = mt.find_learning_rate(
        "ppo", Identity, close, seeds=2, steps=24, env_args=SHORT, trainer=FEW, network=SMALL, minibatches=1, epochs=1
    )
    assert sorted(result.table["value"]) == close
    assert sorted(result.table["candidate"]) == ["0.001", "0.001004", "0.001008"]
    assert set(result.curves["candidate"]) == set(result.table["candidate"])
    best = result.table["candidate"][0]
    assert repr(result).startswith(f"best learning_rate by metric: {best} (95 %: 0.001")


def test_an_error_of_a_candidate_names_it():
    entries = {"good": ("ppo", {"network": SMALL}), "bad": ("ppo", {"network": SMALL, "clip": -1.0})}
    with pytest.raises(ConfigError, match=r"'bad'.*'player_0'.*clip"):
        mt.find_agent(entries, Identity, env_args=SHORT, trainer=FEW)
    with pytest.raises(ConfigError, match=r"'sdg'.*'player_0'.*sdg"):
        mt.find_optimizer("ppo", Identity, ["adam", "sdg"], env_args=SHORT, trainer=FEW)
    with pytest.raises(ConfigError, match="got ppo, a2c, ppo; ppo"):
        mt.find_agent(["ppo", "a2c", "ppo"], Identity, env_args=SHORT, trainer=FEW)
    with pytest.raises(ConfigError, match="got sgd, sgd; sgd"):
        mt.find_optimizer("ppo", Identity, ["sgd", "sgd"], env_args=SHORT, trainer=FEW)


def test_agents_of_several_kinds_are_compared():
    given = {"ppo": "ppo", "two": [ppo()[0], mt.RandomAgent()], "random": {"*": "random"}}
    with pytest.raises(ConfigError, match="leave network out"):
        mt.find_agent(given, Identity, env_args=SHORT, network=SMALL)
    own = {"ppo": ("ppo", {"network": SMALL, "minibatches": 2}), "two": given["two"]}
    result = mt.find_agent(own, Identity, seeds=2, steps=30, env_args=SHORT, trainer=FEW)
    assert set(result.table["candidate"]) == {"ppo", "two"} and not result.table["failed"].any()


def test_a_player_of_a_zero_sum_game_plays_against_random_moves():
    """The line-up that docs/tuning.md and the warning name."""
    players = {"player_1": "dqn", "player_2": "random"}
    result = mt.find_learning_rate(
        players, "marltrain/tictactoe_v3", [1e-4, 1e-2], seeds=2, steps=40, trainer=FEW, network=SMALL
    )
    assert not len(result.errors) and np.isfinite(result.table["score"]).all()


def test_failed_trainings_have_the_worst_score():
    longer = mt.find_learning_rate(
        Regressor, Bandit, [1.0, 9.0], seeds=2, steps=320, trainer={**TRAINER, "test_freq_steps": 160}, **SETTINGS
    )
    assert longer.table["failed"].tolist() == [0, 2]
    assert longer.table["score"].tolist()[1] == -np.inf and "it must be finite" in longer.errors["error"][0]
    with pytest.raises(AgentError, match=r"candidate '8.5', seed 0"):
        mt.find_learning_rate(Regressor, Bandit, [8.5, 9.0], seeds=1, steps=320, trainer=TRAINER, **SETTINGS)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"by": "los"}, "by .*'los'"),
        ({"seeds": 0}, "seeds must be a number of at least 1"),
        ({"seeds": [1, 1]}, "different seeds"),
        ({"final": 0.0}, "final must be greater than 0"),
        ({"rates": [1e-3]}, "at least 2 different candidates"),
        ({"rates": [1e-3, 0.002, 1e-3]}, "got 0.001, 0.002, 0.001; 0.001"),
        ({"rates": [1e-3, -1e-3]}, "'-0.001'.*'player_0'.*learning_rate"),
        ({"rates": [1e-3, float("nan")]}, "'nan'.*'player_0'.*learning_rate"),
        ({"rate": [1e-3]}, "Did you mean 'rates'|no setting 'rate'"),
        ({"rates": "0.1"}, "rates .*got '0.1'"),
        ({"rates": 0.1}, "rates .*got 0.1"),
        ({"rates": [0.1, "0.2"]}, "rates .*got '0.2'"),
        ({"rates": [0.1, True]}, "rates .*got True"),
        ({"rates": [0.0, -0.0]}, "got 0, 0"),
        ({"seeds": "12"}, "different seeds from 0 to 2.*, got '12'"),
        ({"seeds": [0.5, 1]}, r"different seeds from 0 to 2.*, got \[0.5, 1\]"),
        ({"seeds": [-1]}, r"different seeds from 0 to 2.*, got \[-1\]"),
        ({"seeds": [2**63]}, r"different seeds from 0 to 2"),
        ({"trainer": "x"}, "find: trainer .*got 'x'"),
        ({"trainer": {"num_envs": 3}}, r"find: trainer: DecentralizedTrainer.*Did you mean 'num_train_envs'"),
        ({"trainer": {"num_train_envs": 0}}, "find: trainer: .*num_train_envs .*at least 1"),
        ({"reward_metric": lambda: 1.0}, r"reward_metric is called as reward_metric\(rewards\)"),
    ],
)
def test_wrong_arguments_are_refused(arguments, match):
    given = {"rates": [1e-3, 1e-2], "steps": 20, "trainer": FEW, "env_args": SHORT, **arguments}
    with pytest.raises(ConfigError, match=match):
        mt.find_learning_rate("ppo", Identity, **given)


@pytest.mark.parametrize(
    ("find", "candidates", "told"),
    [
        (mt.find_optimizer, "adam", "find_optimizer: optimizers .*got 'adam'"),
        (mt.find_optimizer, 3, "find_optimizer: optimizers .*got 3"),
        (mt.find_optimizer, {"a": "adam", "b": "sgd"}, "'a' .*got 'adam'"),
        (mt.find_optimizer, {1: {}, 2: {}}, "names .*got 1"),
        (mt.find_agent, "ppo", "find_agent: agents .*got 'ppo'"),
        (mt.find_agent, [("ppo", {}), "a2c"], r"find_agent: agents: .*got \('ppo', {}\)"),
    ],
)
def test_candidates_without_names_are_refused(find, candidates, told):
    arguments = ("ppo", Identity, candidates) if find is mt.find_optimizer else (candidates, Identity)
    with pytest.raises(ConfigError, match=told):
        find(*arguments, steps=20, trainer=FEW, env_args=SHORT)


def test_a_candidate_with_another_number_of_agents_is_refused():
    """Before training, whichever candidate is the first."""
    for names in (("two", "one"), ("one", "two")):
        given = {name: ppo()[: 1 if name == "one" else 2] for name in names}
        with pytest.raises(AgentError, match=r"'one': 1 agents.*2 players.*player_0, player_1"):
            mt.find_agent(given, Identity, steps=20, trainer=FEW, env_args=SHORT)


def test_an_unknown_loss_is_refused_at_the_first_test_after_an_update(monkeypatch):
    monkeypatch.setattr("marltrain.tools.finding.find.score_of", None)
    with pytest.raises(ConfigError, match=r"'0.0312'.*'loss/critc'.*loss/total"):
        rates("loss/critc", seeds=1)


def test_candidates_that_cannot_be_told_apart_are_warned_of():
    with pytest.warns(UserWarning, match="scores 7:"):
        result = mt.find_learning_rate(
            "dqn", Identity, [1e-3, 1e-2], seeds=1, steps=12, env_args=SHORT, trainer=FEW, network=SMALL,
            reward_metric=lambda rewards: 7.0,
        )  # fmt: skip
    assert result.interval is None and repr(result).startswith("best learning_rate by metric: 0.001\n")
