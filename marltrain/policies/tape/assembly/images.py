"""Instructions of convolutions over images."""

from __future__ import annotations

from contextlib import ExitStack

from marltrain.policies.tape.assembly.writer import Writer
from marltrain.policies.tape.symbols import Node


def write_patches(writer: Writer, node: Node, out: int) -> None:
    """Write the patches of images, whose channels lie side by side."""
    (images,), (down, along, stride) = node.args, node.attrs
    agents, rows, height, width, channels = images.shape
    with ExitStack() as temporary:
        writer.emit(
            "patches", out=out, a=writer.plain(images, temporary), rows=agents * rows, height=height, width=width,
            channels=channels, down=down, along=along, stride=stride,
        )  # fmt: skip


def write_patches_gradient(writer: Writer, node: Node, out: int) -> None:
    """Write the gradient of images, from that of their patches."""
    (gradient,), (height, width, channels, down, along, stride) = node.args, node.attrs
    agents, rows = node.shape[:2]
    with ExitStack() as temporary:
        writer.emit(
            "patches_gradient", out=out, a=writer.plain(gradient, temporary), rows=agents * rows, height=height,
            width=width, channels=channels, down=down, along=along, stride=stride,
        )  # fmt: skip
