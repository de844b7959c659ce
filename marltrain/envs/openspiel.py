"""OpenSpiel's games as PettingZoo environments, by names such as "openspiel/leduc_poker".

A game whose players decide at once becomes a ParallelEnv, any other game an AECEnv. Chance is drawn from a generator
that `reset(seed)` makes. A player's reward is the change of OpenSpiel's `returns` since the last decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from marltrain.core.errors import ConfigError, did_you_mean, error_text, shown
from marltrain.core.extras import imported, is_installed
from marltrain.core.layout import Array, Space

NAMESPACE = "openspiel"
EXTRA, MODULE = "openspiel", "pyspiel"
"""The extra that installs OpenSpiel, and its module."""
TENSORS = ("information_state", "observation")
"""Values of the argument `observation`."""


def game_names() -> list[str]:
    """Return the names of the playable games, such as "openspiel/leduc_poker"; [] without OpenSpiel.

    A game is left out if it does not load without arguments, has no tensor or no numbered actions, draws chance from a
    generator of its own, which no seed of an episode sets, or is a mean-field game.
    """
    if not is_installed(MODULE):
        return []
    import pyspiel

    return [f"{NAMESPACE}/{kind.short_name}" for kind in pyspiel.registered_games() if _playable(kind)]


def _playable(kind: Any) -> bool:
    has_tensor = kind.provides_information_state_tensor or kind.provides_observation_tensor
    if kind.dynamics == kind.Dynamics.MEAN_FIELD or kind.chance_mode == kind.ChanceMode.SAMPLED_STOCHASTIC:
        return False
    return kind.default_loadable and has_tensor and not kind.action_structs_only


def argument_names(name: str) -> set[str]:
    """Return the arguments of a game: its parameters in OpenSpiel, and `observation`; name: without the namespace."""
    pyspiel = imported(MODULE, EXTRA, f"env: '{NAMESPACE}/{name}'")
    (kind,) = (kind for kind in pyspiel.registered_games() if kind.short_name == name)
    return {*kind.parameter_specification, "observation"}


class OpenSpielGame:
    """A game of OpenSpiel: its players, their spaces and their observations.

    game: pyspiel's object.  names: of the players.
    """

    def __init__(self, name: str, parameters: Mapping[str, Any], observation: str | None = None) -> None:
        """Load the game; see `openspiel_env`."""
        pyspiel = imported(MODULE, EXTRA, f"env: '{NAMESPACE}/{name}'")
        self.name = f"{NAMESPACE}/{name}"
        try:
            self.game = pyspiel.load_game(name, dict(parameters))
        except (pyspiel.SpielError, TypeError, RuntimeError) as error:
            raise ConfigError(
                f"env_args: {self.name} refuses {shown(dict(parameters))}: {error_text(error)}"
            ) from error
        self.names = [f"player_{p}" for p in range(self.game.num_players())]
        self.actions = int(self.game.num_distinct_actions())
        self._read = f"{self._tensor(observation)}_tensor"
        self.shape = tuple(getattr(self.game, f"{self._read}_shape")())
        seen = spaces.Box(-np.inf, np.inf, self.shape, np.float32)
        mask = spaces.Box(0, 1, (self.actions,), np.int8)
        self.observation_space: Space = spaces.Dict({"observation": seen, "action_mask": mask})
        self.action_space: Space = spaces.Discrete(self.actions)

    def _tensor(self, observation: str | None) -> str:
        """Return the name of the game's tensor: the given one, or by default that of information states if it has it.

        Raises ConfigError for an unknown name, and for a tensor that the game does not have.
        """
        kind = self.game.get_type()
        has = (kind.provides_information_state_tensor, kind.provides_observation_tensor)
        known = [tensor for tensor, provided in zip(TENSORS, has, strict=True) if provided]
        if observation is None:
            return known[0]
        if observation not in TENSORS:
            raise ConfigError(
                f"env_args: observation must be None or one of {TENSORS}, got {shown(observation)}."
                f"{did_you_mean(str(observation), TENSORS)}"
            )
        if observation not in known:
            raise ConfigError(
                f"env_args: {self.name} has no tensor for observation={observation!r}: leave it out, or set "
                f"{known[0]!r}"
            )
        return observation

    def observe(self, state: Any, p: int) -> dict[str, Array]:
        """Return player p's observation of a state, with the mask of its legal actions, all 0 if it does not move."""
        mask = np.zeros(self.actions, np.int8)
        if not state.is_terminal() and (state.is_simultaneous_node() or state.current_player() == p):
            mask[state.legal_actions(p)] = 1
        seen = np.array(getattr(state, self._read)(p), np.float32).reshape(self.shape)
        return {"observation": seen, "action_mask": mask}

    @property
    def simultaneous(self) -> bool:
        """Whether the players decide at once."""
        kind = self.game.get_type()
        return bool(kind.dynamics == kind.Dynamics.SIMULTANEOUS)


