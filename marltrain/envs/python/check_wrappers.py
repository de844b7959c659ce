"""Wrappers of `check_env` that check all outputs of an environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from pettingzoo.utils.wrappers import MultiEpisodeEnv

from marltrain.core.layout import NUMBERS, Space
from marltrain.envs.layers import layers
from marltrain.envs.python.last import has_own_last
from marltrain.envs.python.names import text_name
from marltrain.envs.python.returned import PARALLEL_RESET, PARALLEL_STEP, check_reset, check_step
from marltrain.envs.python.rewards import is_number
from marltrain.envs.registry import api_of

NAMED = 3
"""Other players that a finding names; the rest is counted."""


@dataclass
class _Finding:
    """A finding: its place in the list of texts, its text for the first player, and all players."""

    index: int
    text: str
    players: list[str]

    def complete(self) -> str:
        """Return the text with the other players."""
        names = [repr(name) for name in self.players[1 : 1 + NAMED]]
        rest = len(self.players) - 1 - len(names)
        more = f" and {rest} others" if rest > 1 else " and another one" if rest else ""
        return f"{self.text}; also player{'s' * (len(self.players) > 2)} {', '.join(names)}{more}"


class Findings:
    """A collection of problems and notes: each kind once, with its first text and the players that it concerns."""

    def __init__(self, problems: list[str], notes: list[str]) -> None:
        """Use these two lists as storage."""
        self._problems = problems
        self._notes = notes
        self._found: dict[tuple[bool, str], _Finding] = {}

    def problem(self, text: str, player: Any = None, kind: str = "") -> None:
        """Add a defect that breaks training or makes it wrong.

        player: of the text, by the environment's name.  kind: text that is equal for all findings of the same kind.
        """
        self._add(self._problems, text, player, kind)

    def note(self, text: str, player: Any = None, kind: str = "") -> None:
        """Add a harmless oddity; see `problem`."""
        self._add(self._notes, text, player, kind)

    def _add(self, texts: list[str], text: str, player: Any, kind: str) -> None:
        key = texts is self._problems, kind or text
        found = self._found.get(key)
        name = text_name(player)
        if found is None:
            self._found[key] = _Finding(len(texts), text, [name])
            texts.append(text)
        elif player is not None and name not in found.players:
            found.players.append(name)
            texts[found.index] = found.complete()


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
                        f"{_who(player)}: {side.__name__}() returns a new object at every call, so that seeding it "
                        "has no effect; return the same one",
                        player,
                        f"new {side.__name__}",
                    )
        if len(set(self.env.possible_agents)) != len(self.env.possible_agents):
            self._findings.problem(f"possible_agents names a player twice: {self.env.possible_agents}")

    def _check_agents(self, when: str) -> None:
        for player in self.env.agents:
            if player not in self.env.possible_agents:
                self._findings.problem(
                    f"{when}: env.agents holds {player!r}, which is not in possible_agents", player, "stranger"
                )
            if player in self._over and self._in_parts:
                self._over.remove(player)
            elif player in self._over:
                self._findings.problem(
                    f"{when}: {_who(player)} is back in env.agents after its part had ended", player, "back"
                )

    def _check_observation(self, player: Any, space: Space, observation: Any) -> None:
        for misfit in _misfits(space, observation):
            add = self._findings.problem if misfit.breaks else self._findings.note
            add(f"{_who(player)}: observation{misfit.text}", player, f"observation{misfit.kind}")

    def _check_reward(self, player: Any, reward: Any) -> None:
        if not is_number(reward) or np.ndim(reward) != 0 or not np.isfinite(reward):
            self._findings.problem(f"{_who(player)}: reward {reward!r} is not one finite number", player, "reward")
        elif player in self._over and reward != 0:
            self._findings.problem(
                f"{_who(player)} received reward {reward!r} after its part had ended: no agent would receive it",
                player,
                "reward of the dead",
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
                self._findings.problem(f"{_who(player)} acted but was given no reward", player, "no reward")
            flagged = bool(terminated.get(player)) or bool(truncated.get(player))
            if flagged or player not in self.env.agents:
                self._over.add(player)
            if not flagged and player not in self.env.agents:
                self._findings.note(
                    f"{_who(player)} left env.agents without a termination or truncation", player, "left"
                )
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
            if not is_number(gathered):
                self._check_reward(player, gathered)
            elif gathered != 0:
                self._findings.note(
                    f"reset: {_who(player)} has a cumulative reward of {gathered} before any move: it enters the "
                    "player's return, but nothing is learned from it",
                    player,
                    "cumulative reward at the reset",
                )

    def step(self, action: Any) -> None:
        mover, before, there = self.env.agent_selection, dict(self.env._cumulative_rewards), set(self.env.agents)
        self.env.step(action)
        self._check_agents("step")
        for player, reward in self.env.rewards.items():
            self._check_reward(player, reward)
        if action is not None and _continues(self.env, mover, before[mover]):
            self._findings.problem(
                f"{_who(mover)}: its cumulative reward continues from {before[mover]} after its move, so that "
                "last() reports the same reward twice; set _cumulative_rewards[agent] = 0 when an agent moves",
                mover,
                "cumulative reward continues",
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


def _who(player: Any) -> str:
    return f"player {text_name(player)!r}"


def _continues(env: Any, mover: Any, before: Any) -> bool:
    """Return whether a player's cumulative reward is not set back at its move; before: its value before the move."""
    rewards = before, env._cumulative_rewards.get(mover), env.rewards.get(mover)
    if not all(map(is_number, rewards)):
        return False
    return bool(before != 0 and rewards[1] == before + rewards[2])


