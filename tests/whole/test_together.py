"""Algorithms that learn together in runs: workers, resumed runs, and frozen, foreign and scripted players."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError
from tests.policies.agents.tianshou import making
from tests.tiers import LONG
from tests.toys import Crowd, Identity
from tests.trainer.running import SMALL, changed, trainer, weights
from tests.whole.resuming import DUMMY, SUBPROC, Case

ROLLOUTS = ("mappo", "maa2c", "seac", "coma", "vdac")
EVERY = (*ROLLOUTS, "maddpg", "matd3", "masac", "vdn", "qmix", "wqmix")
REPLAYING: dict[str, Any] = {"learning_starts": 20, "batch_size": 8, "update_per_step": 0.2}
PLAYERS = {"players": 5}


def settings(algo: str) -> dict[str, Any]:
    return {"network": SMALL, **({} if algo in ROLLOUTS else REPLAYING)}


@pytest.mark.parametrize("algo", EVERY if LONG else ["coma", "vdac", "maddpg"])
def test_a_run_of_workers_that_goes_on_without_them_is_the_uninterrupted_one(algo, tmp_path):
    """Everything that is left, bit for bit; a player dies, one is absent, and one does not learn."""
    one: dict[str, Any] = {"team_reward": "sum"}
    case = Case(
        Crowd, lambda: mt.make_agents(algo, Crowd, seed=1, **settings(algo)), {"length": 5}, one, learning=(1, 0, 1),
        at=63, steps=126,
    )  # fmt: skip
    whole = case.train(tmp_path / "whole", case.steps)
    half = replace(case, settings={**one, **SUBPROC}, again=DUMMY)
    half.train(tmp_path / "half", case.at, callbacks=[mt.Checkpoint(every_steps=1000)])
    again = half.train(tmp_path / "half", case.steps, resume=tmp_path / "half", again=True)
    assert again.keys() == whole.keys()
    for name, value in whole.items():
        assert again[name] == value, name
    assert whole["counters"]["updates"] > 3


@pytest.mark.parametrize("algo", EVERY if LONG else ["maddpg", "vdac"])
def test_a_team_beside_a_frozen_a_foreign_and_a_scripted_player(algo):
    """Two agents learn beside a frozen one, one of tianshou that learns, and one whose action is always 1."""
    names: list[Any] = [(algo, settings(algo))] * 2 + ["random"] * 3
    team: list[Any] = mt.make_agents(names, Identity, env_args=PLAYERS, seed=1)[:2]
    ppo: Any = mt.make_agents("ppo", Identity, env_args=PLAYERS, seed=3, network=SMALL)[2]
    foreign = mt.OffPolicyAgent(making.dqn(3, 3), memory=mt.Replay(300), update_per_step=0.1)
    before, frozen = weights(team), weights([ppo])
    run = trainer(Identity, PLAYERS, team_reward="mean", steps_per_train=240, update_freq=48, batch_size=24)
    line_up = [*team, mt.FrozenAgent(ppo), foreign, mt.FunctionAgent(lambda observation: 1)]
    result = run.train(line_up, [1, 1, 0, 1, 0], plot=False)
    assert changed(before, weights(team)) == [True, True] and changed(frozen, weights([ppo])) == [False]
    assert result["num_updates"] >= 4
    assert team[0].act(np.int64(0)) in range(3)  # alone


@pytest.mark.parametrize("algo", ["maddpg", "qmix", "vdac"])
def test_a_foreign_agent_in_the_seat_of_a_member_is_refused(algo):
    """An on-policy agent of tianshou has no part in the loss of a team."""
    agents = mt.make_agents(algo, Identity, env_args={"players": 3}, seed=1, **settings(algo))
    line_up = [*agents[:2], mt.OnPolicyAgent(making.discrete_ppo(3, 3))]
    with pytest.raises(AgentError, match=r"made for 3 players, and they play 2 \(player_0, player_1\)"):
        trainer(Identity, {"players": 3}).train(line_up, [1, 1, 1], plot=False)
