"""How weights are moved in compiled code: by hand, and as torch's optimizers do over several steps."""

import math

import numpy as np
import pytest
import torch

from marltrain.policies.compiled.optimizers import (
    LANES,
    adam,
    add_penalty,
    norm,
    rmsprop,
    sgd,
    sgd_with_momentum,
    shrink,
    update_target,
)
from tests.policies.compiled.test_network import UNTOUCHED, Place, given, room

SIZES = (1, 63, 64, 65, 129)
F = np.float32


def kept(values):
    """What is read and written, amid numbers that must stay."""
    return Place(values, UNTOUCHED)


# norm -----------------------------------------------------------------------------------------------------------------


def length(values):
    """The norm of some numbers, in room for exactly LANES others."""
    gradient, lanes = given(values), room(LANES)
    found = norm(gradient.at, len(gradient.numbers), lanes.at)
    lanes.assert_kept()
    gradient.assert_unchanged()
    return found


def test_a_norm_by_hand():
    assert length([3, 4]) == 5
    assert length([-7]) == 7
    assert length([0] * 70) == 0
    values = np.zeros(3 * LANES + 1)  # one in the first and last lane of each block, one behind them all
    values[[0, LANES - 1, LANES, 2 * LANES - 1, 2 * LANES, 3 * LANES - 1, 3 * LANES]] = [1, 2, 4, 2, 5, 5, 5]
    assert length(values) == 10


@pytest.mark.parametrize("size", [*SIZES, 127, 128, 5000])
def test_a_norm_is_that_of_float64(size):
    values = np.random.default_rng(size).normal(size=size).astype(np.float32)
    assert length(values) == pytest.approx(np.sqrt((values.astype(np.float64) ** 2).sum()), rel=1e-6)


@pytest.mark.parametrize("at", [0, 63, 64, 128])
@pytest.mark.parametrize(("value", "expected"), [(np.inf, np.inf), (-np.inf, np.inf), (np.nan, np.nan)])
def test_one_number_that_is_not_finite_is_seen(at, value, expected):
    values = np.ones(129)
    values[at] = value
    np.testing.assert_equal(float(length(values)), expected)


# By hand --------------------------------------------------------------------------------------------------------------


def test_adam_by_hand():
    """By slopes 2 and -4, halved, at rate 0.5: the first step is one of the rate, whatever the slope."""
    w, m, v, g = kept([1, 1]), kept([0, 0]), kept([0, 0]), given([2, -4])
    adam(w.at, m.at, v.at, g.at, 2, F(0.5), F(0.5), F(1), 0.0)
    np.testing.assert_allclose(w.numbers, [0.5, 1.5], rtol=1e-6)
    np.testing.assert_allclose(m.numbers, [0.1, -0.2], rtol=1e-6)
    np.testing.assert_allclose(v.numbers, [0.001, 0.004], rtol=1e-6)
    g = given([0, 6])
    adam(w.at, m.at, v.at, g.at, 2, F(1), F(0.5), F(2), 0.0)
    np.testing.assert_allclose(m.numbers, [0.09, -0.18 + 0.6], rtol=1e-6)
    np.testing.assert_allclose(v.numbers, [0.000999, 0.003996 + 0.036], rtol=1e-6)
    mean, square = np.array([0.09, 0.42]) / 0.19, np.array([0.000999, 0.039996]) / 0.001999
    np.testing.assert_allclose(w.numbers, [0.5, 1.5] - 0.5 * mean / np.sqrt(square), rtol=1e-6)


def test_adam_by_hand_where_epsilon_counts():
    """A slope of 1e-5: the root of the corrected square is as large as epsilon."""
    w, m, v, g = kept([0]), kept([0]), kept([0]), given([1e-5])
    adam(w.at, m.at, v.at, g.at, 1, F(1), F(1), F(1), 1e-5)
    np.testing.assert_allclose(w.numbers, [-0.5], rtol=1e-5)


def test_rmsprop_by_hand():
    w, v, g = kept([1, 1, 1]), kept([0, 0, 1]), given([2, 0, 0.5])
    rmsprop(w.at, v.at, g.at, 3, F(2), F(0.5), 1e-3)
    np.testing.assert_allclose(v.numbers, [0.16, 0, 0.99 + 0.01], rtol=1e-6)
    np.testing.assert_allclose(w.numbers, [1 - 0.5 * 4 / 0.401, 1, 1 - 0.5 * 1 / 1.001], rtol=1e-6)


def test_sgd_by_hand():
    w, g = kept([1, 2, -3]), given([4, 0, -1])
    sgd(w.at, g.at, 3, F(0.5), F(0.25))
    assert w.numbers.tolist() == [0.5, 2, -2.875]


def test_momentum_by_hand():
    """Slopes 6 and -4, halved, with half of the moments 4 and 0."""
    w, m, g = kept([8, -4]), kept([4, 0]), given([6, -4])
    sgd_with_momentum(w.at, m.at, g.at, 2, F(0.5), F(0.5), F(0.5))
    assert m.numbers.tolist() == [5, -2]
    assert w.numbers.tolist() == [5.5, -3]


def test_decay_by_hand():
    """A quarter of the weights is added to slopes 4 and -2, halved; or the weights shrink by 1/8."""
    w, g = kept([8, -4]), kept([4, -2])
    add_penalty(g.at, w.at, 2, F(0.5), F(0.25))
    assert g.numbers.tolist() == [4, -2]
    shrink(w.at, 2, F(0.875))
    assert w.numbers.tolist() == [7, -3.5]


def test_following_by_hand():
    target, online = kept([0, 8, -4, 1]), given([4, 0, -4, 5])
    update_target(target.at, online.at, 4, F(0.25))
    assert target.numbers.tolist() == [1, 6, -4, 2]
    online.assert_unchanged()
    update_target(target.at, online.at, 4, F(1))
    assert target.numbers.tolist() == [4, 0, -4, 5]
    target.assert_kept()


def test_copies_are_copies_to_the_last_bit():
    """Also of what a step towards them would not reach, and over what is no number."""
    values = [np.inf, 1e-45, -0.0, 0.1, 3e38]
    target, online = kept([1, 1, 1, np.nan, -3e38]), given(values)
    update_target(target.at, online.at, 5, F(1))
    assert target.numbers.tobytes() == np.array(values, F).tobytes()


# As torch -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 10, 1_000, 100_000])
def test_adam_after_many_steps(count):
    """How much the moments are enlarged, which is most where few have been made."""
    w, m, v, g = kept([0]), kept([0.02]), kept([0.3]), given([0.5])
    adam(w.at, m.at, v.at, g.at, 1, F(1), F(0.1), F(count), 1e-8)
    mean = (0.9 * 0.02 + 0.1 * 0.5) / (1 - 0.9**count)
    square = (0.999 * 0.3 + 0.001 * 0.25) / -math.expm1(count * math.log(0.999))
    np.testing.assert_allclose(w.numbers, [-0.1 * mean / math.sqrt(square)], rtol=1e-6)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("share", [0.005, 0.3, 0.75, 1.0])
def test_following_is_that_of_torch(size, share):
    rng = np.random.default_rng(size)
    target, online = kept(rng.normal(size=size)), given(rng.normal(size=size))
    expected = torch.lerp(torch.from_numpy(target.numbers), torch.from_numpy(online.numbers), share)
    update_target(target.at, online.at, size, F(share))
    np.testing.assert_allclose(target.numbers, expected, rtol=0, atol=5e-7)
    target.assert_kept()
    online.assert_unchanged()
