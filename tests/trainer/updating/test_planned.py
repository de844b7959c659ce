"""Planned updates equal single updates, also where the batch steps between them are made one at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.jit.views import address_of
from marltrain.policies.compiled.acting import ACT
from marltrain.policies.learner.planned.planned_updates import PlannedUpdates
from marltrain.trainer.updating.planned import PlannedScheduler
from tests.tiers import LONG
from tests.trainer.collecting.test_fused import CARTPOLE, PENDULUM, SPREAD, Fading, Looking, assert_same, train
from tests.trainer.collecting.test_fused_team_updates import Pair

PRIORITIZED = mt.Replay(prioritized=mt.Prioritized())
TWO = [1, 0, 1]
RECURRENT = {
    "network": mt.GRU((5,), units=4, sequence_length=4), "burn_in": 1, "batch_size": 9, "update_per_step": 0.2
}  # fmt: skip
SMALL = {**RECURRENT, "mixing_units": 3, "hyper_units": 5, "epsilon": 0.5}


def run(env: Any, algo: str, settings: dict[str, Any], mask: Any) -> Any:
    """A short run in single batch steps, with compiled gradient steps."""
    own = {"learning_starts": 40, "update_per_step": 0.3, "batch_size": 4, "network": mt.MLP((8,)), **settings}
    agents = mt.make_agents(algo, env, seed=0, jit_compile=True, **own)
    shared = {"team_reward": "mean"} if algo in ("vdn", "qmix") else {}
    return train(env, agents, mask, callbacks=[Looking()], update_freq=5, steps_per_train=305, **shared)[1]


def plan_always(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Plan updates before each batch step, as for a compiled call; return a list that gets the planned rounds made."""
    count, make = PlannedScheduler.count_steps, PlannedUpdates.make_round
    made: list[int] = []
    told: dict[Any, int] = {}
    act, epsilon = np.zeros(1, ACT), np.zeros(3, np.float32)  # of the acts that a compiled call would make
    act["epsilon"] = address_of(epsilon)

    def count_steps(self: Any, steps: int) -> None:
        self.prepare_updates(told.setdefault(self, 0), steps, None, address_of(act))
        told[self] += self.num_envs * steps
        count(self, steps)

    def make_round(self: Any) -> None:
        made.append(self.batch_size)
        make(self)

    monkeypatch.setattr(PlannedScheduler, "count_steps", count_steps)
    monkeypatch.setattr(PlannedUpdates, "make_round", make_round)
    return made


@pytest.mark.parametrize(
    ("env", "algo", "settings", "mask"),
    [
        pytest.param(PENDULUM, "sac", {}, None, id="sac"),
        pytest.param(PENDULUM, "td3", {"update_per_step": 0.7, "memory": PRIORITIZED}, None, id="td3, priorities"),
        pytest.param(SPREAD, "maddpg", {"reward_scale": 3.0}, TWO, id="maddpg, one does not learn"),
        pytest.param(SPREAD, "matd3", {"share": True, "normalize_rewards": True}, TWO, id="matd3, shared agent"),
        pytest.param(Fading, "dqn", {**RECURRENT, "epsilon": 0.5}, None, id="gru, players die and wait"),
        pytest.param(SPREAD, "qmix", {**SMALL, "capacity": 203}, TWO, id="qmix, gru"),
        *LONG * [
            pytest.param(CARTPOLE, "sac", {**RECURRENT, "capacity": 203}, None, id="sac, gru, the ring wraps"),
            pytest.param(SPREAD, "qmix", {**SMALL, "share": True, "normalize_rewards": True}, None, id="qmix, shared"),
            pytest.param(Pair, "qmix", {**SMALL, "burn_in": 2}, None, id="qmix, masks, episodes of any length"),
            pytest.param(PENDULUM, "sac", {"backend": "tensorflow"}, None, id="sac, tensorflow"),
            pytest.param(PENDULUM, "ddpg", {"normalize_rewards": True}, None, id="ddpg"),
            pytest.param(SPREAD, "sac", {}, TWO, id="sac, discrete actions"),
            pytest.param(SPREAD, "masac", {}, None, id="masac"),
            pytest.param(SPREAD, "maddpg", {"backend": "tensorflow"}, None, id="maddpg, tensorflow"),
        ],
    ],
)  # fmt: skip
def test_planned_updates_equal_single_updates(env, algo, settings, mask, monkeypatch):
    expected = run(env, algo, settings, mask)
    rounds = plan_always(monkeypatch)
    assert_same(run(env, algo, settings, mask), expected)
    assert len(rounds) > 25
