"""The data that a learner requires of the memory: columns, capacity, sequences, the global state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from marltrain.policies.memory.config import Replay


@dataclass(frozen=True)
class Column:
    """Shape (without leading axes) and dtype of one value stored with each decision."""

    shape: tuple[int, ...] = ()
    dtype: str = "float32"


@dataclass(frozen=True)
class StateNeed:
    """The global state that a learner reads.

    kind: "state": the environment's own state, or "observations" if it has none. "observations": the observations of
        all players, joined.
    size: number of values S.
    """

    kind: str
    size: int


@dataclass(frozen=True)
class Needs:
    """The data that a learner requires.

    on_policy: True: rollouts that hold each row once. False: samples from the last `capacity` env steps.
    columns: extras to store with each decision ("log_prob", "raw", "value").
    capacity: env steps that must stay readable for samples.
    n_step: rewards summed before bootstrapping (off-policy).
    sequence: consecutive decisions of a sampled sequence; 0: samples are transitions. On-policy, sequences are drawn
        in addition to the rollouts (see `UpdateSchedule.replay_ratio`).
    replay: the complete description of a replay memory, with priorities; None: uniform samples. On-policy, rollouts
        then also hold sequences of earlier rows.
    replay_share: rows of these sequences for each new row of a rollout.
    block: batches hold a multiple of so many rows, for recurrent networks; see `interface.recurrence`. 0: any number.
    burn_in: rows of each block that come before those that are learned from (off-policy); they have weight 0.
    state: the global state of the batches, see `memory.states`; None: batches without one.
    shared: rollouts of an agent also hold the rows of the learner's other agents; see `Rollout.own`.
    joint_actions: number of values of the joint actions in batches, see `Rollout.others` and `TeamBatch.others`; 0:
        batches without them.
    reservoir: decisions of a player that its reservoir holds, see `memory.reservoir`; 0: none. Acts offer decisions by
        the extra "reservoir_key", and batches are `ReservoirTransitions`.
    identity: names of the players whose one-hot is added to observations; see `batches.player_one_hot`.
    """

    on_policy: bool
    columns: Mapping[str, Column] = field(default_factory=dict)
    capacity: int = 0
    n_step: int = 1
    sequence: int = 0
    replay: Replay | None = None
    state: StateNeed | None = None
    shared: bool = False
    replay_share: float = 0.0
    joint_actions: int = 0
    identity: tuple[str, ...] = ()
    block: int = 0
    burn_in: int = 0
    reservoir: int = 0

    @classmethod
    def of(cls, replay: Replay) -> Needs:
        """Return the needs of a learner with a replay memory, whose own values are filled in."""
        return cls(on_policy=False, capacity=replay.capacity or 0, n_step=replay.n_step or 1, replay=replay)
