"""Counters of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counters:
    """What has been done so far in this run."""

    episodes: int = 0
    env_steps: int = 0
    updates: int = 0
    gradient_steps: int = 0
    dropped_steps: int = 0
