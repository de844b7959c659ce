"""Functions of weights, computed by torch and by the evaluation of a recording."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from marltrain.policies.backends.torch import ops as torch_ops
from marltrain.policies.tape import ops
from marltrain.policies.tape.derive import derive
from marltrain.policies.tape.operations import DType
from marltrain.policies.tape.recording import Recording
from marltrain.policies.tape.symbols import Symbol, Tape
from tests.policies.tape.evaluate import evaluate

TYPES: dict[str, DType] = {"f": "float", "i": "integer", "b": "bytes", "u": "pixels"}


class Leaves:
    """Arrays that a function gets as weights of one network, one after another.

    symbols, tensors: the arrays on a tape and in torch.  leaf: the weights [1, N] on the tape.
    """

    def __init__(self, *arrays: Any) -> None:
        self.arrays = [np.array(array, np.float32) for array in arrays]
        self.flat = np.concatenate([array.reshape(1, -1) for array in self.arrays], 1)
        self.tape = Tape()
        self.leaf = self.tape.node("weights", (), self.flat.shape, "float", ("net",))
        pieces = zip(ops.split(self.leaf, [array.size for array in self.arrays]), self.arrays, strict=True)
        self.symbols = [piece.reshape(array.shape) for piece, array in pieces]
        self.tensors = [torch.from_numpy(array.copy()).requires_grad_() for array in self.arrays]

    def check(
        self, function: Callable[..., Any], views: Sequence[Callable[[Any], Any]] = (), **columns: np.ndarray
    ) -> Recording:
        """Compare a function (ops, *arguments) and its gradients; return the recording.

        views: one for each array, whose result is the argument; none: the arrays are the arguments.
        columns: further arguments, by name.
        """
        views = views or [lambda x: x] * len(self.arrays)
        given = {name: torch.from_numpy(array) for name, array in columns.items()}
        expected = function(torch_ops, *(view(x) for view, x in zip(views, self.tensors, strict=True)), **given)
        inputs = {name: self.tape.input(name, array.shape, TYPES[array.dtype.kind]) for name, array in columns.items()}
        made = function(ops, *(view(x) for view, x in zip(views, self.symbols, strict=True)), **inputs)
        assert isinstance(made, Symbol) and made.shape == tuple(expected.shape)
        factors = np.array(np.random.default_rng(0).standard_normal(made.shape), np.float32)
        total = (expected * torch.from_numpy(factors)).sum()
        grads = torch.autograd.grad(total, self.tensors, allow_unused=True)
        found = derive(made * self.tape.array(factors), {"net": self.leaf})
        recording = Recording(self.tape, {"made": made}, found)
        outputs, gradients = evaluate(recording, columns, {"net": self.flat})
        np.testing.assert_allclose(outputs["made"], expected.detach().numpy(), rtol=2e-5, atol=2e-5)
        own = [np.zeros_like(array) if grad is None else grad.numpy()
               for array, grad in zip(self.arrays, grads, strict=True)]  # fmt: skip
        joined = np.concatenate([grad.reshape(1, -1) for grad in own], 1)
        np.testing.assert_allclose(gradients["net"], joined, rtol=1e-4, atol=3e-5)
        return recording


def moved(x: Any, source: int, destination: int) -> Any:
    """Return a symbol or a tensor with an axis moved."""
    return x.moved(source, destination) if isinstance(x, Symbol) else x.movedim(source, destination)
