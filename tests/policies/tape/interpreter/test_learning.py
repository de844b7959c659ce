"""Layers by NumPy, and steps of optimizers as those of torch's classes."""

import math

import numpy as np
import pytest
import torch

from marltrain.policies.backends.torch.optimizers import Optimizer
from marltrain.policies.compiled.layers import NONE, RELU, TANH
from marltrain.policies.compiled.optimizers import ADAM, ADAMAX, ADAMW, LANES, RMSPROP, SGD
from tests.policies.tape.executed import carry_out, carry_out_all

RNG = np.random.default_rng(0)
RULES = {"adam": ADAM, "adamw": ADAMW, "adamax": ADAMAX, "rmsprop": RMSPROP, "sgd": SGD}
F = np.float32


@pytest.mark.parametrize("activation", [NONE, RELU, TANH])
@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 1, 1), (7, 3, 5), (13, 20, 37)])
def test_layers(activation, rows, inputs, outputs):
    x, w, b = (RNG.standard_normal(s, F) for s in ((inputs, rows), (inputs, outputs), (outputs,)))
    found = carry_out("linear", np.zeros((rows, outputs), F), {"a": x, "weight": w, "bias": b}, rows=rows,
                      inputs=inputs, outputs=outputs, a_row=1, a_column=rows, activation=activation)  # fmt: skip
    sums = x.T @ w + b
    expected = {NONE: sums, RELU: np.maximum(sums, 0), TANH: np.tanh(sums)}[activation]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 1, 1), (7, 20, 5), (13, 20, 37), (9, 3, 5)])
@pytest.mark.parametrize("gap", [0, 3])
def test_gradients_of_layers_are_added(rows, inputs, outputs, gap):
    x, g = RNG.standard_normal((rows, inputs + gap), F), RNG.standard_normal((rows, outputs), F)
    weight, bias = RNG.standard_normal((inputs, outputs), F), RNG.standard_normal(outputs, F)
    scratch = np.zeros(inputs * outputs, F)
    found = carry_out_all(
        "layer_gradient", {"weight": weight, "bias": bias, "a": x, "gradient": g, "scratch": scratch}, rows=rows,
        inputs=inputs, outputs=outputs, a_row=inputs + gap,
    )  # fmt: skip
    np.testing.assert_allclose(found["weight"], weight + x[:, :inputs].T @ g, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found["bias"], bias + g.sum(0), rtol=1e-5, atol=1e-5)


def test_norm():
    x = RNG.standard_normal(200, F)
    found = carry_out("norm", np.zeros(1, F), {"a": x, "scratch": np.zeros(LANES, F)}, size=200)
    assert found[0] == pytest.approx(np.linalg.norm(x.astype(np.float64)), rel=1e-6)


def test_targets_follow():
    target, online = RNG.standard_normal(9, F), RNG.standard_normal(9, F)
    for share in (1.0, 0.25):
        found = carry_out("follow", target, {"a": online, "share": np.array([share], F)}, size=9)
        np.testing.assert_allclose(found, target + share * (online - target), rtol=1e-6)


def test_targets_that_do_not_follow_are_not_read():
    """Their networks may hold anything."""
    target, online = RNG.standard_normal(9, F), np.full(9, np.nan, F)
    found = carry_out("follow", target, {"a": online, "share": np.zeros(1, F)}, size=9)
    np.testing.assert_array_equal(found, target)


class Step:
    """One step of an optimizer, with moments in the middle of training."""

    def __init__(self, rule: str, **numbers: float) -> None:
        self.rule, self.size = rule, 37
        usual = {
            "count": 3.0,
            "rate": 0.1,
            "factor": 0.5,
            "decay": 0.0,
            "momentum": 0.0,
            "fine": 1.0,
            "going": 1.0,
        }
        self.numbers = usual | numbers
        self.weights, self.gradient, self.first = (RNG.standard_normal(self.size, F) for _ in range(3))
        self.second = RNG.random(self.size, F)

    def by_interpreter(self):
        arrays = {name: np.array([value], F) for name, value in self.numbers.items()}
        arrays |= {"gradient": self.gradient, "first": self.first, "second": self.second, "weights": self.weights}
        arrays["epsilon"] = np.array([1e-4]).view(np.int64)  # the bits of a float64 number
        return carry_out_all("optimizer", arrays, size=self.size, rule=RULES[self.rule])

    def by_torch(self):
        numbers = {name: torch.tensor([value]) for name, value in self.numbers.items()}
        optimizer = Optimizer(self.rule, torch.from_numpy(self.weights.copy())[None], 1e-4)
        for name, array in zip(optimizer.slots, self.moments(), strict=True):
            optimizer.slots[name][...] = torch.from_numpy(array)
        optimizer.count[...] = self.numbers["count"]

        class Network:
            flat, decays = torch.from_numpy(self.weights.copy())[None], True

        decay, momentum = (numbers[name][None] if self.numbers[name] else None for name in ("decay", "momentum"))
        gradient = torch.from_numpy(self.gradient)[None] * self.numbers["factor"]
        optimizer.step(Network, gradient, numbers["rate"], None, weight_decay=decay, momentum=momentum)  # type: ignore[arg-type]
        return {"weights": Network.flat[0].numpy(), "count": optimizer.count[0].numpy(),
                **{name: slot[0].numpy() for name, slot in optimizer.slots.items()}}  # fmt: skip

    def moments(self):
        return {"rmsprop": (self.second,), "sgd": (self.first,)}.get(self.rule, (self.first, self.second))


CASES = [
    ("adam", {}), ("adam", {"decay": 0.1}), ("adamw", {"decay": 0.1}), ("adamax", {}), ("adamax", {"decay": 0.1}),
    ("rmsprop", {}), ("rmsprop", {"decay": 0.1}), ("sgd", {}), ("sgd", {"momentum": 0.9}),
    ("sgd", {"momentum": 0.9, "decay": 0.1}), ("adam", {"count": 0.0}),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "numbers"), CASES)
def test_steps_of_optimizers_are_those_of_the_formulas(rule, numbers):
    step = Step(rule, **numbers)
    found, expected = step.by_interpreter(), step.by_torch()
    for name, value in expected.items():
        np.testing.assert_allclose(
            found["second" if name == "largest" else name], value, rtol=2e-6, atol=1e-6, err_msg=name
        )


def test_a_gradient_that_is_not_fine_only_counts():
    step = Step("adam", fine=0.0)
    step.gradient[3] = math.nan
    found = step.by_interpreter()
    np.testing.assert_array_equal(found["weights"], step.weights)
    np.testing.assert_allclose(found["first"], 0.9 * step.first, rtol=1e-6)
    assert found["count"] == 4


def test_a_step_that_does_not_go_on_changes_nothing():
    step = Step("adam", going=0.0)
    found = step.by_interpreter()
    for name, before in (("weights", step.weights), ("first", step.first), ("second", step.second), ("count", 3.0)):
        np.testing.assert_array_equal(found[name], before)
