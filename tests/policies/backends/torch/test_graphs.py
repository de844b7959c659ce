"""Compiled graphs: one for each shape, blind to nothing that a pass changes."""

from __future__ import annotations

import pytest
import torch

from marltrain.policies.backends.torch import ops
from marltrain.policies.backends.torch.graphs import Graph

pytestmark = [  # torch's compiler warns of torch's own
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*autograd.function.Function:DeprecationWarning"),
]


def test_a_graph_for_each_shape_and_for_each_one_who_asks(monkeypatch):
    """Without torch's own checks a graph of other shapes, or of another learner, must never be taken.

    The graphs are traced, but no code in C++ is made of them, which takes seconds for each.
    """
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda graph, examples, config_patches: graph)
    result = []

    def maker(factor):
        def function(tree, due):
            result.append(factor)
            return (tree["x"] * factor).sum() + (0.0 if due is None else due.sum())

        return function

    three, five = Graph(maker(3.0)), Graph(maker(5.0))
    for rows in (4, 6, 4, 6):
        x = {"x": torch.ones(2, rows), "none": None}
        assert three(x, None).item() == 6.0 * rows
        if rows == 4:
            assert five(x, None).item() == 10.0 * rows
    assert three({"x": torch.ones(2, 4), "none": None}, torch.ones(2)).item() == 26.0
    assert sorted(result) == [3.0] * 3 + [5.0]


def test_what_it_reads_may_change_and_what_it_writes_is_seen():
    weight, slot = torch.ones(2, 3), torch.zeros(2, 3)

    def step(x):
        slot.mul_(0.5).add_(x * weight)
        weight.sub_(slot)
        return weight.sum()

    graph = Graph(step)
    assert graph(torch.ones(2, 3)).item() == 0.0
    weight.fill_(2.0)
    assert graph(torch.ones(2, 3)).item() == 6 * (2.0 - 2.5)
    assert slot.tolist() == [[2.5] * 3] * 2


def test_compiled_operations_are_those_of_plain_torch():
    """tanh, take and narrow layers are computed in other ways there: values and slopes agree, and tanh everywhere."""
    generator = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(*shape, generator=generator) * 3 for shape in ((2, 70, 6), (2, 6, 5), (2, 5)))
    index = torch.randint(0, 5, (2, 70), generator=generator)
    points = torch.cat([torch.linspace(-12, 12, 10_001), torch.tensor([0.0, -0.0, 1e-8, 1e30, -1e30])])

    def loss(x, weight):
        return (ops.take(ops.log_softmax(ops.linear(ops.tanh(x), weight, bias), -1), index) ** 2).sum()

    def both(x, weight, points):
        grads, value = torch.func.grad_and_value(loss, argnums=(0, 1))(x, weight)
        return torch.cat([value.reshape(1), *(g.reshape(-1) for g in grads), ops.tanh(points)])

    leaves = [t.clone().requires_grad_() for t in (x, weight)]
    value = loss(*leaves)
    expected = torch.cat([value.reshape(1), *(g.reshape(-1) for g in torch.autograd.grad(value, leaves))])
    result, bent = Graph(both)(x, weight, points).split([len(expected), len(points)])
    torch.testing.assert_close(result, expected.detach(), rtol=1e-4, atol=2e-4)
    torch.testing.assert_close(bent, torch.tanh(points.double()).float(), rtol=0, atol=2e-7)
