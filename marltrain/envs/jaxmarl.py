"""Environments of JaxMARL as PettingZoo environments, by names such as "jaxmarl/overcooked".

They are the originals of native games. Each is one environment with compiled functions, a hundred times slower than the
native game: for comparisons, not for training.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from marltrain.core.errors import ConfigError, did_you_mean, shown
from marltrain.core.layout import Array, Space

NAMESPACE = MODULE = "jaxmarl"
GAMES: Mapping[str, frozenset[str]] = {
    "overcooked": frozenset({"layout", "random_reset", "max_steps", "shaping"}),
    "smax": frozenset(
        {
            "scenario",
            "enemy",
            "enemy_shoots",
            "attack_mode",
            "see_enemy_actions",
            "walls_cause_death",
            "use_self_play_reward",
            "won_battle_bonus",
            "max_steps",
        }
    ),
}
"""The environments that have a native game, and their arguments."""


def game_names() -> list[str]:
    """Return the names of the environments, such as "jaxmarl/overcooked"; [] without JaxMARL."""
    from marltrain.core.extras import is_installed

    return [f"{NAMESPACE}/{name}" for name in GAMES] if is_installed(MODULE) else []


def jaxmarl_env(name: str, **arguments: Any) -> JaxmarlEnv:
    """Return an environment of JaxMARL; name: without the namespace.  arguments: of its native game.

    Raises ConfigError for an unknown layout or scenario.
    """
    makers: dict[str, Callable[..., JaxmarlEnv]] = {"overcooked": _overcooked, "smax": _smax}
    return makers[name](**arguments)


def _overcooked(shaping: float = 0.0, **arguments: Any) -> JaxmarlEnv:
    """Return Overcooked, with a `layout` by its name.

    shaping: factor of the shaped rewards in the original's infos, which are added to the rewards.
    """
    import jaxmarl
    from jaxmarl.environments.overcooked import overcooked_layouts

    if "layout" in arguments:
        arguments["layout"] = _known("layout", arguments["layout"], overcooked_layouts)
    return Overcooked(f"{NAMESPACE}/overcooked", jaxmarl.make("overcooked", **arguments), float(shaping))


def _smax(scenario: str = "3m", enemy: str = "heuristic", **arguments: Any) -> JaxmarlEnv:
    """Return SMAX, with a `scenario` by its name; enemy: "heuristic", or "players"."""
    import jaxmarl
    from jaxmarl.environments.smax.smax_env import MAP_NAME_TO_SCENARIO

    chosen = _known("scenario", scenario, MAP_NAME_TO_SCENARIO)
    original = _known("enemy", enemy, {"heuristic": "HeuristicEnemySMAX", "players": "SMAX"})
    if original == "SMAX":
        arguments = {name: value for name, value in arguments.items() if name not in ("enemy_shoots", "attack_mode")}
    return Smax(f"{NAMESPACE}/smax", jaxmarl.make(original, scenario=chosen, **arguments))


def _known(argument: str, name: Any, known: Mapping[str, Any]) -> Any:
    """Return the entry of a name; raises ConfigError."""
    if name not in known:
        hint = did_you_mean(str(name), known)
        raise ConfigError(f"env_args: {argument} must be one of {', '.join(known)}, got {shown(name)}.{hint}")
    return known[name]


class JaxmarlEnv(ParallelEnv, ABC):  # type: ignore[misc]
    """An environment of JaxMARL as a PettingZoo ParallelEnv; observations are float32.

    original: JaxMARL's object.  now: its state.  key: the random key of its last reset or step.
    Its end is a termination, as JaxMARL's learners take it. Until then all players stay.
    """

    def __init__(self, name: str, original: Any) -> None:
        """Compile the functions; see `jaxmarl_env`."""
        import jax

        self.original, self._jax = original, jax
        self.metadata = {"name": name, "render_modes": []}
        self.render_mode = None
        self.possible_agents: list[str] = list(original.agents)
        self.agents: list[str] = []
        self._reset: Callable[..., Any] = jax.jit(original.reset)
        self._step: Callable[..., Any] = jax.jit(original.step_env)
        self._seen, _ = self._reset(jax.random.PRNGKey(0))  # the shapes that Overcooked declares are transposed
        self._acts = {agent: spaces.Discrete(int(original.action_space(agent).n)) for agent in self.possible_agents}
        self._sees = {agent: self._space(agent) for agent in self.possible_agents}
        self._generator = np.random.default_rng()

    def observation_space(self, agent: str) -> Space:
        """Return the observation space of a player."""
        return self._sees[agent]

    def action_space(self, agent: str) -> Space:
        """Return the action space of a player."""
        return self._acts[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """Start an episode; return observations and infos, by player."""
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        self._next = self.key = self._jax.random.PRNGKey(int(self._generator.integers(2**31)))
        self._seen, self.now = self._reset(self.key)
        self.agents = list(self.possible_agents)
        return self._observed(), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, Any]) -> Any:
        """Make the moves of all players; return observations, rewards, terminations, truncations, infos by player."""
        names = self.possible_agents
        self._next, self.key = self._jax.random.split(self._next)
        self._seen, self.now, rewards, dones, infos = self._step(
            self.key, self.now, {name: int(actions[name]) for name in names}
        )
        over = bool(dones["__all__"])
        self.agents = [] if over else list(names)
        return (
            self._observed(), {name: self._reward(name, rewards, infos) for name in names},
            dict.fromkeys(names, over), dict.fromkeys(names, False), {name: {} for name in names},
        )  # fmt: skip

    def render(self) -> None:
        """Draw nothing."""

    def close(self) -> None:
        """Do nothing: the environment holds only memory."""

    @abstractmethod
    def _space(self, agent: str) -> Space:
        """Return a player's observation space, from the observations of the first reset."""

    def _observed(self) -> dict[str, Any]:
        """Return the observations of all players."""
        return {agent: np.asarray(self._seen[agent], np.float32) for agent in self.possible_agents}

    def _reward(self, agent: str, rewards: Mapping[str, Any], infos: Mapping[str, Any]) -> float:
        return float(rewards[agent])


