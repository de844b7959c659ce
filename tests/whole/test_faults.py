"""Crashing cart-pole, a short form of `make fault-test`: mishaps by the dozen, and nothing is lost but episodes."""

import logging
import re

import pytest

import marltrain as mt
from tests.tiers import LONG
from tests.whole.crashing_cartpole import Mishaps, agents, trainer


class Lengths(mt.Callback):
    """Adds up the env steps of finished training episodes."""

    steps = 0

    def on_episode_end(self, moment):
        self.steps += moment.data["length"]


@pytest.mark.parametrize("players", [3, *LONG * [1]])
def test_crashing_cart_poles_are_trained_and_every_fault_is_reported(players, caplog):
    seen, small = Lengths(), {"network": mt.MLP(hidden=(8,))}
    often = Mishaps(crash=4e-3, crash_at_reset=0.05, stall=5e-4 / players, seconds=(1.5, 2.0))
    run = trainer(
        players, often, seed=1, num_train_envs=8, num_test_envs=4, update_freq=256, test_freq=50,
        episodes_per_train=100, episodes_per_test=8, env_timeout=0.5, max_env_restarts=400, callbacks=[seen],
    )  # fmt: skip
    with caplog.at_level(logging.WARNING, "marltrain"):
        result = run.train(agents(players, **small), [1] * players, plot=False)
    data = result["faults"]
    assert result["num_collected_episodes"] >= 100 and result["num_gradient_steps"] > 0
    assert len(result["reward_metric_stats"]) == 3
    assert {"exception", "timeout"} <= set(data["kind"]) and (data["step"] == 0).any() and (data["step"] > 0).any()
    assert set(data["role"]) == {"train", "test"} and len(data) == result["num_faults"] > 20
    assert run.run is not None
    running = int(run.run.episodes.lengths.sum())
    assert result["num_collected_steps"] == seen.steps + result["num_dropped_steps"] + running
    logged = [re.sub(r"\. A new episode begins.*", "", record.getMessage(), flags=re.S) for record in caplog.records]
    assert logged == data["message"].tolist()