class _Misfit(NamedTuple):
    """A difference of a value from its space.

    breaks: whether it breaks training.  text: its description.  kind: the description without the values.
    """

    breaks: bool
    text: str
    kind: str


def _misfits(space: Space, value: Any, where: str = "") -> list[_Misfit]:
    """Return how a value differs from its space, for every leaf."""
    if isinstance(space, spaces.Dict):
        return _mapping_misfits(space, value, where)
    if isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple | list) or len(value) != len(space.spaces):
            return [_misfit(True, f"{where} is not a tuple of {len(space.spaces)}")]
        pairs = enumerate(zip(space.spaces, value, strict=True))
        return [miss for i, (inner, part) in pairs for miss in _misfits(inner, part, f"{where}[{i}]")]
    array = np.asarray(value)
    if array.shape != tuple(space.shape or ()):
        return [_misfit(True, f"{where} has shape {array.shape}, its space says {space.shape}")]
    if array.dtype.kind not in NUMBERS:
        return [_misfit(True, f"{where} has dtype {array.dtype}, its space says {space.dtype}")]
    if isinstance(space, spaces.Box):
        if not ((array >= space.low) & (array <= space.high)).all():  # NaN compares false
            return [
                _misfit(True, f"{where} leaves its space {space}", f": lowest {array.min()}, highest {array.max()}")
            ]
        if array.dtype != space.dtype:
            loses = not np.can_cast(array.dtype, space.dtype, "same_kind")
            return [_misfit(loses, f"{where} has dtype {array.dtype}, its space says {space.dtype}")]
    elif not space.contains(value):
        return [_Misfit(True, f"{where} is {value!r}, which is not in {space}", f"{where} is not in {space}")]
    return []


def _misfit(breaks: bool, kind: str, values: str = "") -> _Misfit:
    return _Misfit(breaks, kind + values, kind)


def _mapping_misfits(space: spaces.Dict, value: Any, where: str) -> list[_Misfit]:
    if not isinstance(value, Mapping):
        return [_misfit(True, f"{where} is a {type(value).__name__}, its space is a Dict")]
    found = [_misfit(True, f"{where} has no {key!r}") for key in space.spaces if key not in value]
    found += [_misfit(False, f"{where} has {key!r}, unknown to its space") for key in value if key not in space.spaces]
    for key, inner in space.items():
        if key in value:
            found += _misfits(inner, value[key], f"{where}[{key!r}]")
    return found
