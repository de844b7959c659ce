"""Wrappers of `check_env` that check all outputs of an environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo.utils.wrappers import MultiEpisodeEnv

from marltrain.envs.layers import layers
from marltrain.envs.python.last import has_own_last
from marltrain.envs.python.returned import PARALLEL_RESET, PARALLEL_STEP, check_reset, check_step
from marltrain.envs.python.rewards import is_number
from marltrain.envs.registry import api_of
from marltrain.layout import NUMBERS, Space


class Findings:
    """A collection of problems and notes without duplicates."""

    def __init__(self, problems: list[str], notes: list[str]) -> None:
        """Use these two lists as storage."""
        self._problems = problems
        self._notes = notes

    def problem(self, text: str) -> None:
        """Add a defect that breaks training or makes it wrong."""
        if text not in self._problems:
            self._problems.append(text)

    def note(self, text: str) -> None:
        """Add a harmless oddity."""
        if text not in self._notes:
            self._notes.append(text)


def watch(env: Any, findings: Findings) -> Any:
    """Wrap an environment of any of the three interfaces in its checking wrapper."""
    if has_own_last(env):
        return _WatchLast(env, findings)
    return {"parallel": _WatchParallel, "turns": _WatchTurns, "gymnasium": _WatchGymnasium}[api_of(env)](env, findings)


class _Watch:
    """Base wrapper: forwards all attributes; subclasses check some calls."""

    def __init__(self, env: Any, findings: Findings) -> None:
        self.env = env
        self._findings = findings
        self._over: set[Any] = set()
        self._in_parts = any(isinstance(layer, MultiEpisodeEnv) for layer in layers(env))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def _check_spaces(self) -> None:
        for player in self.env.possible_agents:
            for side in (self.env.observation_space, self.env.action_space):
                if side(player) is not side(player):
                    self._findings.note(
                        f"player {player!r}: {side.__name__}() returns a new object at every call, so that seeding it "
                        "has no effect; return the same one"
                    )
        if len(set(self.env.possible_agents)) != len(self.env.possible_agents):
            self._findings.problem(f"possible_agents names a player twice: {self.env.possible_agents}")

    def _check_agents(self, when: str) -> None:
        for player in self.env.agents:
            if player not in self.env.possible_agents:
                self._findings.problem(f"{when}: env.agents holds {player!r}, which is not in possible_agents")
            if player in self._over and self._in_parts:
                self._over.remove(player)
            elif player in self._over:
                self._findings.problem(f"{when}: player {player!r} is back in env.agents after its part had ended")

    def _check_observation(self, player: str, space: Space, observation: Any) -> None:
        for problem, text in _misfits(space, observation):
            (self._findings.problem if problem else self._findings.note)(f"player {player!r}: observation{text}")

    def _check_reward(self, player: str, reward: Any) -> None:
        if not is_number(reward) or np.ndim(reward) != 0 or not np.isfinite(reward):
            self._findings.problem(f"player {player!r}: reward {reward!r} is not one finite number")
        elif player in self._over and reward != 0:
            self._findings.problem(
                f"player {player!r} received reward {reward!r} after its part had ended: no agent would receive it"
            )


class _WatchParallel(_Watch):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observations, infos = check_reset(self.env.reset(seed=seed, options=options), PARALLEL_RESET)
        self._over = set()
        self._check_spaces()
        self._check_agents("reset")
        self._check_observations(observations)
        return observations, infos

    def step(self, actions: dict[str, Any]) -> Any:
        observations, rewards, terminated, truncated, infos = check_step(self.env.step(actions), PARALLEL_STEP)
        self._check_observations(observations)
        for player, reward in rewards.items():
            self._check_reward(player, reward)
        self._check_agents("step")
        for player in actions:
            if player not in rewards:
                self._findings.problem(f"player {player!r} acted but was given no reward")
            flagged = bool(terminated.get(player)) or bool(truncated.get(player))
            if flagged or player not in self.env.agents:
                self._over.add(player)
            if not flagged and player not in self.env.agents:
                self._findings.note(f"player {player!r} left env.agents without a termination or truncation")
        if self.env.agents and self._over.issuperset(self.env.agents):
            self._findings.note("env.agents is not empty after the parts of all players have ended")
        return observations, rewards, terminated, truncated, infos

    def _check_observations(self, observations: Mapping[str, Any]) -> None:
        for player in [player for player in observations if player in self.env.possible_agents]:
            observation = observations[player]
            self._check_observation(player, self.env.observation_space(player), observation)


class _WatchTurns(_Watch):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.env.reset(seed=seed, options=options)
        self._over = set()
        self._check_spaces()
        self._check_agents("reset")
        for player, gathered in self.env._cumulative_rewards.items():
            if gathered != 0:
                self._findings.note(
                    f"reset: player {player!r} has a cumulative reward of {gathered} before any move: it enters the "
                    "player's return, but nothing is learned from it"
                )

    def step(self, action: Any) -> None:
        mover, before, there = self.env.agent_selection, dict(self.env._cumulative_rewards), set(self.env.agents)
        self.env.step(action)
        self._check_agents("step")
        for player, reward in self.env.rewards.items():
            self._check_reward(player, reward)
        gathered = self.env._cumulative_rewards
        if action is not None and before[mover] != 0 and gathered.get(mover) == before[mover] + self.env.rewards[mover]:
            self._findings.problem(
                f"player {mover!r}: its cumulative reward continues from {before[mover]} after its move, so that "
                "last() reports the same reward twice; set _cumulative_rewards[agent] = 0 when an agent moves"
            )
        self._over |= there - set(self.env.agents)

    def observe(self, player: str) -> Any:
        observation = self.env.observe(player)
        self._check_observation(player, self.env.observation_space(player), observation)
        return observation


class _WatchLast(_Watch):
    """Checks what an environment's own `last()` returns."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        self.env.reset(seed=seed, options=options)
        self._over = set()
        self._check_spaces()
        self._check_agents("reset")

    def step(self, action: Any) -> None:
        there = set(self.env.agents)
        self.env.step(action)
        self._check_agents("step")
        self._over |= there - set(self.env.agents)

    def last(self, observe: bool = True) -> Any:
        observation, reward, *rest = self.env.last(observe)
        player = self.env.agent_selection
        if observe:
            self._check_observation(player, self.env.observation_space(player), observation)
        self._check_reward(player, reward)
        return observation, reward, *rest


