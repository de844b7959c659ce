"""Specifications of environments and players, and the arrays of one batch step.

Axis letters, used in all docstrings: E environments, P players (of a group), K agents of a learner, T time,
C capacity of a ring, B rows of a batch, N n-step length, O... observation axes, A discrete actions or action
dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import SpecError
from marltrain.core.layout import Allocate, Array, Layout, Obs, Space, map_tree
from marltrain.core.legal import Legal
from marltrain.core.spaces import check_actions, describe_space

LONE_PLAYER = "player_0"
"""Name of the only player of a Gymnasium environment."""
MOST_STATE = 2**18
"""Largest number of values of a global state that agents read: 1 MiB for each env step of a memory."""
BY_ENV = frozenset({"state", "final_state", "ended", "episode"})
"""Arrays of a Step whose first axis is the environment; in other arrays it is the second."""


@dataclass(frozen=True, eq=False)
class PlayerSpec:
    """One player: its name and its spaces.

    layout: the arrays of its observations (without "action_mask").
    masked: whether the environment provides a mask of legal actions.
    key: the environment's own name of the player, where it is no text, such as 0; None: `name`.
    declared: the action space as the environment declares it, if agents act in the MultiDiscrete space of its choices.
    """

    name: str
    observation_space: Space
    action_space: Space
    layout: Layout
    masked: bool = False
    key: Any = None
    declared: Space | None = None

    @cached_property
    def kind(self) -> str:
        """Text that is equal for players with equal spaces, frame stacks and masks; they form one group."""
        sides = describe_space(self.observation_space), describe_space(self.action_space)
        return repr((*sides, self.layout.stack, self.masked))

    @property
    def parts(self) -> tuple[Any, ...]:
        """The named parts of the observation; see `layout.Part`."""
        return self.layout.parts


@dataclass(frozen=True, eq=False)
class Group:
    """Players with equal spaces, computed together; players: their indices in spec order."""

    players: tuple[int, ...]
    layout: Layout
    action_space: Space
    masked: bool

    @property
    def size(self) -> int:
        """P, the number of players."""
        return len(self.players)

    @cached_property
    def action_shape(self) -> tuple[int, ...]:
        """Shape of an action: () for Discrete, [D] for MultiDiscrete, [A] for Box (flattened)."""
        if isinstance(self.action_space, spaces.Discrete):
            return ()
        return (int(np.prod(self.action_space.shape or (), dtype=int)),)

    @property
    def action_dtype(self) -> type:
        """Dtype of actions: np.float32 for Box, np.int64 otherwise."""
        return np.float32 if isinstance(self.action_space, spaces.Box) else np.int64


def check_action_space(space: Space, player: str) -> None:
    """Raise SpecError unless the space is Discrete, MultiDiscrete or a floating Box, neither empty nor too large.

    MultiBinary spaces and Boxes of integers are MultiDiscrete spaces here: see `as_choices`.
    """
    try:
        check_actions(space)
    except SpecError as error:
        raise SpecError(f"player {player!r}: {error}") from None
    floating = isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating)
    if isinstance(space, spaces.Dict | spaces.Tuple):
        raise SpecError(
            f"player {player!r}: action space {space} holds several actions at once, and an agent has one: join them, "
            "by a gymnasium.ActionWrapper, in one MultiDiscrete (choices, or steps of continuous parts) or one Box "
            "(numbers). If its entries are the actions of players, make the observation space of the same kind, with "
            "one entry for each player"
        )
    if not floating and not isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        raise SpecError(
            f"player {player!r}: action space {space} is not one of Discrete, MultiDiscrete, MultiBinary and Box of "
            "numbers. Wrap the environment to take one of them, by a gymnasium.ActionWrapper"
        )


@dataclass(frozen=True, eq=False)
class EnvSpec:
    """Specification of an environment: its players in order, and their groups.

    state_shape: shape of the flattened global state for central critics, or None.
    turn_based: whether players move one after another.
    reproducible: whether equal seeds and actions give equal episodes; runs record this.
    """

    name: str
    players: tuple[PlayerSpec, ...]
    groups: tuple[Group, ...]
    state_shape: tuple[int, ...] | None = None
    turn_based: bool = False
    reproducible: bool = True

    @classmethod
    def of(cls, name: str, players: Sequence[PlayerSpec], **rest: Any) -> EnvSpec:
        """Return the spec of these players; groups are formed by equal kind, in order of first appearance."""
        kinds: dict[str, list[int]] = {}
        for i, player in enumerate(players):
            check_action_space(player.action_space, player.name)
            kinds.setdefault(player.kind, []).append(i)
        groups = tuple(
            Group(tuple(seats), players[seats[0]].layout, players[seats[0]].action_space, players[seats[0]].masked)
            for seats in kinds.values()
        )
        return cls(name, tuple(players), groups, **rest)

    @cached_property
    def place(self) -> tuple[tuple[int, int], ...]:
        """The (group, row within the group) of each player."""
        where = {p: (g, row) for g, group in enumerate(self.groups) for row, p in enumerate(group.players)}
        return tuple(where[p] for p in range(len(self.players)))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The players' names in order."""
        return tuple(player.name for player in self.players)

    @cached_property
    def keys(self) -> tuple[Any, ...]:
        """The environment's own names of the players, in order; they may be no text."""
        return tuple(player.name if player.key is None else player.key for player in self.players)


