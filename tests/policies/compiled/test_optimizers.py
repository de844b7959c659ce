"""How weights are moved in compiled code: by hand, and as torch's optimizers do over several steps."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from marltrain.jit.compiling import compiled
from marltrain.jit.views import address_of, record_at
from marltrain.policies.backends.torch.networks import Network
from marltrain.policies.backends.torch.optimizers import Optimizer
from marltrain.policies.compiled.optimizers import (
    ADAM,
    ADAMW,
    LANES,
    RMSPROP,
    RULES,
    SGD,
    adam,
    norm,
    optimizer_step,
    rmsprop,
    sgd,
    update_target,
)
from marltrain.policies.optimizers import OPTIMIZERS
from tests.policies.compiled.test_network import UNTOUCHED, Place, given, room

SIZES = (1, 63, 64, 65, 129)
F = np.float32


def kept(values):
    """What is read and written, amid numbers that must stay."""
    return Place(values, UNTOUCHED)


def test_rules_are_those_of_the_optimizers():
    assert RULES == {"adam": ADAM, "adamw": ADAMW, "rmsprop": RMSPROP, "sgd": SGD}
    assert RULES.keys() < OPTIMIZERS.keys()  # the frameworks make the steps of the others


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


def test_decay_and_momentum_by_hand():
    """Slopes 4 and -2, halved, at rate 0.5 with decay 0.25; the weight 8 adds 2 to the first, -4 takes 1 of the other.

    AdamW takes a step of the rate after the weights have shrunk by 1/8.
    """
    w, m = kept([8, -4]), kept([2, 0])
    arrays = {"weights": w, "first": m}
    moved("sgd", arrays, given([4, -2]), 0.5, 0.5, F(1), 0.0, weight_decay=0.25, momentum=0.5)
    assert m.numbers.tolist() == [5, -2]
    assert w.numbers.tolist() == [5.5, -3]
    shrunk = {"weights": kept([8, -4]), "first": kept([0, 0]), "second": kept([0, 0])}
    moved("adamw", shrunk, given([4, -2]), 0.5, 0.5, F(1), 0.0, weight_decay=0.25)
    np.testing.assert_allclose(shrunk["weights"].numbers, [6.5, -3], rtol=1e-6)


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

STEPS = 12


ARGUMENTS = np.dtype([
    *((name, np.int64) for name in ("weights", "first", "second", "count", "rate", "weight_decay", "momentum")),
    ("epsilon", np.int64), ("size", np.int64),
])  # fmt: skip


@compiled
def step_once(address, rule, agents, k, gradient, factor, fine):
    """Make a step of the arguments at an address."""
    optimizer_step(record_at(address, ARGUMENTS), rule, agents, k, gradient, factor, fine)


def moved(rule, arrays, gradient, factor, rate, count, epsilon, weight_decay=0.0, momentum=0.0):
    """Move the weights of the second of two agents; the first's rate, decay and momentum are others."""
    record: Any = np.zeros(1, ARGUMENTS)
    record["size"] = size = len(gradient.numbers)
    numbers = {"count": [0, count - 1], "rate": [9, rate], "weight_decay": [8, weight_decay], "momentum": [7, momentum]}
    held = {name: np.array(values, np.float32) for name, values in numbers.items()}
    for name, values in {**held, "epsilon": (small := np.array([epsilon]))}.items():
        record[name] = address_of(values)
    for name in ("weights", *OPTIMIZERS[rule].moments):
        record[name] = arrays[name].at - 4 * size  # those of the first agent are before them, and are not touched
    slopes = gradient.numbers.copy()
    step_once(address_of(record), RULES[rule], 2, 1, address_of(slopes), F(factor), True)
    assert (held["count"].tolist(), small) == ([0, count], epsilon)


EXTRA = [
    *((rule, {}) for rule in RULES),
    *((rule, {"weight_decay": 0.03}) for rule in RULES),
    ("sgd", {"momentum": 0.9}),
    ("sgd", {"momentum": 0.7, "weight_decay": 0.1}),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("rule", "extra"), EXTRA)
@pytest.mark.parametrize("epsilon", [1e-8, 1e-2])
def test_steps_are_those_of_torch(rule, extra, size, epsilon):
    """Rates, factors and the sizes of slopes change; the tolerance is that of a dozen roundings of numbers around 1."""
    rng = np.random.default_rng(size)
    start = rng.normal(size=size).astype(np.float32)
    network: Network = SimpleNamespace(flat=torch.from_numpy(start[None].copy()), decays=True)  # type: ignore[assignment]
    optimizer = Optimizer(rule, network.flat, epsilon)
    arrays = {"weights": kept(start), **{name: kept(np.zeros(size)) for name in OPTIMIZERS[rule].moments}}
    for step in range(STEPS):
        gradient = given(rng.normal(size=size) * 10.0 ** rng.integers(-4, 1, size))
        factor, rate = F(rng.choice([1, 0.3])), F(rng.choice([1e-2, 3e-3]))
        tensors = {name: torch.tensor([[value]]) for name, value in extra.items()}
        slopes, rates = torch.from_numpy(gradient.numbers[None] * factor), torch.tensor([rate])
        optimizer.step(network, slopes, rates, None, **tensors)
        moved(rule, arrays, gradient, factor, rate, F(step + 1), epsilon, **extra)
        gradient.assert_unchanged()
    expected = {"weights": network.flat, **optimizer.slots}
    assert expected.keys() == arrays.keys()
    for name, place in arrays.items():
        tolerance = 2e-6 if name == "weights" else 1e-7
        np.testing.assert_allclose(place.numbers, expected[name][0], rtol=2e-6, atol=tolerance, err_msg=name)
        place.assert_kept()
    assert abs(arrays["weights"].numbers - start).min() > 0


@pytest.mark.parametrize("count", [1, 2, 10, 1_000, 100_000])
def test_adam_after_many_steps(count):
    """How much the moments are enlarged, which is most where few have been made."""
    w, m, v, g = kept([0]), kept([0.02]), kept([0.3]), given([0.5])
    adam(w.at, m.at, v.at, g.at, 1, F(1), F(0.1), F(count), 1e-8)
    mean = (0.9 * 0.02 + 0.1 * 0.5) / (1 - 0.9**count)
    square = (0.999 * 0.3 + 0.001 * 0.25) / -math.expm1(count * math.log(0.999))
    np.testing.assert_allclose(w.numbers, [-0.1 * mean / math.sqrt(square)], rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_without_a_slope_at_rate_0_weights_stay_and_moments_fade(rule):
    """What is done where a loss is not finite."""
    start = np.random.default_rng(0).normal(size=65).astype(np.float32)
    arrays = {"weights": kept(start), **{name: kept(np.full(65, 0.5)) for name in OPTIMIZERS[rule].moments}}
    moved(rule, arrays, given(np.zeros(65)), F(0), F(0), F(3), 1e-8)
    np.testing.assert_array_equal(arrays["weights"].numbers, start)
    fades = {"adam": {"first": 0.9, "second": 0.999}, "rmsprop": {"second": 0.99}, "sgd": {"first": 1.0}}
    for name, share in (fades | {"adamw": fades["adam"]})[rule].items():
        np.testing.assert_allclose(arrays[name].numbers, 0.5 * share, rtol=1e-6)


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
