"""demonstrations: record the decisions of agents that play an environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from marltrain.core.errors import AgentError, ConfigError, did_you_mean, shown
from marltrain.core.layout import Array, Obs, arrays_of, map_tree
from marltrain.core.settings import check_flags
from marltrain.core.spec import EnvSpec, Step
from marltrain.envs import make_vector
from marltrain.envs.python.probe import closed
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.files import DESCRIPTION, RUN_AGENTS
from marltrain.policies.agents.saving import load
from marltrain.policies.demonstrations.demonstrations import Demonstrations
from marltrain.storage.files import path_of
from marltrain.trainer.collecting.rollout import Actors
from marltrain.trainer.seats.by_player import Agents, in_seats, without_seats
from marltrain.trainer.seats.in_use import at_work
from marltrain.trainer.seats.seats import Seating

MOST_ENVS = 16
"""Maximum number of environments that play at once."""


@overload
def demonstrations(
    env: Any, agents: Agents | str | Path, *, episodes: int, player: str,
    env_args: Mapping[str, Any] | None = None, seed: int = 0, explore: bool = False,
) -> Demonstrations: ...  # fmt: skip


@overload
def demonstrations(
    env: Any, agents: Agents | str | Path, *, episodes: int, player: None = None,
    env_args: Mapping[str, Any] | None = None, seed: int = 0, explore: bool = False,
) -> dict[str, Demonstrations]: ...  # fmt: skip


def demonstrations(
    env: Any,
    agents: Agents | str | Path,
    *,
    episodes: int,
    player: str | None = None,
    env_args: Mapping[str, Any] | None = None,
    seed: int = 0,
    explore: bool = False,
) -> Demonstrations | dict[str, Demonstrations]:
    """Let agents play whole episodes; return each player's decisions by its name, or those of `player`.

    env, env_args: as for `DecentralizedTrainer`.
    agents: one agent per player; or a folder of `save`; or the folder of a run, whose agents of the best test play, or
    its last agents if there were no tests.
    episodes: number of episodes; equal seeds give equal episodes.  explore: whether the agents explore.
    Raises AgentError if agents do not fit the players, or if a player made no decision; EnvError if the environment
    raises or breaks its contract.
    """
    check_flags("demonstrations", explore=explore)
    if type(episodes) is not int or episodes < 1:
        raise ConfigError(f"episodes must be an integer of at least 1, got {shown(episodes)}")
    given = _saved_agents(agents) if isinstance(agents, str | Path) else agents
    num_envs = min(MOST_ENVS, episodes)
    with at_work(None, without_seats(given), training=False):
        vector = make_vector(env, env_args, num_envs, role="test")
        with closed(vector, vector.source.name) as envs:
            spec = envs.spec
            if player is not None and player not in spec.names:
                raise ConfigError(f"player {shown(player)} is not one of {', '.join(spec.names)}."
                                  f"{did_you_mean(player, spec.names)}")  # fmt: skip
            actors = Actors(spec, Seating(spec, in_seats(given, spec), seed, stack=False).learners, num_envs, "test")
            actors.cast.check_chosen()
            actors.explore(np.full(len(spec.players), explore))
            recorded = {p: _Record(spec, p, num_envs) for p, name in enumerate(spec.names) if player in (None, name)}
            _play(envs, actors, list(recorded.values()), seed, episodes)
    result = {spec.names[p]: record.made() for p, record in recorded.items()}
    return result if player is None else result[player]


def _saved_agents(folder: str | Path) -> list[Agent]:
    """Load the agents of a folder of `save`, or of a run."""
    path = path_of(folder, "agents", AgentError)
    for found in (path, *(path / name for name in RUN_AGENTS)):
        if (found / DESCRIPTION).is_file():
            return load(found)
    raise AgentError(
        f"agents={str(folder)!r} holds neither saved agents nor those of a run ({' or '.join(RUN_AGENTS)}): give a "
        "folder of marltrain.save, or of a run"
    )


def _play(envs: Any, actors: Actors, records: Sequence[_Record], seed: int, episodes: int) -> None:
    """Play exactly `episodes` episodes: episode j runs in environment j mod E."""
    step = envs.reset(seed)
    number = np.arange(envs.num_envs)
    while (number < episodes).any():
        actors.decide(step)
        for record in records:
            record.add(step, actors.actions, number, number < episodes)
        envs.send(actors.actions)
        step = envs.recv()
        for record in records:
            record.close(step)
        number = np.where(step.ended, number + envs.num_envs, number)


class _Record:
    """The decisions of one player in E environments, and what followed each.

    open: [E], the environment's last decision if nothing followed it yet, else -1.
    """

    def __init__(self, spec: EnvSpec, player: int, num_envs: int) -> None:
        self.spec, self.player = spec.players[player], player
        self.group, self.row = spec.place[player]
        self.open = np.full(num_envs, -1)
        self.count = 0
        self.obs: list[Obs] = []
        self.legal: list[Array] = []
        self.action: list[Array] = []
        self.episode: list[Array] = []
        self.following: list[tuple[Array, Obs, bool]] = []  # (decisions, observations after them, ends)
        self.rewards: list[tuple[Array, Array]] = []  # (decisions, rewards after them)
        self.terminated: list[Array] = []

    def add(self, step: Step, actions: tuple[Array, ...], number: Array, playing: Array) -> None:
        """Add the decisions on a Step; number: the environments' episodes.  playing: whether these are recorded."""
        envs = np.flatnonzero(step.turn[self.group][self.row] & playing)
        if not len(envs):
            return
        obs, legal = self._at(step.obs, envs), step.legal[self.group]
        self._follow(envs, obs, ends=False)
        self.obs.append(obs)
        if legal is not None:
            self.legal.append(legal[self.row, envs])
        self.action.append(actions[self.group][self.row, envs])
        self.episode.append(number[envs])
        self.open[envs] = self.count + np.arange(len(envs))
        self.count += len(envs)

    def close(self, step: Step) -> None:
        """Add the rewards of a Step, and end the decisions of environments where the player's part has just ended."""
        rewarded = np.flatnonzero((self.open >= 0) & (step.reward[self.player] != 0))
        if len(rewarded):
            self.rewards.append((self.open[rewarded], step.reward[self.player, rewarded]))
        self.terminated.append(self.open[step.terminated[self.player] & (self.open >= 0)])
        envs = np.flatnonzero((step.terminated | step.truncated)[self.player])
        self._follow(envs, self._at(step.final_obs, envs), ends=True)

    def made(self) -> Demonstrations:
        """Return the decisions by episode and time."""
        if not self.count:
            raise AgentError(f"player {self.spec.name!r} made no decision in these episodes: record more episodes")
        layout, order = self.spec.layout, np.argsort(np.concatenate(self.episode), kind="stable")
        obs, following = layout.empty((self.count,)), layout.empty((self.count,))
        ends, terminated, reward = (
            np.zeros(self.count, bool),
            np.zeros(self.count, bool),
            np.zeros(self.count, np.float32),
        )
        terminated[np.concatenate(self.terminated)] = True
        for rows, values in self.rewards:  # a decision occurs once among `rows`
            reward[rows] += values
        for into, parts in zip(arrays_of(obs), zip(*map(arrays_of, self.obs), strict=True), strict=True):
            np.concatenate(parts, out=into)
        for rows, after, over in self.following:
            ends[rows] = over
            for into, values in zip(arrays_of(following), arrays_of(after), strict=True):
                into[rows] = values

        def ordered(values: Any) -> Any:
            return map_tree(lambda array: array[order], values)

        return Demonstrations(
            layout.space, self.spec.action_space, ordered(obs), np.concatenate(self.action)[order], ends[order],
            np.concatenate(self.legal)[order] if self.legal else None, ordered(following), layout.stack,
            reward[order], terminated[order],
        )  # fmt: skip

    def _at(self, groups: tuple[Obs, ...], envs: Array) -> Obs:
        """Return copies of the player's observations in some environments, [len(envs), *O]."""
        return map_tree(lambda array: array[self.row, envs], groups[self.group])

    def _follow(self, envs: Array, obs: Obs, *, ends: bool) -> None:
        """Store the observations after the open decisions of some environments."""
        some = self.open[envs] >= 0
        if some.any():
            self.following.append((self.open[envs][some], map_tree(lambda array: array[some], obs), ends))
            self.open[envs] = -1
