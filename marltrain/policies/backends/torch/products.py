"""Products of large matrices in compiled graphs on a CPU, by oneDNN.

Torch multiplies float32 matrices by MKL. On AMD processors, oneDNN multiplies matrices of 256 x 256 in half of the time
(`benchmarks/kernels.py`). Torch's compiler calls oneDNN only for weights that never change; `LargeProducts` makes it
call oneDNN for all large products.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node

LARGE = 1_500_000
"""Multiplications of a product from which on oneDNN is used; in smaller ones, its call costs more than it saves."""
MOST_AGENTS = 8
"""Largest number of agents whose products are computed one after the other."""

aten = torch.ops.aten


class LargeProducts(CustomGraphPass):
    """Replaces the large products of a graph, [K, B, N] @ [K, N, M], by calls of oneDNN for each of K agents."""

    def __init__(self) -> None:
        """Tell torch's compiler how to compile the calls."""
        _register()

    def __call__(self, graph: Graph) -> None:
        """Replace the products, in place."""
        for node in graph.find_nodes(op="call_function", target=aten.bmm.default):
            if suits(*(factor.meta["val"] for factor in node.args)):
                _replace(graph, node)

    def uuid(self) -> bytes:
        """Return the key of this pass in torch's cache of compiled graphs."""
        return get_hash_for_files((__file__,), f"{LARGE}")


def suits(x: Tensor, weight: Tensor) -> bool:
    """Return whether x @ weight, [K, B, N] @ [K, N, M], is large enough, of numbers that oneDNN multiplies here."""
    agents, inputs, outputs = weight.shape
    large = x.shape[1] * inputs * outputs >= LARGE and agents <= MOST_AGENTS
    return large and x.device.type == "cpu" and x.dtype == torch.float32 and torch.backends.mkldnn.is_available()


def _replace(graph: Graph, node: Node) -> None:
    def called(target: Any, *given: Any) -> Node:
        made = graph.call_function(target, given)
        made.meta["val"] = target(*(arg.meta["val"] if isinstance(arg, Node) else arg for arg in given))
        return made

    with graph.inserting_before(node):
        products = []
        for agent in range(node.meta["val"].shape[0]):
            x, weight = (called(aten.select.int, factor, 0, agent) for factor in node.args)
            by_rows = called(aten.permute.default, weight, [1, 0])
            product = called(torch.ops.marltrain.product_by_rows.default, x, by_rows)
            products.append(called(aten.unsqueeze.default, product, 0))
        joined = products[0] if len(products) == 1 else graph.call_function(aten.cat.default, (products,))
    joined.meta.update(node.meta)
    node.replace_all_uses_with(joined)
    graph.erase_node(node)


@torch.library.custom_op("marltrain::product_by_rows", mutates_args=())
def _product_by_rows(x: Tensor, rows: Tensor) -> Tensor:
    """Return x @ rows^T, [B, N] @ [M, N]^T."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, rows, None, "none", [], "")
    return result


@_product_by_rows.register_fake
def _(x: Tensor, rows: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], rows.shape[0])


@functools.cache
def _register() -> None:
    """Compile `_product_by_rows` as a call of oneDNN from C++."""
    from torch._inductor.ir import FixedLayout, TensorBox  # slow to import
    from torch._inductor.lowering import register_lowering
    from torch._inductor.mkldnn_ir import LinearUnary

    def lowered(x: Any, rows: Any) -> Any:
        x, rows = LinearUnary.realize_input(x), LinearUnary.realize_input(rows)
        layout = FixedLayout(x.get_device(), x.get_dtype(), [x.get_size()[0], rows.get_size()[0]])
        bias, activation, scalars, variant = None, "none", [-1], ""
        return TensorBox.create(
            LinearUnary(layout=layout, inputs=[x, rows], constant_args=[bias, activation, scalars, variant])
        )

    register_lowering(torch.ops.marltrain.product_by_rows.default, type_promotion_kind=None)(lowered)
