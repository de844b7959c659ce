"""Copies to a GPU and back: equal numbers, dtypes and shapes; small arrays in one copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from marltrain.core.layout import map_tree
from marltrain.policies.backends.torch import transfers
from marltrain.policies.backends.torch.transfers import fetched, sent

CPU = torch.device("cpu")
RNG = np.random.default_rng(0)
TREE: dict[str, Any] = {
    "flags": RNG.random((2, 3)) < 0.5,
    "numbers": RNG.normal(size=(2, 5)).astype(np.float32),
    "none": None,
    "inner": {"pixels": RNG.integers(0, 256, (3, 7), np.uint8), "empty": np.zeros((2, 0), np.float32)},
    "turned": np.arange(12).reshape(3, 4).T,
    "single": np.float32(2.5).reshape(()),
    "wide": RNG.normal(size=3),
    "fixed": np.broadcast_to(np.float32(1.0), (2, 2)),
}


class Copies(TorchDispatchMode):
    """Counts the copies of memory."""

    made = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.made += func in (torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default)
        return func(*args, **(kwargs or {}))


def equal(tensors: Any, arrays: Any) -> bool:
    if isinstance(arrays, dict):
        return tensors.keys() == arrays.keys() and all(equal(tensors[name], arrays[name]) for name in arrays)
    if arrays is None or tensors is None:
        return arrays is tensors
    found = np.asarray(tensors)
    return (
        found.dtype == arrays.dtype
        and found.shape in (arrays.shape, arrays.shape or (1,))
        and bool(np.all(found == arrays))
    )


@pytest.mark.parametrize("most", [transfers.MOST_BYTES, 16, 0])
def test_a_tree_there_and_back(most, monkeypatch):
    monkeypatch.setattr(transfers, "MOST_BYTES", most)
    there = sent(TREE, CPU)
    assert equal(there, TREE)
    back = fetched(there)
    assert equal(back, TREE)
    there["numbers"].zero_()
    back["wide"][...] = 0.0
    assert TREE["numbers"].any() and TREE["wide"].any()
    assert all(
        array.flags.writeable and array.flags.aligned for array in (back["numbers"], back["wide"], back["turned"])
    )


def test_small_arrays_are_copied_at_once(monkeypatch):
    small = {name: TREE[name] for name in ("flags", "numbers", "wide")}
    for most, copies in ((transfers.MOST_BYTES, 1), (39, 2), (0, 3)):  # the numbers have 40 bytes
        monkeypatch.setattr(transfers, "MOST_BYTES", most)
        with Copies() as counted:
            there = sent(small, CPU)
        assert counted.made == copies
        with Copies() as counted:
            fetched(there)
        assert counted.made == copies


def test_a_tree_of_one_array_and_none():
    assert sent(None, CPU) is None and fetched(None) is None
    assert equal(sent(TREE["flags"], CPU), TREE["flags"])
    assert equal(map_tree(fetched, {"x": torch.ones(2)}), {"x": np.ones(2, np.float32)})
