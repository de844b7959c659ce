"""Tables of rows in the memory of a GPU, from which batches are gathered there."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.policies.backends.torch.buffers import ALIGNED, Layout, dtype_of
from marltrain.storage.checks import memory_size


class RowMemory:
    """The memory of one device; see `base.RowMemory`.

    All copies and gathers are operations of the device's current stream. A batch that was gathered therefore keeps its
    values when rows of the tables are overwritten later.
    """

    def __init__(self, device: torch.device) -> None:
        """Take a GPU, or a CPU that stands for one."""
        self.device = device
        self.name = str(device)

    def free(self) -> float:
        """See `base.RowMemory`."""
        return float(torch.cuda.mem_get_info(self.device)[0]) if self.device.type == "cuda" else memory_size()

    def table(self, rows: int, shape: Sequence[int], dtype: np.dtype[np.generic]) -> Tensor:
        """See `base.RowMemory`."""
        try:
            return torch.zeros((rows, *shape), dtype=dtype_of(dtype), device=self.device)
        except torch.OutOfMemoryError as error:
            raise ConfigError(
                f"the rows to learn from do not fit into the memory of {self.device}: {rows * math.prod(shape):,} "
                f"values of {dtype}. Lower capacity (off-policy), update_freq (on-policy) or num_train_envs"
            ) from error

    def send(self, arrays: Sequence[Array]) -> list[Tensor]:
        """See `base.RowMemory`; the arrays are views of one tensor, copied at once from pinned memory."""
        layout = Layout([(array.dtype, array.shape) for array in arrays], ALIGNED)
        host = torch.empty(layout.size, dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        for place, array in zip(layout.arrays(host.numpy()), arrays, strict=True):
            np.copyto(place, array)
        return layout.tensors(host.to(self.device, non_blocking=True, copy=True))

    def write(self, table: Tensor, axes: tuple[int, int, int], slots: slice, rows: Tensor) -> None:
        """See `base.RowMemory`."""
        table[: math.prod(axes)].view(*axes, *table.shape[1:])[:, slots].copy_(rows)

    def replace(self, table: Tensor, index: Tensor, rows: Tensor) -> None:
        """See `base.RowMemory`."""
        table.index_copy_(0, index, rows)

    def gather(self, table: Tensor, index: Tensor) -> Tensor:
        """See `base.RowMemory`."""
        return table.index_select(0, index.reshape(-1)).view(*index.shape, *table.shape[1:])

    def join(self, tensors: Sequence[Tensor]) -> Tensor:
        """See `base.RowMemory`."""
        return torch.cat(list(tensors), -1)
