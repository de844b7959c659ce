"""Trials of a user's torch module in training mode."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from marltrain.policies.backends.trials import CLOSE, Trial, described, keeps, reads_others


class _Call(NamedTuple):
    """A call of a copy of a module: the outputs of its parts by name, in order, and its buffers afterwards."""

    outputs: list[tuple[str, Any]]
    buffers: dict[str, Tensor]


def trial(module: nn.Module, batches: Sequence[Sequence[Any]]) -> Trial:
    """Call a module on two batches whose first rows are equal, with equal random numbers.  batches: the inputs."""
    first, second = (_called(module, batch) for batch in batches)
    parts = dict(module.named_modules())

    def owner(name: str) -> str:
        inside = name.rpartition(".")[0]
        return described(inside, parts[inside])

    for name, buffer in first.buffers.items():
        if not torch.equal(buffer, second.buffers[name]):
            return Trial(couples=keeps(owner(name)))
    if not _first_rows_equal(first.outputs[-1][1], second.outputs[-1][1]):
        for (name, one), (_, other) in zip(first.outputs, second.outputs, strict=True):
            if not _first_rows_equal(one, other):
                return Trial(couples=reads_others(described(name, parts[name])))
    before = dict(module.named_buffers())
    changed = [name for name, buffer in first.buffers.items() if not torch.equal(buffer, before[name])]
    return (
        Trial(changes=f"{owner(changed[0])} changes {changed[0].rpartition('.')[2]} in every call")
        if changed
        else (Trial())
    )


def statistics_of(module: nn.Module) -> str | None:
    """Return `Trial.couples` for the first layer of torch that keeps or computes statistics over a batch."""
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm | nn.LazyBatchNorm1d) or (
            isinstance(part, nn.modules.instancenorm._InstanceNorm) and part.track_running_stats
        ):
            return keeps(described(name, part))
    return None


def _called(module: nn.Module, batch: Sequence[Any]) -> _Call:
    twin, outputs = copy.deepcopy(module).train(), list[tuple[str, Any]]()
    for name, part in twin.named_modules():
        part.register_forward_hook(lambda _, given, out, name=name: outputs.append((name, out)))
    with torch.no_grad(), torch.random.fork_rng():
        torch.default_generator.manual_seed(0)
        twin(*batch)
    return _Call(outputs, dict(twin.named_buffers()))


def _first_rows_equal(one: Any, other: Any) -> bool:
    """Return whether the first rows of two tensors are close; True for other results, and without an axis of rows."""
    if not isinstance(one, Tensor) or not isinstance(other, Tensor) or one.ndim == 0 or one.shape != other.shape:
        return True
    return torch.allclose(one[0].float(), other[0].float(), rtol=CLOSE, atol=CLOSE, equal_nan=True)
