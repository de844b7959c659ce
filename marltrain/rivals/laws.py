"""Laws: the probabilities with which the members of a pool play the next episode."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from marltrain.core.layout import Array
from marltrain.rivals.standings import Standing, expected

Law = Callable[[Standing], Array]
"""(members) -> weights [M] of at least 0, in the ratio of the probabilities."""
WEIGHTINGS = ("hard", "even")


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
    Members have equal weights where all of these are 0.
    """

    def law(members: Standing) -> Array:
        p = members.scores
        weights: Array = (1 - p) ** power if weighting == "hard" else p * (1 - p)
        return weights if weights.sum() > 1e-12 else np.ones(len(weights))

    return law
