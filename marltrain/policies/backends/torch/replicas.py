"""PyTorch backend for `DataParallel`: processes that sum their gradients by gloo."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, distributed

from marltrain.policies.backends.base import Loss, Network
from marltrain.policies.backends.strategies import LOOPBACK, Member
from marltrain.policies.backends.torch import Backend

_SIOCGIFADDR = 0x8915


def joined(member: Member) -> Backend:
    """Join the process group over the device of the member's address; return the backend of this process."""
    torch.set_num_threads(member.threads)
    if (device := _network_device(member.address)) is not None:
        os.environ["GLOO_SOCKET_IFNAME"] = device
    distributed.init_process_group(
        "gloo", init_method=f"tcp://{member.first}:{member.ports[0]}", rank=member.index, world_size=len(member.ports)
    )
    return ReplicaBackend(member.device)


def _network_device(address: str) -> str | None:
    """Return the network device of an address of this machine; None if it is not known."""
    names = [name for _, name in socket.if_nameindex()]
    if address == LOOPBACK:
        return next((name for name in names if name.startswith("lo")), None)
    return next((name for name in names if _address_of(name) == address), None)


def _address_of(device: str) -> str | None:
    """Return the IPv4 address of a network device; None without one, and where only Linux could tell."""
    if not sys.platform.startswith("linux"):
        return None
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        try:
            data = fcntl.ioctl(one.fileno(), _SIOCGIFADDR, struct.pack("256s", device.encode()[:15]))
        except OSError:  # the device has no address
            return None
    return socket.inet_ntoa(data[20:24])


class ReplicaBackend(Backend):
    """A backend whose metrics and gradients are sums over all processes, bit-identical in all of them."""

    def gradients(
        self, loss: Loss, nets: Mapping[str, Network], trains: Sequence[str], columns: Any, hyper: Any
    ) -> tuple[dict[str, Tensor], list[Tensor]]:
        """Return metrics and gradients over the rows of all processes; see `Backend.gradients`."""
        metrics, grads = super().gradients(loss, nets, trains, columns, hyper)
        summed = self.summed([*metrics.values(), *grads])
        return dict(zip(metrics, summed, strict=False)), summed[len(metrics) :]

    def summed(self, parts: Sequence[Tensor]) -> list[Tensor]:
        """Return the sums of tensors over all processes."""
        fused = torch.cat([part.reshape(-1) for part in parts])
        distributed.all_reduce(fused)
        pieces = fused.split([part.numel() for part in parts])
        return [piece.view_as(part).to(part.dtype) for piece, part in zip(pieces, parts, strict=True)]
