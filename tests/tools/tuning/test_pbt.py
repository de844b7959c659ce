"""Population-based training: copies between rows of one learner, changed settings."""

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.errors import AgentError, ConfigError
from marltrain.tools.tuning.pbt import copy_rows
from tests.tools.bandit import SETTINGS, TRAINER, Bandit, Regressor
from tests.toys import Identity
from tests.trainer.running import SHORT, SMALL, ppo


def trained(**settings):
    own = {name: value for name, value in SETTINGS.items() if name != "max_grad_norm"}
    space = {**own, "gamma": 0.9, "learning_rate": (1e-3, 1.5)}
    given = {"members": 5, "steps": 48, "every": 8, "trainer": TRAINER, **settings}
    return mt.population_based_training(Regressor, Bandit, space, **given)


def test_the_worst_members_copy_the_best_and_change_their_settings():
    result = trained()
    table = result.table
    assert len(table) == 5 * 7 and result.metric == table[table["env_steps"] == 48]["metric"].max()
    copies = table[table["copied"] >= 0]
    assert len(copies) == 5  # after each test but the first and the last
    for row in copies.itertuples():
        same = table[table["env_steps"] == row.env_steps].set_index("member")
        after = table[(table["env_steps"] > row.env_steps) & (table["member"] == row.member)].iloc[0]
        assert same["metric"].idxmin() == row.member and same["metric"].idxmax() == row.copied
        factor = after["learning_rate"] / same["learning_rate"][row.copied]
        assert factor == pytest.approx(0.8) or factor == pytest.approx(1.25) or after["learning_rate"] == 1.5
    assert result.agents[0].hyper.learning_rate == pytest.approx(result.settings["learning_rate"])
    assert table.set_index(["env_steps", "member"])["metric"][48, result.member] == result.metric
    assert repr(result).startswith(f"5 members, 5 copies\nbest member: {result.member}, metric")
    again = trained().table
    assert again.to_csv() == table.to_csv() and trained(seed=1).table.to_csv() != table.to_csv()


def test_settings_of_a_pair_stay_in_all_members():
    """Only the entropy weight has a range; the pair's discount has a default range, and is 0.5 all the same."""
    own = {"gamma": 0.5, "clip": 0.3, "network": SMALL, "minibatches": 1, "epochs": 1, "learning_rate": 1e-3}
    given: dict[str, Any] = {"members": 4, "steps": 24, "every": 12, "trainer": TRAINER, "env_args": SHORT}
    result = mt.population_based_training(("ppo", own), Identity, {"entropy_coef": (1e-4, 0.1)}, **given)
    assert "gamma" not in result.settings and "gamma" not in result.table and "learning_rate" not in result.table
    members: list[Any] = result.agents
    kept = [(agent.hyper.gamma, agent.hyper.clip, agent.hyper.learning_rate) for agent in members]
    assert set(kept) == {(0.5, 0.3, 1e-3)}


def test_rows_take_weights_and_settings_and_keep_their_random_numbers():
    donors, agents = ppo(seed=1), ppo(seed=2)
    before = [agent.state().info["learner"]["rngs"] for agent in agents]
    copy_rows(donors, agents, {"learning_rate": 0.5})
    for donor, agent, rngs in zip(donors, agents, before, strict=True):
        state = agent.state()
        assert all(np.array_equal(state.arrays[name], array) for name, array in donor.state().arrays.items())
        assert state.info["learner"]["rngs"] == rngs and agent.hyper.learning_rate == 0.5


def test_wrong_arguments_are_refused():
    with pytest.raises(ConfigError, match="ranges of numbers that are not whole"):
        mt.population_based_training("ppo", Identity, {"epochs": [1, 2]}, env_args=SHORT)
    with pytest.raises(ConfigError, match="members must be at least 4"):
        mt.population_based_training("ppo", Identity, members=3, env_args=SHORT)
    with pytest.raises(ConfigError, match=r"every=8 and trainer=.'test_freq_steps': 12. are both env steps between"):
        mt.population_based_training("ppo", Identity, every=8, trainer={"test_freq_steps": 12}, env_args=SHORT)
    with pytest.raises(AgentError, match="agents of a team"):
        mt.population_based_training("vdn", Identity, {"network": SMALL}, env_args=SHORT)
