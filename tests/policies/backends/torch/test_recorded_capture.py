"""Functions that a CUDA graph cannot hold, or that a captured call would compute with other numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from marltrain.core.errors import ConfigError
from marltrain.policies.backends.torch.captures import Captured
from marltrain.policies.backends.torch.recorded_capture import RecordedCapture


def calls(function: Any, times: int = 3) -> Any:
    """Call a function through captures; return the last result."""
    captured = Captured(function, RecordedCapture())
    return [captured(torch.arange(4.0) + i) for i in range(times)][-1]


class Counting:
    """A step count that is a number of Python."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, x: Tensor) -> Tensor:
        self.count += 1
        return x * self.count


class Replacing:
    """Weights that are a new tensor after each call."""

    def __init__(self) -> None:
        self.weights = torch.ones(4)

    def __call__(self, x: Tensor) -> Tensor:
        self.weights = self.weights + x
        return self.weights * 1.0


class Remembering:
    """A result that is used by the next call, when its memory may belong to another."""

    def __init__(self) -> None:
        self.last = torch.zeros(4)

    def __call__(self, x: Tensor) -> Tensor:
        result, self.last = self.last + x, x * 2.0
        return result


UNFIT: dict[str, tuple[Any, str]] = {
    "item": (lambda x: x * x.sum().item(), "reads a number"),
    "condition": (lambda x: x if x.sum() > 0 else -x, "reads a number"),
    "nonzero": (lambda x: torch.nonzero(x) * 1.0, "shape depends on numbers"),
    "mask": (lambda x: x[x > 1], "booleans"),
    "written mask": (lambda x: x.clone().index_put_((x > 1,), torch.tensor(0.0)), "numbers of the CPU"),
    "masked_select": (lambda x: x.masked_select(x > 1), "shape depends on numbers"),
    "noise": (lambda x: x + torch.randn(4), "random"),
    "dropout": (lambda x: torch.nn.functional.dropout(x), "random"),
    "constants": (lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]), "numbers of the CPU"),
    "array": (lambda x: x + torch.from_numpy(x.numpy() * 2.0), "copies a tensor"),
    "cpu": (lambda x: x.cpu() * 2.0, "copies a tensor"),
    "count": (Counting(), "other numbers"),
    "new weights": (Replacing(), "released"),
    "last result": (Remembering(), "released|other numbers"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_unfit_functions_are_refused(name):
    function, reason = UNFIT[name]
    with pytest.raises(ConfigError, match=reason):
        calls(function, 4)


def test_weights_and_moments_are_changed_once_by_each_call():
    weights, moments = torch.ones(4).requires_grad_(), torch.zeros(4)

    def step(x: Tensor) -> Tensor:
        loss = (weights * x).square().sum()
        (grad,) = torch.autograd.grad(loss, [weights])
        moments.lerp_(grad, 0.5)
        with torch.no_grad():
            weights.sub_(moments, alpha=0.01)
        return loss

    captured, seen = Captured(step, RecordedCapture()), []
    for i in range(5):
        seen.append(captured(torch.arange(4.0) + i).item())
        if i == 3:
            with torch.no_grad():
                weights.fill_(2.0)  # in place: loaded weights
    changed = weights.tolist()
    with torch.no_grad():
        weights.fill_(1.0)
        moments.zero_()
    expected = []
    for i in range(5):
        expected.append(step(torch.arange(4.0) + i).item())
        if i == 3:
            with torch.no_grad():
                weights.fill_(2.0)
    assert seen == expected
    assert weights.tolist() == changed


def test_released_weights_are_found():
    class Holding:
        weights = torch.ones(4)

        def __call__(self, x: Tensor) -> Tensor:
            return self.weights * x

    function = Holding()
    captured = Captured(function, RecordedCapture())
    for _ in range(3):
        captured(torch.ones(4))
    Holding.weights = torch.zeros(4)
    with pytest.raises(ConfigError, match="released"):
        captured(torch.ones(4))
