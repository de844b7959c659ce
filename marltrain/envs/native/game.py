"""`Game`: the declaration of a native game. Its rules are plain functions of one environment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array, Layout, Space
from marltrain.core.spaces import without_mask
from marltrain.core.spec import LONE_PLAYER, EnvSpec, PlayerSpec
from marltrain.envs.native.bounds import COUNT, Bounds, bounds_of

TERMINATED, TRUNCATED = 1, 2
"""Values of `s.over[p]` for a player that is terminated or truncated in this step. 0: the player continues."""
_NOT_SAVED = ("queue", "queued")
APIS = ("parallel", "turns", "gymnasium")


class Game:
    """A native game: players, fields and rules. `marltrain.envs.native` explains how to write one.

    name: the original's name, such as "simple_spread_v3".
    api: the original's interface: "parallel", "turns" (PettingZoo AEC) or "gymnasium".

    reset(s, rules), step(s, rules), observe(s, rules, p, obs): static methods, compiled by numba.
    legal(s, rules, p, mask): required if observation spaces contain an "action_mask".
    state(s, rules, out): the global state. Without it, a positive `state_size` means the concatenated observations of
      all players.

    training_only: names of the constructor's arguments that only environments of training use; an original lacks them.
    actions: names of the actions of all players, in their order, for people; none by default.
    text(state, viewers): the state as text, for people; none by default.
    """

    name: ClassVar[str] = ""
    api: ClassVar[str] = "parallel"
    training_only: ClassVar[tuple[str, ...]] = ()
    actions: tuple[str, ...] = ()
    reset: ClassVar[Callable[..., None]]
    step: ClassVar[Callable[..., None]]
    observe: ClassVar[Callable[..., None]]
    legal: ClassVar[Callable[..., None] | None] = None
    state: ClassVar[Callable[..., None] | None] = None

    def __init__(
        self,
        players: Mapping[str, tuple[Space, Space]],
        fields: Mapping[str, Any],
        rules: Mapping[str, Any] | None = None,
        *,
        limit: int = 0,
        state_size: int = 0,
    ) -> None:
        """Declare the game.

        players: name -> (observation space, action space), in order. Actions are Discrete for all, or Box for all.
        fields: name -> dtype, (dtype, shape) or (dtype, shape, (low, high)): the state of one environment. Bounds are
            inclusive, each a number or an array. A field without bounds accepts any value from a saved state.
        rules: name -> number or array: constants that the constructor's arguments determine; read only.
        limit: env steps after which all players are truncated; 0 for no limit.
        state_size: length of the global state; 0 for no global state.
        """
        self.players = tuple(_player(name, *both) for name, both in players.items())
        self.discrete = _all_discrete(self.players)
        if self.api not in APIS or (self.api == "gymnasium" and list(players) != [LONE_PLAYER]):
            raise ConfigError(f"{type(self).__name__}.api is {self.api!r} with players {list(players)}; it is one of "
                              f'{APIS}, and "gymnasium" has the one player {LONE_PLAYER!r}')  # fmt: skip
        if any(player.masked for player in self.players) and self.legal is None:
            raise ConfigError(f"{type(self).__name__}: observation spaces hold an action_mask, but it has no legal()")
        common, self.bounds = _common(self.players, self.discrete)
        own, bounds = _own(fields, taken={name for name, *_ in common})
        self.own = tuple(fields)
        self.bounds |= bounds
        # Own fields first, `limit` last: numba treats a record whose first fields match another's as a subtype of it.
        self.fields = np.dtype([*own, *common], align=True)
        given = {**(rules or {}), "limit": int(limit)}
        self.saved = tuple(name for name in self.fields.names or () if name not in _NOT_SAVED)
        self.rules = np.zeros(1, np.dtype([_typed(name, value) for name, value in given.items()], align=True))
        for name, value in given.items():
            self.rules[name] = value
        self.state_size = state_size

    def for_training(self) -> None:
        """Change rules for environments of training, such as shaped rewards that tests do not have; none by default."""

    def sound(self, records: Array) -> Array:
        """Return which records [E] the rules can continue from, [E] bool: conditions beyond the bounds of fields.

        Called for a saved or set state, with fields within their bounds, before the rules use it. From an accepted
        record, no sequence of actions may lead to an index out of range or an endless loop.
        """
        return np.ones(len(records), bool)

    def text(self, state: Mapping[str, Any], viewers: Collection[int] | None) -> str:
        """Return a state as text of a few lines; "" without one.

        state: the fields of one environment, by name.  viewers: the players that read it: nothing is shown that none of
        them may see; None: everything is shown.
        """
        return ""

    @classmethod
    def has_text(cls) -> bool:
        """Return whether the game draws its states as text."""
        return cls.text is not Game.text

    @property
    def turn_based(self) -> bool:
        """Whether players act in turns."""
        return self.api == "turns"

    def spec(self, name: str, *, with_state: bool = False) -> EnvSpec:
        """Return the specification of the game's environments; `name` appears in messages."""
        shape = (self.state_size,) if with_state and self.state_size else None
        return EnvSpec.of(name, self.players, state_shape=shape, turn_based=self.turn_based)


