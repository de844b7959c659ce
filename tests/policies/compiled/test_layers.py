"""Layers in compiled code: sums worked out by hand and term by term, and rows that do not depend on each other."""

import numpy as np
import pytest

from marltrain.jit.views import address_of
from marltrain.policies.compiled.gemm import BROAD, COLUMNS, HEIGHTS
from marltrain.policies.compiled.layers import NONE, RELU, TANH, layer, tanh

ROWS, INPUTS, WIDTHS = (1, 2, 3, 5, 9), (1, 3, 4, 7, 18), (1, 5, 64)


def computed(x, weight, bias, activation=NONE):
    """The activation of x @ weight + bias, by compiled code, where the memory behind the result is watched."""
    result = np.full((len(x) + 1, weight.shape[1]), 77, np.float32)
    run(activation, x, len(x), x.shape[1], 1, x.shape[1], weight, bias, 0, weight.shape[1], result)
    assert (result[-1] == 77).all()
    return result[:-1]


def run(activation, *given):
    """Call `layer`, arrays by their addresses."""
    layer(activation, *(address_of(one) if isinstance(one, np.ndarray) else int(one) for one in given))


def drawn(rows, inputs, width):
    rng = np.random.default_rng(100 * rows + 10 * inputs + width)
    return (
        rng.normal(size=(rows, inputs)).astype(np.float32), rng.normal(size=(inputs, width)).astype(np.float32),
        rng.normal(size=width).astype(np.float32),
    )  # fmt: skip


def term_by_term(x, weight, bias):
    """The same in the order of the weights, each product added to the sum so far and rounded once.

    bias: for all rows, or a row each.
    """
    total = np.array(np.broadcast_to(bias, (len(x), weight.shape[1])))
    for i in range(len(weight)):  # a product of two float32 is exact in float64
        total = (x[:, i, None].astype(np.float64) * weight[i].astype(np.float64) + total).astype(np.float32)
    return total


def test_a_layer_by_hand():
    x = np.array([[1, 2, 3, 4, 5], [0, -1, 0, 1, 2], [2, 0, 0, 0, -3]], np.float32)
    weight = np.array([[1, 0], [0, 1], [2, -1], [1, 1], [-1, 3]], np.float32)
    expected = [[1 + 6 + 4 - 5 + 10, 2 - 3 + 4 + 15 - 20], [1 - 2 + 10, -1 + 1 + 6 - 20], [2 + 3 + 10, -9 - 20]]
    assert computed(x, weight, np.array([10, -20], np.float32)).tolist() == expected


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_layer_is_its_sum_in_the_order_of_the_weights(rows, inputs, width):
    x, weight, bias = drawn(rows, inputs, width)
    result = computed(x, weight, bias)
    np.testing.assert_array_equal(result, term_by_term(x, weight, bias))
    np.testing.assert_allclose(result, x.astype(np.float64) @ weight + bias, atol=2e-5)


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_row_is_the_same_alone_and_among_others(inputs, width):
    """Of 12 rows tiles of six are computed, of 4 one of four; each row alone, too."""
    x, weight, bias = drawn(12, inputs, width)
    together = computed(x, weight, bias)
    for row in range(12):
        np.testing.assert_array_equal(computed(x[row : row + 1].copy(), weight, bias)[0], together[row])
    np.testing.assert_array_equal(computed(x[1:5].copy(), weight, bias), together[1:5])
    np.testing.assert_array_equal(computed(x[2:11].copy(), weight, bias), together[2:11])


