"""Turn-based environments with a `last()` of their own, such as a wrapper that changes what `last()` returns.

`last()` is called once before each move and each dead step, as in PettingZoo's loop over `agent_iter()`. Its
observation, reward, flags and info count. A reward is in the Step in which its player is selected, because `last()`
reports that player only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium
from pettingzoo import AECEnv
from pettingzoo.utils.conversions import parallel_to_aec_wrapper

from marltrain.core.layout import Array
from marltrain.core.spec import Step
from marltrain.envs.layers import layers
from marltrain.envs.python.rewards import check_reward, refuse_text
from marltrain.envs.python.turns import TurnAdapter

_PETTINGZOO = frozenset({AECEnv.last, parallel_to_aec_wrapper.last})
"""Methods `last` that return `observe()` and attributes."""


def has_own_last(env: Any) -> bool:
    """Return whether `env.last()` is another method than PettingZoo's."""
    last = getattr(env, "last", None)
    return last is not None and getattr(last, "__func__", last) not in _PETTINGZOO


def unused_last(env: Any) -> str | None:
    """Return the name of the type of a wrapped layer whose own `last` is not called by `env.last()`, if there is one.

    PettingZoo's wrappers do not forward `last()`: they compute it again from `observe()` and attributes.
    """
    inside: Iterator[Any] = iter(()) if has_own_last(env) else layers(env)
    turns = (layer for layer in inside if hasattr(layer, "step") and not isinstance(layer, gymnasium.Env))
    found = (layer for layer in turns if has_own_last(layer))
    return next((type(layer).__name__ for layer in found), None)


class LastAdapter(TurnAdapter):
    """A PettingZoo AEC environment that is read by its own `last()`."""

    @staticmethod
    def _first_view(env: Any) -> tuple[Any, Any]:
        """See TurnAdapter."""
        seen, *_, info = env.last()
        return seen, info

    def _start(self, out: Step, e: int) -> None:
        """See TurnAdapter; the first mover's reward is the only one that can be read."""
        p = self._selected()
        seen, _, info = self._last(p, out.start_reward, e)
        self._write_turn(p, seen, info, out, e)

    def step(self, actions: tuple[Array, ...], out: Step, e: int) -> bool:
        """Apply the mover's action, take all due dead steps, and give the next player the turn."""
        port = self._ports[self._mover]
        self.env.step(port.action(actions, e))
        self._read.refresh()
        self._enter_arrivals(out, e)
        out.turn[port.group][port.row, e] = False
        truncated: dict[int, bool] = {}
        following, cut = None, False
        while self._get("agents"):
            p = self._selected()
            seen, (is_terminated, is_truncated), info = self._last(p, out.reward, e)
            if not (is_terminated or is_truncated):
                following = p, seen, info
                break
            if not truncated or (not is_terminated and not cut):
                cut = not is_terminated or self._cuts()
                self.write_final_state(out, e, truncated=cut)
            self._ports[p].write_final(seen, info, out, e)
            truncated[p] = not is_terminated
            self._take_dead_step(p)
            self._enter_arrivals(out, e)
        self._close_rest(truncated, out, e)
        self._enter_arrivals(out, e)  # those that took a dead step and begin another part
        if following is None:
            return True
        self._write_turn(*following, out, e)
        self.write_state(out.state, e)
        return False

    def _last(self, p: int, reward: Array, e: int) -> tuple[Any, tuple[bool, bool], Any]:
        """Return a player's observation, flags and info, and add its reward to `reward` [P, E]."""
        seen, gained, terminated, truncated, info = self.env.last()
        check_reward(self.spec.names[p], gained)
        refuse_text(self.spec.names[p], terminated=terminated, truncated=truncated)
        reward[p, e] += gained
        return seen, (bool(terminated), bool(truncated)), info

    def _close_rest(self, truncated: dict[int, bool], out: Step, e: int) -> None:
        """Close the players that were removed: with a dead step, or without one and without a last observation."""
        removed = [p for p in self._alive if self._keys[p] not in self._get("agents")]
        if removed and not truncated:
            self.write_final_state(out, e, truncated=False)
        for p in removed:
            if p not in truncated:
                self._ports[p].keep_final(out, e)
        self._close_removed(truncated, truncated, out, e)

    def _cuts(self) -> bool:
        """Return whether the environment's attributes mark a living player as truncated, and not as terminated."""
        cut, over = self._get("truncations"), self._get("terminations")
        return any(cut.get(self._keys[p]) and not over.get(self._keys[p]) for p in self._alive)
