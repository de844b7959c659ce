"""Data exchanged between trainer, memory and learners: decisions, batches, saved states.

All arrays are numpy arrays; the learners convert them to tensors of their framework.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np

from marltrain.core.layout import Array, Obs, map_tree
from marltrain.storage.state import State


@dataclass
class ActInputs:
    """Inputs of an act of K agents, B rows each; inside `Algorithm.act` the arrays are tensors of its framework.

    obs: [K, B, *O].  legal: [K, B, A] bool, or None: all actions are legal.
    explore: [K, B] bool, the rows that explore.
    carry: the `Acted.carry` of the previous decisions, or None at the start. Algorithms get name -> [K, B, ...], the
        columns of `Algorithm.carry`, 0 at the start.
    noise: random numbers by name, the result of `Algorithm.noise`.  hyper: name -> [K, 1], the agents' settings.
    training: whether the decisions belong to training episodes; False in tests and outside of runs.
    member: [K, B] int64, number of the member that plays the row's episode, for a set of policies (`MixedAgent`).
    """

    obs: Any
    legal: Any
    explore: Any
    carry: Any = None
    noise: Mapping[str, Any] = field(default_factory=dict)
    hyper: Mapping[str, Any] = field(default_factory=dict)
    training: bool = False
    member: Any = None

    def evaluate(self, nets: Mapping[str, Any], network: str, *vectors: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the outputs of a network, and its next carry by its name; no carry if it is not recurrent.

        vectors: its inputs beside the observations.
        """
        memory = (self.carry[network],) if network in self.carry else ()
        outputs = list(nets[network](self.obs, *vectors, *memory))
        return outputs, {network: outputs.pop()} if memory else {}


@dataclass
class Acted:
    """Decisions.

    action: [..., *action_shape].  carry: the next recurrent state or None.  extras: name -> [..., *column shape].
    """

    action: Array
    carry: Any = None
    extras: dict[str, Array] = field(default_factory=dict)


@dataclass
class Batch:
    """Rows to learn from, [K, B, ...] for K agents; rows with weight 0 are padding.

    obs, legal: observations and legal actions at the decision.  action, extras: the decision.
    weight: [K, B] float32.
    reward: [K, B] float32, the discounted sum over the n steps of a transition.
    discount: [K, B] float32, factor of the next value: gamma to the power of n, or 0 after termination.
    state: [K, B, S] float32, the global state at the decision; None unless `Needs.state` asks for it.

    loss_columns: the columns that losses get, beside the weights of a minibatch; `Algorithm.prepare` gets all columns.
    """

    loss_columns: ClassVar[tuple[str, ...]]

    obs: Obs
    legal: Array | None
    action: Array
    reward: Array
    discount: Array
    weight: Array
    extras: dict[str, Array]
    state: Array | None = field(default=None, kw_only=True)

    @property
    def fresh_weight(self) -> Array:
        """The weights [K, B] of the rows, 0 for those that are replayed beside new ones."""
        return self.weight


@dataclass
class Transitions(Batch):
    """An off-policy batch.

    next_obs, next_legal, next_state: at the decision or end whose value `discount` multiplies.
    cells: [K, B] int64, the rows' cells in the ring (see `memory.ring`).
    rows: [K, B] int64, numbers of the rows, by which priorities are set; None without priorities.
    errors: [K, B] float32, sizes of the rows' errors, which an update sets if `rows` is not None.
    effective: [K] float64, effective sample size of the law by which the rows were drawn, as a share of the rows that
        could be drawn, see `Chosen`; None for uniform draws.
    """

    loss_columns: ClassVar[tuple[str, ...]] = (
        "obs", "legal", "action", "reward", "discount", "extras", "next_obs", "next_legal", "state", "next_state",
    )  # fmt: skip

    next_obs: Obs
    next_legal: Array | None
    cells: Array
    rows: Array | None = None
    errors: Array | None = None
    next_state: Array | None = None
    effective: Array | None = None


@dataclass(kw_only=True)
class TripletTransitions(Transitions):
    """Transitions that begin at rows i, with rows k and j of the same episode, i < k < j; see `Triplets`.

    The goals of rows k and j are put in the place of the desired goal. `obs` and `next_obs` keep their own goals.

    goal_obs: [K, B, ...], the observation of row i with the goal of j.
    near_obs: [K, B, ...], the observation of row i with the goal of k.
    far_obs, far_legal, far_action: [K, B, ...], observation with the goal of j, legal actions and action of row k.
    near_offset, offset: [K, B] float32, the player's decisions from i to k and from i to j. A pair without a row in
        between, offset 1, has k = i and near_offset 0.
    """

    added: ClassVar[tuple[str, ...]] = (
        "goal_obs", "near_obs", "far_obs", "far_legal", "far_action", "near_offset", "offset"
    )  # fmt: skip
    loss_columns = (*Transitions.loss_columns, *added)

    goal_obs: Obs
    near_obs: Obs
    far_obs: Obs
    far_legal: Array | None
    far_action: Array
    near_offset: Array
    offset: Array


@dataclass(kw_only=True)
class ReservoirTransitions(Transitions):
    """Transitions, and beside them as many decisions from the agents' reservoirs; see `memory.reservoir`.

    kept_obs, kept_legal, kept_action: [K, B, ...], the decisions.
    kept_weight: [K, B] float32, 1 / B; 0 for an agent whose reservoir is empty.
    """

    loss_columns = (*Transitions.loss_columns, "kept_obs", "kept_legal", "kept_action", "kept_weight")

    kept_obs: Obs
    kept_legal: Array | None
    kept_action: Array
    kept_weight: Array


