"""Ranking of candidates by interquartile means over seeds (Agarwal et al. 2021, arXiv:2108.13264)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from marltrain.core.layout import Array
from marltrain.core.seeds import generator
from marltrain.tools.statistics import interquartile_means

RESAMPLES = 2_000
LEVEL = 0.95
FEWEST = 2
"""Least number of seeds of an interval."""


@dataclass(frozen=True, eq=False)
class Ranking:
    """C candidates, by scores over seeds; larger is better.

    order: [C] int64, the candidates from the best to the worst.  score, low, high: [C] float64, interquartile means
        and their 95 % bootstrap intervals over seeds.  first: [C] float64, the share of resamples in which a candidate
        ranks first; nan with fewer than 2 scores of a candidate.
    """

    order: Array
    score: Array
    low: Array
    high: Array
    first: Array


def interquartile_mean(scores: Array) -> Array:
    """Return the interquartile means over the last axis of scores [..., S]; infinite if an infinite score is left."""
    rows = scores.reshape(-1, scores.shape[-1])
    return interquartile_means(rows.T[:, None]).reshape(scores.shape[:-1])


def ranked(scores: Sequence[Sequence[float] | Array]) -> Ranking:
    """Rank candidates by their scores [C][S], one for each seed; -inf for a training that failed.

    The intervals are percentile intervals of the bootstrap over seeds. Candidates of equally many scores have equal
    seeds, in equal order, and are resampled together. With fewer than 2 scores of a candidate, its bounds are
    infinite, and `first` is nan.
    """
    rng = generator(0, "bootstrap")
    arrays = [np.asarray(own, float) for own in scores]
    counts = [len(values) for values in arrays]
    paired = len(set(counts)) == 1
    picks = rng.integers(counts[0], size=(RESAMPLES, counts[0]))
    resampled = np.empty((RESAMPLES, len(arrays)))
    for c, values in enumerate(arrays):
        drawn = picks if paired else rng.integers(len(values), size=(RESAMPLES, len(values)))
        resampled[:, c] = interquartile_mean(values[drawn])
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0, method="inverted_cdf")
    single = np.array(counts) < FEWEST
    low[single], high[single] = -np.inf, np.inf
    best = resampled == resampled.max(1, keepdims=True)
    first = np.full(len(arrays), np.nan) if single.any() else (best / best.sum(1, keepdims=True)).mean(0)
    score = np.array([interquartile_mean(values) for values in arrays])
    return Ranking(np.argsort(-score, kind="stable"), score, low, high, first)


def interval_of_best(ranking: Ranking, values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the best candidate's value: the values of those that rank first in resamples.

    None without resamples, with fewer than 2 seeds.
    """
    if np.isnan(ranking.first).any():
        return None
    order = np.argsort(np.asarray(values, float))
    shares = np.cumsum(ranking.first[order])
    low, high = (int(np.searchsorted(shares, share)) for share in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    last = len(order) - 1
    return float(values[order[min(low, last)]]), float(values[order[min(high, last)]])
