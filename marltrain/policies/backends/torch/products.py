"""Products of large matrices in compiled graphs on a CPU, by oneDNN.

x86 builds of torch multiply float32 matrices by MKL. On the AMD processor of the measurements, oneDNN multiplies
matrices of 256 x 256 in half the time (`benchmarks/kernels.py`). Torch's compiler has no option that selects oneDNN for
float32 products of weights that change, so a pass over the graph replaces these products.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node

LARGE, SHORTEST = 1_500_000, 16
"""Smallest B * N * M, and smallest side, of a product [B, N] @ [N, M] by oneDNN; for smaller products, the call takes
longer than it saves."""
MOST_NETWORKS = 8
"""Largest number of networks whose products are computed one after the other."""

aten = torch.ops.aten


class LargeProducts(CustomGraphPass):
    """Replaces the large products of a graph, [K, B, N] @ [K, N, M], by calls of oneDNN for each of K networks."""

    def __call__(self, graph: Graph) -> None:
        """Replace the products, in place."""
        _register()
        for node in graph.find_nodes(op="call_function", target=aten.bmm.default):
            if suits(*(factor.meta["val"] for factor in node.args)):
                _replace(graph, node)

    def uuid(self) -> bytes:
        """Return the key of this pass in torch's cache of compiled graphs."""
        return get_hash_for_files((__file__,), f"{LARGE} {torch.backends.mkldnn.enabled}")


def suits(x: Tensor, weight: Tensor) -> bool:
    """Return whether oneDNN computes x @ weight, [K, B, N] @ [K, N, M].

    It does for float32 on a CPU, large matrices and few networks.
    """
    networks, inputs, outputs = weight.shape
    sides = x.shape[1], inputs, outputs
    large = sides[0] * sides[1] * sides[2] >= LARGE and min(sides) >= SHORTEST and 0 < networks <= MOST_NETWORKS
    onednn = torch.backends.mkldnn.is_available() and bool(torch.backends.mkldnn.enabled)
    return onednn and large and x.device.type == "cpu" and x.dtype == torch.float32


def _replace(graph: Graph, node: Node) -> None:
    def called(target: Any, *given: Any) -> Node:
        result = graph.call_function(target, given)
        result.meta["val"] = target(*(arg.meta["val"] if isinstance(arg, Node) else arg for arg in given))
        return result

    with graph.inserting_before(node):
        products = []
        for network in range(node.meta["val"].shape[0]):
            x, weight = (called(aten.select.int, factor, 0, network) for factor in node.args)
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
    """Register the lowering of `_product_by_rows`: a call of oneDNN from C++.

    `LinearUnary.create` would copy transposed matrices, which oneDNN reads as they are.
    """
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
