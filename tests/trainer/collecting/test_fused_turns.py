"""Fused batch steps of turn-based games equal single batch steps: complete runs, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest

import marltrain as mt
from marltrain.trainer.collecting.fused import FusedCollector
from marltrain.trainer.saving.checkpoint import Checkpoint
from tests.tiers import LONG
from tests.trainer.collecting.test_fused import SETTINGS, assert_same, hold, mappo, train
from tests.trainer.collecting.test_fused_updates import PRIORITIZED, hold as hold_updates, learners
from tests.trainer.running import SMALL, dqn, ppo, tables, trainer, weights

TICTACTOE, KUHN = "marltrain/tictactoe_v3", "marltrain/kuhn_poker_v1"
MANY: dict[str, Any] = {"test_freq": 90, "episodes_per_test": 2, "steps_per_train": 402}
"""Tests are due by episodes, of which several end in a batch step; 90 is no multiple of anything."""
COUNTED: dict[str, Any] = {"jit_compile": True, "exploration": "boltzmann_gumbel", "learning_rate": 2**-10}
GRU: dict[str, Any] = {"jit_compile": True, "network": mt.GRU((6,), units=7, sequence_length=4)}


def mmd(env, **settings):
    return mt.make_agents("mmd", env, seed=0, network=SMALL, minibatches=2, epochs=1, **settings)


@pytest.mark.parametrize(
    ("env", "make", "settings"),
    [
        pytest.param(TICTACTOE, lambda: ppo(TICTACTOE, {}), {}, id="ppo"),
        pytest.param(TICTACTOE, lambda: ppo(TICTACTOE, {}, share=True, jit_compile=True), {}, id="ppo shared"),
        pytest.param(KUHN, lambda: mmd(KUHN, jit_compile=True), {"update_freq": 31}, id="mmd"),
        *LONG * [pytest.param(KUHN, lambda: mmd(KUHN, share=True, jit_compile=True), {}, id="mmd shared")],
        *LONG * [pytest.param(KUHN, lambda: dqn(KUHN, {}, share=True), {}, id="dqn shared")],
        pytest.param(TICTACTOE, lambda: dqn(TICTACTOE, {}, capacity=90, n_step=2), {}, id="dqn whose ring wraps"),
        pytest.param(TICTACTOE, lambda: dqn(TICTACTOE, {}), {"shared_memory": True}, id="dqn, shared memory"),
        pytest.param(KUHN, lambda: ppo(KUHN, {}), {"mask": [1, 0]}, id="ppo against an agent that stays"),
        pytest.param(KUHN, lambda: ppo(KUHN, {}), {"collect": "overlap"}, id="ppo, asynchronous updates"),
        pytest.param(KUHN, lambda: ppo(KUHN, {}), {"team_reward": "mean"}, id="ppo, team reward"),
        pytest.param(TICTACTOE, lambda: ppo(TICTACTOE, {}, **GRU), {}, id="ppo, gru"),
        pytest.param(TICTACTOE, lambda: mappo(TICTACTOE), {}, id="mappo, joined observations"),
        pytest.param(KUHN, lambda: dqn(KUHN, {}, **COUNTED), {}, id="dqn that counts actions"),
    ],
)  # fmt: skip
def test_fused_run_of_turns_equals_single_steps(env, make, settings):
    _, passes, updates, reason = hold(env, make, at_once=3, **{**MANY, **settings})[4]
    assert reason == "steps_per_train"
    assert passes >= updates >= 5


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        pytest.param(KUHN, {"capacity": 23}, id="the ring wraps"),
        pytest.param(TICTACTOE, {"capacity": 203, "memory": PRIORITIZED}, id="priorities"),
        pytest.param(TICTACTOE, {"share": True, "n_step": 2}, id="a shared agent, two steps"),
    ],
)
def test_updates_between_turns_equal_single_updates(env, settings):
    hold_updates(env, lambda: learners(env, **settings), least=25, test_freq=90, episodes_per_test=2)


def mmd_shared():
    return mmd(KUHN, share=True, jit_compile=True)


def dqn_apart():
    return dqn(TICTACTOE, {}, capacity=151, jit_compile=True)


def mappo_of_two():
    return mappo(KUHN)


def nfsp(**settings):
    own = {"learning_starts": 20, "reservoir": 30, "eta": 0.5, "jit_compile": True, **settings}
    return dqn(KUHN, {}, algo="nfsp", **own)


@pytest.mark.parametrize(
    ("env", "make"), [(KUHN, mmd_shared), (TICTACTOE, dqn_apart), (KUHN, nfsp), (KUHN, mappo_of_two)]
)
def test_resume_in_the_middle_of_an_episode(env, make, tmp_path):
    """A checkpoint every 83 env steps, where a fused call ends."""
    train(env, make(), callbacks=[Checkpoint(every_steps=83, keep=9)], **MANY)
    agents, again = make(), make()
    output: Any = trainer(env, {}, **{**SETTINGS, **MANY, "run_dir": None})
    result = output.train(again, [1, 1], plot=False, resume="run/checkpoints/170")
    assert isinstance(output.run.collector, FusedCollector)
    _, whole = train(env, agents, run_dir="whole", **MANY)
    assert_same((weights(again), tables(result)), (weights(agents), whole[2]))
