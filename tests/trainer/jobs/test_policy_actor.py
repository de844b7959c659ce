"""The actor of the agents, without Ray: acts equal those of the agents, and calls that come together are one act."""

import asyncio

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError, SpecError
from marltrain.envs import resolve
from marltrain.envs.python.probe import probe
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.trainer.cluster.messages import Acting, ActingTask, can_act_elsewhere
from marltrain.trainer.jobs.policy_actor import PolicyActor
from marltrain.trainer.seats.seats import Seating
from tests.toys import Identity, Relay
from tests.trainer.running import dqn, ppo


def served(env, agents):
    """Return the actor of agents, without weights, and a function that loads their present weights."""
    spec = probe(resolve(env))
    seats = [seated for seated in Seating(spec, agents, 0, stack=True).learners if can_act_elsewhere(seated)]
    result = PolicyActor(spec.players, [ActingTask.of(seated) for seated in seats], 0)

    async def load(updates):
        learners = [seated.learner for seated in seats]
        await result.load([Acting.now(each) for each in learners if isinstance(each, AlgorithmLearner)], updates)

    return spec, result, load


def observations(spec, player, rows):
    """Return a batch of observations of a player."""
    space = spec.players[player].observation_space
    space.seed(1)
    return np.stack([space.sample() for _ in range(rows)])


async def acted(made, *arguments):
    return (await made.act(*arguments)).result()


def test_acts_equal_those_of_the_agents_with_weights_loaded_in_between():
    agents = dqn(env_args={})
    spec, result, load = served(Identity, agents)
    obs = observations(spec, 1, 40)

    async def play():
        early = asyncio.create_task(acted(result, "player_1", obs, None, None, False))
        await asyncio.sleep(0)
        assert not early.done()
        await load(3)
        before = [await early, await acted(result, "player_1", obs[0], None, None, False)]
        agents[1].restore(dqn(env_args={}, seed=5)[1].state())
        stale = await acted(result, "player_1", obs, None, None, False)
        await load(4)
        return *before, stale, await acted(result, "player_1", obs, None, None, False)

    expected = agents[1].act(obs).copy()
    (first, carry, updates), (single, *_), (stale, *_), (new, _, later) = asyncio.run(play())
    assert first.tolist() == expected.tolist() == stale.tolist() and carry is None and (updates, later) == (3, 4)
    assert single == expected[0] and np.ndim(single) == 0
    assert new.tolist() == agents[1].act(obs).tolist() != first.tolist()


def test_calls_that_come_together_are_one_act_with_masks_and_carries():
    """Of two callers one gives no legal actions, and one goes on with the carry of its last act."""
    agents = ppo(Relay, network=mt.GRU((8,)))
    _, result, load = served(Relay, agents)
    obs = np.array([[0, 0, -1], [2, 0, 1], [3, 0, 0], [5, 0, 2]], np.float32)
    legal = np.array([[0, 1, 0], [1, 0, 0]], bool)

    async def play():
        await load(1)
        _, carry, _ = await acted(result, "ann", obs[:2], None, None, False)
        together = await asyncio.gather(
            acted(result, "ann", obs[2:], legal, carry, False),
            acted(result, "ann", obs, None, None, False),
            acted(result, "ann", obs[0], [1, 0, 0], None, True),
        )
        return carry, together, await result.counts()

    carry, together, counts = asyncio.run(play())
    assert counts == (4, 2)
    agent, expected = agents[0], []
    _, own = agent.act_with_carry(obs[:2], None)
    for arguments in ((obs[2:], own, legal), (obs, None, None), (obs[0], None, [1, 0, 0])):
        expected.append(agent.act_with_carry(*arguments))
    assert all(np.allclose(carry[name], own[name], atol=1e-6) for name in own) and set(own) == {"actor", "critic"}
    for (action, following, _), (right, next_carry) in zip(together, expected, strict=True):
        assert np.array_equal(action, right)
        assert all(np.allclose(following[name], next_carry[name], atol=1e-6) for name in own)


def test_wrong_calls_are_errors_of_the_caller_alone():
    agents = [mt.RandomAgent(), dqn(env_args={})[1]]
    _, result, load = served(Identity, agents)

    async def play():
        await load(0)
        calls = [
            ("player_0", 1, None, None, False),
            ("player_1", "x", None, None, False),
            ("player_1", 1, [0, 0, 0], None, False),
            ("player_1", 1, None, {"x": 1}, False),
            ("player_1", 1, None, None, False),
        ]
        return await asyncio.gather(*(result.act(*call) for call in calls))

    *wrong, right = asyncio.run(play())
    assert right.result()[0] in range(3)
    for answer, kind, text in zip(
        wrong,
        (AgentError, SpecError, SpecError, AgentError),
        ("the agent of 'player_0' cannot be asked", "observation", "no action is legal", "carry .* must be what"),
        strict=True,
    ):
        with pytest.raises(kind, match=text):
            answer.result()
