"""Laws: the probabilities with which the members of a pool play the next episode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError, did_you_mean, shown
from marltrain.core.layout import Array
from marltrain.core.settings import check_function
from marltrain.rivals.standings import Standing, expected

Law = Callable[[Standing], Array]
"""(members) -> weights [M] of at least 0, in the ratio of the probabilities."""
WEIGHTINGS = ("hard", "even")
CHOICES = ("latest", "uniform", "prioritized", "rating")
ENOUGH = 10
"""Number of games against a member from which on `prioritized` takes its score without change."""


def latest(members: Standing) -> Array:
    """Choose the newest member."""
    weights = np.zeros(len(members.numbers))
    weights[-1] = 1.0
    return weights


def uniform(members: Standing) -> Array:
    """Choose all members with equal probability."""
    return np.ones(len(members.numbers))


def by_rating(members: Standing) -> Array:
    """Prefer members of about the learners' rating: weights p (1 - p), with p the score that Elo ratings predict."""
    score = expected(members.rating - members.ratings)
    return score * (1 - score)


def prioritized(weighting: str, power: float) -> Law:
    """Return prioritized fictitious self-play (Vinyals et al. 2019, Nature 575, "Methods").

    With p the learners' score against a member: "hard" weights members by (1 - p) ** power, "even" by p (1 - p).
    Members have equal weights where all of these are 0. Games missing from the first `ENOUGH` count as draws:
    otherwise a member that lost its first game by chance would never play again.
    """

    def law(members: Standing) -> Array:
        known = np.minimum(members.games / ENOUGH, 1.0)
        p = known * members.scores + (1 - known) * 0.5
        weights: Array = (1 - p) ** power if weighting == "hard" else p * (1 - p)
        return weights if weights.sum() > 1e-12 else np.ones(len(weights))

    return law


def law_name(choose: Any) -> str:
    """Return the name of the argument `choose` of a pool, for comparison; of a function its qualified name."""
    if isinstance(choose, str):
        return choose.replace("ised", "ized")
    return str(getattr(choose, "__qualname__", type(choose).__qualname__))


def law_of(choose: Any, weighting: str, power: float, who: str) -> Law:
    """Return the law of the argument `choose` of a pool: a name of `CHOICES`, also in British spelling, or a function.

    who: name of the pool's class, for messages.  Raises ConfigError for another value.
    """
    if not isinstance(choose, str):
        if not callable(choose):
            raise ConfigError(f"{who}: choose is one of {CHOICES} or a function, got {shown(choose)}")
        check_function(f"{who}: choose", choose, "members")
        law: Law = choose
        return law
    laws = dict(zip(CHOICES, (latest, uniform, prioritized(weighting, power), by_rating), strict=True))
    name = choose.replace("ised", "ized")
    if name not in laws:
        raise ConfigError(f"{who}: no choice {choose!r}.{did_you_mean(name, laws)} Choices: {', '.join(laws)}")
    return laws[name]


def probabilities(law: Law, members: Standing, who: str) -> Array:
    """Return the probability of each member, [M] float64; raises ConfigError for invalid weights."""
    count = len(members.numbers)
    if not count:
        return np.zeros(0)
    weights = np.asarray(law(members), np.float64)
    total = weights.sum()
    if weights.shape != (count,) or not 0 < total < np.inf or weights.min() < 0:
        raise ConfigError(
            f"{who}: choose must return {count} finite weights of at least 0, and not only 0, got {shown(weights)}"
        )
    return weights / total
