"""Replay for an on-policy algorithm with an actor and a critic: settings, checks and priorities.

Rollouts then hold new rows and sequences of earlier ones, as in PPO with prioritized trajectory replay (Liang et al.
2021, arXiv:2112.03798), whose units are trajectories. Earlier rows are learned from as in ACER (Wang et al. 2017,
arXiv:1611.01224) and V-trace (Espeholt et al. 2018, arXiv:1802.01561): with truncated ratios of the present policy to
the one that acted, whose log-probabilities are stored, and with advantages computed anew.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.core.settings import setting
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.memory.config import LONGEST, Replay
from marltrain.policies.memory.needs import Needs

MOST_LOG_RATIO = 20.0
"""Limit of the size of log-ratios in priorities, which are finite then."""
MOST_REPLAYED = 100.0
"""Largest `replay_share`, which detects mistyped settings."""


@dataclass(frozen=True, kw_only=True)
class ReplayedRollouts:
    """Settings of an on-policy algorithm that also learns from earlier rows."""

    memory: Replay | None = setting(
        None, doc="Replay(capacity, prioritized=Prioritized()) of earlier rows; None: each row is learned from once"
    )
    replay_share: float = setting(0.5, doc="earlier rows in an update for each new row, drawn from the memory", above=0,
                                  high=MOST_REPLAYED)  # fmt: skip
    sequence_length: int = setting(16, doc="decisions of a replayed sequence", low=1, high=LONGEST)
    replay_truncation: float | Schedule = setting(
        2.0, doc="largest ratio of the policy to the one that acted with which an earlier row, or one of a rollout "
        "that lags, enters an update", low=1, per_row=True,
    )  # fmt: skip
    priority_lambda: float | Schedule = setting(
        0.5, doc="lambda of the priorities lambda |TD error| + (1 - lambda) |ratio - 1|", low=0, high=1, per_row=True
    )


def check_replay(settings: ReplayedRollouts, name: str) -> None:
    """Raise ConfigError for a memory without priorities or with parts that rollouts do not have.

    Also for other settings of the replay without a memory, except `replay_truncation`, which rollouts that lag have.
    """
    memory = settings.memory
    if memory is None:
        for f in fields(ReplayedRollouts):
            if f.name != "replay_truncation" and (value := getattr(settings, f.name)) != f.default:
                raise ConfigError(
                    f"{name}: {f.name}={value!r} has no effect without a replay memory: leave it out, or give "
                    "memory=marltrain.Replay(prioritized=marltrain.Prioritized())"
                )
        return
    if memory.prioritized is None:
        raise ConfigError(
            f"{name}: memory=Replay(...) of rollouts draws by priorities: add prioritized=marltrain.Prioritized(); "
            "alpha=0 draws uniformly"
        )
    unused = {
        "Replay(n_step)": memory.n_step not in (None, 1),
        "Replay(hindsight)": memory.hindsight is not None,
        "Replay(triplets)": memory.triplets is not None,
        "Prioritized(initial)": memory.prioritized.initial is not None,
    }
    for what, given in unused.items():
        if given:
            raise ConfigError(
                f"{name}: {what} has no effect on the replay of rollouts, whose advantages sum rewards by gae_lambda "
                "and whose rows get their first priority from their own errors: leave it out"
            )


def replay_needs(settings: ReplayedRollouts, needs: Needs) -> Needs:
    """Return the needs of a learner with the memory of `settings`, if there is one."""
    if settings.memory is None:
        return needs
    replay = settings.memory.filled()
    return replace(
        needs, capacity=replay.capacity or 0, sequence=settings.sequence_length, replay=replay,
        replay_share=settings.replay_share,
    )  # fmt: skip


def row_sizes(td_error: Array, log_ratio: Array, lam: Array) -> Array:
    """Return lambda |TD error| + (1 - lambda) |ratio - 1|, [K, B].

    td_error, log_ratio: [K, B]; the latter of the policy to the one that acted.  lam: lambda, [K, 1].
    """
    ratio = np.exp(np.clip(log_ratio, -MOST_LOG_RATIO, MOST_LOG_RATIO))
    sizes: Array = lam * np.abs(td_error) + (1 - lam) * np.abs(ratio - 1)
    return sizes


def truncated(log_prob: Array, log_ratio: Array, limit: Any) -> Array:
    """Return the larger of log mu(a|s) and log pi(a|s) - log(limit), by which ratios begin at most at `limit`.

    log_prob: log mu, of the policy that acted.  log_ratio: log pi - log mu, of the present one.  [K, B] each.
    limit: [K, 1].
    """
    result: Array = log_prob + np.maximum(log_ratio - np.log(limit), 0.0)
    return result.astype(np.float32)
