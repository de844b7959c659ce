"""Trials of users' models: layers whose results depend on several rows are found and named, others are not."""

from __future__ import annotations

import keras
import numpy as np
import pytest
import torch
from gymnasium import spaces
from keras import layers
from torch import nn

from marltrain.core.layout import Layout
from marltrain.policies.backends.trials import Trial, two_batches
from marltrain.policies.networks.specs import Head, NetworkDefinition
from tests.policies.backends.both import TENSORFLOW, TORCH
from tests.policies.some_batches import PICTURE_AND_VECTOR, VECTOR

WIDTH, ACTIONS = 5, 3


class Mean(nn.Module):
    """Subtracts the mean of the batch, without keeping it."""

    def forward(self, x):
        return x - x.mean(0)


class Running(nn.Module):
    """Keeps a mean in a buffer, as a normalization of a user's own."""

    def __init__(self):
        super().__init__()
        self.mean: torch.Tensor
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x):
        if self.training:
            self.mean.lerp_(x.mean(0), 0.1)
        return x - self.mean


@keras.saving.register_keras_serializable("tests")
class KerasMean(layers.Layer):
    def call(self, x):
        return x - keras.ops.mean(x, 0)


def in_torch(*parts):
    return nn.Sequential(*parts, nn.Linear(WIDTH, ACTIONS))


def in_keras(*parts):
    return keras.Sequential([keras.Input((WIDTH,)), *parts, layers.Dense(ACTIONS)])


def trial(backend, model):
    network = backend.network(NetworkDefinition(model, [Head(ACTIONS)], Layout(VECTOR)), [np.random.default_rng(0)], 1)
    before = network.arrays(0)
    found = network.trial()
    after = network.arrays(0)
    assert all(np.array_equal(before[name], after[name]) for name in before), "a trial changes nothing"
    return found


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (in_torch(nn.BatchNorm1d(WIDTH)), "layer '0' (BatchNorm1d) keeps statistics over the rows of a batch"),
        (in_torch(nn.BatchNorm1d(WIDTH, track_running_stats=False)),
         "layer '0' (BatchNorm1d) computes the output of a row from other rows of the batch"),
        (in_torch(nn.Identity(), nn.Sequential(Running())),
         "layer '1.0' (Running) keeps statistics over the rows of a batch"),
        (in_torch(nn.Tanh(), Mean()), "layer '1' (Mean) computes the output of a row from other rows of the batch"),
        (in_torch(nn.LayerNorm(WIDTH), nn.Dropout(0.5), nn.GroupNorm(1, WIDTH)), None),
    ],
)  # fmt: skip
def test_layers_of_torch(model, told):
    assert trial(TORCH, model) == Trial(couples=told)


def test_a_layer_that_changes_but_couples_no_rows():
    found = trial(TORCH, in_torch(nn.utils.spectral_norm(nn.Linear(WIDTH, WIDTH))))
    assert found.couples is None
    assert found.changes == "layer '0' (Linear) changes weight_u in every call"
    dropout = trial(TENSORFLOW, in_keras(layers.Dropout(0.5, name="drop")))
    assert dropout.couples is None
    assert dropout.changes == "layer 'drop' (Dropout) changes seed_generator_state in every call"


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (lambda: in_keras(layers.BatchNormalization(name="norm")),
         "layer 'norm' (BatchNormalization) keeps statistics over the rows of a batch"),
        (lambda: in_keras(KerasMean()),
         "the model (Sequential) computes the output of a row from other rows of the batch"),
        (lambda: in_keras(layers.LayerNormalization()), None),
    ],
)  # fmt: skip
def test_layers_of_keras(model, told):
    assert trial(TENSORFLOW, model()) == Trial(couples=told)


def test_batches_differ_in_all_rows_but_the_first():
    definition = NetworkDefinition(None, [Head(1)], Layout(PICTURE_AND_VECTOR), vectors=(2,))
    (seen, action), (others, other_action) = two_batches(definition, lambda array: array)
    for one, other in [(action, other_action), *((seen[name], others[name]) for name in seen)]:
        assert np.array_equal(one[0], other[0])
        assert all(not np.array_equal(a, b) for a, b in zip(one[1:], other[1:], strict=True))
    assert isinstance(definition.layout, Layout)
    assert seen["view"].dtype == np.uint8
    assert spaces.Box(0, 1, action.shape).contains(action)
