"""The cells of recurrent networks: by hand, against torch's own, over sequences and step by step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from marltrain.policies.backends import numpy_ops
from marltrain.policies.networks.cells import Cell, GRUCell, LSTMCell
from tests.policies.backends.both import BOTH, TORCH, value_and_gradients

RNG = np.random.default_rng(0)
CELLS = pytest.mark.parametrize("cell", [GRUCell(3), LSTMCell(3)], ids=["gru", "lstm"])


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def weights_of(cell: Cell, width: int, agents: int = 2) -> list[np.ndarray]:
    return [normal(agents, *parameter.shape) for parameter in cell.parameters(width)]


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_a_gru_of_one_unit_by_hand():
    weights = [np.array(w, np.float32)[None] for w in ([[0.5, -1, 2]], [0.1, 0.2, 0.3], [[1, 0.5, -2]], [0, -0.1, 0.4])]
    x, h = 2.0, 0.25
    r, z = sigmoid(0.5 * x + 0.1 + h), sigmoid(-x + 0.2 + 0.5 * h - 0.1)
    n = math.tanh(2 * x + 0.3 + r * (-2 * h + 0.4))
    out, carry = GRUCell(1).step(numpy_ops, iter(weights), np.full((1, 1, 1), x, "f4"), np.full((1, 1, 1), h, "f4"))
    assert out[0, 0, 0] == carry[0, 0, 0] == pytest.approx((1 - z) * n + z * h, rel=1e-6)


def test_an_lstm_of_one_unit_by_hand():
    columns = [[[0.5, -1, 2, 1.5]], [0.1, 0.2, 0.3, -0.2], [[1, 0.5, -2, -0.5]], [0, -0.1, 0.4, 0.6]]
    weights = [np.array(w, np.float32)[None] for w in columns]
    x, h, c = 2.0, 0.25, -0.75
    i, f, o = sigmoid(0.5 * x + 0.1 + h), sigmoid(-x + 0.2 + 0.5 * h - 0.1), sigmoid(2 * x + 0.3 - 2 * h + 0.4)
    following = f * c + i * math.tanh(1.5 * x - 0.2 - 0.5 * h + 0.6)
    carry = np.array([[[h, c]]], np.float32)
    out, carry = LSTMCell(1).step(numpy_ops, iter(weights), np.full((1, 1, 1), x, np.float32), carry)
    assert carry[0, 0].tolist() == pytest.approx([o * math.tanh(following), following], rel=1e-6)
    assert out[0, 0, 0] == carry[0, 0, 0]


def of_torch(cell: Cell, weights: list[np.ndarray], x: np.ndarray, carry: np.ndarray) -> np.ndarray:
    """Outputs [length, units] of torch.nn.GRU or LSTM for one agent and one sequence; weights without the axis K."""
    gru, order = isinstance(cell, GRUCell), [0, 1, 2] if isinstance(cell, GRUCell) else [0, 1, 3, 2]  # i, f, g, o
    layer = (torch.nn.GRU if gru else torch.nn.LSTM)(x.shape[-1], cell.units)
    for array, name in zip(weights, ("weight_ih_l0", "bias_ih_l0", "weight_hh_l0", "bias_hh_l0"), strict=True):
        gates = np.split(array, cell.gates, -1)
        getattr(layer, name).data = torch.tensor(np.concatenate([gates[i] for i in order], -1).T.copy())
    start = tuple(torch.tensor(part)[None] for part in np.split(carry, cell.parts))
    with torch.no_grad():
        out: np.ndarray = layer(torch.tensor(x), start[0] if gru else start)[0].numpy()
    return out


@CELLS
def test_it_computes_what_torchs_own_layer_computes(cell):
    """Two agents, two sequences of 5 rows; a row in the middle of the second one starts anew."""
    weights, x, carry = weights_of(cell, 4), normal(2, 10, 4), normal(2, 10, cell.carry_width)
    begins = np.zeros((2, 10), bool)
    begins[:, [0, 5]] = begins[1, 8] = True
    out, _ = cell.unrolled(numpy_ops, iter(weights), 5, x, carry, begins)
    for k, starts in enumerate(([0, 5], [0, 5, 8])):
        for start, stop in zip(starts, [*starts[1:], 10], strict=True):
            expected = of_torch(cell, [w[k] for w in weights], x[k, start:stop], carry[k, start])
            np.testing.assert_allclose(out[k, start:stop], expected, rtol=1e-5, atol=1e-6)


@CELLS
def test_a_sequence_equals_its_steps(cell):
    """Also the carries; those of rows that do not begin are not read."""
    weights, x = weights_of(cell, 4), normal(2, 6, 4)
    carry, stored, outs, carries = normal(2, 1, cell.carry_width), [], [], []
    for row in range(6):
        carry = normal(2, 1, cell.carry_width) if row == 2 else carry
        stored.append(carry)
        out, carry = cell.step(numpy_ops, iter(weights), x[:, row : row + 1], carry)
        outs.append(out)
        carries.append(carry)
    begins, given = np.array([[True, False, True, False, False, False]] * 2), np.concatenate(stored, 1)
    given = np.where(begins[..., None], given, np.float32(99))
    result = cell.unrolled(numpy_ops, iter(weights), 6, x, given, begins)
    for whole, steps in zip(result, (outs, carries), strict=True):
        np.testing.assert_allclose(whole, np.concatenate(steps, 1), rtol=1e-5, atol=1e-6)


@CELLS
@pytest.mark.parametrize("backend", BOTH.values(), ids=BOTH.keys())
def test_no_gradient_flows_through_a_burn_in(backend, cell):
    """Two sequences of 5 rows, 2 of them a burn-in: as 3 rows from the carries after it, which are constants.

    In the second one an episode begins after the burn-in.
    """
    weights, x, carry = weights_of(cell, 4), normal(2, 10, 4), normal(2, 10, cell.carry_width)
    begins = np.isin(np.arange(10), [0, 5, 7])[None].repeat(2, 0)
    _, after = cell.unrolled(numpy_ops, iter(weights), 5, x, carry, begins)
    own = np.array([2, 3, 4, 7, 8, 9])

    def over(length: int, burn_in: int, begins: np.ndarray) -> Any:
        def outputs(x: Any, carry: Any, *weights: Any) -> Any:
            result, _ = cell.unrolled(backend.ops, iter(weights), length, x, carry, backend.tensor(begins), burn_in)
            steps = backend.ops.time_steps(result, length)[burn_in:]
            return backend.ops.joined_steps(list(steps))

        return outputs

    whole = value_and_gradients(backend, over(5, 2, begins), x, carry, *weights)
    start = carry[:, own].copy()
    start[:, 0] = after[:, 1]
    alone = value_and_gradients(backend, over(3, 0, begins[:, own]), x[:, own], start, *weights)
    for mine, theirs in zip([whole[0], *whole[3:]], [alone[0], *alone[3:]], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(whole[1][:, own], alone[1], rtol=1e-4, atol=1e-5)
    assert not whole[1][:, [0, 1, 5, 6]].any()  # gradients of the inputs
    assert not whole[2][:, :7].any() and whole[2][:, 7].all()  # of the carries


@CELLS
def test_the_frameworks_agree_about_values_and_gradients(cell):
    weights, x, carry = weights_of(cell, 4), normal(2, 6, 4), normal(2, 6, cell.carry_width)
    begins = np.array([[True, False, False, True, False, True]] * 2)

    def over(backend: Any) -> list[np.ndarray]:
        def both(x: Any, carry: Any, *weights: Any) -> Any:
            parts = cell.unrolled(backend.ops, iter(weights), 3, x, carry, backend.tensor(begins))
            return backend.ops.concat(list(parts), -1)

        return value_and_gradients(backend, both, x, carry, *weights)

    of_torch, of_tensorflow = map(over, BOTH.values())
    for mine, theirs in zip(of_torch, of_tensorflow, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=1e-5)
    exact = cell.unrolled(numpy_ops, iter(weights), 3, x, carry, begins)
    np.testing.assert_allclose(of_torch[0], np.concatenate(exact, -1), rtol=1e-5, atol=1e-6)
    assert np.abs(of_torch[2][:, 1]).max() == 0 < np.abs(of_torch[2][:, 3]).max()  # gradients of the carries
    assert BOTH["torch"] is TORCH
