"""Products of large matrices in compiled graphs: those of plain torch, with the same gradients."""

from __future__ import annotations

import pytest
import torch
from torch._inductor.utils import fresh_cache, run_and_get_cpp_code

from marltrain.policies.backends.torch import ops, products
from marltrain.policies.backends.torch.graphs import Graph
from tests.tiers import LONG

pytestmark = [  # torch's compiler warns of torch's own
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*autograd.function.Function:DeprecationWarning"),
]


@pytest.fixture(autouse=True)
def compiled_anew():
    with fresh_cache():
        yield


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize(
    ("networks", "rows", "inputs", "outputs", "expected"),
    [
        (1, 128, 128, 128, True),
        (2, 100, 61, 250, True),
        (2, 100, 60, 250, True),  # 1,500,000
        (2, 100, 60, 249, False),
        (3, 64, 64, 64, False),
        (1, 1500, 15, 128, False),
        (1, 1500, 128, 16, True),
        (products.MOST_NETWORKS, 128, 128, 128, True),
        (products.MOST_NETWORKS + 1, 128, 128, 128, False),
        (0, 128, 128, 128, False),
    ],
)
def test_only_large_products_of_few_networks(networks, rows, inputs, outputs, expected):
    x, weight = torch.empty(networks, rows, inputs), torch.empty(networks, inputs, outputs)
    assert products.suits(x, weight) is expected
    assert not products.suits(x.to("meta"), weight.to("meta"))
    assert not products.suits(x.double(), weight.double())


@pytest.mark.parametrize("networks", [1, 3] if LONG else [3])
def test_a_compiled_layer_is_that_of_plain_torch(networks):
    """Two layers, with the gradients of the inputs and of all weights; no size is a multiple of the vector width."""
    x, weights, biases = (
        random(networks, 129, 131), (random(networks, 131, 101), random(networks, 101, 151)),
        (random(networks, 101), random(networks, 151)),
    )  # fmt: skip

    def loss(x, *parts):
        hidden = ops.sin(ops.linear(x, parts[0], parts[1]) / 10)
        return (ops.linear(hidden, parts[2], parts[3]) ** 2).mean()

    def step(x):
        parts = (weights[0], biases[0], weights[1], biases[1])
        grads, value = torch.func.grad_and_value(loss, argnums=(0, 1, 2, 3, 4))(x, *parts)
        return torch.cat([value.reshape(1), *(grad.reshape(-1) for grad in grads)])

    expected = step(x)
    result, code = run_and_get_cpp_code(Graph(step), x)
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    assert code.count("__linear_pointwise(") == 6 * networks, "not from C++"  # of outputs, weights and inputs
    assert "bmm_out(" not in code


def test_gradients_of_gradients():
    x, weight = random(1, 130, 120), random(1, 120, 110)

    def slope(x):
        return torch.func.grad(lambda x: (ops.sin(ops.linear(x, weight, torch.zeros(1, 110)) / 10) ** 2).sum())(x)

    def twice(x):
        return torch.func.grad(lambda x: (slope(x) ** 2).sum())(x)

    torch.testing.assert_close(Graph(twice)(x), twice(x), rtol=1e-3, atol=1e-5)


def test_the_operation_itself():
    x, rows = random(7, 5), random(5, 3).t()
    torch.testing.assert_close(torch.ops.marltrain.product_by_rows(x, rows), x @ rows.t())