@dataclass(eq=False)
class Step:
    """One step of E environments: views into arrays that the vector environment owns and overwrites.

    A finished environment restarts at once: `reward, terminated, truncated, final_*, ended` belong to the episode of
    the last actions, and `obs, legal, turn, alive, state` to the episode that runs now.

    obs, legal: per group [P, E, *O] and [P, E, A] bool or None: observations and legal actions (see
      `marltrain.core.legal`); valid where `turn`.
    turn, alive: per group [P, E] bool: whether the player must act now; whether it takes part in the episode.
    reward: [P, E] float32, all players in spec order: rewards since the previous Step, after any player's move.
    terminated, truncated: [P, E] bool, all players: true in one Step only, when the player's part of the episode ends.
    final_obs, final_legal: per group, of players whose part has just ended; valid where `terminated` or `truncated`.
    state, final_state: [E, S] float32 or None: the global state now, and at the end of the finished episode. The latter
      may be zeros if no player was truncated.
    ended: [E] bool: the environment's episode ended in this Step.  episode: [E] int64: number of the running episode.
    start_reward: [P, E] float32, all players: rewards at the start of the running episode, before any move. They count
      for the player's return, but for no transition. Only turn-based Python environments give such rewards.
    """

    obs: tuple[Obs, ...]
    legal: tuple[Array | None, ...]
    turn: tuple[Array, ...]
    alive: tuple[Array, ...]
    reward: Array
    terminated: Array
    truncated: Array
    final_obs: tuple[Obs, ...]
    final_legal: tuple[Array | None, ...]
    state: Array | None
    final_state: Array | None
    ended: Array
    episode: Array
    start_reward: Array

    @classmethod
    def empty(cls, spec: EnvSpec, num_envs: int, allocate: Allocate = np.zeros) -> Step:
        """Allocate the arrays for `num_envs` environments; `allocate(shape, dtype)` may use shared memory."""

        def legal() -> tuple[Array | None, ...]:
            return tuple(allocate((g.size, num_envs, _choices(g)), bool) if g.masked else None for g in spec.groups)

        def obs() -> tuple[Obs, ...]:
            return tuple(g.layout.empty((g.size, num_envs), allocate) for g in spec.groups)

        def flags() -> tuple[Array, ...]:
            return tuple(allocate((g.size, num_envs), bool) for g in spec.groups)

        def state() -> Array | None:
            return None if spec.state_shape is None else allocate((num_envs, *spec.state_shape), np.float32)

        per_player = (len(spec.players), num_envs)
        return cls(
            obs(), legal(), flags(), flags(),
            allocate(per_player, np.float32), allocate(per_player, bool), allocate(per_player, bool),
            obs(), legal(), state(), state(), allocate((num_envs,), bool), allocate((num_envs,), np.int64),
            allocate(per_player, np.float32),
        )  # fmt: skip

    def arrays(self) -> dict[str, Array]:
        """Return the arrays by name: "reward", "turn/<group>", "obs/<group>" or "obs/<group>/<part>"."""
        named: dict[str, Array] = {}

        def add(name: str, value: Any) -> None:
            inner = enumerate(value) if isinstance(value, tuple) else value.items() if isinstance(value, dict) else None
            if inner is not None:
                for key, part in inner:
                    add(f"{name}/{key}", part)
            elif value is not None:
                named[name] = value

        for f in fields(self):
            add(f.name, getattr(self, f.name))
        return named

    def part(self, low: int, high: int) -> Step:
        """Return views of environments `low` to `high` (exclusive), for a worker that owns them."""

        def cut(value: Any, axis: int) -> Any:
            if value is None:
                return None
            if isinstance(value, tuple):
                return tuple(cut(inner, axis) for inner in value)
            return map_tree(lambda array: array[low:high] if axis == 0 else array[:, low:high], value)

        return Step(**{f.name: cut(getattr(self, f.name), 0 if f.name in BY_ENV else 1) for f in fields(self)})


def _choices(group: Group) -> int:
    """Return A, the number of entries of a mask of legal actions."""
    width = Legal(group.action_space).width
    if not width:
        raise SpecError(
            f"legal moves are given for action space {group.action_space}; only Discrete and MultiDiscrete actions can "
            "be masked"
        )
    return width


def empty_actions(spec: EnvSpec, num_envs: int, allocate: Allocate = np.zeros) -> tuple[Array, ...]:
    """Allocate one array of actions per group: [P, E] int64, [P, E, D] int64 or [P, E, A] float32.

    Discrete actions count from 0 in these arrays; the `start` of their space is added when an environment is stepped.
    """
    return tuple(allocate((g.size, num_envs, *g.action_shape), g.action_dtype) for g in spec.groups)
