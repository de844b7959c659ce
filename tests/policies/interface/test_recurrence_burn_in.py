"""A burn-in of recurrent networks: updates equal those from the carries that the current network has after it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.layout import map_tree
from marltrain.policies.batches.batch import SequenceTransitions
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.policies.algorithms.twins import BOX, ON, in_numbers
from tests.policies.some_batches import VECTOR, some_transitions, with_carries
from tests.tiers import LONG
from tests.toys import Relay
from tests.trainer.running import noted_batches, trainer

BURN_IN, LENGTH = 2, 5
ONLY = LENGTH - BURN_IN
DISCRETE = spaces.Discrete(3)


def sequences(agent: Any, space: Any) -> Any:
    """Two sequences: one in the middle of an episode; one at its start, without rows for the burn-in."""
    rng = np.random.default_rng(0)
    given: Any = some_transitions(rng, VECTOR, space, 1, 2 * LENGTH, masked=space is DISCRETE)
    if space is BOX:
        given.action = rng.uniform(space.low, space.high, given.action.shape).astype(np.float32)
    batch = with_carries(rng, given, agent.learner_)
    batch.begins = np.isin(np.arange(2 * LENGTH), [0, 5, 6, 7])[None]
    batch.weight[:, [0, 1, 5, 6]] = 0
    return batch


def after_burn_in(agent: Any, batch: Any, taken: tuple[Any, ...]) -> SequenceTransitions:
    """The rows that are learned from, with the carries of the agent's networks after the burn-in."""
    own = np.array([2, 3, 4, 7, 8, 9])
    extras = {name: array[:, own].copy() for name, array in batch.extras.items()}
    for name, column in agent.learner_.actor.recurrent.items():
        net, carry = agent.learner_.weights.nets[name].in_numpy(), f"carry/{name}/{column.shape[0]}"
        now, vectors = batch.extras[carry][:, :1], taken if name == "critic" else ()
        for row in range(BURN_IN):
            one = slice(row, row + 1)
            now = net(batch.obs[:, one], *(vector[:, one] for vector in vectors), now)[-1]
        assert np.abs(now - extras[carry][:, :1]).max() > 0.05  # what was stored is another
        extras[carry][:, :1] = now
    columns = {name: map_tree(lambda array: array[:, own], value) for name, value in vars(batch).items()
               if name != "extras" and value is not None}  # fmt: skip
    result: SequenceTransitions = replace(batch, **columns, extras=extras)
    return result


@pytest.mark.parametrize(
    ("make", "space", "settings", "backend"),
    [
        (mt.DQN, DISCRETE, {"network": mt.GRU((6,), units=5)}, "torch"),
        (mt.DQN, DISCRETE, {"network": mt.LSTM((), units=4), "double": False, "dueling": True}, "tensorflow"),
        (mt.C51, DISCRETE, {"network": mt.LSTM((), units=4), "atoms": 7}, "torch"),
        (mt.SAC, DISCRETE, {"network": mt.GRU((6,), units=5), "critic_learning_rate": 0.0},
         "tensorflow" if LONG else "torch"),
        (mt.SAC, BOX, {"network": mt.LSTM((6,), units=5), "critic_learning_rate": 0.0}, "torch"),
    ],
)  # fmt: skip
def test_updates_start_from_the_carry_of_the_current_network(make, space, settings, backend):
    """And no gradient flows through the burn-in: as from a memory that stores the carries after it.

    SAC's actor learns after the critics, which would have other carries if they changed.
    """
    network = settings.pop("network")
    long, short = (
        make(VECTOR, space, seed=1, backend=backend, network=replace(network, sequence_length=length), burn_in=burn_in,
             learning_rate=0.01, max_grad_norm=None, **settings)
        for length, burn_in in ((LENGTH, BURN_IN), (ONLY, 0))
    )  # fmt: skip
    batch = sequences(long, space)
    alone = after_burn_in(long, batch, (in_numbers(batch.action),) if space is BOX else ())
    before = long.learner_.export(0).arrays
    metrics = long.learner_.update(batch, learn=ON, batch_size=6)
    expected = short.learner_.update(alone, learn=ON, batch_size=6)
    assert any(name.startswith("grad_norm") and value[0] > 0 for name, value in expected.items())
    for name, value in expected.items():
        np.testing.assert_allclose(metrics[name], value, rtol=1e-4, atol=1e-6, err_msg=name)
    result, theirs = long.learner_.export(0).arrays, short.learner_.export(0).arrays
    for name, array in theirs.items():
        np.testing.assert_allclose(result[name], array, rtol=1e-3, atol=2e-6, err_msg=name)
    assert any((result[name] != array).any() for name, array in before.items())


def test_a_run_brings_carries_of_earlier_weights_up_to_date(monkeypatch):
    """By turns, with weights that change: the values of the learned rows are those of acts since the burn-in."""
    network = mt.GRU((6,), units=5, sequence_length=LENGTH)
    agents = mt.make_agents("dqn", Relay, env_args={"length": 23}, network=network, seed=0, learning_rate=0.02,
                            learning_starts=40, update_per_step=0.3, burn_in=BURN_IN)  # fmt: skip
    batches = noted_batches(monkeypatch)
    trainer(Relay, {"length": 23}, steps_per_train=160, update_freq=20, batch_size=8).train(agents, [1] * 3, plot=False)
    learner: AlgorithmLearner = agents[0].learner()  # type: ignore[assignment]
    batch, net = batches[-1], learner.weights.nets["q"].in_numpy()
    assert batch.weight.shape == (3, 3 * LENGTH) and net is not None  # 3 sequences of 3 rows to learn from
    with learner.backend.no_gradient():
        tensors = learner._whole(batch, every=False)
        (values,) = learner.algorithm.heads(learner.weights.nets["q"], tensors, "")  # type: ignore[attr-defined]
    stale, lengths = 0.0, set()
    for k, row in np.argwhere(batch.weight > 0):
        first = row
        while not batch.begins[k, first]:
            first -= 1
        now = batch.extras["carry/q/5"][k : k + 1, first : first + 1]
        for i in range(first, row + 1):
            stale = max(stale, float(np.abs(now - batch.extras["carry/q/5"][k, i]).max()))
            value, now = net(batch.obs[k : k + 1, i : i + 1], now, row=int(k))
        np.testing.assert_allclose(values[k, row], value[0, 0], rtol=1e-4, atol=1e-4)
        lengths.add(int(row - first))
    assert stale > 0.01 and {0, BURN_IN} <= lengths