@pytest.mark.parametrize("width", [*sorted(COLUMNS), BROAD + 1, BROAD + 8, BROAD + 13, 2 * BROAD])
def test_tiles_of_all_heights_and_widths_however_what_they_read_lies(width):
    """Rows apart by more than they are wide, or transposed; biases for all rows, a row each, or the result itself."""
    assert (HEIGHTS, COLUMNS) == ((6, 4, 1), (BROAD, 8, 7, 6, 5, 4, 3, 2, 1))
    for rows in range(1, 15):  # all ways to cut them into tiles: 8 is 4 + 4, 13 is 6 + 6 + 1, 14 is 6 + 4 + 4
        x, weight, bias = drawn(rows, 3, width)
        own = np.random.default_rng(rows).normal(size=(rows, width + 2)).astype(np.float32)
        apart, turned = np.full((rows, 5), np.nan, np.float32), np.full((3, rows + 2), np.nan, np.float32)
        apart[:, :3], turned[:, :rows] = x, x.T
        expected, expected_own = term_by_term(x, weight, bias), term_by_term(x, weight, own[:, :width])
        for lies in ((x, rows, 3, 1), (apart, rows, 5, 1), (turned, rows, 1, rows + 2)):
            every = np.full((rows + 2) * width, 77, np.float32)
            result = every[width:-width].reshape(rows, width)
            run(NONE, *lies, 3, weight, bias, 0, width, result)
            np.testing.assert_array_equal(result, expected)
            run(NONE, *lies, 3, weight, own, width + 2, width, result)
            np.testing.assert_array_equal(result, expected_own)
            result[...] = own[:, :width]
            run(NONE, *lies, 3, weight, result, width, width, result)
            np.testing.assert_array_equal(result, expected_own)
            result[...] = own[:, :width]
            run(RELU, *lies, 3, weight, result, width, width, result)
            np.testing.assert_array_equal(result, np.maximum(expected_own, 0))
            assert (every[:width] == 77).all()
            assert (every[-width:] == 77).all()


def activated(activation, values):
    """The activation of each value, by a layer that has them as biases, and nothing else."""
    bias = np.array(values, np.float32)
    return computed(np.zeros((1, 1), np.float32), np.zeros((1, len(bias)), np.float32), bias, activation)[0]


def test_tanh():
    """Known values, then every size of number, against float64."""
    known = {0.5: 0.46211716, 1.0: 0.76159416, -2.0: -0.96402758, 1e-4: 1e-4, 1e-30: 1e-30, 0.0: 0.0}
    for value, expected in known.items():
        assert abs(tanh(np.float32(value)) - expected) <= 4e-7 * max(abs(expected), 1e-30)
    x = np.concatenate([np.linspace(-12, 12, 40_001), np.geomspace(1e-38, 1e38, 2_001)]).astype(np.float32)
    result, exact = activated(TANH, x), np.tanh(x.astype(np.float64))
    np.testing.assert_allclose(result, exact, rtol=4e-7)
    np.testing.assert_array_equal(activated(TANH, -x), -result)
    assert (abs(result) <= 1).all()


def test_relu():
    assert activated(RELU, [-3, -1e-30, 0, 1e-30, 2.5]).tolist() == [0, 0, 0, np.float32(1e-30), 2.5]


@pytest.mark.parametrize("activation", [TANH, RELU])
def test_what_is_no_number_stays_none_and_infinities_have_their_limits(activation):
    result = activated(activation, [np.nan, np.inf, -np.inf, 1.0, np.nan])
    assert np.isnan(result).tolist() == [True, False, False, False, True]
    assert result[1] == np.inf if activation == RELU else abs(result[1] - 1) < 4e-7
    assert result[2] == 0 if activation == RELU else abs(result[2] + 1) < 4e-7


@pytest.mark.parametrize("activation", [TANH, RELU])
@pytest.mark.parametrize("size", [1, 3, 7, 8, 9, 16, 17, 31])
def test_an_activation_is_that_of_each_number(activation, size):
    """Numbers at the end of what vectors hold are computed by other instructions, to the same last bit."""
    x = np.random.default_rng(size).normal(size=size).astype(np.float32) * 3
    alone = np.concatenate([activated(activation, x[i : i + 1]) for i in range(size)])
    np.testing.assert_array_equal(activated(activation, x), alone)
