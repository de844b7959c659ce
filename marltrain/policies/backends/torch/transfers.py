"""Copies of arrays to a GPU and back: small ones together, because a copy takes longer to start than to carry out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from marltrain.core.layout import Array, map_tree
from marltrain.policies.backends.torch.buffers import appended, array_dtype, dtype_of

MOST_BYTES = 2**20
"""Largest size of an array, or of a tensor, that is copied together with others."""


def sent(tree: Any, device: torch.device) -> Any:
    """Return the arrays of a tree as tensors on a device; tensors that are there already stay as they are.

    Small arrays are views of one tensor, whose memory is copied at once from pinned memory.
    """
    leaves: list[Array] = []
    numbers = map_tree(
        lambda leaf: leaf if isinstance(leaf, Tensor) else appended(leaves, np.ascontiguousarray(leaf)), tree
    )
    together = _in_order([(i, array.nbytes, array.itemsize) for i, array in enumerate(leaves)])
    found: dict[int, Tensor] = {}
    if len(together) > 1:
        size = sum(leaves[i].nbytes for i in together)
        host = torch.empty(size, dtype=torch.uint8, pin_memory=device.type == "cuda")
        np.concatenate([leaves[i].reshape(-1).view(np.uint8) for i in together], out=host.numpy())
        there, start = host.to(device, non_blocking=True, copy=True), 0
        for i in together:
            end = start + leaves[i].nbytes
            found[i] = there[start:end].view(dtype_of(leaves[i].dtype)).view(leaves[i].shape)
            start = end
    for i, array in enumerate(leaves):
        if i not in found:
            found[i] = torch.from_numpy(array if array.flags.writeable else array.copy()).to(device, copy=True)
    return map_tree(lambda leaf: leaf if isinstance(leaf, Tensor) else found[leaf], numbers)


def fetched(tree: Any) -> Any:
    """Return the tensors of a tree as writable arrays; small tensors are copied together."""
    leaves: list[Tensor] = []
    numbers = map_tree(lambda tensor: appended(leaves, tensor.detach()), tree)
    together = _in_order(
        [(i, each.numel() * each.element_size(), each.element_size()) for i, each in enumerate(leaves)]
    )
    found: dict[int, Array] = {}
    if len(together) > 1:
        joined = torch.cat([leaves[i].contiguous().view(-1).view(torch.uint8) for i in together])
        here, start = joined.to("cpu", copy=True).numpy(), 0
        for i in together:
            end = start + leaves[i].numel() * leaves[i].element_size()
            found[i] = here[start:end].view(array_dtype(leaves[i].dtype)).reshape(leaves[i].shape)
            start = end
    for i, tensor in enumerate(leaves):
        if i not in found:
            found[i] = tensor.to("cpu", copy=True).numpy()
    return map_tree(found.__getitem__, numbers)


def _in_order(sizes: Sequence[tuple[int, int, int]]) -> list[int]:
    """Return the places of small leaves, those of wide numbers first: each then starts at a multiple of its width.

    sizes: (place, bytes, bytes of a number).
    """
    return [i for i, size, _ in sorted(sizes, key=lambda leaf: -leaf[2]) if size <= MOST_BYTES]
