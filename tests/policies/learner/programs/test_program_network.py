"""Networks whose outputs for the rows of a rollout programs compute."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.backends import make_backend
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.programs import program_network
from marltrain.policies.learner.programs.program_network import ProgramNetwork
from marltrain.policies.learner.programs.row_blocks import IN_ROWS
from tests.policies.some_batches import IMAGE, VECTOR

BLOCK, _ = IN_ROWS
BOX = spaces.Box(-1, 1, (2,), np.float32)


def nets_of(space: Any = VECTOR, actions: Any = BOX, **settings: Any) -> tuple[Any, Any]:
    """Return the networks that three agents of PPO prepare rollouts with, and those of torch."""
    agent: Any = mt.PPO(space, actions, seed=0, device="cpu", **settings)
    learner = AlgorithmLearner(agent.algorithm, make_backend("torch", "cpu", jit_compile=True), [0, 1, 2], draw=True)
    return learner.steps.networks(learner.weights.nets), learner.weights.nets


def numbers(*shape: int, seed: int = 0) -> Any:
    return torch.tensor(np.random.default_rng(seed).normal(size=(3, *shape)), dtype=torch.float32)


@pytest.mark.parametrize("rows", [1, 9, 16, BLOCK, 2 * BLOCK + 3])
def test_outputs_are_those_of_torch(rows):
    """Also of trained constants: the log standard deviations."""
    nets, plain = nets_of(network=mt.MLP((5, 24)), critic_network=mt.MLP((7,), "relu"), log_std=-0.3)
    obs = numbers(rows, 5, seed=rows)
    for name, outputs in (("actor", 4), ("critic", 1)):
        assert isinstance(nets[name], ProgramNetwork)
        (found,), (expected,) = nets[name](obs), plain[name](obs)
        assert found.shape == (3, rows, outputs)
        np.testing.assert_allclose(found, expected.detach(), rtol=0, atol=1e-6)
        assert abs(found[0] - found[1]).max() > 0.001
        (again,) = nets[name](obs.repeat_interleave(2, 1)[:, ::2])  # with gaps
        assert torch.equal(found, again)


def test_a_row_does_not_depend_on_the_others():
    nets, _ = nets_of(network=mt.MLP((9, 24)))
    obs = numbers(2 * BLOCK + 21, 5)
    (every,) = nets["actor"](obs)
    for rows in (slice(0, 1), slice(5, 40), slice(BLOCK + 3, 2 * BLOCK + 4)):
        (some,) = nets["actor"](obs[:, rows])
        assert torch.equal(some, every[:, rows])


def test_threads_make_the_same_bits(monkeypatch):
    """From so many multiplications on; which thread computes a row does not matter."""
    (nets, _), obs = nets_of(network=mt.MLP((5, 24))), numbers(3 * BLOCK + 21, 5)
    network = nets["actor"]
    (one,) = network(obs)
    monkeypatch.setattr(network.backend, "threads", lambda: 3)
    assert network(obs)[0].equal(one) and network.threads.started == 0
    monkeypatch.setattr(program_network, "LEAST_FOR_THREADS", 0)
    assert network(obs)[0].equal(one) and network.threads.started == 2
    network.threads.close()


def test_weights_are_read_where_they_are():
    nets, plain = nets_of(network=mt.MLP((5,)))
    obs = numbers(4, 5)
    (before,) = nets["critic"](obs)
    plain["critic"].flat[1] += 1
    (after,) = nets["critic"](obs)
    assert torch.equal(after[[0, 2]], before[[0, 2]]) and not torch.equal(after[1], before[1])


def test_sequences_of_recurrent_networks():
    """A carry for each row; those after the rows come last."""
    nets, plain = nets_of(network=mt.GRU((6,), "tanh", 5, 4))
    rng = np.random.default_rng(0)
    given = numbers(24, 5), numbers(24, 5, seed=1), torch.from_numpy(rng.random((3, 24)) < 0.2)
    for inputs in (given, given[:2]):
        found, expected = nets["critic"](*inputs), plain["critic"](*inputs)
        assert len(found) == len(expected) == 2
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other.detach(), rtol=0, atol=2e-6)


def test_networks_of_images_are_torchs():
    nets, plain = nets_of(IMAGE, network=mt.CNN((4,), filters=((4, 3, 2),)))
    assert nets == plain
