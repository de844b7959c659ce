"""Demonstrations: the decisions of one player, for algorithms that imitate (behavior cloning, GAIL)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.encoding import action_dtype, action_shape
from marltrain.core.errors import AgentError, SpecError, error_text, shown
from marltrain.core.layout import Array, Layout, Obs, Space, arrays_of, map_tree
from marltrain.core.legal import Legal
from marltrain.core.spaces import action_bounds, as_choices, describe_space, space_from, split_mask, without_mask
from marltrain.policies.demonstrations.chains import check_chain, equal, in_space
from marltrain.policies.demonstrations.files import Saved, read_demonstrations, write_demonstrations
from marltrain.policies.demonstrations.minari_episodes import (
    DecidedRows,
    remove_dataset,
    rows_of_dataset,
    write_dataset,
)


@dataclass(frozen=True, eq=False, repr=False)
class Demonstrations:
    """N decisions of one player, in order: episode after episode, each by time.

    Make them with `marltrain.demonstrations` (agents play an environment), `from_arrays`, `from_minari` or `load`.
    Their arrays are those of the training loop:

    observation_space, action_space: the player's, without "action_mask".
    obs: [N, *O], or a mapping of such arrays, as `Layout` encodes the observations.
    action: [N] int64 from 0 (Discrete), [N, D] int64 from 0 (MultiDiscrete) or [N, A] float32 (Box).
    ends: [N] bool, whether the decision is the last one of its episode.
    legal: [N, A] bool, the legal actions; None if all are legal.
    next_obs: like obs, at the player's next decision or at the end of its episode; None if unknown.
    frame_stack: number of frames on axis 0 of images.
    reward: [N] float32, the player's rewards from the decision to its next one, or to its end; None if unknown.
    terminated: [N] bool, whether the episode ended there by termination; an end without it is a truncation. None if
      unknown.

    Raises AgentError if arrays do not fit the spaces or each other, and for actions that are illegal or outside of
    their space.
    """

    observation_space: Space
    action_space: Space
    obs: Obs
    action: Array
    ends: Array
    legal: Array | None = None
    next_obs: Obs | None = None
    frame_stack: int = 1
    reward: Array | None = None
    terminated: Array | None = None

    def __post_init__(self) -> None:
        """Check the arrays."""
        _check_some(self.action)
        rows = len(self.action)
        for what, obs in (("obs", self.obs), ("next_obs", self.next_obs)):
            if obs is not None:
                self._check_obs(what, obs, rows)
        space, dtype = self.action_space, action_dtype(self.action_space)
        _check_array("action", self.action, (rows, *action_shape(space)), dtype)
        _check_array("ends", self.ends, (rows,), bool)
        self._check_outcome(rows)
        self._check_actions()
        if self.legal is not None:
            self._check_legal(self.legal, rows)

    def __len__(self) -> int:
        """Return N, the number of decisions."""
        return len(self.action)

    def __repr__(self) -> str:
        """Return the size and the spaces in one line."""
        spaces_ = f"{self.observation_space} -> {self.action_space}"
        return f"Demonstrations({len(self):,} decisions, {self.num_episodes:,} episodes, {spaces_})"

    @property
    def num_episodes(self) -> int:
        """Number of episodes with an end."""
        return int(self.ends.sum())

    @cached_property
    def layout(self) -> Layout:
        """The arrays of the observations."""
        return Layout(self.observation_space, self.frame_stack)

    @classmethod
    def from_arrays(
        cls,
        observation_space: Space,
        action_space: Space,
        observation: Any,
        action: Any,
        *,
        ends: Any = None,
        legal: Any = None,
        next_observation: Any = None,
        frame_stack: int = 1,
        reward: Any = None,
        terminated: Any = None,
    ) -> Demonstrations:
        """Return demonstrations from arrays in the environment's format, with a leading axis N.

        observation, next_observation: in the structure of the space: an array [N, ...], or a mapping or tuple of such
        arrays. The "action_mask" of a mapping is the default of `legal`.
        action: [N, ...] in the environment's units.  legal: [N, A] truth values.
        action_space: MultiBinary and a Box of integers become the MultiDiscrete space of their choices.
        ends: [N] truth values, see the class; None: the decisions are one episode.
        reward, terminated: [N] numbers and truth values, see the class.
        """
        space, (observation, mask) = without_mask(observation_space)[0], split_mask(observation)
        legal = mask if legal is None else legal
        layout = Layout(space, frame_stack)
        following = None if next_observation is None else split_mask(next_observation)[0]
        action_space = as_choices(action_space)
        chosen = _indexed(action_space, action)
        if legal is not None:
            legal = _truths("legal", Legal(action_space).joined(legal))
        last = np.arange(len(chosen)) == len(chosen) - 1
        return cls(
            space, action_space, _encoded(layout, "observation", observation), chosen,
            _truths("ends", last if ends is None else ends), legal,
            None if following is None else _encoded(layout, "next_observation", following), frame_stack,
            None if reward is None else np.asarray(reward, np.float32),
            None if terminated is None else _truths("terminated", terminated),
        )  # fmt: skip

    @classmethod
    def from_minari(cls, dataset: Any, *, episodes: int | None = None) -> Demonstrations:
        """Return demonstrations from a Minari dataset (`pip install "marltrain[minari]"`).

        dataset: a `minari.MinariDataset`, or the name of a local one; nothing is downloaded.
        episodes: number of episodes to take, from the first; None: all.
        A termination or truncation before the last step of an episode ends the decisions' episode there, too.
        Raises ConfigError if Minari is not installed or has no such dataset, if some episodes have legal actions (the
        info "action_mask") and others have none, and for an episode whose arrays have other lengths.
        """
        return cls.from_arrays(**rows_of_dataset(dataset, episodes))

    @classmethod
    def joined(cls, several: Sequence[Demonstrations]) -> Demonstrations:
        """Return the decisions of several demonstrations of equal spaces, such as those of players that share an agent.

        Next observations, rewards and terminations are kept if all have them. Raises AgentError for different spaces.
        """
        if not several:
            raise AgentError("there are no demonstrations to join: the list is empty")
        first = several[0]
        for other in several[1:]:
            other.check_fits(first.observation_space, first.action_space, first.frame_stack)
            if (other.legal is None) != (first.legal is None):
                raise AgentError("some demonstrations have legal actions and some do not: they cannot be joined")
        legal = None if first.legal is None else np.concatenate([one.legal for one in several if one.legal is not None])
        following = [one.next_obs for one in several if one.next_obs is not None]
        return cls(
            first.observation_space, first.action_space, _concatenated([one.obs for one in several]),
            np.concatenate([one.action for one in several]), np.concatenate([one.ends for one in several]), legal,
            _concatenated(following) if len(following) == len(several) else None, first.frame_stack,
            _all_of([one.reward for one in several]), _all_of([one.terminated for one in several]),
        )  # fmt: skip

    def to_minari(self, name: str, **details: Any) -> Any:
        """Write the decisions as a local Minari dataset, `minari.MinariDataset`, and return it.

        name: such as "games/own-v0"; must be free.  details: other arguments of `minari.create_dataset_from_buffers`,
        such as author; jpeg_encoding=True makes images smaller and changes their values. Legal actions are stored as
        the info "action_mask", which `from_minari` reads.
        The dataset is read again and compared. One that cannot be made, or holds other values, is removed.
        Raises ConfigError if Minari is not installed or the name is taken or invalid. Raises AgentError for decisions
        that a dataset cannot hold: without rewards, terminations or next observations, of stacked frames, without an
        end of the last episode, with a next observation within an episode that is not the observation of the decision
        after it, and with observations that their space cannot express.
        """
        if self.reward is None or self.terminated is None or self.next_obs is None:
            raise AgentError(
                "a Minari dataset holds rewards, terminations and the last observations, and these demonstrations lack "
                "some: record them with marltrain.dataset or marltrain.demonstrations"
            )
        if self.frame_stack != 1 or not self.ends[-1]:
            raise AgentError("a Minari dataset holds whole episodes of single observations; these demonstrations have "
                             f"frame_stack={self.frame_stack}, and their last decision ends "
                             f"{'an' if self.ends[-1] else 'no'} episode")  # fmt: skip
        check_chain(self.obs, self.next_obs, self.ends)
        actions = _in_units(self.action_space, self.action)
        seen = in_space(self.layout, "obs", self.obs)
        after = in_space(self.layout, "next_obs", self.next_obs)
        rows = DecidedRows(seen, after, actions, self.reward, self.ends, self.terminated, self.legal)
        written = write_dataset(name, self.observation_space, self.action_space, rows, details)
        if not details.get("jpeg_encoding"):
            _check_stored(self, name, written)
        return written

    def check_fits(self, observation_space: Space, action_space: Space, frame_stack: int = 1) -> None:
        """Raise AgentError unless the demonstrations are of these spaces and this number of stacked frames."""
        for what, mine, theirs in (
            ("observation space", self.observation_space, without_mask(observation_space)[0]),
            ("action space", self.action_space, action_space),
        ):
            if describe_space(mine) != describe_space(theirs):
                raise AgentError(
                    f"demonstrations of other spaces: their {what} is {mine}, expected {theirs}. Record demonstrations "
                    "of a player with the agent's spaces"
                )
        if frame_stack != self.frame_stack:
            raise AgentError(
                f"demonstrations of other spaces: their images stack {self.frame_stack} frames, expected "
                f"{frame_stack}. Make the agent with frame_stack={self.frame_stack}"
            )

    def save(self, path: str | Path) -> None:
        """Write the demonstrations to the folder `path`; the write is atomic and replaces demonstrations there.

        Raises SaveError if `path` holds other files or cannot be written.
        """
        info = {
            "observation_space": describe_space(self.observation_space),
            "action_space": describe_space(self.action_space), "frame_stack": self.frame_stack,
        }  # fmt: skip
        arrays: dict[str, Array] = {"action": self.action, "ends": self.ends}
        optional = {"legal": self.legal, "reward": self.reward, "terminated": self.terminated}
        arrays |= {name: array for name, array in optional.items() if array is not None}
        for what, obs in (("obs", self.obs), ("next_obs", self.next_obs)):
            if obs is not None:
                arrays |= {f"{what}/{name}": a for name, a in zip(self.layout.shapes, arrays_of(obs), strict=True)}
        write_demonstrations(path, Saved(info, arrays))

    @classmethod
    def load(cls, path: str | Path) -> Demonstrations:
        """Return the demonstrations that `save` wrote; raises SaveError, naming the file, for any other content."""
        return read_demonstrations(path, cls._restored)

    @classmethod
    def _restored(cls, saved: Saved) -> Demonstrations:
        observation_space = space_from(saved.info["observation_space"])
        layout = Layout(observation_space, saved.info["frame_stack"])
        arrays = dict(saved.arrays)

        def taken(what: str) -> Obs:
            parts = {name: arrays.pop(f"{what}/{name}") for name in layout.shapes}
            return next(iter(parts.values())) if layout.single else parts

        following = taken("next_obs") if any(name.startswith("next_obs/") for name in arrays) else None
        return cls(
            observation_space, space_from(saved.info["action_space"]), taken("obs"), next_obs=following,
            frame_stack=layout.stack, **arrays,
        )  # fmt: skip

    def _check_obs(self, what: str, obs: Obs, rows: int) -> None:
        arrays, shapes = arrays_of(obs), self.layout.shapes
        if isinstance(obs, dict) == self.layout.single or (isinstance(obs, dict) and list(obs) != list(shapes)):
            raise AgentError(f"demonstrations: {what} must hold the parts {', '.join(shapes)} of {self.layout.space}")
        for array, (name, (shape, dtype)) in zip(arrays, shapes.items(), strict=True):
            _check_array(f"{what}, part {name!r},", array, (rows, *shape), dtype)
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                row = int(np.argwhere(~np.isfinite(array))[0][0])
                raise AgentError(f"demonstrations: {what} of decision {row} holds numbers that are not finite")

    def _check_outcome(self, rows: int) -> None:
        if self.reward is not None:
            _check_array("reward", self.reward, (rows,), np.float32)
            if not np.isfinite(self.reward).all():
                row = int(np.flatnonzero(~np.isfinite(self.reward))[0])
                raise AgentError(f"demonstrations: the reward of decision {row} is not finite")
        if self.terminated is not None:
            _check_array("terminated", self.terminated, (rows,), bool)
            if (self.terminated & ~self.ends).any():
                row = int(np.flatnonzero(self.terminated & ~self.ends)[0])
                raise AgentError(f"demonstrations: decision {row} is terminated, and does not end its episode")

    def _check_actions(self) -> None:
        space: Any = self.action_space
        if isinstance(space, spaces.Box):
            low, high = action_bounds(space)
        else:
            sizes = np.array(space.n) if isinstance(space, spaces.Discrete) else space.nvec.reshape(-1)
            low, high = np.zeros_like(sizes), sizes - 1
        fits = (self.action >= low) & (self.action <= high) & np.isfinite(self.action)
        if not fits.all():
            row = int(np.argwhere(~fits)[0][0])
            raise AgentError(
                f"demonstrations: the action of decision {row} is outside of its space {space}: its "
                f"{'values' if isinstance(space, spaces.Box) else 'indices from 0'} are {shown(self.action[row])}"
            )

    def _check_legal(self, legal: Array, rows: int) -> None:
        choices = Legal(self.action_space)
        if not choices.width:
            raise AgentError(
                f"demonstrations: legal actions are given for {self.action_space}, expected a Discrete or "
                "MultiDiscrete space"
            )
        _check_array("legal", legal, (rows, choices.width), bool)
        played = choices.permits(legal, self.action)
        if not played.all():
            row = int(np.flatnonzero(~played)[0])
            raise AgentError(f"demonstrations: the action of decision {row} is not one of its legal actions")


def _check_stored(given: Demonstrations, name: str, written: Any) -> None:
    """Raise AgentError, and remove the dataset, unless it holds the decisions that it was given."""
    try:
        found = Demonstrations.from_minari(written)
    except Exception as error:  # of Minari, or of the package that stores
        remove_dataset(name)
        raise AgentError(f"Minari dataset {name!r} cannot be read again: {error_text(error)}") from error
    changed = [what for what in ("obs", "next_obs", "action", "ends", "legal", "reward", "terminated")
               if not equal(getattr(found, what), getattr(given, what))]  # fmt: skip
    if changed:
        remove_dataset(name)
        raise AgentError(
            f"Minari dataset {name!r} would hold other values of {', '.join(changed)} than these demonstrations, as "
            "its files cannot store them exactly. Save them with Demonstrations.save"
        )


def _check_some(action: Array) -> None:
    if len(action) == 0:
        raise AgentError("demonstrations hold no decisions: give at least one")


def _check_array(what: str, array: Array, shape: tuple[int, ...], dtype: Any) -> None:
    if array.shape != shape or array.dtype != dtype:
        raise AgentError(
            f"demonstrations: {what} must be {np.dtype(dtype)} of shape {shape}, got {array.dtype} of shape "
            f"{array.shape}"
        )


def _encoded(layout: Layout, what: str, observation: Any) -> Obs:
    try:
        obs, batched = layout.encode(observation)
    except SpecError as error:
        raise AgentError(f"demonstrations: {what}: {error}") from error
    if not batched:
        raise AgentError(f"demonstrations: {what} must have a leading axis, one entry for each decision")
    return map_tree(np.array, obs)


def _indexed(space: Space, action: Any) -> Array:
    """Convert actions [N, ...] in the environment's units to the loop's format; raises AgentError for other arrays."""
    if not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete):
        raise AgentError(f"demonstrations: action space {space} is not one of Discrete, MultiDiscrete, Box")
    actions = np.asarray(action)
    allowed = "iuf" if isinstance(space, spaces.Box) else "biu" if isinstance(space, spaces.MultiDiscrete) else "iu"
    if actions.ndim == 0 or actions.shape[1:] != (space.shape or ()) or actions.dtype.kind not in allowed:
        raise AgentError(
            f"demonstrations: action must hold an action of {space} for each decision, got {actions.dtype} of shape "
            f"{actions.shape}"
        )
    _check_some(actions)
    if isinstance(space, spaces.Box):
        low, high = action_bounds(space)
        flat = actions.reshape(len(actions), -1)
        near = np.clip(flat, low, high).astype(np.float32)  # bounds that float32 rounds
        return np.where(np.isclose(near, flat, rtol=1e-6, atol=1e-6), near, flat).astype(np.float32)
    flat = actions.reshape(len(actions), *action_shape(space))
    return (flat - np.reshape(space.start, action_shape(space))).astype(np.int64)


def _in_units(space: Any, action: Array) -> Array:
    """Convert actions [N, ...] of the loop's format to those of the environment, the reverse of `_indexed`."""
    shaped = action.reshape(len(action), *(space.shape or ()))
    return shaped if isinstance(space, spaces.Box) else (shaped + space.start).astype(space.dtype)


def _all_of(several: Sequence[Array | None]) -> Array | None:
    """Return arrays joined, or None if one is missing."""
    known = [one for one in several if one is not None]
    return np.concatenate(known) if len(known) == len(several) else None


def _truths(what: str, values: Any) -> Array:
    array = np.asarray(values)
    if array.dtype.kind not in "biu" or not np.isin(array, (0, 1)).all():
        raise AgentError(f"demonstrations: {what} must hold truth values, got {array.dtype} {shown(array)}")
    return array.astype(bool)


def _concatenated(several: Sequence[Obs]) -> Obs:
    first = several[0]
    if isinstance(first, dict):
        return {name: np.concatenate([obs[name] for obs in several if isinstance(obs, dict)]) for name in first}
    return np.concatenate([obs for obs in several if not isinstance(obs, dict)])
