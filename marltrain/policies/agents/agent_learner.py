"""AgentLearner: the learner of one agent that defines its own `act`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from marltrain.core.encoding import in_units
from marltrain.core.layout import Array, Layout, Obs, map_tree
from marltrain.core.seeds import MOST_SEED, generator, restored, state_of
from marltrain.core.spec import PlayerSpec
from marltrain.policies.batches.batch import Acted, ActInputs, Experience, Rollout
from marltrain.policies.learner.learner import Learner, UpdateSchedule
from marltrain.policies.memory.needs import Needs
from marltrain.storage.state import State


class SeatedAgent(Protocol):
    """The part of `Agent` that its learner calls; see `Agent` for the methods."""

    _seat: PlayerSpec | None

    @property
    def learns(self) -> bool:
        """Whether agents of this class can learn."""

    def stream_seed(self) -> int:
        """Return the seed of the random streams."""

    def turn_to(self, player: PlayerSpec) -> None:
        """Make this player's seat the current seat."""

    def decide(
        self, obs: Obs, legal: Array | None, carry: Any, *, turn: Array, explore: Array, rng: np.random.Generator
    ) -> Acted:
        """Choose actions for Step arrays [B, ...]."""

    def drawing_from(self, rng: np.random.Generator) -> AbstractContextManager[None]:
        """Use this generator as the agent's `rng` inside the context."""

    def observe(self, batch: Experience) -> None:
        """Receive new transitions."""

    def update(self, env_steps: int) -> Mapping[str, float]:
        """Learn and return metrics."""

    def _seated(self) -> tuple[Layout, Any]:
        """Return the layout and the action space of the agent."""


class AgentLearner(Learner):
    """The learner of one custom agent, or of one agent that never learns (K = 1)."""

    update_schedule = UpdateSchedule(
        batch_size=1
    )  # an update gets the whole rollout; no rollout is smaller than this batch size

    def __init__(self, agent: SeatedAgent) -> None:
        """Wrap an agent in its current seat."""
        self.agent, self._seat = agent, agent._seat
        self.needs = Needs(on_policy=True) if agent.learns else None
        self.gradient_steps = np.zeros(1, np.int64)
        self._seed = agent.stream_seed()
        self._act_rng = [generator(self._seed, "act")]
        self._seen_steps, self._env_steps = 0, 0

    def rngs(self, purpose: str) -> Any:
        """Return the agent's single generator; for "test", return a freshly seeded generator at every call."""
        return [generator(self._seed, "test")] if purpose == "test" else self._act_rng

    def apply_schedules(self, env_steps: int) -> None:
        """Set the env steps of the run; `update` passes their increase to the agent."""
        self._env_steps, self._seen_steps = env_steps, min(self._seen_steps, env_steps)  # a new run counts from 0

    def gammas(self) -> Array:
        """Return 1: the agent applies its own discount."""
        return np.ones(1)

    def act(self, inputs: ActInputs, *, turn: Array, rngs: Any) -> Acted:
        """Choose actions with `agent.decide`, which has no axis K."""
        if self._seat is not None:
            self.agent.turn_to(self._seat)
        acted = self.agent.decide(
            map_tree(_first, inputs.obs), None if inputs.legal is None else inputs.legal[0],
            each_array(inputs.carry, _first), turn=turn[0], explore=inputs.explore[0], rng=rngs[0],
        )  # fmt: skip
        extras = {name: value[None] for name, value in acted.extras.items()}
        return Acted(acted.action[None], each_array(acted.carry, lambda array: array[None]), extras)

    def update(self, batch: Rollout, *, learn: Array, batch_size: int) -> dict[str, Array]:
        """Pass the new transitions to `observe`, then call the agent's `update`; returns metrics [1]."""
        if not learn[0]:
            return {}
        layout, space = self.agent._seated()
        with self.agent.drawing_from(self._act_rng[0]):
            self.agent.observe(experience_of(batch, layout, space))
            metrics = self.agent.update(self._env_steps - self._seen_steps)
        self._seen_steps = self._env_steps
        self.gradient_steps += 1
        return {name: np.array([value], np.float64) for name, value in metrics.items()}

    def loop_state(self) -> State:
        """Return the random stream and the counters; `Agent.state` returns the rest of the state."""
        return State({
            "seed": self._seed, "rng": state_of(self._act_rng[0]), "gradient_steps": int(self.gradient_steps[0]),
            "seen_steps": self._seen_steps, "env_steps": self._env_steps,
        })  # fmt: skip

    def restore_loop(self, state: State) -> None:
        """See `Learner`."""
        self._seed, self._act_rng[0] = state.count("seed", high=MOST_SEED), restored(state.value("rng", dict))
        self.gradient_steps[0] = state.count("gradient_steps")
        self._seen_steps, self._env_steps = state.count("seen_steps"), state.count("env_steps")


def _first(array: Array) -> Array:
    """Return an array [1, ...] without its axis K."""
    first: Array = array[0]
    return first


def each_array(carry: Any, change: Callable[[Array], Array]) -> Any:
    """Apply `change` to every array of a recurrent carry: an array, nested mappings and tuples of arrays, or None."""
    if isinstance(carry, dict):
        return {name: each_array(value, change) for name, value in carry.items()}
    if isinstance(carry, tuple):
        return tuple(each_array(value, change) for value in carry)
    return None if carry is None else change(carry)


def experience_of(batch: Rollout, layout: Layout, space: Any) -> Experience:
    """Convert agent 0 of a rollout to transitions in the environment's own structure."""
    rows = np.flatnonzero(batch.weight[0] > 0)
    next_obs, next_legal = what_followed(batch, rows)
    terminated = batch.discount[0, rows] == 0
    return Experience(
        observation=layout.decode(map_tree(lambda array: array[0][rows], batch.obs)),
        legal=None if batch.legal is None else batch.legal[0][rows],
        action=in_units(space, batch.action[0][rows]),
        reward=batch.reward[0][rows],
        next_observation=layout.decode(next_obs),
        next_legal=next_legal,
        terminated=terminated,
        truncated=batch.truncated[0, rows],
    )


def what_followed(batch: Rollout, rows: Array) -> tuple[Obs, Array | None]:
    """Return the next observations and legal actions of rows [B] of agent 0's rollout, each [B, ...]."""
    boot = batch.boot[0, rows]

    def following(now: Array, boots: Array) -> Array:
        chained = now[np.minimum(rows + 1, len(now) - 1)]
        picked = boots[np.maximum(boot, 0)]
        after: Array = np.where((boot < 0).reshape(-1, *[1] * (now.ndim - 1)), chained, picked)
        return after

    next_legal = None
    if batch.legal is not None and batch.boot_legal is not None:
        next_legal = following(batch.legal[0], batch.boot_legal[0])
    if isinstance(batch.obs, dict) and isinstance(batch.boot_obs, dict):
        return {name: following(batch.obs[name][0], batch.boot_obs[name][0]) for name in batch.obs}, next_legal
    return following(batch.obs[0], batch.boot_obs[0]), next_legal  # type: ignore[index]
