"""Frame stacking: several frames as one observation, for games whose state a single frame does not show.

`FrameStack(env, num_frames)` is accepted wherever an environment is accepted. Gymnasium's FrameStackObservation is also
recognized. In both cases the replay buffer stores each frame only once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import FrameStackObservation, NormalizeObservation, NormalizeReward
from pettingzoo.utils import BaseParallelWrapper, BaseWrapper

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Space
from marltrain.core.spaces import without_mask
from marltrain.envs.flat import Flat
from marltrain.envs.layers import layers
from marltrain.envs.python.last import has_own_last
from marltrain.envs.python.returned import PARALLEL_RESET, PARALLEL_STEP, check_reset, check_step
from marltrain.envs.registry import Modifier, Source, api_of, resolve


def remembers(env: Any) -> bool:
    """Return whether a wrapper keeps statistics across episodes, so that no episode can be repeated."""
    return any(isinstance(layer, NormalizeObservation | NormalizeReward) for layer in layers(env))


def frames_of(env: Any) -> int:
    """Return the number of frames that an environment stacks on axis 0, padded by the first frame; 1 for no stack."""
    for layer in layers(env):
        if isinstance(layer, StackParallel | StackTurns):
            return layer.num_frames
        if isinstance(layer, FrameStackObservation):
            repeats_first = layer.padding_type == "reset"
            return layer.stack_size if repeats_first and layer.observation_space == env.observation_space else 1
        if isinstance(layer, gymnasium.ObservationWrapper | Flat):
            return 1  # it may change a stack below to something else
    return 1


class FrameStack(Modifier):
    """An environment in which each player observes its last `num_frames` observations, oldest first, on axis 0.

    At the start of an episode the first observation is repeated. In a turn-based game the frames are the observations
    at the player's own turns. Action masks are not stacked.

    >>> env = FrameStack("pettingzoo/butterfly/pistonball_v6", num_frames=4)
    """

    def __init__(self, env: Any, num_frames: int) -> None:
        """Stack `num_frames` >= 2 frames of `env`, a name, a class or a function. Raises ConfigError."""
        if num_frames < 2:
            raise ConfigError(f"num_frames must be at least 2, got {num_frames}")
        self.env = env
        self.num_frames = num_frames

    def source(self, env_args: Mapping[str, Any]) -> Source:
        """Return the Source of the stacked environment; `env_args` are arguments of the inner environment.

        A native game is played as single objects.
        """
        inner = resolve(self.env, env_args)
        build = functools.partial(_build_stacked, inner.build, self.num_frames)
        return dataclasses.replace(inner, name=f"{inner.name} ({self.num_frames} frames)", build=build, game=None)


def _build_stacked(build: Callable[..., Any], num_frames: int, **arguments: Any) -> Any:
    env = build(**arguments)
    api = api_of(env)
    if api == "gymnasium":
        return FrameStackObservation(env, num_frames)
    if api == "parallel":
        return StackParallel(env, num_frames)
    return StackLast(env, num_frames) if has_own_last(env) else StackTurns(env, num_frames)


def _stacked_space(space: Space, num_frames: int) -> Space:
    if not without_mask(space)[1]:
        return batch_space(space, num_frames)
    parts = dict(space.items())  # type: ignore[attr-defined]
    stacked = {name: part if name == "action_mask" else batch_space(part, num_frames) for name, part in parts.items()}
    return spaces.Dict(stacked)


def _stack(frames: list[Any]) -> Any:
    """Join observations of equal structure along a new axis 0; the action mask is that of the newest observation."""
    newest = frames[-1]
    if isinstance(newest, Mapping):
        return {name: newest[name] if name == "action_mask" else _stack([f[name] for f in frames]) for name in newest}
    if isinstance(newest, tuple):
        return tuple(_stack([frame[i] for frame in frames]) for i in range(len(newest)))
    return np.stack(frames)


class _Frames:
    """The last frames of all players."""

    def __init__(self, num_frames: int) -> None:
        self._num_frames = num_frames
        self._kept: dict[str, deque[Any]] = {}

    def clear(self) -> None:
        self._kept.clear()

    def add(self, player: str, frame: Any) -> Any:
        """Store a frame and return the stack."""
        kept = self._kept.setdefault(player, deque([frame] * self._num_frames, self._num_frames))
        kept.append(frame)
        return self.newest(player)

    def newest(self, player: str) -> Any:
        return _stack(list(self._kept[player]))

    def peek(self, player: str, frame: Any) -> Any:
        """Return the stack with `frame` as the newest, without storing it."""
        kept = self._kept.get(player, [frame] * self._num_frames)
        return _stack([*list(kept)[1:], frame])


class _Stacked:
    """The frames and the spaces of a stacked PettingZoo environment; mixed with a wrapper of its interface."""

    def __init__(self, env: Any, num_frames: int) -> None:
        """Wrap `env`."""
        super().__init__(env)  # type: ignore[call-arg]
        self.num_frames = num_frames
        self._frames = _Frames(num_frames)
        self._spaces = {name: _stacked_space(env.observation_space(name), num_frames) for name in env.possible_agents}

    def observation_space(self, agent: str) -> Space:
        """Return the space of a player's stacked frames."""
        return self._spaces[agent]


