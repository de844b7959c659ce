"""Products of large matrices in compiled graphs: those of plain torch, with the same gradients."""

from __future__ import annotations

import pytest
import torch

from marltrain.policies.backends.torch import ops, products
from marltrain.policies.backends.torch.graphs import Graph

pytestmark = [  # torch's compiler warns of torch's own
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*autograd.function.Function:DeprecationWarning"),
]


def random(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize(
    ("agents", "rows", "inputs", "outputs", "expected"),
    [
        (1, 128, 128, 128, True),
        (2, 100, 61, 250, True),
        (2, 100, 60, 250, True),  # 1,500,000
        (2, 100, 60, 249, False),
        (3, 64, 64, 64, False),
        (products.MOST_AGENTS, 128, 128, 128, True),
        (products.MOST_AGENTS + 1, 128, 128, 128, False),
    ],
)
def test_only_large_products_of_few_agents(agents, rows, inputs, outputs, expected):
    x, weight = torch.empty(agents, rows, inputs), torch.empty(agents, inputs, outputs)
    assert products.suits(x, weight) is expected
    assert not products.suits(x.to("meta"), weight.to("meta"))


@pytest.mark.parametrize("agents", [1, 3])
def test_a_compiled_layer_is_that_of_plain_torch(agents, monkeypatch):
    """Two layers, with the gradients of the inputs and of all weights; no size is a multiple of the vector width."""
    replaced, replace = [], products._replace

    def noting(graph, node):
        replaced.append(tuple(node.meta["val"].shape))
        replace(graph, node)

    monkeypatch.setattr(products, "_replace", noting)
    x, weights, biases = (
        random(agents, 129, 131), (random(agents, 131, 101), random(agents, 101, 151)),
        (random(agents, 101), random(agents, 151)),
    )  # fmt: skip

    def loss(x, *parts):
        hidden = ops.sin(ops.linear(x, parts[0], parts[1]) / 10)
        return (ops.linear(hidden, parts[2], parts[3]) ** 2).mean()

    def step(x):
        parts = (weights[0], biases[0], weights[1], biases[1])
        grads, value = torch.func.grad_and_value(loss, argnums=(0, 1, 2, 3, 4))(x, *parts)
        return torch.cat([value.reshape(1), *(grad.reshape(-1) for grad in grads)])

    expected = step(x)
    torch.testing.assert_close(Graph(step)(x), expected, rtol=1e-4, atol=1e-5)
    forward = [(agents, 129, 101), (agents, 129, 151)]
    of_weights, of_inputs = [(agents, 131, 101), (agents, 101, 151)], [(agents, 129, 131), (agents, 129, 101)]
    assert sorted(replaced) == sorted(forward + of_weights + of_inputs)


def test_gradients_of_gradients():
    x, weight = random(1, 130, 120), random(1, 120, 110)

    def slope(x):
        return torch.func.grad(lambda x: (ops.sin(ops.linear(x, weight, torch.zeros(1, 110)) / 10) ** 2).sum())(x)

    def twice(x):
        return torch.func.grad(lambda x: (slope(x) ** 2).sum())(x)

    torch.testing.assert_close(Graph(twice)(x), twice(x), rtol=1e-3, atol=1e-5)
