"""Gymnasium environments of several players: their spaces are a Tuple or a Dict with an entry for each player.

`by_player` makes a PettingZoo parallel environment of them, so that all else is as for other games.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from marltrain.core.errors import SpecError, shown
from marltrain.core.layout import NUMBERS, Array, Space
from marltrain.envs.layers import metadata_of, outermost
from marltrain.envs.python.entries import Entries, has_entries
from marltrain.envs.python.global_state import state_method
from marltrain.envs.python.returned import bad_flags, check_info, check_reset, wrong_step

PLAYERS = "players"
"""Entry of an environment's metadata: whether the entries of its spaces are players."""
_COUNTS = ("n_agents", "num_agents", "n_players", "num_players")
"""Attributes by which environments declare the number of their players."""
_JOINT = (spaces.Tuple, spaces.Dict)


def by_player(env: Any) -> Any:
    """Return an environment as a `PlayersEnv` if the entries of its spaces are players, else the environment itself.

    They are if the observation and the action space are Tuples (or lists) of equal length or Dicts with equal keys,
    unless metadata["players"] is False, or an entry of a Tuple of actions is a Tuple or a Dict again.

    Raises SpecError if metadata["players"] is True and the spaces have other forms.
    """
    if isinstance(env, ParallelEnv | AECEnv):
        return env
    seen, acts = (_joint(getattr(env, name, None)) for name in ("observation_space", "action_space"))
    if not isinstance(seen, spaces.Space) or not isinstance(acts, spaces.Space):
        return env
    declared = metadata_of(env).get(PLAYERS)
    if not isinstance(declared, bool | None):
        raise SpecError(f"metadata[{PLAYERS!r}] must be True or False, got {shown(declared)}")
    if declared and not _equal_entries(seen, acts):
        raise SpecError(
            f"metadata[{PLAYERS!r}] is True, but the observation space is {shown(seen)} and the action space "
            f"{shown(acts)}: both must be a Tuple with one entry for each player, or a Dict with equal keys"
        )
    if not isinstance(acts, _JOINT) or declared is False or not _equal_entries(seen, acts):
        return env
    parts = _entries_of(acts)
    known = declared or isinstance(acts, spaces.Dict) or any(_count(env, name) == len(parts) for name in _COUNTS)
    if not known and any(isinstance(part, _JOINT) for part in parts):
        return env
    return PlayersEnv(env, doubtful=not known and _mixed(parts))


