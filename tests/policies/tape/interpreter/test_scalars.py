"""Functions of one number: errors against float64 over the whole range, and what is neither finite nor normal."""

import numpy as np
import pytest
import torch
from scipy import special

from tests.policies.tape.executed import unary

TINY, TOP = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
EDGES = [0.0, -0.0, 1e-45, -1e-45, TINY, -TINY, 1.0, -1.0, TOP, -TOP, np.inf, -np.inf, np.nan, 88.72, 88.73, -87.3,
         -87.4, -103.9, -104.1, 17.3, 0.9374, 0.9376, 3.999, 4.001, 5.9, 6.0, 1e-4, -1e-4]  # fmt: skip


def everywhere(low: float = -TOP, high: float = TOP) -> np.ndarray:
    """Return float32 numbers of all sizes and signs between two limits."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 200_000, np.uint32).view(np.float32)
    near = rng.uniform(max(low, -120), min(high, 120), 100_000).astype(np.float32)
    x = np.concatenate([np.array(EDGES, np.float32), bits[~np.isnan(bits)], near])
    return x[((x >= low) & (x <= high)) | ~np.isfinite(x)]


def ulps(found: np.ndarray, exact: np.ndarray) -> float:
    """Return the largest error in units in the last place of float32; both must be NaN or infinite together."""
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded))
    finite = np.isfinite(found) & np.isfinite(rounded)
    np.testing.assert_array_equal(found[~finite], rounded[~finite])
    unit = np.spacing(np.nextafter(np.maximum(np.abs(rounded[finite]), TINY), np.float32(0))).astype(np.float64)
    return float((np.abs(found[finite] - exact[finite]) / unit).max())


REFERENCES = {
    "exp": (np.exp, 2.0),
    "log": (np.log, 1.0),
    "sigmoid": (special.expit, 2.5),
    "softplus": (lambda x: np.logaddexp(x, 0), 2.5),
    "elu": (lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), 1.5),
    "erf": (special.erf, 1.5),
    "sqrt": (np.sqrt, 0.5),
    "absolute": (np.abs, 0.5),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_errors_over_the_whole_range(name):
    reference, bound = REFERENCES[name]
    x = everywhere()
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
    assert ulps(unary(name, x), exact) <= bound


def test_error_of_tanh():
    x = everywhere()
    np.testing.assert_allclose(unary("tanh", x), np.tanh(x.astype(np.float64)), atol=4e-7)


@pytest.mark.parametrize(("name", "reference"), [("sin", np.sin), ("cos", np.cos)])
def test_errors_of_sine_and_cosine(name, reference):
    x = everywhere(-1e8, 1e8)
    x = x[np.isfinite(x)]
    error = np.abs(unary(name, x) - reference(x.astype(np.float64)))
    assert (error - 1e-15 * np.abs(x)).max() <= 2e-7
    large = np.array([1e30, -TOP, 2.0**52], np.float32)
    assert (np.abs(unary(name, large)) <= 1).all()
    assert np.isnan(unary(name, [np.inf, -np.inf, np.nan])).all()


@pytest.mark.parametrize(
    ("name", "reference"),
    [("lgamma", special.gammaln), ("digamma", special.psi), ("trigamma", lambda x: special.polygamma(1, x))],
)
def test_errors_of_the_gamma_functions(name, reference):
    x = everywhere(1e-30, TOP)
    x = np.concatenate([x[x > 0], np.linspace(0.01, 20, 999)]).astype(np.float32)
    with np.errstate(over="ignore"):
        exact = reference(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(unary(name, x), exact, rtol=2e-7, atol=1e-7)


def test_gamma_functions_where_they_end():
    np.testing.assert_array_equal(unary("lgamma", [0.0, np.inf, np.nan]), [np.inf, np.inf, np.nan])
    np.testing.assert_array_equal(unary("digamma", [0.0, np.inf, np.nan, -1e30]), [-np.inf, np.inf, np.nan, np.nan])
    np.testing.assert_array_equal(unary("trigamma", [0.0, np.inf, np.nan, -1e30]), [np.inf, 0.0, np.nan, np.nan])


@pytest.mark.parametrize("name", ["exp", "log", "sigmoid", "tanh", "sqrt", "erf", "sin", "cos"])
def test_results_at_the_edges_are_those_of_torch(name):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -5.0, 1e-45, TOP, -TOP, 200.0, -200.0], np.float32)
    if name in ("sin", "cos"):
        x = x[np.abs(x) < 1e3]
    np.testing.assert_allclose(unary(name, x), getattr(torch, name)(torch.from_numpy(x)).numpy(), atol=2e-7)


@pytest.mark.parametrize("name", ["elu", "softplus"])
def test_activations_at_the_edges_are_those_of_torch(name):
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -5.0, 1e-45, TOP, -TOP, 200.0, -200.0], np.float32)
    expected = getattr(torch.nn.functional, name)(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(unary(name, x), expected, atol=2e-7)


def test_finite_and_not():
    np.testing.assert_array_equal(unary("isfinite", [0, TOP, np.inf, -np.inf, np.nan]), [1, 1, 0, 0, 0])