class Overcooked(JaxmarlEnv):
    """JaxMARL's Overcooked; the global state is the observation of the first player, who sees everything."""

    def __init__(self, name: str, original: Any, shaping: float) -> None:
        """Compile the functions; shaping: factor of the shaped rewards."""
        super().__init__(name, original)
        self._shaping = shaping

    @property
    def state_space(self) -> Space:
        """The space of the global state."""
        return spaces.Box(0, 255, self.state().shape, np.float32)

    def state(self) -> Array:
        """Return the global state as one row."""
        return np.asarray(self._seen[self.possible_agents[0]], np.float32).reshape(-1)

    def _space(self, agent: str) -> Space:
        return spaces.Box(0, 255, np.shape(self._seen[agent]), np.float32)

    def _reward(self, agent: str, rewards: Mapping[str, Any], infos: Mapping[str, Any]) -> float:
        return float(rewards[agent]) + self._shaping * float(infos["shaped_reward"][agent])


class Smax(JaxmarlEnv):
    """JaxMARL's SMAX, with masks of legal actions, and with its `world_state` as global state."""

    def __init__(self, name: str, original: Any) -> None:
        """Compile the functions."""
        super().__init__(name, original)
        self._legal: Callable[..., Any] = self._jax.jit(original.get_avail_actions)

    @property
    def state_space(self) -> Space:
        """The space of the global state."""
        return spaces.Box(-np.inf, np.inf, self.state().shape, np.float32)

    def state(self) -> Array:
        """Return the global state."""
        return np.asarray(self._seen["world_state"], np.float32)

    def _space(self, agent: str) -> Space:
        mask = spaces.Box(0, 1, (int(self._acts[agent].n),), np.int8)
        seen = spaces.Box(-np.inf, np.inf, np.shape(self._seen[agent]), np.float32)
        return spaces.Dict({"observation": seen, "action_mask": mask})

    def _observed(self) -> dict[str, Any]:
        legal = self._legal(self.now)
        return {
            agent: {"observation": seen, "action_mask": np.asarray(legal[agent], np.int8)}
            for agent, seen in super()._observed().items()
        }
