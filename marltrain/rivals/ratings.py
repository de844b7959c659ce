"""Ratings from the results of pairs: Bradley-Terry strengths with bootstrap intervals, Nash averaging, score bounds."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array

ELO = 400.0 / math.log(10.0)
"""Elo points of a unit of strength: 400 points are odds of 10 to 1."""
ROUNDS, CLOSE = 100_000, 1e-10
"""Largest number of iterations of a fit, and the change of the logarithms of strengths that ends it."""
STEPS, FLAT = 50_000, 1e-6
"""The same for Nash averaging: iterations, and the violation of a constraint that ends them."""


def bradley_terry(points: Array, prior: float = 0.5) -> Array:
    """Return the ratings of N players in Elo points, [N] float64, whose mean is 0: the model of Bradley and Terry 1952.

    The model: i beats j with probability s_i / (s_i + s_j); the rating is 400 log10(s_i). The fit maximizes the
    likelihood, by the iteration of Hunter 2004 (Annals of Statistics 32, equation 3).

    points: [N, N], the points of i against j: a win 1, a draw 0.5.
    prior: points that both players of each pair that has met get in addition, so that a player who won all games has
      a finite rating; 0: none.

    Raises ConfigError unless every player is connected with every other by wins of some points.
    """
    met = points + points.T > 0
    won = np.where(met, points + prior, 0.0)
    np.fill_diagonal(won, 0.0)
    _check_connected(won)
    games, total, logs = won + won.T, won.sum(1), np.zeros(len(won))
    for _ in range(ROUNDS):
        strength = np.exp(logs)
        new = np.log(total / (games / (strength[:, None] + strength)).sum(1))
        new -= new.mean()
        change, logs = np.abs(new - logs).max(), new
        if change < CLOSE:
            break
    return ELO * logs


def _check_connected(won: Array) -> None:
    """Raise ConfigError if some players have no points, directly or through others, against some others."""
    reached = (won > 0) | np.eye(len(won), dtype=bool)
    for _ in range(len(won)):
        reached = reached @ reached
    if not reached.all():
        i, j = map(int, np.argwhere(~reached)[0])
        raise ConfigError(
            f"ratings need results that connect all players: player {i} has no points against player {j}, nor through "
            "others. Play these pairs, or give prior= above 0"
        )


def intervals(outcomes: Array, prior: float, resamples: int, level: float, seed: int) -> tuple[Array, Array]:
    """Return the limits of bootstrap intervals of the ratings, [N] float64 each: games of each pair are drawn again.

    outcomes: [N, N, 3] int64, wins, draws and losses of i against j.  level: share of the resamples between the limits.
    """
    rng, upper = np.random.default_rng(seed), np.triu_indices(len(outcomes), 1)
    found = np.empty((resamples, len(outcomes)))
    played = outcomes[upper]
    games = played.sum(1)
    shares = played / np.maximum(games, 1)[:, None]
    for r in range(resamples):
        drawn = rng.multinomial(games, shares)
        points = np.zeros(outcomes.shape[:2])
        points[upper] = drawn[:, 0] + 0.5 * drawn[:, 1]
        points.T[upper] = drawn[:, 2] + 0.5 * drawn[:, 1]
        found[r] = bradley_terry(points, prior)
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def score_bounds(outcomes: Array, level: float) -> Array:
    """Return upper confidence bounds of scores, [...] float64: a win counts 1, a draw 0.5; 1 without a game.

    One-sided bounds by inverting the score test (Wilson 1927), with the variance of games that may be drawn: p (1 - p)
    less a quarter of the observed share of draws. A bound is below 0.5 exactly if the sign test of the decisive games
    (McNemar 1947), (losses - wins) / sqrt(losses + wins), exceeds the normal quantile of the level.

    outcomes: [..., 3], wins, draws and losses in independent games.  level: probability that a bound is not below the
      true score, between 0.5 and 1.
    """
    games = np.maximum(outcomes.sum(-1), 1)
    score, drawn = (outcomes[..., 0] + 0.5 * outcomes[..., 1]) / games, outcomes[..., 1] / games
    k = NormalDist().inv_cdf(level) ** 2 / games
    spread = np.maximum(k * (1 - drawn) + 4 * score * (1 - score) - drawn, 0.0)
    bounds: Array = (2 * score + k + np.sqrt(k * spread)) / (2 * (1 + k))
    return np.where(outcomes.sum(-1) > 0, bounds, 1.0)


def nash_average(payoffs: Array) -> tuple[Array, Array]:
    """Return the Nash equilibrium of the game in which two sides choose players, and each player's payoff against it.

    Both [N] float64: the equilibrium of largest entropy, which counts copies of a player once, and ratings of at most
    0, which are 0 for the players of the equilibrium (Balduzzi et al. 2018, arXiv:1806.02643, section 4).

    payoffs: [N, N], antisymmetric: of i against j, for example the logarithms of odds.

    Raises ConfigError for payoffs that are not antisymmetric.
    """
    if not np.allclose(payoffs, -payoffs.T):
        most = float(np.abs(payoffs + payoffs.T).max())
        raise ConfigError(f"payoffs: expected an antisymmetric matrix, A + A^T = 0; the sum reaches {most:.3g}")
    scaled = payoffs / max(float(np.abs(payoffs).max()), 1e-12)
    share = _largest_entropy(scaled)
    return share, payoffs @ share


def _largest_entropy(payoffs: Array) -> Array:
    """Return the distribution p of largest entropy with payoffs @ p <= 0.

    It is softmax(-payoffs^T y) at the y >= 0 that minimizes the logarithm of the sum of exponentials (the dual
    problem), found by accelerated projected gradients (Nesterov 1983) that start again when the value rises.
    """
    y = ahead = np.zeros(len(payoffs))
    momentum, rate, lowest = 1.0, 1.0 / max(float(np.linalg.norm(payoffs, 2)) ** 2, 1e-12), np.inf
    for _ in range(STEPS):
        new = np.maximum(ahead + rate * (payoffs @ _softmax(-ahead @ payoffs)), 0.0)
        value = _logsumexp(-new @ payoffs)
        if value > lowest:
            momentum, ahead, lowest = 1.0, y, np.inf
            continue
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        ahead, momentum = new + (momentum - 1) / following * (new - y), following
        y, lowest = new, value
        if (payoffs @ _softmax(-y @ payoffs)).max() < FLAT:
            break
    return _softmax(-y @ payoffs)


def _softmax(x: Array) -> Array:
    made: Array = np.exp(x - x.max())
    return made / made.sum()


def _logsumexp(x: Array) -> float:
    return float(x.max() + np.log(np.exp(x - x.max()).sum()))
