"""Fused batch steps of agents that act by programs equal single batch steps; a run resumed within an episode."""

from __future__ import annotations

from typing import Any

import pytest

import marltrain as mt
from marltrain.trainer.saving.checkpoint import Checkpoint
from tests.tiers import LONG
from tests.trainer.collecting.test_fused import CARTPOLE, PENDULUM, SPREAD, assert_same, hold, train
from tests.trainer.running import tables, trainer, weights

GRU, LSTM = mt.GRU((6,), units=7, sequence_length=4), mt.LSTM((6,), units=7, sequence_length=4)
SMALL = mt.MLP((4,))
ROLLOUTS: dict[str, Any] = {"network": SMALL, "minibatches": 2, "epochs": 1}
REPLAY: dict[str, Any] = {"network": SMALL, "learning_starts": 50, "update_per_step": 0.05, "batch_size": 16}
ATOMS: dict[str, Any] = {**REPLAY, "atoms": 11, "v_min": -20.0, "v_max": 0.0}
OU = {"exploration": "ornstein_uhlenbeck", "random_steps": 30}
COOLER = {"exploration": "boltzmann", "temperature": mt.linear(2.0, 0.1, 300)}
MEAN = {"team_reward": "mean"}


@pytest.mark.parametrize(
    ("env", "algo", "settings", "run"),
    [
        pytest.param(SPREAD, "ppo", {**ROLLOUTS, "network": GRU, "share": True, "identify": True}, {}, id="one gru"),
        pytest.param(SPREAD, "mappo", {**ROLLOUTS, "network": LSTM}, {}, id="lstm, with global states"),
        pytest.param(CARTPOLE, "ppo", {**ROLLOUTS, "network": GRU}, {"at_once": 2}, id="gru, ends at any time"),
        pytest.param(SPREAD, "ppo", {**ROLLOUTS, "normalize_observations": True, "normalize_returns": True}, {},
                     id="normalized observations"),
        pytest.param(SPREAD, "a2c", {"network": SMALL, "shared_trunk": True}, {}, id="a2c"),
        pytest.param(SPREAD, "acer", {"network": SMALL, "batch_size": 8, "sequence_length": 5, "capacity": 200}, {},
                     id="acer, with a column of probabilities"),
        pytest.param(SPREAD, "coma", {"network": SMALL}, MEAN, id="coma, with joint actions"),
        pytest.param(SPREAD, "c51", ATOMS, {}, id="c51"),
        pytest.param(SPREAD, "rainbow", {**ATOMS, "network": mt.MLP((3,))}, {}, id="rainbow, with noisy weights"),
        pytest.param(SPREAD, "dqn", {**REPLAY, "dueling": True, **COOLER}, {}, id="dqn by a temperature"),
        pytest.param(SPREAD, "dqn", {**REPLAY, "exploration": "boltzmann_gumbel"}, {}, id="dqn that counts actions"),
        pytest.param(PENDULUM, "sac", {**REPLAY, **OU}, {}, id="sac, noise with a state"),
        *LONG * [pytest.param(SPREAD, "qmix", {**REPLAY, "network": GRU}, MEAN, id="a team with a gru")],
        *LONG * [pytest.param(PENDULUM, "td3", REPLAY, {}, id="td3")],
        *LONG * [pytest.param(SPREAD, "maddpg", REPLAY, MEAN, id="maddpg")],
    ],
)  # fmt: skip
def test_fused_run_equals_single_steps(env, algo, settings, run):
    made = {"seed": 0, "jit_compile": True, **settings}
    given = {"at_once": 4, "steps_per_train": 300, **run}
    steps, _, updates, _ = hold(env, lambda: mt.make_agents(algo, env, **made), **given)[4]
    assert steps == 300
    assert updates >= 4


def test_fused_run_with_tensorflow():
    def make():
        return mt.make_agents(
            "ppo", SPREAD, seed=0, backend="tensorflow", jit_compile=True, **ROLLOUTS | {"network": GRU}
        )

    hold(SPREAD, make, at_once=3, steps_per_train=200)


def test_a_run_is_resumed_within_an_episode(tmp_path):
    """Episodes of 25 batch steps, in 5 environments; batch steps 17, 34 and 50 are none of their ends."""

    def agents():
        return mt.make_agents("ppo", SPREAD, seed=0, jit_compile=True, **ROLLOUTS | {"network": GRU})

    given: dict[str, Any] = {"update_freq": 45, "steps_per_train": 405}
    train(SPREAD, agents(), callbacks=[Checkpoint(every_steps=83, keep=9)], **{**given, "steps_per_train": 202})
    written = sorted(int(path.name) for path in (tmp_path / "run/checkpoints").iterdir())
    assert written == [85, 170, 205]
    again, whole = agents(), agents()
    output = trainer(SPREAD, {}, num_train_envs=5, test_freq=15, episodes_per_test=3, run_dir=None, **given)
    result = output.train(again, [1] * 3, plot=False, resume="run/checkpoints/170")
    expected = train(SPREAD, whole, run_dir="whole", **given)[1]
    assert_same((weights(again), tables(result)), (weights(whole), expected[2]))
