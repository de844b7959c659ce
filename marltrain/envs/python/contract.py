"""The contract of observations, rewards and actions, checked for all environments of a chunk at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from marltrain.core.layout import VECTOR, Array, Obs
from marltrain.core.legal import Legal
from marltrain.core.spec import EnvSpec, Group, Step
from marltrain.core.values import FINITE, leaves_space

_WAITS = (
    ". If it waits for the moves of others, declare the environment's metadata: 'turn_based': True; no action is then "
    "sent for it"
)
_LARGEST = np.float32(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Violation:
    """A violation of the contract in one environment.

    column: its column in the chunk.  past: whether the violation is in the episode that just ended.
    """

    column: int
    message: str
    past: bool = False


class Contract:
    """Check for the first fault in the arrays that environments publish and in the actions that agents send."""

    def __init__(self, spec: EnvSpec) -> None:
        """Look up the allowed values of each group's spaces."""
        self._spec = spec
        self._groups = [_GroupContract(spec, g) for g in range(len(spec.groups))]

    def sent(self, actions: tuple[Array, ...], step: Step) -> Violation | None:
        """Check the actions of the players that must act in `step`."""
        for group, given in zip(self._groups, actions, strict=True):
            if violation := group.sent(given, step):
                return violation
        return None

    def published(self, step: Step) -> Violation | None:
        """Check observations, legal actions, rewards and states."""
        for group in self._groups:
            if violation := group.published(step):
                return violation
        if np.count_nonzero(np.isfinite(step.reward)) < step.reward.size:
            p, e = np.argwhere(~np.isfinite(step.reward))[0]
            reward = float(step.reward[p, e])
            return Violation(
                int(e), f"player {self._spec.names[p]!r}: reward {reward} is not finite", bool(step.ended[e])
            )
        return self._states(step)

    def _states(self, step: Step) -> Violation | None:
        for state, past in ((step.state, False), (step.final_state, True)):
            if state is not None and not np.isfinite(state).all():
                e = int(np.argwhere(~np.isfinite(state))[0, 0])
                return Violation(e, "the global state (env.state()) holds NaN or an infinity", past)
        return None


class _GroupContract:
    def __init__(self, spec: EnvSpec, g: int) -> None:
        self._g = g
        self._group = group = spec.groups[g]
        self._players = [spec.names[p] for p in group.players]
        self._remedy = _WAITS if len(spec.players) > 1 and not spec.turn_based else ""
        low, high = group.players[0], group.players[-1] + 1
        self._places = slice(low, high) if high - low == group.size else np.array(group.players)
        self._low, self._high = _ranges(group)
        self._legal = Legal(group.action_space)
        self._choices = np.array(self._legal.sizes)  # of each number of an action

    # Actions sent by agents

    def sent(self, actions: Array, step: Step) -> Violation | None:
        turn, space = step.turn[self._g], self._group.action_space
        if isinstance(space, spaces.Box):
            finite = np.isfinite(actions)
            if np.count_nonzero(finite) == finite.size:
                return None
            wrong = turn & ~finite.all(-1)
        else:
            fits = (actions >= 0) & (actions < self._choices)
            wrong = turn & ~(fits if fits.ndim == turn.ndim else fits.all(-1))
            legal = step.legal[self._g]
            if legal is not None and not wrong.any():
                chosen = np.where(turn.reshape(turn.shape + (1,) * (actions.ndim - turn.ndim)), actions, 0)
                wrong = turn & ~self._legal.permits(legal, chosen)
        return self._bad_action(wrong, actions, step) if np.count_nonzero(wrong) else None

    def _bad_action(self, wrong: Array, actions: Array, step: Step) -> Violation:
        row, e = (int(i) for i in np.argwhere(wrong)[0])
        legal = step.legal[self._g]
        allowed = f"{self._group.action_space}, counted from 0"
        if legal is not None:
            allowed = f"one of {self._legal.listed(legal[row, e])}"
        sent = actions[row, e].tolist()
        return Violation(e, f"player {self._players[row]!r}: action {sent} is not legal; expected {allowed}")

    # Arrays published by environments

    def published(self, step: Step) -> Violation | None:
        turn, legal = step.turn[self._g], step.legal[self._g]
        if violation := self._observed(step.obs[self._g], turn, past=False):
            return violation
        if legal is not None and not (playable := self._legal.playable(legal) | ~turn).all():
            row, e = (int(i) for i in np.argwhere(~playable)[0])
            who, what = f"player {self._players[row]!r}", self._legal.without_choice(legal[row, e])
            return Violation(e, f"{who} must move, but its action_mask allows no {what}{self._remedy}")
        over = step.terminated[self._places] | step.truncated[self._places]
        return self._observed(step.final_obs[self._g], over, past=True) if np.count_nonzero(over) else None

    def _observed(self, obs: Obs, valid: Array, *, past: bool) -> Violation | None:
        if not self._group.layout.vector_size:
            return None  # images: `Layout.write` has checked them, since uint8 shows no value outside of its bounds
        vector = obs[VECTOR] if isinstance(obs, dict) else obs
        inside = (vector >= self._low) & (vector <= self._high)  # NaN compares false
        if np.count_nonzero(inside) == inside.size:
            return None
        wrong = valid & ~inside.all(-1)
        if not np.count_nonzero(wrong):
            return None
        row, e = (int(i) for i in np.argwhere(wrong)[0])
        return Violation(e, f"player {self._players[row]!r}: {'; '.join(self._reasons(vector[row, e]))}", past)

    def _reasons(self, vector: Array) -> Iterator[str]:
        for part in self._group.layout.parts:
            values, low, high = (a[part.start : part.stop] for a in (vector, self._low, self._high))
            bad = ~((values >= low) & (values <= high))
            if bad.any():
                i = int(np.flatnonzero(bad)[0])
                free = low[i] == -_LARGEST and high[i] == _LARGEST
                expected = FINITE if free else f"{low[i]} to {high[i]}"
                actual = f"{values[i]} as float32" if np.isinf(values[i]) else values[i]
                yield leaves_space(part.where, part.space, f"entry {i}", actual, expected)


def _ranges(group: Group) -> tuple[Array, Array]:
    """Return the lowest and highest value of each column; infinities and NaN are out of range."""
    bounds = group.layout.bounds
    if bounds is None:
        size = group.layout.vector_size
        return np.full(size, -_LARGEST), np.full(size, _LARGEST)
    return np.maximum(bounds[0], -_LARGEST), np.minimum(bounds[1], _LARGEST)
