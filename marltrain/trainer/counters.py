"""Counters of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counters:
    """Counts of a run so far.

    episodes: finished training episodes.  env_steps: steps of training environments.
    updates: updates of the learner that has made most.  gradient_steps: gradient passes of all learners.
    dropped_steps: env steps of episodes that were dropped because of faults.
    """

    episodes: int = 0
    env_steps: int = 0
    updates: int = 0
    gradient_steps: int = 0
    dropped_steps: int = 0
