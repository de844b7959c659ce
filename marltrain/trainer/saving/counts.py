"""Checks of the counters in a checkpoint: their ranges and their consistency."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from marltrain.core.errors import SaveError
from marltrain.core.layout import Array
from marltrain.core.spec import EnvSpec
from marltrain.policies.agents.agent import Agent
from marltrain.storage.checks import finite, of_type, within
from marltrain.storage.state import State
from marltrain.trainer.events.counters import Counters
from marltrain.trainer.reporting.history import History
from marltrain.trainer.seats.masks import as_mask, check_learners

LONGEST = 10**12
"""Maximum duration of a run, in seconds."""


@dataclass(frozen=True)
class Counted:
    """Counters of a `Run` at the time of a checkpoint; see `Run`.

    returns: [P, E] float64 and lengths: [E] int64 of the running episodes.
    """

    counters: Counters
    tested_at: tuple[int, int]
    gradient_base: int
    trained: int
    seconds: float
    returns: Array
    lengths: Array


def counted(state: State, told: Mapping[str, Any], players: int, num_envs: int) -> Counted:
    """Return the counters of a checkpoint; raises SaveError for impossible values.

    told: the manifest.  players, num_envs: number of players and of environments.
    """
    counters = _counters(state.part("counters"), told)
    seconds = state.value("seconds", float)
    if not 0 <= seconds <= LONGEST:
        raise SaveError(f"seconds must be from 0 to {LONGEST}, got {seconds}")
    tested_at = state.values("tested_at", int)
    if len(tested_at) != 2:
        raise SaveError(f"tested_at must be (episodes, env steps), got {tested_at!r:.80}")
    within("tested_at", np.array(tested_at), -1, (counters.episodes, counters.env_steps))
    lengths = state.array("lengths", np.int64, (num_envs,))
    base = state.count("gradient_base", -counters.gradient_steps)  # negative if other agents learned before
    return Counted(
        counters, (tested_at[0], tested_at[1]), base, state.count("trained", 1), seconds,
        finite(state.place("returns"), state.array("returns", np.float64, (players, num_envs))),
        within(state.place("lengths"), lengths, 0, counters.env_steps // num_envs),
    )  # fmt: skip


def saved_masks(state: State, name: str, spec: EnvSpec, agents: Sequence[Agent]) -> Array:
    """Return the saved masks (learning, exploring), [2, P] bool; raises SaveError or MaskError for invalid masks."""
    saved = state.array(name, bool, (2, len(spec.players)))
    check_learners(spec, agents, as_mask(saved[0], spec, name, saved[0], some=True))
    return saved


def _counters(state: State, told: Mapping[str, Any]) -> Counters:
    """Return the counters; raises SaveError if env_steps or episodes differ from the manifest."""
    names = [field.name for field in fields(Counters)]
    if set(state.info) != set(names):
        raise SaveError(f"{state.name} holds {', '.join(state.info)}; expected {', '.join(names)}")
    for name in ("env_steps", "episodes"):
        if of_type(f"the manifest's {name}", told[name], int) != state.count(name):
            raise SaveError(f"{state.place(name)} is {state.info[name]}, and the manifest says {told[name]}")
    return Counters(**{name: state.count(name) for name in names})


def check_tables(history: History, tests: int, episodes: int) -> None:
    """Raise SaveError unless the tables hold one row per test and one row per finished episode."""
    for what, rows, count in (("tests", history.num_tests, tests), ("episodes", history.num_episodes, episodes)):
        if rows != count:
            raise SaveError(f"history/{what} has {rows} rows, and {count} {what} are counted")