def _player(name: str, observation_space: Space, action_space: Space) -> PlayerSpec:
    inner, masked = without_mask(observation_space)
    layout = Layout(inner)
    if layout.images:
        raise ConfigError(f"player {name!r}: a native game observes vectors; {observation_space} holds an image")
    return PlayerSpec(name, observation_space, action_space, layout, masked)


def _all_discrete(players: tuple[PlayerSpec, ...]) -> bool:
    kinds = {type(player.action_space) for player in players}
    if kinds in ({spaces.Discrete}, {spaces.Box}):
        return kinds == {spaces.Discrete}
    raise ConfigError(f"a native game's actions are Discrete for every player, or Box for every player, not {kinds}")


def _common(players: tuple[PlayerSpec, ...], discrete: bool) -> tuple[list[Any], dict[str, Bounds]]:
    """Return the fields that all games share, and their bounds; [P] means one entry per player."""
    count = len(players)
    widest = 1 if discrete else max(int(np.prod(player.action_space.shape or ())) for player in players)
    fields: list[Any] = [
        ("action", np.int64, (count,)) if discrete else ("action", np.float32, (count, widest)),
        ("reward", np.float64, (count,)),
        ("steps", np.int64),
        ("turn", np.int8, (count,)),
        ("present", np.int8, (count,)),
        ("over", np.int8, (count,)),
        ("random", np.uint64),
        ("episode", np.int64),
        ("seed", np.int64),
        ("branch", np.uint32),
        ("stir", np.uint32),
        ("queue", np.int64),
        ("queued", np.int64),
    ]
    bounds: dict[str, Any] = dict.fromkeys(("steps", "episode", "seed"), COUNT)
    bounds |= {"turn": (0, 1), "present": (0, 1), "over": (0, 0)}  # `over` is nonzero only within a step
    if discrete:
        bounds["action"] = (0, [player.action_space.n - 1 for player in players])  # type: ignore[attr-defined]
    layout = np.dtype(fields)
    return fields, {name: bounds_of(name, layout[name].base, layout[name].shape, bounds[name]) for name in bounds}


def _own(fields: Mapping[str, Any], taken: set[str]) -> tuple[list[Any], dict[str, Bounds]]:
    """Return a game's own fields and the bounds of those that have bounds; bool fields always have bounds."""
    declared: list[Any] = []
    bounds: dict[str, Bounds] = {}
    for name, kind in fields.items():
        if name in taken:
            raise ConfigError(f"field {name!r} is the core's; a game's own fields are called something else")
        dtype, shape, *given = kind if isinstance(kind, tuple) else (kind, ())
        if np.dtype(dtype) == bool:
            dtype, given = np.int8, given or [(0, 1)]
        declared.append((name, np.dtype(dtype), shape) if shape else (name, np.dtype(dtype)))
        if given:
            bounds[name] = bounds_of(name, dtype, shape, *given)
    return declared, bounds


def _typed(name: str, value: Any) -> tuple[Any, ...]:
    array = np.asarray(value)
    kind = {"b": np.int8, "i": np.int64, "u": np.int64, "f": np.float64}.get(array.dtype.kind)
    if kind is None:
        raise ConfigError(f"rule {name!r} is {value!r}; a rule is a number, a truth value or an array of these")
    return (name, kind, array.shape) if array.ndim else (name, kind)
