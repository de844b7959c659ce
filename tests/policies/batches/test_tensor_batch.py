"""Shares of rows, and the inputs of recurrent networks among the columns of a batch, by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from marltrain.policies.batches.tensor_batch import memory_of, shares_of


def test_shares_by_hand():
    assert shares_of(np.array([[1.0, 3.0], [0.0, 0.0]])).tolist() == [[0.25, 0.75], [0.0, 0.0]]


def test_only_recurrent_networks_get_a_memory():
    batch = SimpleNamespace(carry={"actor": "kept"}, begins="rows")
    assert memory_of(batch, "actor") == ("kept", "rows")
    assert memory_of(batch, "critic") == memory_of(SimpleNamespace(), "actor") == ()
