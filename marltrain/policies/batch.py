"""Data exchanged between trainer, memory and learners: decisions, needs, batches, saved states.

Everything is numpy; a learner turns it into its framework's tensors at its own border.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from marltrain.files import State
from marltrain.layout import Array, Obs


@dataclass(frozen=True)
class Column:
    """One value kept beside each decision: its shape (without leading axes) and dtype."""

    shape: tuple[int, ...] = ()
    dtype: str = "float32"


@dataclass(frozen=True)
class Needs:
    """What a learner must be given to learn.

    on_policy: it learns each row once, a whole rollout at a time; otherwise it samples from the last `capacity`.
    columns: extras of each decision to keep ("log_prob", "raw", "value").
    capacity: env steps that must stay readable (off-policy; ignored on-policy).
    n_step: rewards summed before bootstrapping (off-policy).
    joint: one index for all players of the learner, with the global state.
    """

    on_policy: bool
    columns: Mapping[str, Column] = field(default_factory=dict)
    capacity: int = 0
    n_step: int = 1
    joint: bool = False


@dataclass
class Acted:
    """Decisions: action [..., *action_shape], the next recurrent carry or None, extras [..., *column shape]."""

    action: Array
    carry: Any = None
    extras: dict[str, Array] = field(default_factory=dict)


@dataclass
class Batch:
    """Rows to learn from, [K, B, ...] for K agents; rows with weight 0 are padding.

    obs, legal: at the decision.  action, extras: what was decided.
    weight: [K, B] float32.
    reward: [K, B] float32; summed and discounted over the n steps of a transition.
    discount: [K, B] float32: factor on what follows: gamma (to the n-th) where it goes on, 0 where it terminated.
    """

    obs: Obs
    legal: Array | None
    action: Array
    reward: Array
    discount: Array
    weight: Array
    extras: dict[str, Array]


@dataclass
class Transitions(Batch):
    """An off-policy batch.

    next_obs, next_legal: at the decision (or the end) that the discount applies to.
    cells: [K, B] int64: their places in the ring (see `memory.ring`), for priorities.
    """

    next_obs: Obs
    next_legal: Array | None
    cells: Array


@dataclass
class Rollout(Batch):
    """An on-policy batch: the rows that became whole since the last one, each player's in order of time.

    Rows run player by player, environment by environment, forward in time; `boot[k, i] == -1` says that row i + 1
    is row i's next decision, any other value is the place in `boot_obs` of what followed row i.

    cut: [K, B] bool: the trace ends here (an end of either kind, or the end of the rollout).
    truncated: [K, B] bool: this player's part was ended by a limit.
    boot: [K, B] int64.
    boot_obs, boot_legal: [K, M, ...]: observations to bootstrap from: open decisions and final observations.
    """

    cut: Array
    truncated: Array
    boot: Array
    boot_obs: Obs
    boot_legal: Array | None


@dataclass
class AgentState(State):
    """Everything one agent is: plain JSON values in `info`, named numpy arrays in `arrays`."""


@dataclass
class Experience:
    """What a user's own agent is given to learn from: B transitions, in the environment's own structure.

    observation, next_observation: as the environment gives them, with a leading axis B (less "action_mask").
    legal, next_legal: [B, A] bool or None.  action: [B, ...].  reward: [B] float32.
    terminated, truncated: [B] bool.  Rows run player by player, environment by environment, forward in time.
    """

    observation: Any
    legal: Array | None
    action: Array
    reward: Array
    next_observation: Any
    next_legal: Array | None
    terminated: Array
    truncated: Array
