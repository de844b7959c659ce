"""The same function in numpy, PyTorch and TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from marltrain.policies.backends import numpy_ops
from tests.policies.backends.both import BOTH


def in_numpy(function: Callable[..., Any], *arrays: Any) -> list[np.ndarray]:
    """Return the results of function(ops, *arrays) in numpy."""
    return [np.asarray(part) for part in _listed(function(numpy_ops, *arrays))]


def in_all(function: Callable[..., Any], *arrays: Any, rtol: float = 2e-5, atol: float = 2e-5) -> list[np.ndarray]:
    """Return the results in numpy; both frameworks must agree with them. None stays None."""
    expected = in_numpy(function, *arrays)
    for name, backend in BOTH.items():
        result = _listed(function(backend.ops, *(backend.tensor(array) for array in arrays)))
        for mine, theirs in zip(expected, result, strict=True):
            np.testing.assert_allclose(backend.numpy(theirs), mine, rtol=rtol, atol=atol, err_msg=name)
    return expected


def _listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]
