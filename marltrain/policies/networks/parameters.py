"""Parameters of networks: names, shapes and initial values, drawn with numpy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from marltrain.core.layout import Array

LARGE = 2**20
"""Number of weights above which a tall matrix is orthogonalized with its Gram matrix, which is several times faster."""


@dataclass(frozen=True)
class Parameter:
    """Name, shape (without the K axis) and initialization of one array: orthogonal with `gain`, or `constant`."""

    name: str
    shape: tuple[int, ...]
    gain: float = 1.0
    constant: float | None = None

    @property
    def size(self) -> int:
        """Number of values."""
        return int(np.prod(self.shape, dtype=int))

    def draw(self, rng: np.random.Generator) -> Array:
        """Return initial values: orthogonal rows or columns (Saxe et al. 2014), or the constant."""
        if self.constant is not None:
            return np.full(self.shape, self.constant, np.float32)
        fan_in_first = self.shape if len(self.shape) == 2 else (self.shape[0], int(np.prod(self.shape[1:])))
        rows, columns = fan_in_first
        q = _orthogonal(rng.standard_normal((max(rows, columns), min(rows, columns))))
        return (self.gain * (q if rows >= columns else q.T)).reshape(self.shape).astype(np.float32)


def _orthogonal(normal: Array) -> Array:
    """Return Q of the QR decomposition of normal [M, N], M >= N, with a positive diagonal of R.

    R is also the Cholesky factor of the Gram matrix. The rounding errors of that factor grow with the square of the
    condition number. For a matrix of normal numbers with M much larger than N this number is small (about 3 for
    M = 4 N).
    """
    if normal.size > LARGE and len(normal) >= 4 * normal.shape[1]:
        lower = np.linalg.cholesky(normal.T @ normal)
        orthogonal: Array = normal @ np.linalg.inv(lower).T
        return orthogonal
    q, r = np.linalg.qr(normal)
    return q * np.sign(np.diag(r))