class _WatchGymnasium(_Watch):
    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        observation, info = check_reset(self.env.reset(seed=seed, options=options))
        self._check_observation("player_0", self.env.observation_space, observation)
        return observation, info

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = check_step(self.env.step(action))
        self._check_observation("player_0", self.env.observation_space, observation)
        self._check_reward("player_0", reward)
        return observation, reward, terminated, truncated, info


def _misfits(space: Space, value: Any, where: str = "") -> list[tuple[bool, str]]:
    """Return how a value differs from its space: (whether this is a problem, description) for every leaf."""
    if isinstance(space, spaces.Dict):
        return _mapping_misfits(space, value, where)
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            return [(True, f"{where} is not a tuple of {len(space.spaces)}")]
        pairs = enumerate(zip(space.spaces, value, strict=True))
        return [miss for i, (inner, part) in pairs for miss in _misfits(inner, part, f"{where}[{i}]")]
    array = np.asarray(value)
    if array.shape != tuple(space.shape or ()):
        return [(True, f"{where} has shape {array.shape}, its space says {space.shape}")]
    if array.dtype.kind not in NUMBERS:
        return [(True, f"{where} has dtype {array.dtype}, its space says {space.dtype}")]
    if isinstance(space, spaces.Box):
        if not ((array >= space.low) & (array <= space.high)).all():  # NaN compares false
            return [(True, f"{where} leaves its space {space}: lowest {array.min()}, highest {array.max()}")]
        if array.dtype != space.dtype:
            loses = not np.can_cast(array.dtype, space.dtype, "same_kind")
            return [(loses, f"{where} has dtype {array.dtype}, its space says {space.dtype}")]
    elif not space.contains(value):
        return [(True, f"{where} is {value!r}, which is not in {space}")]
    return []


def _mapping_misfits(space: spaces.Dict, value: Any, where: str) -> list[tuple[bool, str]]:
    if not isinstance(value, Mapping):
        return [(True, f"{where} is a {type(value).__name__}, its space is a Dict")]
    found = [(True, f"{where} has no {key!r}") for key in space.spaces if key not in value]
    found += [(False, f"{where} has {key!r}, unknown to its space") for key in value if key not in space.spaces]
    for key, inner in space.items():
        if key in value:
            found += _misfits(inner, value[key], f"{where}[{key!r}]")
    return found
