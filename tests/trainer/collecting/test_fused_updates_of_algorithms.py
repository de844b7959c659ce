"""Updates of all off-policy algorithms inside a fused call equal single updates, in whole runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.envs.native.game import Game
from tests.tiers import LONG
from tests.trainer.collecting.test_fused import CARTPOLE, PENDULUM, SPREAD
from tests.trainer.collecting.test_fused_team_updates import MEAN, Pair
from tests.trainer.collecting.test_fused_turns import KUHN
from tests.trainer.collecting.test_fused_updates import PRIORITIZED, hold

SHARED = {"share": True, "identify": True}
RECURRENT: dict[str, Any] = {
    "network": mt.GRU((5,), units=4, sequence_length=4),
    "burn_in": 1,
    "batch_size": 9,
    "epsilon": 0.5,
}
QMIX = {**RECURRENT, "mixing_units": 3, "hyper_units": 5}
NFSP = {"reservoir": 30, "eta": 0.5, "epsilon": 0.5, "capacity": 203}
SCALED = {"normalize_observations": True}
ATOMS = {"atoms": 5, "v_min": -20.0, "v_max": 0.0}


class Lone(Game):
    """A player who sees one number, which is moved by actions; episodes have nine steps."""

    name = "lone_v0"

    def __init__(self) -> None:
        super().__init__(
            {"a": (spaces.Box(-np.inf, np.inf, (1,)), spaces.Discrete(3))}, fields={"place": float}, limit=9
        )

    @staticmethod
    def reset(s, rules):
        s.place = 3.0

    @staticmethod
    def step(s, rules):
        s.place += 0.3 * s.action[0] - 0.25
        s.reward[0] = -s.place

    @staticmethod
    def observe(s, rules, p, obs):
        obs[0] = s.place


@pytest.mark.parametrize(
    ("env", "algo", "settings", "run"),
    [
        pytest.param(PENDULUM, "td3", {"update_per_step": 0.7, "memory": PRIORITIZED}, {}, id="td3, priorities"),
        pytest.param(SPREAD, "maddpg", {"reward_scale": 3.0}, {"mask": [1, 0, 1]}, id="maddpg, one does not learn"),
        pytest.param(SPREAD, "matd3", {"share": True, "normalize_rewards": True}, {"mask": [1, 0, 1]}, id="matd3"),
        pytest.param(CARTPOLE, "rainbow", {**ATOMS, "capacity": 403}, {}, id="rainbow, three steps"),
        pytest.param(CARTPOLE, "dqn", {**RECURRENT, "capacity": 203}, {}, id="dqn, gru"),
        pytest.param(SPREAD, "qmix", {**QMIX, **SHARED, "capacity": 203}, MEAN, id="qmix, gru, one-hots"),
        pytest.param(PENDULUM, "sac", {"memory": PRIORITIZED, **SCALED}, {}, id="sac, priorities, normalized"),
        pytest.param(SPREAD, "vdn", {**SHARED, **SCALED}, {**MEAN, "mask": [1, 0, 1]}, id="vdn, normalized"),
        pytest.param(SPREAD, "nfsp", {**NFSP, **SHARED, **SCALED}, {"mask": [1, 0, 1]}, id="nfsp, one-hots"),
        pytest.param(KUHN, "nfsp", NFSP, {"test_freq": 90}, id="nfsp, turns, masks"),
        *LONG * [
            pytest.param(Lone, "dqn", {**SCALED, "batch_size": 300}, {}, id="dqn, one number, normalized"),
            pytest.param(PENDULUM, "sac", {}, {}, id="sac"),
            pytest.param(PENDULUM, "sac", {"backend": "tensorflow"}, {}, id="sac, tensorflow"),
            pytest.param(SPREAD, "maddpg", {"backend": "tensorflow"}, {}, id="maddpg, tensorflow"),
            pytest.param(PENDULUM, "ddpg", {"normalize_rewards": True}, {}, id="ddpg"),
            pytest.param(SPREAD, "sac", {"n_step": 3, **SHARED}, {}, id="sac, discrete actions, three steps, one-hots"),
            pytest.param(SPREAD, "masac", {}, {}, id="masac"),
            pytest.param(CARTPOLE, "c51", {**ATOMS, "epsilon": 0.5}, {}, id="c51"),
            pytest.param(CARTPOLE, "dqn", {"dueling": True, "epsilon": 0.5}, {}, id="dqn, dueling"),
            pytest.param(SPREAD, "qmix", {**QMIX, "normalize_rewards": True}, {**MEAN, "mask": [1, 0, 1]}, id="qmix"),
            pytest.param(Pair, "qmix", {**QMIX, "burn_in": 2}, {}, id="qmix, masks, episodes of any length"),
            pytest.param(Pair, "qmix", {**QMIX, **SCALED}, {}, id="qmix, gru, normalized"),
            pytest.param(CARTPOLE, "dqn", {**RECURRENT, **SCALED}, {}, id="dqn, gru, normalized"),
            pytest.param(SPREAD, "maddpg", SCALED, {"mask": [1, 0, 1]}, id="maddpg, normalized"),
        ],
    ],
)  # fmt: skip
def test_fused_run_equals_single_updates(env, algo, settings, run):
    own = {"learning_starts": 40, "update_per_step": 0.2, "batch_size": 4, "network": mt.MLP((8,)), **settings}
    given = {"steps_per_train": 305, "least": 25, **run}
    hold(env, lambda: mt.make_agents(algo, env, seed=0, jit_compile=True, **own), **given)


def test_random_numbers_for_rows_of_sequences_are_drawn_for_single_updates(caplog):
    """Their number depends on the sequences that were drawn."""
    own = {**RECURRENT, "learning_starts": 40, "update_per_step": 0.2}
    del own["epsilon"]
    hold(PENDULUM, lambda: mt.make_agents("sac", PENDULUM, seed=0, jit_compile=True, **own), many=False)
    assert any("random numbers for the rows of sequences" in record.message for record in caplog.records)
