"""SAC with recurrent networks: losses over sequences against single decisions, stacks, acts outside of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.seeds import generator
from marltrain.policies.backends import numpy_ops
from marltrain.policies.batches.batch import SequenceTransitions
from marltrain.policies.batches.row_draws import drawn_rows
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.policies.algorithms.twins import BOX, ON, in_numbers
from tests.policies.backends.both import BOTH
from tests.policies.some_batches import VECTOR, of_agent, some_transitions, with_carries

DISCRETE = spaces.Discrete(3)
KINDS = pytest.mark.parametrize("space", [BOX, DISCRETE], ids=["box", "discrete"])
LENGTH = 4
GRU, LSTM = mt.GRU((6,), units=5, sequence_length=LENGTH), mt.LSTM((), units=3, sequence_length=LENGTH)


def played(agent: Any, space: Any, seed: int = 0) -> SequenceTransitions:
    """Two sequences of an agent's decisions, of which the second ends early, with the carries of its acts.

    The first one begins in the middle of an episode. The last row is padding.
    """
    rng = np.random.default_rng(seed)
    given: Any = some_transitions(rng, VECTOR, space, 1, 2 * LENGTH, masked=space is DISCRETE)
    if space is BOX:
        given.action = rng.uniform(space.low, space.high, given.action.shape).astype(np.float32)
    nets = {name: net.in_numpy() for name, net in agent.learner_.weights.nets.items()}
    begins = np.isin(np.arange(2 * LENGTH), [0, LENGTH, 2 * LENGTH - 1])[None]
    taken = (in_numbers(given.action),) if space is BOX else ()
    for name, column in agent.learner_.actor.recurrent.items():
        carry = np.zeros((1, 2 * LENGTH, *column.shape), np.float32)
        now = 0.5 * rng.standard_normal((1, 1, *column.shape)).astype(np.float32)
        vectors = taken if name == "critic" else ()
        for row in range(2 * LENGTH):
            now = np.zeros_like(now) if row == LENGTH else now
            carry[:, row : row + 1] = now
            one = slice(row, row + 1)
            now = nets[name](given.obs[:, one], *(vector[:, one] for vector in vectors), now)[-1]
        given.extras[f"carry/{name}/{column.shape[0]}"] = carry
    given.weight[:, -1] = 0
    for row in range(2 * LENGTH - 1):
        if not begins[0, row + 1]:
            given.next_obs[:, row] = given.obs[:, row + 1]
    return SequenceTransitions(**vars(given), begins=begins)


def memory(carry: Any) -> tuple[Any, ...]:
    return () if carry is None else (carry,)


@KINDS
@pytest.mark.parametrize("critic", [None, LSTM, mt.MLP((4,))], ids=["gru", "lstm critic", "critic without memory"])
@pytest.mark.parametrize("actor", [GRU, mt.MLP((7,))], ids=["gru", "mlp"])
def test_losses_over_sequences_are_those_of_single_decisions(space, critic, actor):
    """Each row by itself in numpy, with the carries of the acts, and with those after them for what follows."""
    agent: Any = mt.SAC(VECTOR, space, seed=1, network=actor, critic_network=critic, temperature=0.3, learning_rate=0.0)
    if not agent.algorithm.carry():
        return
    batch, learner, own = played(agent, space), agent.learner_, agent.algorithm
    nets = {name: net.in_numpy() for name, net in learner.weights.nets.items()}
    carries = {name.split("/")[1]: array for name, array in batch.extras.items()}
    taken = (in_numbers(batch.action),) if space is BOX else ()
    after = {
        "actor": nets["actor"](batch.obs, carries["actor"])[-1] if "actor" in carries else None,
        "critic": nets["target_critic"](batch.obs, *taken, carries["critic"])[-1] if "critic" in carries else None,
    }
    rngs, drawn = [generator(1, "update")], [phase.draw for phase in own.phases if phase.draw]
    noise = {name: array for draw in drawn for name, array in drawn_rows(draw, rngs, batch.weight > 0).items()}
    carry = {"actor": carries.get("actor"), "critic": carries.get("critic")}
    hyper = {"temperature": np.full((1, 1), 0.3, np.float32)}

    def value(critic: str, obs: Any, legal: Any, random: Any, before: Any) -> Any:
        kept = {name: memory(array) for name, array in before.items()}
        return own._soft_value(numpy_ops, nets, critic, obs, legal, random, kept, hyper)[0]

    follows = value("target_critic", batch.next_obs, batch.next_legal, noise.get("next_noise"), after)
    target = batch.reward + batch.discount * follows
    q = nets["critic"](batch.obs, *taken, *memory(carry["critic"]))[0]
    q = q[..., 0] if space is BOX else np.take_along_axis(q, batch.action[:, None, :, None], -1)[..., 0]
    errors = 0.5 * np.square(q - target[:, None]).sum(1)
    metrics = learner.update(batch, learn=ON, batch_size=2 * LENGTH)
    assert metrics["loss/critic"][0] == pytest.approx(errors[0, :-1].mean(), rel=1e-4)
    now = value("critic", batch.obs, batch.legal, noise.get("noise"), carry)
    assert metrics["loss/actor"][0] == pytest.approx(-now[0, :-1].mean(), rel=1e-4, abs=1e-6)


@KINDS
@pytest.mark.parametrize("backend", BOTH)
def test_acts_carry_the_state_of_both_networks(space, backend):
    """The critics of a Box read the action that was chosen."""
    agent: Any = mt.SAC(VECTOR, space, seed=2, network=LSTM, critic_network=GRU, backend=backend)
    nets = {name: net.in_numpy() for name, net in agent.learner_.weights.nets.items()}
    zero = {"actor": np.zeros((1, 2, 6), np.float32), "critic": np.zeros((1, 2, 10), np.float32)}
    carry, kept = zero, None
    for obs in np.random.default_rng(0).uniform(-1, 1, (3, 2, 5)).astype(np.float32):
        action, kept = agent.act_with_carry(obs, kept, explore=True)
        taken = (in_numbers(action)[None],) if space is BOX else ()
        carry = {
            "actor": nets["actor"](obs[None], carry["actor"])[-1],
            "critic": nets["critic"](obs[None], *taken, carry["critic"])[-1],
        }
        for name, expected in carry.items():
            np.testing.assert_allclose(kept[name], expected[0], atol=1e-5)
    members = np.split(carry["critic"], 2, -1)
    assert np.abs(members[0] - members[1]).max() > 1e-3


@KINDS
def test_stacked_agents_learn_as_single_ones(space):
    """Two agents of one learner, one of which pauses in the second of three updates."""
    singles: list[Any] = [mt.SAC(VECTOR, space, seed=seed, network=GRU, tau=0.2) for seed in (1, 2)]
    learner = AlgorithmLearner(singles[0].algorithm, singles[0].backend, [1, 2], draw=True)
    rng = np.random.default_rng(0)
    for active in ([True, True], [True, False], [True, True]):
        batch = with_carries(rng, some_transitions(rng, VECTOR, space, 2, 11, masked=space is DISCRETE), learner)
        learner.update(batch, learn=np.array(active), batch_size=11)
        for k in range(2):
            if active[k]:
                singles[k].learner_.update(of_agent(batch, k), learn=ON, batch_size=11)
    for k, single in enumerate(singles):
        for name, array in learner.export(k).arrays.items():
            np.testing.assert_allclose(array, single.learner_.export(0).arrays[name], atol=2e-6, err_msg=name)
