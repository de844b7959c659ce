"""Real games of different players: each trains a few updates, and only those who were there learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from tests.trainer.running import SMALL, changed, trainer, weights

TAG = {"num_good": 1, "num_adversaries": 3, "max_cycles": 25}


def train(env, agents, env_args=None, **settings):
    few = {
        "num_train_envs": 4,
        "num_test_envs": 2,
        "update_freq": 100,
        "steps_per_train": 300,
        "batch_size": 16,
        **settings,
    }
    before = weights(agents)
    result = trainer(env, env_args or {}, **few).train(agents, [1] * len(agents), plot=False)
    losses = result["history"].filter(like="loss/total").iloc[-1]
    assert np.isfinite(losses).all()
    assert all(changed(before, weights(agents)))
    return result


@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_a_speaker_and_a_listener(algo):
    """3 and 11 numbers to see, 3 and 5 actions: two learners."""
    settings: dict[str, Any] = {"learning_starts": 0} if algo == "dqn" else {}
    agents: list[Any] = mt.make_agents(algo, "mpe2/simple_speaker_listener_v4", seed=0, network=SMALL, **settings)
    train("mpe2/simple_speaker_listener_v4", agents)
    assert agents[0].learner_ is not agents[1].learner_


def test_a_speaker_and_a_listener_steer_in_a_box():
    args = {"continuous_actions": True}
    agents: list[Any] = mt.make_agents("ppo", "mpe2/simple_speaker_listener_v4", env_args=args, seed=0, network=SMALL)
    train("mpe2/simple_speaker_listener_v4", agents, args)


def test_three_chase_one():
    """Three adversaries are one learner of three, the prey another; rivals of two kinds of algorithm train together."""
    agents: list[Any] = mt.make_agents("ppo", "mpe2/simple_tag_v3", env_args=TAG, seed=0, network=SMALL)
    agents[3] = mt.make_agents("dqn", "mpe2/simple_tag_v3", env_args=TAG, seed=0, network=SMALL, learning_starts=0)[3]
    result = train("mpe2/simple_tag_v3", agents, TAG)
    assert agents[0].learner_ is agents[1].learner_ is agents[2].learner_ is not agents[3].learner_
    assert result["num_collected_episodes"] == 12


def test_players_that_die_and_resets_that_are_impure():
    """Archers and knights die one after another, at different times in every environment."""
    env, args = (
        "pettingzoo/butterfly/knights_archers_zombies_v10",
        {"max_cycles": 120, "spawn_rate": 4, "max_zombies": 12},
    )
    agents: list[Any] = mt.make_agents("ppo", env, env_args=args, seed=0, network=SMALL)
    assert len(agents) == 4
    result = train(
        env, agents, args, num_train_envs=2, num_test_envs=1, episodes_per_test=1, update_freq=80, steps_per_train=400
    )
    assert result["num_collected_episodes"] >= 2
