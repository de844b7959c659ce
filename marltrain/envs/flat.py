"""Wrappers that flatten the images among observations, for environments of all three interfaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo.utils import BaseParallelWrapper, BaseWrapper

from marltrain.core.layout import Space, is_image
from marltrain.envs.python.returned import PARALLEL_RESET, PARALLEL_STEP, check_reset, check_step


def flat_space(space: Space, stack: int) -> Space:
    """Return a space in which images are Boxes of one axis; stack: number of frames on axis 0 of its images."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: flat_space(inner, stack) for name, inner in space.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([flat_space(inner, stack) for inner in space.spaces])
    if isinstance(space, spaces.Box) and is_image(space, stack):
        return spaces.Box(space.low.reshape(-1), space.high.reshape(-1), dtype=np.uint8)
    return space


def flattened(space: Space, flat: Space, observation: Any) -> Any:
    """Return an observation of `space` as one of its `flat_space`; values and arrays that do not fit stay."""
    if isinstance(observation, Mapping) and isinstance(space, spaces.Dict) and isinstance(flat, spaces.Dict):
        return {
            name: flattened(space[name], flat[name], value) if name in space.spaces else value
            for name, value in observation.items()
        }
    if isinstance(space, spaces.Tuple) and isinstance(flat, spaces.Tuple) and isinstance(observation, tuple | list):
        known = zip(space.spaces, flat.spaces, observation, strict=False)
        return (*(flattened(*each) for each in known), *observation[len(space.spaces) :])
    if space is flat:
        return observation
    array = np.asarray(observation)
    return array.reshape(-1) if array.shape == space.shape else observation


class Flat:
    """Base class of the wrappers of PettingZoo environments."""

    def __init__(self, env: Any, stack: int) -> None:
        """Wrap `env`; stack: number of frames on axis 0 of its images."""
        super().__init__(env)  # type: ignore[call-arg]
        self._spaces = {name: env.observation_space(name) for name in env.possible_agents}
        self._flat = {name: flat_space(space, stack) for name, space in self._spaces.items()}

    def observation_space(self, agent: str) -> Space:
        """Return the space of a player's flattened observations."""
        return self._flat[agent]

    def _flattened(self, agent: str, observation: Any) -> Any:
        known = agent in self._spaces
        return flattened(self._spaces[agent], self._flat[agent], observation) if known else observation


class FlatParallel(Flat, BaseParallelWrapper):  # type: ignore[misc]
    """A PettingZoo parallel environment with flattened images."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start an episode."""
        observations, infos = check_reset(self.env.reset(seed=seed, options=options), PARALLEL_RESET)
        return {name: self._flattened(name, seen) for name, seen in observations.items()}, infos

    def step(self, actions: dict[str, Any]) -> Any:
        """Step all agents."""
        observations, *rest = check_step(self.env.step(actions), PARALLEL_STEP)
        return {name: self._flattened(name, seen) for name, seen in observations.items()}, *rest


class FlatTurns(Flat, BaseWrapper):  # type: ignore[misc]
    """A PettingZoo AEC environment with flattened images."""

    def observe(self, agent: str) -> Any:
        """Return a player's flattened observation."""
        return self._flattened(agent, self.env.observe(agent))


class FlatLast(FlatTurns):
    """A PettingZoo AEC environment with a `last()` of its own, and with flattened images."""

    def last(self, observe: bool = True) -> Any:
        """Return what the environment's `last()` reports, with the observation flattened."""
        observation, *rest = self.env.last(observe)
        return self._flattened(self.env.agent_selection, observation) if observe else observation, *rest


class FlatSingle(gymnasium.ObservationWrapper):
    """A Gymnasium environment with flattened images."""

    def __init__(self, env: Any, stack: int) -> None:
        """Wrap `env`; stack: number of frames on axis 0 of its images."""
        super().__init__(env)
        self._space = env.observation_space
        self.observation_space = flat_space(self._space, stack)

    def observation(self, observation: Any) -> Any:
        """Return an observation with flattened images."""
        return flattened(self._space, self.observation_space, observation)
