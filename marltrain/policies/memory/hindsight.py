"""Hindsight: transitions with other goals, which were reached (Andrychowicz et al. 2017, arXiv:1707.01495)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import AgentError, ConfigError, error_text, warn
from marltrain.core.layout import VECTOR, Array, Obs, Part
from marltrain.policies.batches.batch import Transitions
from marltrain.policies.memory.choice import UniformChoice
from marltrain.policies.memory.compiled.hindsight_kernel import EPISODE, FINAL, FUTURE, goals_program
from marltrain.policies.memory.goals import goal_parts
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.readers import UniformReader
from marltrain.policies.memory.ring import Ring

if TYPE_CHECKING:
    from marltrain.policies.memory.memory_numbers import MemoryNumbers

STRATEGIES = {"future": FUTURE, "final": FINAL, "episode": EPISODE}


class HindsightReader(UniformReader):
    """A `UniformReader` that gives a share of its transitions another goal, and the rewards for it.

    The choice of rows, n-step sums and stacked frames are those of `UniformReader`. A transition with a new goal g has
    g in the observation and in the next one, and its reward sums reward_fn(achieved, g, info) over the same steps. Its
    discount does not change: an episode ends where it ended.
    """

    def __init__(
        self, ring: Ring, seats: Sequence[Sequence[int]], needs: Needs, numbers: MemoryNumbers | None = None
    ) -> None:
        """Raise ConfigError for observations without goals, and if nothing computes rewards."""
        super().__init__(ring, seats, needs, numbers)
        hindsight = None if needs.replay is None else needs.replay.hindsight
        if hindsight is None:
            raise TypeError("HindsightReader needs Needs(replay=Replay(hindsight=...))")
        self.hindsight, self.numbers = hindsight, numbers
        self._achieved, self._desired = goal_parts(ring.group.layout, "hindsight")
        self._reward = hindsight.reward_fn or ring.goal_reward
        if self._reward is None:
            raise ConfigError(
                "Hindsight: the rewards of other goals are computed by reward_fn(achieved, desired, info) on arrays, "
                "or by the environment's compute_reward, which it does not have: give reward_fn="
            )
        self._everywhere = UniformChoice(ring, self.seats)
        self._compared = hindsight.reward_fn is not None

    def sample(self, rngs: Sequence[np.random.Generator | None], gamma: Array, batch_size: int) -> Transitions:
        """See `UniformReader`; agent k then draws which transitions get another goal, and which one, from `rngs[k]`."""
        result = super().sample(rngs, gamma, batch_size)
        self._compare(result)
        chosen, goals = np.zeros(result.cells.shape, bool), result.cells.copy()
        for k, rng in enumerate(rngs):
            if rng is None or not result.weight[k].any():
                continue
            chosen[k] = rng.random(batch_size) < self._share(k)
            goals[k] = self._goal_rows(k, rng, result.cells[k])
        if chosen.any():
            self._relabel(result, chosen, goals[chosen], np.asarray(gamma, float))
        return result

    def _compare(self, made: Transitions) -> None:
        """Warn once if the environment's compute_reward gives other rewards than its steps, for its own goals."""
        cells = made.cells[made.weight > 0]
        if self._compared or not len(cells):
            return
        self._compared = True
        seen, _ = self.ring.after(cells, self.ring.read(self.ring.next, cells))
        goals = _vector(seen)[:, self._desired.start : self._desired.stop]
        given, judged = self.ring.read(self.ring.reward, cells), self._judged(self._reached(cells), goals)
        different = np.flatnonzero(~np.isclose(given, judged, rtol=1e-4, atol=1e-5))
        if len(different):
            i = int(different[0])
            warn(
                f"Hindsight: a step gave the reward {given[i]:g}, but compute_reward gives {judged[i]:g} for its goals "
                f"achieved {self._reached(cells[i : i + 1])[0]} and desired {goals[i]}: rewards of other goals are on "
                "another scale. A wrapper that changes rewards must change compute_reward, too; or give "
                "Hindsight(reward_fn=...)"
            )

    def _share(self, k: int) -> float:
        if self.numbers is not None:
            return float(self.numbers.values("share")[k])
        share = self.hindsight.share
        return share(0) if callable(share) else share

    def _goal_rows(self, k: int, rng: np.random.Generator, cells: Array) -> Array:
        """Return the cells of the rows whose next observations hold the goals, [B]."""
        ring = self.ring
        if self.hindsight.strategy == "random":
            rngs = [rng if i == k else None for i in range(len(self.seats))]
            return self._everywhere.draw(rngs, self._everywhere.size().tolist(), len(cells)).cells[k]
        found = np.zeros_like(cells)
        goals_program()(
            ring.next.reshape(-1), ring.acted.reshape(-1), np.ascontiguousarray(cells), rng.random(len(cells)),
            STRATEGIES[self.hindsight.strategy], ring.capacity, ring.num_envs, ring.oldest, ring.now, found,
        )  # fmt: skip
        return found

    def _relabel(self, made: Transitions, chosen: Array, goal_rows: Array, gamma: Array) -> None:
        """Give the `chosen` [K, B] transitions the goals of rows [n], in place."""
        goals = self._reached(goal_rows)
        for obs in (made.obs, made.next_obs):
            _vector(obs)[chosen, self._desired.start : self._desired.stop] = goals
        made.reward[chosen] = self._rewards(made.cells[chosen], goals, np.nonzero(chosen)[0], gamma)

    def _rewards(self, cells: Array, goals: Array, agent: Array, gamma: Array) -> Array:
        """Return the discounted sums of the rewards for goals [n, G] over up to n steps from cells [n]."""
        ring, total = self.ring, np.zeros(len(cells))
        going = np.arange(len(cells))
        for i in range(self.needs.n_step):
            total[going] += gamma[agent[going]] ** i * self._judged(self._reached(cells[going]), goals[going])
            pointers = ring.read(ring.next, cells)
            following = ring.shifted(cells, pointers)
            go = (pointers >= 0) & (ring.read(ring.next, following) != -1) & ring.may_learn(following)
            going = going[go[going]]
            if not len(going):
                break
            cells = np.where(go, following, cells)
        return total.astype(np.float32)

    def _reached(self, cells: Array) -> Array:
        """Return the goals that were achieved after the rows at cells [n], flat [n, G]."""
        seen, _ = self.ring.after(cells, self.ring.read(self.ring.next, cells))
        part = self._achieved
        return _vector(seen)[:, part.start : part.stop].copy()

    def _judged(self, achieved: Array, desired: Array) -> Array:
        """Return the rewards [n] of the user's function; raises AgentError if it fails or returns something else."""
        count = len(achieved)
        given = [_in_space(part, flat) for part, flat in ((self._achieved, achieved), (self._desired, desired))]
        try:
            result = np.asarray(self._reward(*given, {}))  # type: ignore[misc]
        except Exception as error:
            raise AgentError(
                f"Hindsight: reward_fn raised for arrays {given[0].shape} of achieved and desired goals: "
                f"{error_text(error)}"
            ) from error
        if result.shape != (count,) or result.dtype.kind not in "biuf" or not np.isfinite(result).all():
            raise AgentError(
                f"Hindsight: reward_fn must return one finite reward for each of {count} rows, shape ({count},), for "
                f"arrays {given[0].shape} of achieved and desired goals; it returned {result.dtype} of shape "
                f"{result.shape}"
            )
        return result.astype(np.float64)


def _vector(obs: Obs) -> Array:
    return obs[VECTOR] if isinstance(obs, dict) else obs


def _in_space(part: Part, flat: Array) -> Array:
    """Return flat goals [n, G] in the shape and dtype of the space."""
    space: Any = part.space
    values: Array = flat.reshape(len(flat), *space.shape).astype(space.dtype)
    return values
