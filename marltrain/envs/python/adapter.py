"""Base class of the environment adapters: one environment, written into its column of a `Step`.

An adapter wraps one PettingZoo or Gymnasium object. It does not start new episodes: `chunk` does.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import EnvError, MarlTrainError, SpecError, error_text, text_of
from marltrain.core.layout import Array, Obs, Space, arrays_of
from marltrain.core.spaces import without_mask
from marltrain.core.spec import EnvSpec, Step
from marltrain.envs.layers import layers, metadata_of
from marltrain.envs.python.global_state import flat_state, state_method
from marltrain.envs.python.masks import MaskReader

PROBE_SEED = 0
Views = dict[Any, tuple[Any, Any]]
"""Observation and info of players after a reset, by the environment's names; None for those that are missing."""


class Port:
    """Conversion of one player's observations, legal actions and actions between an environment and the arrays."""

    def __init__(self, spec: EnvSpec, player: int) -> None:
        """Look up the player's group, its row in the group, and the conversions for its spaces."""
        self.player = spec.players[player]
        self.group, self.row = spec.place[player]
        inner, masked = without_mask(self.player.observation_space)
        parts = self.player.observation_space.spaces if masked else {}  # type: ignore[attr-defined]
        self._nested = parts.get("observation") is inner
        self._masks = MaskReader(self.player)
        self._only_in_info = not isinstance(self.player.observation_space, spaces.Dict)  # where a mask may be
        self._act = _decoder(self.player.action_space, self.player.declared)

    def write(self, observation: Any, info: Any, out: Step, e: int) -> bool:
        """Write the player's observation and legal actions into column `e`; without a mask, all actions are legal.

        Return whether an action is legal.
        """
        self._write_obs(observation, out.obs[self.group], e)
        mask = None if self._only_in_info and not info else self._masks.read(observation, info)
        legal = out.legal[self.group]
        if legal is not None:
            legal[self.row, e] = True if mask is None else mask
        return mask is None or bool(mask.any())

    def write_final(self, observation: Any, info: Any, out: Step, e: int) -> None:
        """Write a player's final observation and legal actions; without a mask or a legal action, all become legal."""
        self._write_obs(observation, out.final_obs[self.group], e)
        mask = self._masks.read_last(observation, info)
        legal = out.final_legal[self.group]
        if legal is not None:
            legal[self.row, e] = True if mask is None else mask

    def keep_final(self, out: Step, e: int) -> None:
        """Copy the player's latest observation to its final one, because its environment gave no final observation."""
        cell = (self.row, e)
        for last, now in zip(arrays_of(out.final_obs[self.group]), arrays_of(out.obs[self.group]), strict=True):
            last[cell] = now[cell]
        legal = out.final_legal[self.group]
        if legal is not None:
            legal[cell] = True

    def _write_obs(self, observation: Any, target: Obs, e: int) -> None:
        try:
            self.player.layout.write(observation["observation"] if self._nested else observation, target, (self.row, e))
        except SpecError as error:
            raise EnvError(f"player {self.player.name!r}: {error}") from error
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise EnvError(
                f"player {self.player.name!r}: the observation does not fit its space: {text_of(error)}"
            ) from error

    def enter(self, out: Step, e: int, *, turn: bool) -> None:
        """Mark the player as alive; `turn`: whether it must act now."""
        out.alive[self.group][self.row, e] = True
        out.turn[self.group][self.row, e] = turn

    def leave(self, out: Step, e: int) -> None:
        """Mark the player as not alive and not required to act."""
        out.alive[self.group][self.row, e] = out.turn[self.group][self.row, e] = False

    def action(self, actions: tuple[Array, ...], e: int) -> Any:
        """Return the player's action in column `e` in the format of its environment."""
        return self._act(actions[self.group][self.row, e])


def _decoder(space: Space, declared: Space | None) -> Callable[[Any], Any]:
    """Return a function that converts an entry of an action array to an action of the space: a copy, not a view.

    declared: the space as the environment declares it, see `PlayerSpec`.
    """
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return (lambda value: int(value) + start) if start else int
    if isinstance(space, spaces.MultiDiscrete):
        first, dtype, shape = space.start, (declared or space).dtype, space.shape
        return lambda value: np.asarray(value.reshape(shape) + first, dtype)
    box_shape, box_dtype = tuple(space.shape or ()), np.dtype(space.dtype)
    return lambda value: value.reshape(box_shape).astype(box_dtype)


