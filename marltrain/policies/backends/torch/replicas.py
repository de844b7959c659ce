"""PyTorch backend for `DataParallel`: processes that sum their gradients by gloo."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, distributed

from marltrain.policies.backends.base import Loss, Network
from marltrain.policies.backends.torch import Backend
from marltrain.policies.learner.parallel.strategies import Member


def joined(member: Member) -> Backend:
    """Join the process group over the loopback device; return the backend of this process."""
    torch.set_num_threads(member.threads)
    loopback = next((name for _, name in socket.if_nameindex() if name.startswith("lo")), None)
    if loopback is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = loopback
    distributed.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{member.ports[0]}", rank=member.index, world_size=len(member.ports)
    )
    return ReplicaBackend(member.device)


class ReplicaBackend(Backend):
    """A backend whose metrics and gradients are sums over all processes, bit-identical in all of them."""

    def gradients(
        self, loss: Loss, nets: Mapping[str, Network], trains: Sequence[str], columns: Any, hyper: Any
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Return metrics and gradients over the rows of all processes; see `Backend.gradients`."""
        metrics, grads = super().gradients(loss, nets, trains, columns, hyper)
        parts = [*metrics.values(), *grads]
        fused = torch.cat([part.reshape(-1) for part in parts])
        distributed.all_reduce(fused)
        summed = [
            piece.view_as(part) for piece, part in zip(fused.split([p.numel() for p in parts]), parts, strict=True)
        ]
        return dict(zip(metrics, summed, strict=False)), summed[len(metrics) :]
