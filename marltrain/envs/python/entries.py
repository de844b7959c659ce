"""Values with an entry for each player, split by player: those of Gymnasium environments of several players.

Observations and actions have the form of the spaces: a Tuple or a Dict. Rewards and flags are one value for all
players, a list or array in the order of the players, or a mapping. Infos are one mapping or one for each player.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import EnvError, SpecError, shown
from marltrain.core.layout import Space
from marltrain.envs.python.masks import MASK
from marltrain.envs.python.names import text_name

_SINGLE = (bool, float, int, np.bool_, np.float64)
"""Types of the most common values for all players."""
EVERY = "__all__"
"""Key of a flag that ends the episode of all players, in mappings of RLlib's environments."""


class Entries:
    """The players of a Tuple or a Dict, and the values that an environment gives and takes with an entry for each.

    names: "player_0", "player_1", ... of a Tuple, or the keys of a Dict as text, in the order of its action space.
    """

    def __init__(self, actions: spaces.Tuple[Any] | spaces.Dict[Any]) -> None:
        """Read the players from the action space; raises SpecError for two keys with the same text."""
        self.keyed = isinstance(actions, spaces.Dict)
        self._keys: tuple[Hashable, ...] = tuple(actions.spaces) if self.keyed else tuple(range(len(actions.spaces)))
        self.names = tuple(map(text_name, self._keys)) if self.keyed else tuple(f"player_{i}" for i in self._keys)
        if len(set(self.names)) < len(self.names):
            raise SpecError(f"the keys {list(self._keys)} of the action space are not different as text: rename them")
        self._key_of = dict(zip(self.names, self._keys, strict=True))
        known = (*zip(self._keys, self.names, strict=True), *zip(self.names, self.names, strict=True))
        self._name_of: dict[Hashable, str] = dict(known)
        self._idle = {name: _idle(space) for name, space in self.spaces(actions).items()}

    def spaces(self, joint: spaces.Tuple[Any] | spaces.Dict[Any]) -> dict[str, Space]:
        """Return the players' entries of an observation or action space, by name."""
        held: Any = joint.spaces
        return {name: held[key] for name, key in self._key_of.items()}

    def joint(self, actions: Mapping[str, Any]) -> Any:
        """Return the players' actions in the form of the action space: a tuple or a dict.

        A player whose part of the episode has ended has its first choice, or the numbers nearest to 0.
        """
        given = actions if len(actions) == len(self.names) else {**self._idle, **actions}
        chosen = [given[name] for name in self.names]
        return dict(zip(self._keys, chosen, strict=True)) if self.keyed else tuple(chosen)

    def observations(self, given: Any, living: Sequence[str]) -> dict[str, Any]:
        """Return the observations by player; those of players that are not `living` may be missing.

        Raises EnvError for another form than that of the space, another number of entries, and for a missing one.
        """
        fits = isinstance(given, Mapping) if self.keyed else isinstance(given, list | tuple | np.ndarray)
        if not fits:
            form = f"a dict with the keys {list(self._keys)}" if self.keyed else f"a tuple of {len(self.names)}"
            raise EnvError(f"the observation is {shown(given)}, expected {form}: one for each player")
        return self._split("observation", given, living)

    def rewards(self, given: Any, living: Sequence[str]) -> dict[str, Any]:
        """Return the rewards of the living players: entries of a list, an array or a mapping, or one number for each.

        Raises EnvError for another number of entries, unknown keys, and a living player without a reward.
        """
        if not has_entries(given):
            return dict.fromkeys(living, given)
        found = self._split("reward", given, living)
        return found if len(found) == len(living) else {name: found[name] for name in living}

    def flags(self, name: str, given: Any, living: Sequence[str]) -> dict[str, Any]:
        """Return the flags `name` ("terminated" or "truncated") by player; raises EnvError as `rewards` does."""
        if not has_entries(given):
            return dict.fromkeys(living, given)
        if not isinstance(given, Mapping) or EVERY not in given:
            return self._split(name, given, living)
        rest = {key: flag for key, flag in given.items() if key != EVERY}
        own = self._split(name, rest, () if given[EVERY] else living)
        return {**own, **dict.fromkeys(living, True)} if given[EVERY] else own

    def infos(self, given: Any) -> dict[str, Mapping[str, Any]]:
        """Return the infos by player: an own info, joined with the entries that are for all of them.

        Masks with an entry for each player, under `MASK`, are split. Raises EnvError for a wrong number of entries.
        """
        if isinstance(given, list | tuple):
            return self._listed_infos(given)
        if not given:
            return {}
        own = {name: one for key, one in given.items() if (name := self._name_of.get(key)) and isinstance(one, Mapping)}
        shared = {key: value for key, value in given.items() if self._name_of.get(key) not in own}
        masks = shared.pop(MASK, None)
        split = {} if masks is None else self._split(MASK, masks, ())
        masked = {name: {MASK: mask} for name, mask in split.items()}
        return {name: {**shared, **masked.get(name, {}), **own.get(name, {})} for name in self.names}

    def _listed_infos(self, given: Sequence[Any]) -> dict[str, Mapping[str, Any]]:
        infos = self._split("info", given, ())
        for name, info in infos.items():
            if not isinstance(info, Mapping):
                raise EnvError(f"player {name!r}: info is {shown(info)}, expected a dict: give {{}} if there is none")
        return infos

    def _split(self, what: str, given: Any, needed: Sequence[str]) -> dict[str, Any]:
        """Return the entries of a mapping or a sequence by player; `needed`: the players that must have one."""
        if type(given) in (list, tuple) and len(given) == len(self.names):  # the most common case
            return dict(zip(self.names, given, strict=True))
        if not isinstance(given, Mapping):
            if not has_entries(given) or len(given) != len(self.names):
                raise EnvError(self._wrong_number(what, given))
            return dict(zip(self.names, given, strict=True))
        found = {}
        for key, value in given.items():
            name = self._name_of.get(key)
            if name is None:
                raise EnvError(
                    f"{what} is given for {shown(key)}, which is none of the players {list(self._keys)}: an entry for "
                    "each player is needed, and none for others"
                )
            found[name] = value
        for name in needed:
            if name not in found:
                raise EnvError(f"player {name!r}: {what} is missing, only {shown(sorted(found))} have one")
        return found

    def _wrong_number(self, what: str, given: Any) -> str:
        count, every = len(self.names), ", or one value for all of them" if what not in ("info", MASK) else ""
        got = f"{len(given)}: {shown(given)}" if has_entries(given) else shown(given)
        missing = f"player {self.names[len(given)]!r} has none, " if has_entries(given) and len(given) < count else ""
        every = every if what != "observation" else ""
        return f"{what}: {missing}expected an entry for each of the {count} players{every}, got {got}"


def has_entries(given: Any) -> bool:
    """Return whether a value is a mapping, a list, a tuple or an array with an axis."""
    if type(given) in _SINGLE:
        return False
    return isinstance(given, list | tuple | Mapping) or len(getattr(given, "shape", ())) > 0


def _idle(space: Space) -> Any:
    """Return the first choice of a space, or the numbers nearest to 0; a sample of other spaces."""
    idle: dict[type[Space], Callable[[Any], Any]] = {
        spaces.Discrete: lambda own: int(own.start),
        spaces.MultiDiscrete: lambda own: own.start.astype(own.dtype),
        spaces.MultiBinary: lambda own: np.zeros(own.shape, own.dtype),
        spaces.Box: lambda own: np.clip(np.zeros(own.shape), own.low, own.high).astype(own.dtype),
    }
    make = next((make for kind, make in idle.items() if isinstance(space, kind)), lambda own: own.sample())
    return make(space)
