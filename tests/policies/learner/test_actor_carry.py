"""The carry of acts: given to the algorithm, kept by the loop, zero at the start of an episode."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.envs import make_vector, resolve
from marltrain.policies.algorithms.ppo import PPOAlgorithm
from marltrain.policies.batches.batch import ActInputs
from marltrain.policies.memory.needs import Column
from marltrain.trainer.collecting.rollout import Actors
from marltrain.trainer.seats.seats import Seating
from tests.envs.driving import run_seed
from tests.policies.backends.both import BOTH
from tests.toys import Crowd

VECTOR = spaces.Box(-1, 1, (5,), np.float32)


class Counting(PPOAlgorithm):
    """Counts the decisions of an episode; while it explores, the action is the count modulo 2."""

    acts_in_numpy = True

    def carry(self):
        return {"count": Column((2,)), "whole": Column((), "int64")}

    def act(self, ops, nets, inputs):
        acted, carry = super().act(ops, nets, inputs), inputs.carry
        action = ops.where(inputs.explore, carry["whole"] % 2, acted.action)
        return mt.Acted(action, {"count": carry["count"] + 0.5, "whole": carry["whole"] + 1}, acted.extras)


class InTensors(Counting):
    def act(self, *args):
        return super().act(*args)


class CountingAgent(mt.PPO):
    algorithm_class = Counting


@pytest.mark.parametrize("backend", BOTH)
@pytest.mark.parametrize("algorithm", [Counting, InTensors])
def test_the_algorithm_gets_the_carry_that_it_returned(backend, algorithm):
    kind = type("Agent", (mt.PPO,), {"algorithm_class": algorithm})
    learner, on = kind(VECTOR, spaces.Discrete(3), seed=0, backend=backend).learner(), np.ones((1, 4), bool)
    obs, carry = np.zeros((1, 4, 5), np.float32), None
    for count in range(5):
        acted = learner.act(ActInputs(obs, None, on, carry), turn=on, rngs=learner.rngs("act"))
        carry = acted.carry
        assert acted.action.tolist() == [[count % 2] * 4]
        assert carry["count"].shape == (1, 4, 2)
        assert carry["count"].dtype == np.float32
        assert carry["count"].max() == carry["count"].min() == (count + 1) / 2
        assert carry["whole"].dtype == np.int64


def test_an_agent_outside_a_run_starts_from_zero():
    agent = CountingAgent(VECTOR, spaces.Discrete(3), seed=0)
    for _ in range(2):
        assert agent.act(np.zeros((2, 5), np.float32), explore=True).tolist() == [0, 0]
    everyone, rng = np.ones(2, bool), np.random.default_rng(0)
    acted = agent.decide(np.zeros((2, 5), np.float32), None, None, turn=everyone, explore=everyone, rng=rng)
    acted = agent.decide(np.zeros((2, 5), np.float32), None, acted.carry, turn=everyone, explore=everyone, rng=rng)
    assert (acted.action.tolist(), acted.carry["whole"].tolist()) == ([1, 1], [2, 2])


def counting():
    return mt.make_agents(CountingAgent, Crowd, seed=0, network=mt.MLP((4,)), epochs=1, minibatches=2)


def test_a_carry_is_zero_again_in_the_next_episode():
    """Crowd of 4 steps; red_1's part ends with step 2."""
    agents = counting()
    with make_vector(resolve(Crowd, {}), None, 2, vector="dummy", role="train") as envs:
        actors = Actors(envs.spec, Seating(envs.spec, agents, 0, stack=True).learners, 2, "act")
        actors.explore(np.ones(3, bool))
        step, counts = envs.reset(run_seed([0, 0])), []
        for _ in range(6):
            actors.decide(step)
            counts.append([int(actors.state().arrays[f"{i}/whole"][0, 0]) for i in range(len(actors.learners))])
            step = envs.step(actors.actions)
        saved = actors.state()
        actors.decide(step)
        following = [group.copy() for group in actors.actions]
        actors.restore(saved)
        actors.decide(step)
        assert all((a == b).all() for a, b in zip(following, actors.actions, strict=True))
    assert [row[0] for row in counts] == [1, 2, 3, 4, 1, 2]
