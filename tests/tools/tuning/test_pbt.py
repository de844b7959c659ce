"""Population-based training: copies between rows of one learner, changed settings."""

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.policies.memory.readers import RolloutReader
from marltrain.tools.search.recorder import Recorder
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


def test_rows_of_the_policy_before_a_copy_are_in_no_rollout(monkeypatch):
    """4 environments, updates after 8 env steps, tests after 12: the copies at 12 and 36 fall into a rollout.

    Of its 8 rows, the 4 of the batch step before the copy go; the copy at 24 falls between two rollouts.
    """
    taken: list[list[int]] = []

    def take(self, *arguments):
        rollout = original(self, *arguments)
        taken.append((rollout.weight > 0).sum(1).tolist())
        return rollout

    original = RolloutReader.take
    monkeypatch.setattr(RolloutReader, "take", take)
    table = trained(every=12).table
    copied = {
        step: table[(table["env_steps"] == step) & (table["copied"] >= 0)]["member"].item() for step in (12, 24, 36)
    }
    expected = [[8] * 5 for _ in range(6)]
    expected[1][copied[12]] = expected[4][copied[36]] = 4
    assert taken == expected


@pytest.mark.parametrize("network", [SMALL, mt.GRU(hidden=(4,), units=4)])
def test_the_first_gradient_step_after_a_copy_is_on_policy(monkeypatch, network):
    """With one pass over each rollout, the policy that learns is the one that acted: the ratio is 1."""
    measured: list[tuple[int, float]] = []

    def on_update_end(self, moment):
        measured.extend((moment.env_steps, own["approx_kl"]) for own in moment.data["metrics"].values())

    monkeypatch.setattr(Recorder, "on_update_end", on_update_end)
    space = {"network": network, "minibatches": 1, "epochs": 1, "learning_rate": (0.05, 1.0), "gamma": 0.9}
    rest = {"gae_lambda": 0.9, "clip": 0.2, "entropy_coef": 0.0, "value_coef": 0.5}
    few = {"num_train_envs": 3, "num_test_envs": 2, "update_freq": 24, "episodes_per_test": 2}
    given: dict[str, Any] = {"members": 4, "steps": 120, "every": 36, "trainer": few, "env_args": SHORT}
    result = mt.population_based_training("ppo", Identity, space | rest, **given)
    assert (result.table["copied"] >= 0).sum() == 3 and len(measured) == 5 * 4 * 2
    assert np.abs([kl for _, kl in measured]).max() < 1e-6


def test_whole_numbers_may_be_floats():
    assert trained(members=5.0, steps=48.0, every=8.0).table.to_csv() == trained().table.to_csv()


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
    with pytest.raises(ConfigError, match=r"update_per_step.*structural"):
        space = {"network": SMALL, "update_per_step": (0.1, 0.5)}
        mt.population_based_training("dqn", Identity, space, env_args=SHORT)
    with pytest.raises(ConfigError, match="members must be at least 4"):
        mt.population_based_training("ppo", Identity, members=3, env_args=SHORT)
    with pytest.raises(ConfigError, match="24 env steps between tests, of 24"):
        mt.population_based_training("ppo", Identity, steps=24, every=24, env_args=SHORT)
    with pytest.raises(ConfigError, match=r"space.*mapping.*'gamma', 0.5"):
        mt.population_based_training("ppo", Identity, [("gamma", 0.5)], env_args=SHORT)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"population_based_training.*num_train_envs"):
        mt.population_based_training("ppo", Identity, trainer={"num_train_envs": 0}, env_args=SHORT)
    with pytest.raises(ConfigError, match=r"every=8.*'test_freq_steps': 12"):
        mt.population_based_training("ppo", Identity, every=8, trainer={"test_freq_steps": 12}, env_args=SHORT)
    with pytest.raises(ConfigError, match=r"member 0 \(learning_rate=0.00.*, clip=-.*player_0.*clip must"):
        mt.population_based_training(
            "ppo",
            Identity,
            {
                "learning_rate": (1e-3, 2e-3),
                "gamma": 0.9,
                "gae_lambda": 0.9,
                "entropy_coef": 0.1,
                "value_coef": 0.5,
                "clip": (-2.0, -1.0),
            },
            env_args=SHORT,
        )
    with pytest.raises(ConfigError, match="'shared_memory': True"):
        given: dict[str, Any] = {"trainer": {"shared_memory": True}, "env_args": SHORT}
        mt.population_based_training("dqn", Identity, {"network": SMALL}, **given)
    with pytest.raises(AgentError, match=r"population_based_training.*rows"):
        mt.population_based_training("seac", Identity, {"network": SMALL}, env_args=SHORT)
    with pytest.raises(AgentError, match="agents of a team"):
        mt.population_based_training("vdn", Identity, {"network": SMALL}, env_args=SHORT)
