"""What losses get of a batch, what `Algorithm.prepare` gets, and weighted means."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from marltrain.policies.backends import make_backend
from marltrain.policies.batches.batch import Batch, Rollout, Transitions
from marltrain.policies.batches.tensor_batch import WholeBatch
from marltrain.policies.interface.algorithm import weighted_mean
from tests.policies.some_batches import VECTOR, some_rollout, some_transitions

BACKEND = make_backend("torch", "cpu")
RNG = np.random.default_rng(0)


def whole(batch: Batch) -> WholeBatch:
    return WholeBatch(batch, BACKEND.tensor, BACKEND.numpy, lambda draw: {}, {}, lambda *given: None)


@pytest.mark.parametrize("kind", [Rollout, Transitions])
def test_losses_get_columns_that_the_batch_names(kind: Any) -> None:
    assert set(kind.loss_columns) <= {column.name for column in fields(kind)}


def test_losses_get_no_column_of_a_rollout_that_it_does_not_name() -> None:
    tensors = whole(some_rollout(RNG, VECTOR, spaces.Discrete(3), [4, 2]))
    tensors.advantage = tensors.to_tensor(np.ones((2, 4), np.float32))
    tensors.metrics["explained_variance"] = np.zeros(2)
    assert tensors.boot.shape == tensors.reward.shape == (2, 4)
    assert tensors.for_losses().keys() == {"obs", "legal", "action", "state", "others", "advantage"}


def test_losses_get_the_rewards_of_transitions_and_no_weights_of_the_whole_batch() -> None:
    tensors = whole(some_transitions(RNG, VECTOR, 3, 2, 5))
    expected = {
        "obs",
        "legal",
        "action",
        "reward",
        "discount",
        "extras",
        "next_obs",
        "next_legal",
        "state",
        "next_state",
    }
    assert tensors.for_losses().keys() == expected


def test_an_added_column_may_replace_one_that_losses_get() -> None:
    tensors = whole(some_rollout(RNG, VECTOR, spaces.Discrete(3), [4]))
    tensors.action = tensors.to_tensor(np.full((1, 4), 7))
    assert tensors.to_numpy(tensors.for_losses()["action"]).tolist() == [[7] * 4]


def test_a_mean_counts_rows_by_their_weight() -> None:
    x = torch.tensor([[1.0, 2.0, 9.0], [4.0, 5.0, 6.0], [1.0, 1.0, 1.0]])
    weight = torch.tensor([[0.5, 0.5, 0.0], [0.25, 0.25, 0.5], [0.0, 0.0, 0.0]])
    assert weighted_mean(BACKEND.ops, x, weight).tolist() == [1.5, 5.25, 0.0]