@dataclass(kw_only=True)
class SequenceTransitions(Transitions):
    """Transitions of one step in sequences, one in each block: each row follows the one before it, unless it begins.

    begins: [K, B] bool, True at the first row of each sequence, and in padding. The weight is 0 in padding, and in the
        rows of a burn-in (`Needs.burn_in`).
    """

    loss_columns = (*Transitions.loss_columns, "begins")

    begins: Array


@dataclass
class Rollout(Batch):
    """Consecutive decisions: the rows that were closed since the last rollout, or sampled sequences.

    The rows of a rollout are ordered by player, then environment, then time; those of sequences, one after another.
    A rollout from a replay memory has an agent's new rows first, and then sequences of earlier ones.

    cut: [K, B] bool, True if the trace ends after this row: termination, truncation or end of the rollout.
    truncated: [K, B] bool, True if a limit ended this player's part.
    boot: [K, B] int64. If `boot[k, i] == -1`, row i + 1 is the next decision of row i. Otherwise it is the index into
    `boot_obs` of the observation after row i.
    boot_obs, boot_legal: [K, M, ...], observations for bootstrapping: those of open decisions and final observations.
    boot_state: [K, M, S] float32, the global states of the same moments; None without `state`.
    others: [K, B, J] float32, the actions of the other players at the same batch step, see `memory.joint_actions`; None
        unless `Needs.joint_actions` asks for them.
    own: [K, B] bool, the agent's own decisions; None unless `Needs.shared` asks for those of others.
    fresh: [K, B] bool, False for replayed rows; None: no row is replayed.
    lag: [K, B] float32, updates made since the weights that acted, at most; None: the rollout is by the newest ones.
    rows, errors: see `Transitions`; a row may stand in several sequences.
    """

    loss_columns = ("obs", "legal", "action", "state", "others")

    cut: Array
    truncated: Array
    boot: Array
    boot_obs: Obs
    boot_legal: Array | None
    boot_state: Array | None = None
    others: Array | None = None
    own: Array | None = None
    fresh: Array | None = None
    lag: Array | None = None
    rows: Array | None = None
    errors: Array | None = None

    @property
    def begins(self) -> Array:
        """Whether a row does not follow the one before it, [K, B] bool."""
        return np.concatenate([np.ones_like(self.cut[:, :1]), self.cut[:, :-1]], 1)

    @property
    def fresh_weight(self) -> Array:
        """See `Batch`."""
        return self.weight if self.fresh is None else self.weight * self.fresh


@dataclass(kw_only=True)
class TeamRows(Transitions):
    """The rows of a team's agents with equal spaces, at the batch steps of a `TeamBatch`.

    K agents have S seats each; the rows are ordered by seat, then batch step: [K, S * B, ...]. A row has weight 1 if
    the player acted, its seat learns from the decision and the outcome is known, else 0.

    present: [K, S * B] bool, whether the player acted at the batch step. Where it is False, `obs` is 0, all actions
        are `legal`, and the other columns are arbitrary.
    next_present: [K, S * B] bool, whether the player has a value after the batch step: it acts again, or its part of
        the episode was truncated. Where it is False, `next_obs` is 0, and all actions are `next_legal`.
    learned: [K, S * B] bool, whether the agent may learn from the decision: the seat learned when it was made, and
        learns now. None: from all decisions of players that are present. The values of other decisions enter a mixture
        without a gradient.
    begins: [K, S * B] bool, whether the row does not follow the one before it; None without sequences.
    """

    loss_columns = (*Transitions.loss_columns, "present", "next_present", "learned")

    present: Array
    next_present: Array
    learned: Array | None = None
    begins: Array | None = None


@dataclass
class TeamBatch:
    """Batch steps at which a team acted, B of them, drawn from the memory.

    members: the rows of the agents; agents with equal spaces are one member of the team.
    reward: [1, B] float32, the reward of the team; 0 where its players have rewards of their own.
    discount: [1, B] float32, factor of the team's next value: 0 if no player has a value after the batch step.
    weight: [1, B] float32.
    state, next_state: [1, B, S] float32, the global states; None unless `Needs.state` asks for them.
    others, next_others: [1, B, J] float32, the actions of the environment's other players, at the batch step and at the
        next one; None if there are no other players, or unless `Needs.joint_actions` asks for them.
    """

    members: list[TeamRows]
    reward: Array
    discount: Array
    weight: Array
    state: Array | None = None
    next_state: Array | None = None
    others: Array | None = None
    next_others: Array | None = None


@dataclass(kw_only=True)
class TeamRollout(TeamBatch):
    """The batch steps of a team that ended since the last rollout, ordered by environment, then time.

    cut: [1, B] bool, True if the trace ends after this batch step: it ends the episode, or the batch step after it is
        not in the rollout.
    """

    cut: Array


def map_batch(function: Callable[[Array], Array], batch: Any) -> Any:
    """Return a batch, or a team's batch, with a function applied to every array, also those within its mappings."""
    result = {}
    for held in fields(batch):
        value = getattr(batch, held.name)
        if isinstance(value, list):
            result[held.name] = [map_batch(function, part) for part in value]
        else:
            result[held.name] = map_tree(function, value)
    return replace(batch, **result)


@dataclass
class AgentState(State):
    """The complete state of one agent: JSON values in `info`, named numpy arrays in `arrays`."""


@dataclass
class Experience:
    """B transitions for `Agent.observe`, in the environment's own structure.

    Rows are ordered by player, then environment, then time.

    observation, next_observation: in the environment's format with a leading axis B, without "action_mask".
    legal, next_legal: [B, A] bool or None.  action: [B, ...].  reward: [B] float32.
    terminated, truncated: [B] bool.
    """

    observation: Any
    legal: Array | None
    action: Array
    reward: Array
    next_observation: Any
    next_legal: Array | None
    terminated: Array
    truncated: Array
