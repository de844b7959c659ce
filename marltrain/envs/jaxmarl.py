"""Environments of JaxMARL as PettingZoo environments, by names such as "jaxmarl/overcooked".

They are the originals of native games. Each is one environment with compiled functions, a hundred times slower than the
native game: for comparisons, not for training.
"""

from __future__ import annotations

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
}
"""The environments that have a native game, and their arguments."""


def game_names() -> list[str]:
    """Return the names of the environments, such as "jaxmarl/overcooked"; [] without JaxMARL."""
    from marltrain.core.extras import is_installed

    return [f"{NAMESPACE}/{name}" for name in GAMES] if is_installed(MODULE) else []


def jaxmarl_env(name: str, **arguments: Any) -> JaxmarlEnv:
    """Return an environment of JaxMARL; name: without the namespace.

    arguments: JaxMARL's, with a `layout` by its name; `shaping` is the factor of the shaped rewards in its infos, which
    are added to the rewards (0 by default). Raises ConfigError for an unknown layout.
    """
    import jaxmarl
    from jaxmarl.environments.overcooked import overcooked_layouts

    shaping = float(arguments.pop("shaping", 0.0))
    if "layout" in arguments:
        layout = arguments["layout"]
        if layout not in overcooked_layouts:
            hint = did_you_mean(str(layout), overcooked_layouts)
            raise ConfigError(
                f"env_args: layout must be one of {', '.join(overcooked_layouts)}, got {shown(layout)}.{hint}"
            )
        arguments["layout"] = overcooked_layouts[layout]
    return JaxmarlEnv(f"{NAMESPACE}/{name}", jaxmarl.make(name, **arguments), shaping)


class JaxmarlEnv(ParallelEnv):  # type: ignore[misc]
    """An environment of JaxMARL as a PettingZoo ParallelEnv; observations are float32.

    original: JaxMARL's object.  now: its state.
    Its end is a termination, as JaxMARL's learners take it.
    """

    def __init__(self, name: str, original: Any, shaping: float) -> None:
        """Compile the functions; see `jaxmarl_env`."""
        import jax

        self.original, self._shaping, self._jax = original, shaping, jax
        self.metadata = {"name": name, "render_modes": []}
        self.render_mode = None
        self.possible_agents: list[str] = list(original.agents)
        self.agents: list[str] = []
        self._reset: Callable[..., Any] = jax.jit(original.reset)
        self._step: Callable[..., Any] = jax.jit(original.step_env)
        first, _ = self._reset(jax.random.PRNGKey(0))  # the declared shapes are transposed
        self._seen: dict[str, Space] = {
            agent: spaces.Box(0, 255, np.shape(first[agent]), np.float32) for agent in self.possible_agents
        }
        self._acts: dict[str, Space] = {
            agent: spaces.Discrete(int(original.action_space(agent).n)) for agent in self.possible_agents
        }
        self._generator = np.random.default_rng()

    def observation_space(self, agent: str) -> Space:
        """Return the observation space of a player."""
        return self._seen[agent]

    def action_space(self, agent: str) -> Space:
        """Return the action space of a player."""
        return self._acts[agent]

    @property
    def state_space(self) -> Space:
        """The space of the global state."""
        return spaces.Box(0, 255, (int(np.prod(self._seen[self.possible_agents[0]].shape or ())),), np.float32)

    def state(self) -> Array:
        """Return the observation of the first player, who sees everything, as one row."""
        return self._observed[self.possible_agents[0]].reshape(-1)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """Start an episode; return observations and infos, by player."""
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        self._key = self._jax.random.PRNGKey(int(self._generator.integers(2**31)))
        obs, self.now = self._reset(self._key)
        self.agents = list(self.possible_agents)
        return self._seen_by_all(obs), {agent: {} for agent in self.agents}

    def step(self, actions: Mapping[str, Any]) -> Any:
        """Make the moves of all players; return observations, rewards, terminations, truncations, infos by player."""
        names = self.possible_agents
        self._key, key = self._jax.random.split(self._key)
        obs, self.now, rewards, dones, infos = self._step(key, self.now, {name: int(actions[name]) for name in names})
        shaped = infos["shaped_reward"]
        over = bool(dones["__all__"])
        self.agents = [] if over else list(names)
        return (
            self._seen_by_all(obs),
            {name: float(rewards[name]) + self._shaping * float(shaped[name]) for name in names},
            dict.fromkeys(names, over), dict.fromkeys(names, False), {name: {} for name in names},
        )  # fmt: skip

    def render(self) -> None:
        """Draw nothing."""

    def close(self) -> None:
        """Do nothing: the environment holds only memory."""

    def _seen_by_all(self, obs: Mapping[str, Any]) -> dict[str, Array]:
        self._observed = {agent: np.asarray(obs[agent], np.float32) for agent in self.possible_agents}
        return dict(self._observed)