def openspiel_env(
    name: str, render_mode: str | None = None, observation: str | None = None, **parameters: Any
) -> TurnEnv | SimultaneousEnv:
    """Return a game of OpenSpiel as a PettingZoo environment; its players are "player_0", "player_1", ...

    name: OpenSpiel's name, such as "leduc_poker".  render_mode: None, or "ansi": `render` then returns the state as
    text.  observation: "information_state" (all that the player has seen in the episode) or "observation" (what it sees
    now); None: the first of them that the game has.  parameters: of the game.
    Raises ConfigError for parameters that OpenSpiel refuses, for an unknown tensor, and without OpenSpiel.
    """
    game = OpenSpielGame(name, parameters, observation)
    if render_mode not in (None, "ansi"):
        raise ConfigError(f"{game.name} draws text only: render_mode must be None or 'ansi', got {shown(render_mode)}")
    return SimultaneousEnv(game, render_mode) if game.simultaneous else TurnEnv(game, render_mode)


class _Env:
    """The parts that both interfaces share.

    state: pyspiel's state of the running episode.
    """

    def __init__(self, game: OpenSpielGame, render_mode: str | None) -> None:
        """Store the game; `reset` begins an episode."""
        self.game, self.render_mode = game, render_mode
        self.metadata = {"name": game.name, "render_modes": ["ansi"], "is_parallelizable": False}
        self.possible_agents = list(game.names)
        self.agents: list[str] = []
        self._rng = np.random.default_rng()

    def observation_space(self, agent: str) -> Space:
        """Return the observation space, equal for all players."""
        return self.game.observation_space

    def action_space(self, agent: str) -> Space:
        """Return the action space, equal for all players."""
        return self.game.action_space

    def render(self) -> str | None:
        """Return the state as text with render mode "ansi"; without a render mode nothing."""
        return str(self.state) if self.render_mode == "ansi" else None

    def close(self) -> None:
        """Do nothing: the environment holds only memory."""

    def _begin(self, seed: int | None) -> None:
        """Start an episode with all players, up to the first decision."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.state = self.game.game.new_initial_state()
        self._returns: Array = np.zeros(len(self.possible_agents))
        self.agents = list(self.possible_agents)
        self._draw_chance()

    def _draw_chance(self) -> None:
        """Draw the outcomes of chance up to the next decision or the end."""
        while self.state.is_chance_node():
            outcomes, weights = zip(*self.state.chance_outcomes(), strict=True)
            total = np.cumsum(weights)
            drawn = np.searchsorted(total, self._rng.random() * total[-1], side="right")
            self.state.apply_action(outcomes[min(int(drawn), len(outcomes) - 1)])

    def _new_rewards(self) -> dict[str, float]:
        """Return the rewards since the last call, by player."""
        before, self._returns = self._returns, np.array(self.state.returns())
        return dict(zip(self.possible_agents, (self._returns - before).tolist(), strict=True))


class TurnEnv(_Env, AECEnv):  # type: ignore[misc]
    """A game whose players decide in turn, as a PettingZoo AECEnv."""

    agent_selection: str

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        """Start an episode."""
        self._begin(seed)
        self.rewards = self._new_rewards()
        self._cumulative_rewards = dict(self.rewards)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {name: {} for name in self.agents}
        self._skip_agent_selection = None
        self._select()

    def observe(self, agent: str) -> dict[str, Array]:
        """Return the player's observation of the present state, also when it is not its turn."""
        return self.game.observe(self.state, self.possible_agents.index(agent))

    def step(self, action: Any) -> None:
        """Make the selected player's move, or take its dead step."""
        mover = self.agent_selection
        if self.terminations[mover]:
            self._was_dead_step(action)
            return
        self.state.apply_action(int(action))
        self._draw_chance()
        self._cumulative_rewards[mover] = 0.0
        self.rewards = self._new_rewards()
        self.terminations = dict.fromkeys(self.agents, self.state.is_terminal())
        self._accumulate_rewards()
        self._select()
        self._deads_step_first()

    def _select(self) -> None:
        """Select the player that moves; at the end of an episode the first player."""
        self.agent_selection = self.possible_agents[max(self.state.current_player(), 0)]


class SimultaneousEnv(_Env, ParallelEnv):  # type: ignore[misc]
    """A game whose players decide at once, as a PettingZoo ParallelEnv."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """Start an episode; return observations and infos, by player."""
        self._begin(seed)
        return self._observations(), {name: {} for name in self.agents}

    def step(self, actions: Mapping[str, Any]) -> Any:
        """Make the moves of all players; return observations, rewards, terminations, truncations, infos by player."""
        names = self.possible_agents
        self.state.apply_actions([int(actions[name]) for name in names])
        self._draw_chance()
        over = self.state.is_terminal()
        self.agents = [] if over else list(names)
        return (
            self._observations(), self._new_rewards(), dict.fromkeys(names, over), dict.fromkeys(names, False),
            {name: {} for name in names},
        )  # fmt: skip

    def _observations(self) -> dict[str, dict[str, Array]]:
        return {name: self.game.observe(self.state, p) for p, name in enumerate(self.possible_agents)}
