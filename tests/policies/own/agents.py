"""Agents with models of the user's own: trainers and comparisons of weights for their tests."""

import numpy as np
from gymnasium import spaces
from torch import nn

import marltrain as mt
from marltrain.core.layout import Layout
from marltrain.core.spec import PlayerSpec
from tests.policies.own import with_keras, with_torch

TICTACTOE = "pettingzoo/classic/tictactoe_v3"
VECTOR = spaces.Box(-1, 1, (5,), np.float32)
FRAMEWORKS = [with_torch, with_keras]


def copied(model):
    """Return every weight of a model, target networks too."""
    return [array.copy() for array in (with_torch if isinstance(model, nn.Module) else with_keras).arrays(model)]


def equal(one, two):
    return [np.array_equal(a, b) for a, b in zip(one, two, strict=True)]


def trainer(env, steps, **settings):
    kept = {"num_train_envs": 4, "num_test_envs": 4, "test_freq": 10_000, "episodes_per_test": 4, "seed": 0}
    return mt.DecentralizedTrainer(env, steps_per_train=steps, progress=False, **{**kept, **settings})


def identity_player():
    space = spaces.Discrete(3)
    return PlayerSpec("p", space, space, Layout(space))