class Adapter(ABC):
    """One environment with an array interface. `e` is always its column in the given arrays.

    pure_reset: whether an episode of a used object equals that of a new object, as its metadata says.
    """

    def __init__(self, env: Any, spec: EnvSpec) -> None:
        """Wrap `env`, an object of the environment that `spec` describes."""
        self.env = env
        self.spec = spec
        self.pure_reset = bool(metadata_of(env).get("pure_reset", True))
        self._state = state_method(env)
        self._ports = tuple(Port(spec, p) for p in range(len(spec.players)))
        self._keys = spec.keys
        self._places = {key: p for p, key in enumerate(self._keys)}
        self._known = frozenset(self._keys)
        self._action_spaces: list[Space | None] = [None] * len(spec.players)

    def place_of(self, key: Any) -> int:
        """Return the index of a player, by the environment's name; raises EnvError for one that it did not declare."""
        try:
            return self._places[key]
        except (KeyError, TypeError):
            raise EnvError(f"env.agents holds {key!r}, which is not in possible_agents {self._keys}") from None

    def check_known(self, **given: Iterable[Any]) -> None:
        """Raise EnvError if a collection in `given` contains players that the environment did not declare."""
        for name, players in given.items():
            if not self._known.issuperset(players):
                unknown = sorted(map(repr, set(players) - self._known))
                raise EnvError(
                    f"{name} are given for {', '.join(unknown)}, not in possible_agents {self._keys}: name every "
                    "player there, and give none to others"
                )

    def check_actions(self, p: int, space: Space) -> None:
        """Raise EnvError if a player that begins an episode has another action space than the first object gave it."""
        if space is self._action_spaces[p]:
            return
        player = self.spec.players[p]
        first = player.declared or player.action_space
        if space != first:
            raise EnvError(
                f"player {player.name!r}: its action space is {space}, and was {first} when the first "
                "object was reset: an action space must not change. Use the largest one, and masks of legal moves"
            )
        self._action_spaces[p] = space

    @abstractmethod
    def reset(self, seed: int, out: Step, e: int) -> None:
        """Start an episode; writes `obs, legal, turn, alive` and `state`."""

    @abstractmethod
    def step(self, actions: tuple[Array, ...], out: Step, e: int) -> bool:
        """Take one env step; return whether the episode ended.

        Writes all arrays except `ended` and `episode`. The caller sets `reward`, `terminated` and `truncated` to zero.
        """

    @classmethod
    def takes_turns(cls, env: Any) -> bool:
        """Return whether players move one after another, so that others wait."""
        return False

    @classmethod
    @abstractmethod
    def first_views(cls, env: Any) -> Views:
        """Reset an environment, and return the first observations and infos."""

    @classmethod
    def players_of(cls, env: Any) -> list[tuple[Any, Space, Space]]:
        """Return the environment's name, the observation space and the action space of all players."""
        return [(key, env.observation_space(key), env.action_space(key)) for key in env.possible_agents]

    def _clear(self, out: Step, e: int) -> None:
        """Mark all players as absent before the players of an episode enter."""
        for flags in (*out.turn, *out.alive):
            flags[:, e] = False

    def write_final_state(self, out: Step, e: int, *, truncated: bool) -> None:
        """Write the global state at the end of an episode; truncated: the episode was cut, for one player at least.

        The value after a termination is 0 and needs no state. If the environment has none by then, zeros are written.
        """
        target = out.final_state
        if target is None:
            return
        if truncated:
            self.write_state(target, e, "at the end of a truncated episode, which the value of its rest needs")
            return
        with suppress(Exception):
            self.write_state(target, e)
            if np.isfinite(target[e]).all():
                return
        target[e] = 0

    def write_state(self, target: Array | None, e: int, when: str = "") -> None:
        """Write the global state into row `e` of `target`, unless `target` is None; `when`: for errors."""
        if target is None:
            return
        if self._state is None:
            raise EnvError("this object has no global state (env.state()), but the first object had one")
        try:
            state = flat_state(self._state)
        except MarlTrainError:
            raise
        except Exception as error:
            raise EnvError(f"the global state (env.state()) cannot be computed {when}: {error_text(error)}") from error
        if state.shape != target[e].shape:
            raise EnvError(
                f"the global state (env.state()) has {state.size} values, and had {target[e].size} at the start: it "
                "must keep its size. Fill it up with zeros, or make agents that do not read it"
            )
        target[e] = state

    def action_of(self, p: int, actions: tuple[Array, ...], e: int) -> Any:
        """Return player p's action in column `e` in the format of the environment."""
        return self._ports[p].action(actions, e)

    def render(self) -> Any:
        """Return or show one frame, depending on the environment's render mode.

        A method `render(mode)` of the old interface (before Gymnasium 0.26), as in rware, is given the mode.
        """
        shown = self.env.render()
        if shown is None or isinstance(shown, bool):
            inner, mode = list(layers(self.env))[-1], getattr(self.env, "render_mode", None)
            if mode not in (None, "human") and "mode" in inspect.signature(inner.render).parameters:
                return inner.render(mode=mode)
        return shown

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