class PlayersEnv(ParallelEnv):  # type: ignore[misc]
    """A Gymnasium environment of several players by the interface of PettingZoo's parallel environments.

    A player leaves `agents` at the step whose flags end its part; its later observations and rewards are not read.

    doubtful: whether the entries of the action space may also be parts of one player's actions. Rewards with an entry
        for each player then tell that they are players, and one number is an error.
    """

    def __init__(self, env: Any, *, doubtful: bool = False) -> None:
        """Wrap `env`, whose spaces have equal entries."""
        self.env = env
        self._doubtful = doubtful
        self._entries = Entries(_joint(env.action_space))
        self._state = state_method(env)
        self._info: Any = {}
        self.possible_agents = list(self._entries.names)
        self.agents: list[str] = []

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the environment inside."""
        return metadata_of(self.env)

    @property
    def render_mode(self) -> str | None:
        """The render mode of the environment inside."""
        return getattr(self.env, "render_mode", None)

    @property
    def unwrapped(self) -> Any:
        """The environment inside, without wrappers."""
        return getattr(self.env, "unwrapped", self.env)

    def observation_space(self, agent: str) -> Space:
        """Return a player's entry of the observation space."""
        return self._entries.spaces(_joint(self.env.observation_space))[agent]

    def action_space(self, agent: str) -> Space:
        """Return a player's entry of the action space."""
        return self._entries.spaces(_joint(self.env.action_space))[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start an episode with all players."""
        given = {} if options is None else {"options": options}
        returned = self.env.reset(seed=seed, **given)
        self.agents = list(self.possible_agents)
        observation, self._info = _reset_pair(returned)
        return self._entries.observations(observation, self.agents), self._entries.infos(self._info)

    def step(self, actions: dict[str, Any]) -> Any:
        """Step the environment with the actions of the living players."""
        entries, living = self._entries, self.agents
        returned = self.env.step(entries.joint(actions))
        try:
            observation, reward, terminated, truncated, self._info = returned
        except (TypeError, ValueError):
            raise wrong_step(returned) from None
        if not isinstance(self._info, list | tuple):
            check_info(self._info)
        if self._doubtful:
            self._check_doubt(reward)
        ends = entries.flags("terminated", terminated, living), entries.flags("truncated", truncated, living)
        if not (terminated is False and truncated is False):
            self.agents = [name for name in living if not _over(name, ends[0][name], ends[1][name])]
        return (
            entries.observations(observation, living), entries.rewards(reward, living), *ends,
            entries.infos(self._info),
        )  # fmt: skip

    def _check_doubt(self, reward: Any) -> None:
        """Raise SpecError for one reward, if the entries of the spaces may be parts of one player."""
        if not has_entries(reward):
            space = _joint(self.env.action_space)
            raise SpecError(
                f"the action space {shown(space)} may hold the actions of {len(space)} players with one reward for the "
                f"team, or the parts of one player's actions. If they are players, say so: metadata[{PLAYERS!r}] = "
                "True, or give a reward for each. Actions of several parts are not possible: join them in one "
                "MultiDiscrete or one Box"
            )
        self._doubtful = False

    def state(self) -> Array:
        """Return the global state: a method `state()`, or an array that is the attribute or the info "state".

        Without one, PettingZoo's method raises NotImplementedError.
        """
        if self._state is not None:
            found: Array = self._state()
            return found
        held = getattr(outermost(self.env, "state"), "state", None)
        data = self._info.get("state") if isinstance(self._info, Mapping) else None
        for state in (held, data):
            if isinstance(state, np.ndarray) and state.ndim and state.dtype.kind in NUMBERS:
                return state
        return super().state()

    def render(self) -> Any:
        """Return or show one frame."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()


def _reset_pair(returned: Any) -> tuple[Any, Any]:
    """Return the observation and the info of a reset; the info may be a list with a dict for each player."""
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], list):
        return returned
    return check_reset(returned)


def _over(name: str, terminated: Any, truncated: Any) -> bool:
    """Return whether one of a player's flags is set; raises EnvError for a flag that is neither True nor False."""
    try:
        return bool(terminated or truncated)
    except (TypeError, ValueError):
        raise bad_flags(name, terminated, truncated) from None


def _joint(space: Any) -> Any:
    """Return a list of spaces, as environments of the old interface have them, as a Tuple; others unchanged."""
    several = isinstance(space, list | tuple) and len(space) and all(isinstance(part, spaces.Space) for part in space)
    return spaces.Tuple(space) if several else space


def _entries_of(space: Any) -> list[Space]:
    return list(space.spaces.values()) if isinstance(space, spaces.Dict) else list(space.spaces)


def _equal_entries(seen: Space, acts: Space) -> bool:
    """Return whether two spaces are Tuples of equal length, or Dicts with equal keys."""
    if isinstance(seen, spaces.Tuple) and isinstance(acts, spaces.Tuple):
        return len(seen.spaces) == len(acts.spaces) > 0
    if isinstance(seen, spaces.Dict) and isinstance(acts, spaces.Dict):
        return set(seen.spaces) == set(acts.spaces) != set()
    return False


def _count(env: Any, name: str) -> int | None:
    """Return the number of players by an attribute of the outermost layer that has it; None if it is no number."""
    found = getattr(outermost(env, name), name, None)
    return int(found) if isinstance(found, int | np.integer) else None


def _mixed(parts: list[Space]) -> bool:
    """Return whether some actions are choices and others numbers, as in one player's actions of several parts."""
    return len({isinstance(part, spaces.Box) for part in parts}) > 1
