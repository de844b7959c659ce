"""Gradient steps of CustomAgent by hand: parameters that a loss reads through their sum, or that get one gradient."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import marltrain as mt
from tests.policies.agents.test_custom import tensors
from tests.policies.own import with_torch
from tests.policies.own.agents import VECTOR
from tests.policies.some_batches import some_rollout

START = {"spread": [0.5, 0.5, 0.5], "first": [0.5, 1.0], "second": [0.5, 1.0], "unused": [9.0]}
SLOPES = {"spread": [-0.5, -0.5, -0.5], "first": [2.0, 4.0], "second": [2.0, 4.0], "unused": [0.0]}
"""Of -0.5 * spread.sum() + ((first + second)^2).sum(); the norm is sqrt(0.75 + 40)."""


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        for name, values in START.items():
            self.register_parameter(name, nn.Parameter(torch.tensor(values)))


class Layered(keras.Model):
    def __init__(self):
        super().__init__()
        for name, values in START.items():
            weight = self.add_weight(shape=(len(values),), name=name)
            weight.assign(values)
            setattr(self, name, weight)
        self.built = True


def torch_loss(model, batch):
    return -0.5 * model.spread.sum() + (model.first + model.second).square().sum()


def keras_loss(model, batch):
    ops = keras.ops
    return -0.5 * ops.sum(model.spread) + ops.sum(ops.square(model.first + model.second))


def agent_of(own, limit):
    if own is with_torch:
        model = Module()
        return mt.CustomAgent(model, torch_loss, torch.optim.SGD(model.parameters(), 0.1), max_grad_norm=limit)
    return mt.CustomAgent(Layered(), keras_loss, keras.optimizers.SGD(0.1), max_grad_norm=limit)


def weights(own, model):
    if own is with_torch:
        return {name: value.detach().numpy() for name, value in model.named_parameters()}
    return {name: np.asarray(getattr(model, name)) for name in START}


@pytest.mark.parametrize("limit", [None, 0.5, 100.0])
def test_sums_and_shared_gradients_by_hand(own, limit):
    """The two equal gradients are two tensors: each is clipped once."""
    agent, norm = agent_of(own, limit), np.sqrt(40.75)
    batch = some_rollout(np.random.default_rng(0), VECTOR, spaces.Discrete(3), [4])
    metrics = agent.own.step(tensors(agent, batch))
    factor = 1.0 if limit is None else min(1.0, limit / (norm + 1e-6))
    found = weights(own, agent.model)
    for name, start in START.items():
        expected = np.array(start) - 0.1 * factor * np.array(SLOPES[name])
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, err_msg=name)
    assert metrics["grad_norm/total"] == pytest.approx(norm, rel=1e-5)
