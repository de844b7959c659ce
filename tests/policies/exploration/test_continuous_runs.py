"""Ornstein-Uhlenbeck noise in runs: its state belongs to an episode, and continues after a resume."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.algorithms.ppo import PPOAlgorithm, PPOSettings
from marltrain.policies.exploration import ActionNoise, ContinuousExploration
from tests.trainer.running import changed, tables, trainer, weights

PENDULUM = "gymnasium/Pendulum-v1"


@dataclass(frozen=True, kw_only=True)
class NoisySettings(ContinuousExploration, PPOSettings):
    """PPO whose actions are the means with noise."""


class NoisyAlgorithm(PPOAlgorithm):
    Settings = NoisySettings
    acts_in_numpy = True

    def __init__(self, settings, layout, action_space):
        super().__init__(settings, layout, action_space)
        self.exploration = ActionNoise(settings, self.distribution.dims, self.name)

    def carry(self):
        return self.exploration.carry()

    def noise(self, rngs, rows):
        return {**super().noise(rngs, rows), **self.exploration.noise(rngs, rows)}

    def act(self, ops, nets, inputs):
        mean = super().act(ops, nets, replace(inputs, explore=inputs.explore & False))
        acted = self.exploration.perturb(ops, mean.action, inputs)
        return mt.Acted(acted.action, acted.carry, mean.extras)


class Noisy(mt.PPO):
    algorithm_class = NoisyAlgorithm


def agents():
    return mt.make_agents(
        Noisy, PENDULUM, seed=0, exploration="ornstein_uhlenbeck", network=mt.MLP((4,)), epochs=1, minibatches=2,
        noise_std=mt.linear(0.5, 0.1, 60), noise_scale=(1.5,),
    )  # fmt: skip


def recurrent_agents():
    return mt.make_agents(
        "sac", PENDULUM, seed=0, exploration="ornstein_uhlenbeck", network=mt.GRU((4,), units=3, sequence_length=4),
        noise_std=mt.linear(0.5, 0.1, 60), learning_starts=20, batch_size=8, update_per_step=0.1,
    )  # fmt: skip


def run(made, steps, **arguments):
    resume = arguments.pop("resume", None)
    return trainer(PENDULUM, {}, num_train_envs=2, steps_per_train=steps, test_freq=None, **arguments).train(
        made, [1], plot=False, resume=resume
    )


@pytest.mark.parametrize("made", [agents, recurrent_agents], ids=["ppo", "sac with a gru"])
def test_a_resumed_run_continues_the_noise_of_its_episodes(made):
    """Stopped after 30 of 60 env steps, in the middle of episodes of 200 steps."""
    expected = run(whole := made(), 60, run_dir="whole")
    run(made(), 30, run_dir="half", callbacks=[mt.Checkpoint(every_steps=30)])
    result = run(resumed := made(), 60, run_dir=None, resume=Path("half"))
    assert tables(result) == tables(expected)
    assert changed(weights(whole), weights(resumed)) == [False]
    assert resumed[0].hyper.noise_std == whole[0].hyper.noise_std < 0.5


def test_a_saved_agent_keeps_its_settings(tmp_path):
    (agent,) = agents()
    assert agent.settings.noise_scale == (1.5,)
    state = agent.state()
    again = Noisy.from_state(state, {}, "tensorflow")
    assert again.settings.noise_scale == (1.5,)
    obs = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    mine, theirs = agent.act(obs, explore=True), again.act(obs, explore=True)
    np.testing.assert_allclose(mine, theirs, rtol=1e-5)
    assert abs(mine - agent.act(obs)).min() > 0
    assert agent.action_space == spaces.Box(-2, 2, (1,), np.float32)
    assert (abs(mine) <= 2).all()