class StackParallel(_Stacked, BaseParallelWrapper):  # type: ignore[misc]
    """A PettingZoo parallel environment with stacked frames."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start an episode; the first frame fills the stack."""
        observations, infos = check_reset(self.env.reset(seed=seed, options=options), PARALLEL_RESET)
        self._frames.clear()
        return self._stacked(observations), infos

    def step(self, actions: dict[str, Any]) -> Any:
        """Step all agents and store their new frames."""
        observations, *rest = check_step(self.env.step(actions), PARALLEL_STEP)
        return self._stacked(observations), *rest

    def _stacked(self, observations: dict[str, Any]) -> dict[str, Any]:
        return {player: self._frames.add(player, frame) for player, frame in observations.items()}


class StackTurns(_Stacked, BaseWrapper):  # type: ignore[misc]
    """A PettingZoo AEC environment with stacked frames: the observations at a player's own turns."""

    _turn: str | None = None

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Start an episode; the first frame fills the stack."""
        self.env.reset(seed=seed, options=options)
        self._frames.clear()
        self._keep()

    def step(self, action: Any) -> None:
        """Apply an action and store the frame of the next player."""
        self.env.step(action)
        self._keep()

    def observe(self, agent: str) -> Any:
        """Return a player's stacked frames: up to its turn, or including the present one if it is not its turn."""
        if agent == self._turn:
            return self._frames.newest(agent)
        return self._frames.peek(agent, self.env.observe(agent))

    def _keep(self) -> None:
        """Store the selected agent's frame, unless it is dead: its final observation may be read more than once."""
        self._turn = None
        agent = self.env.agent_selection if self.env.agents else None
        if agent is not None and not self.env.terminations[agent] and not self.env.truncations[agent]:
            self._turn = agent
            self._frames.add(agent, self.env.observe(agent))


class StackLast(StackTurns):
    """A PettingZoo AEC environment with a `last()` of its own, whose observations are the frames."""

    _kept = False

    def last(self, observe: bool = True) -> Any:
        """Return the selected player's stacked frames, and what the environment's `last()` reports beside them."""
        frame, reward, terminated, truncated, info = self.env.last(observe)
        agent = self.env.agent_selection
        if not observe:
            return None, reward, terminated, truncated, info
        if terminated or truncated:
            return self._frames.peek(agent, frame), reward, terminated, truncated, info
        stack = self._frames.newest(agent) if self._kept else self._frames.add(agent, frame)
        self._kept = True
        return stack, reward, terminated, truncated, info

    def observe(self, agent: str) -> Any:
        """Return a player's stacked frames, with its present observation as the newest."""
        return self._frames.peek(agent, self.env.observe(agent))

    def _keep(self) -> None:
        """Store no frame yet: `last` gives it."""
        self._kept = False
