"""Meta-strategies: how the players of a two-player game choose among the policies of their populations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.extras import imported
from marltrain.core.layout import Array

Strategies = tuple[Array, Array]
"""The probabilities [N0] and [N1] with which two players choose policies."""
MetaStrategy = Callable[[Array], Strategies]
"""Payoffs [2, N0, N1] of both players, for a policy of each -> strategies."""
CLOSE = 1e-6
"""Largest sum of both players' payoffs in a zero-sum game, as a share of the largest payoff."""


def uniform(payoffs: Array) -> Strategies:
    """Return equal probabilities: fictitious self-play's answer (Heinrich et al. 2015)."""
    rows, columns = payoffs.shape[1:]
    return np.full(rows, 1 / rows), np.full(columns, 1 / columns)


def nash(payoffs: Array) -> Strategies:
    """Return an equilibrium of a zero-sum game, by linear programming (von Neumann and Morgenstern 1944).

    Raises ConfigError unless the payoffs of both players sum to zero.
    """
    check_zero_sum("nash", payoffs)
    return _maximin(payoffs[0]), _maximin(payoffs[1].T)


def check_zero_sum(who: str, payoffs: Array) -> None:
    """Raise ConfigError unless the payoffs [2, N0, N1] of both players sum to zero."""
    most = float(np.abs(payoffs.sum(0)).max())
    if most > CLOSE * max(float(np.abs(payoffs).max()), 1.0):
        raise ConfigError(
            f"{who}: expected a zero-sum game, and the mean returns of a pair of policies sum to {most:.3g}: take "
            'the meta-strategy "uniform" or "replicator"'
        )


def _maximin(payoffs: Array) -> Array:
    """Return the probabilities of the rows that maximize the smallest payoff over the columns."""
    optimize = imported("scipy.optimize", "openspiel", 'the meta-strategy "nash"')
    rows, columns = payoffs.shape
    value = np.append(np.zeros(rows), -1.0)  # the last variable is the value v, which is maximized
    found = optimize.linprog(
        value, A_ub=np.column_stack([-payoffs.T, np.ones(columns)]), b_ub=np.zeros(columns),
        A_eq=np.append(np.ones(rows), 0.0)[None], b_eq=[1.0], bounds=[(0, None)] * rows + [(None, None)],
    )  # fmt: skip
    shares = np.maximum(found.x[:rows], 0.0)
    result: Array = shares / shares.sum()
    return result


def replicator(
    payoffs: Array,
    *,
    steps: int = 20_000,
    step_size: float = 0.01,
    least: float = 1e-3,
    start: Strategies | None = None,
) -> Strategies:
    """Return the mean over time of projected replicator dynamics (Lanctot et al. 2017, arXiv:1711.00832).

    The probability of a policy grows in proportion to its payoff less the mean payoff; then both players' strategies
    are projected onto the probabilities of at least `least`.

    payoffs: [2, N0, N1]; their differences are divided by the largest.  start: strategies at time 0; None: uniform.
    """
    span = max(float(np.ptp(payoffs, axis=(1, 2)).max()), 1e-12)
    mine, theirs = payoffs[0] / span, payoffs[1].T / span
    x, y = uniform(payoffs) if start is None else (np.asarray(each, np.float64) for each in start)
    totals = np.zeros(len(x)), np.zeros(len(y))
    for _ in range(steps):
        gain, other = mine @ y, theirs @ x
        x, y = (projected(p + step_size * p * (u - p @ u), least) for p, u in ((x, gain), (y, other)))
        totals[0][...] += x
        totals[1][...] += y
    return totals[0] / steps, totals[1] / steps


def projected(point: Array, least: float) -> Array:
    """Return the nearest probabilities [N] that are all at least `least`, or 1 / N if that is smaller.

    Euclidean projection onto a simplex (Duchi et al. 2008, figure 1).
    """
    least = min(least, 1 / len(point))
    free, size = point - least, 1 - least * len(point)
    ordered = np.sort(free)[::-1]
    excess = (np.cumsum(ordered) - size) / np.arange(1, len(point) + 1)
    shift = excess[np.flatnonzero(ordered > excess)[-1]] if size > 0 else ordered[0]
    result: Array = np.maximum(free - shift, 0.0) + least
    return result


META_STRATEGIES: dict[str, MetaStrategy] = {"uniform": uniform, "nash": nash, "replicator": replicator}
"""The meta-strategies by name."""
