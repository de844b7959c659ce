"""Native games as PettingZoo and Gymnasium objects, for libraries that step one environment at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import parallel_to_aec, wrappers

from marltrain.core.errors import ConfigError, EnvError, did_you_mean
from marltrain.core.remedies import written
from marltrain.core.seeds import SEED_LIMIT
from marltrain.core.spec import Step
from marltrain.envs.layers import layers
from marltrain.envs.native.batch import BEGIN, VIEW, GameBatch
from marltrain.envs.native.catalog import GAMES, find
from marltrain.envs.native.game import Game


def parallel_env(name: str, render_mode: str | None = None, **arguments: Any) -> Any:
    """Return a native game with simultaneous moves, such as "simple_spread_v3", as a PettingZoo ParallelEnv.

    render_mode: None, or "ansi" for games that draw text: `render()` then returns it.
    arguments: arguments of the game's constructor. Raises ConfigError.
    """
    return ParallelObject(_game(name, arguments, ("parallel", "gymnasium")), render_mode)


def aec_env(name: str, render_mode: str | None = None, **arguments: Any) -> Any:
    """Return a native game as a PettingZoo AECEnv, turn-based or not. See `parallel_env`."""
    game = _game(name, arguments, ("parallel", "turns"))
    return _turns(game, render_mode) if game.turn_based else parallel_to_aec(ParallelObject(game, render_mode))


def gymnasium_env(name: str, render_mode: str | None = None, **arguments: Any) -> Any:
    """Return a native single-player game, such as "CartPole-v1", as a Gymnasium Env. See `parallel_env`."""
    return GymnasiumObject(_game(name, arguments, ("gymnasium",)), render_mode)


def game_object(game: type[Game], render_mode: str | None = None, **arguments: Any) -> Any:
    """Return an environment object of a game, with the interface of its original. See `parallel_env`."""
    result = game(**arguments)
    kind = {"parallel": ParallelObject, "turns": _turns, "gymnasium": GymnasiumObject}[result.api]
    return kind(result, render_mode)


def _game(name: str, arguments: dict[str, Any], apis: tuple[str, ...]) -> Game:
    if name not in GAMES:
        raise ConfigError(f"unknown native game {name!r}.{did_you_mean(name, GAMES)} There are {', '.join(GAMES)}.")
    game = find(name)
    if game.api not in apis:
        raise ConfigError(f"{name}: its interface is {game.api!r}, and this function makes those of {apis}")
    return game(**arguments)


def _turns(game: Game, render_mode: str | None) -> Any:
    """Return a turn-based object in PettingZoo's usual wrappers: an illegal move loses the game."""
    env: Any = TurnObject(game, render_mode)
    if any(player.masked for player in game.players):
        env = wrappers.TerminateIllegalWrapper(env, illegal_reward=-1)
    return wrappers.OrderEnforcingWrapper(wrappers.AssertOutOfBoundsWrapper(env))


class _Single:
    """One environment of a game, shared by the three interfaces. It does not restart automatically."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.spec = game.spec(game.name, with_state=True)
        self.step = Step.empty(self.spec, 1)
        self.batch = GameBatch(game, self.spec, self.step, num_envs=1, role="test", restart=False)
        self._generator = np.random.default_rng()

    def begin(self, seed: int | None) -> None:
        """Start an episode with `seed`; None draws a seed from the generator that the last given seed initialized."""
        if seed is not None:
            self._generator = np.random.default_rng(seed)
        self.batch.run(BEGIN, number=int(self._generator.integers(SEED_LIMIT)) if seed is None else int(seed))

    def act(self, p: int, action: Any) -> None:
        """Store player p's action for the next `advance`."""
        group, row = self.spec.place[p]
        space = self.spec.players[p].action_space
        target = self.batch.actions[group]
        if isinstance(space, spaces.Discrete):
            target[row, 0] = int(action) - int(space.start)
        else:
            target[row, 0] = np.asarray(action, np.float32).reshape(-1)

    def advance(self) -> None:
        """Take one env step with the stored actions."""
        self.batch.step(self.batch.actions)

    def has(self, flag: str, p: int) -> bool:
        """Return whether a flag, "turn" or "present", is set for player p."""
        return bool(self.batch.records[flag][0, p])

    def observe(self, p: int) -> Any:
        """Return player p's current observation in its observation space, including its action mask if it has one."""
        self.batch.run(VIEW, number=p)
        group, row = self.spec.place[p]
        player, legal = self.spec.players[p], self.step.final_legal[group]
        seen = _unbatched(player.layout.decode(self.step.final_obs[group][row]))  # type: ignore[index]
        if legal is None:
            return seen
        named = seen if isinstance(seen, dict) else {"observation": seen}
        return {**named, "action_mask": legal[row, 0].astype(np.int8)}

    def state(self) -> Any:
        """Return the current global state, [S] float32."""
        if self.step.final_state is None:
            raise EnvError(f"{self.game.name} has no global state")
        self.batch.run(VIEW)
        return self.step.final_state[0].copy()


def _unbatched(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unbatched(inner) for name, inner in value.items()}
    return tuple(map(_unbatched, value)) if isinstance(value, tuple) else value[0].copy()


def render_modes_of(game: Game | type[Game]) -> list[str]:
    """Return the render modes of a game's objects: "ansi" if it draws text."""
    return ["ansi"] if game.has_text() else []


def _checked_mode(game: Game, render_mode: str | None) -> str | None:
    """Return a render mode; raises ConfigError if the game's objects do not have it."""
    if render_mode is not None and render_mode not in render_modes_of(game):
        drawn = "text (render mode 'ansi') and no pictures" if game.has_text() else "nothing"
        raise ConfigError(
            f"native game {game.name or type(game).__name__} draws {drawn}, got render_mode={render_mode!r}: "
            f"{written('play(..., text=True)', 'marltrain play --text')} shows its actions and rewards"
        )
    return render_mode


class _StateAccess:
    """Access to the fields and random outcomes of a native game's object; see `marltrain.envs.native`."""

    _single: _Single
    render_mode: str | None

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the actions of all players; () without names."""
        return self._single.game.actions

    @property
    def draws_text(self) -> bool:
        """Whether `text` returns something."""
        return self._single.game.has_text()

    def text(self, viewers: Collection[str] | None = None) -> str:
        """Return the state as text, "" for a game without one.

        viewers: names of the players that read it; None: everything is shown. See `Game.text`.
        """
        places = None if viewers is None else [self._single.spec.names.index(name) for name in viewers]
        return self._single.game.text(self.get_state(), places)

    def render(self) -> Any:
        """Return the state as text with render mode "ansi"; without a render mode nothing."""
        return self.text() if self.render_mode == "ansi" else None

    def get_state(self) -> dict[str, Any]:
        """Return copies of all saved fields of the game, by name, including its random state."""
        return self._single.batch.get_state(0)

    def set_state(self, fields: Mapping[str, Any]) -> None:
        """Set fields of the game. A field that `reset` does not set, such as a curriculum's stage, keeps its value.

        Raises ConfigError for an unknown name or a wrong shape.
        """
        self._single.batch.set_state(0, fields)

    def set_chances(self, outcomes: Sequence[float]) -> None:
        """Queue the next random outcomes, in the order in which the game draws them; resets also draw."""
        self._single.batch.set_chances(0, outcomes)


def native_object(env: Any) -> _StateAccess | None:
    """Return the object of a native game that an environment is or wraps; None for other environments."""
    return next((layer for layer in layers(env) if isinstance(layer, _StateAccess)), None)


class _Object(_StateAccess):
    """Base class of PettingZoo's two interfaces."""

    def __init__(self, game: Game, render_mode: str | None = None) -> None:
        self.render_mode = _checked_mode(game, render_mode)
        self._single = _Single(game)
        names = self._single.spec.names
        modes = render_modes_of(game)
        self.metadata = {"name": game.name, "render_modes": modes, "is_parallelizable": not game.turn_based}
        self.possible_agents = list(names)
        self.agents: list[str] = []
        self._place = {name: p for p, name in enumerate(names)}
        self._players = dict(zip(names, self._single.spec.players, strict=True))
        if game.state_size:
            self.state_space = spaces.Box(-np.inf, np.inf, (game.state_size,), np.float32)

    def observation_space(self, agent: str) -> Any:
        """Return the agent's observation space."""
        return self._players[agent].observation_space

    def action_space(self, agent: str) -> Any:
        """Return the agent's action space."""
        return self._players[agent].action_space

    def state(self) -> Any:
        """Return the global state, [S] float32."""
        return self._single.state()

    def close(self) -> None:
        """Do nothing: the environment holds only memory."""

    def set_state(self, fields: Mapping[str, Any]) -> None:
        """Set fields, see `_StateAccess`; `agents` becomes the list of players in the episode."""
        super().set_state(fields)
        self.agents = self._present()

    def _present(self) -> list[str]:
        return [name for name, p in self._place.items() if self._single.has("present", p)]


class ParallelObject(_Object, ParallelEnv):  # type: ignore[misc]
    """A native game with simultaneous moves as a PettingZoo ParallelEnv."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """Start an episode; return observations and infos, by agent."""
        self._single.begin(seed)
        self.agents = self._present()
        return {name: self._single.observe(self._place[name]) for name in self.agents}, {n: {} for n in self.agents}

    def step(self, actions: Any) -> Any:
        """Step all agents; return observations, rewards, terminations, truncations and infos, by agent."""
        for name in self.agents:
            self._single.act(self._place[name], actions[name])
        self._single.advance()
        step, before = self._single.step, self.agents
        self.agents = self._present()
        names = [name for name in self.possible_agents if name in before or name in self.agents]
        over = [
            {name: bool(flags[self._place[name], 0]) for name in names} for flags in (step.terminated, step.truncated)
        ]
        rewards = {name: float(step.reward[self._place[name], 0]) for name in names}
        observations = {name: self._single.observe(self._place[name]) for name in names}
        return observations, rewards, *over, {name: {} for name in names}


class TurnObject(_Object, AECEnv):  # type: ignore[misc]
    """A turn-based native game as a PettingZoo AECEnv."""

    agent_selection: str

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        """Start an episode."""
        self._single.begin(seed)
        self.agents = self._present()
        self._go_on()

    def set_state(self, fields: Mapping[str, Any]) -> None:
        """Set fields, see `_StateAccess`; rewards, terminations and truncations are cleared."""
        super().set_state(fields)
        if self.agents:
            self._go_on()

    def observe(self, agent: str) -> Any:
        """Return the agent's current observation, also when it is not its turn."""
        return self._single.observe(self._place[agent])

    def step(self, action: Any) -> None:
        """Make the selected agent's move, or take its dead step."""
        mover = self.agent_selection
        if self.terminations[mover] or self.truncations[mover]:
            self._was_dead_step(action)
            return
        self._single.act(self._place[mover], action)
        self._single.advance()
        step = self._single.step
        self._cumulative_rewards[mover] = 0.0
        for name in self.agents:
            p = self._place[name]
            self.rewards[name] = float(step.reward[p, 0])
            self.terminations[name] |= bool(step.terminated[p, 0])
            self.truncations[name] |= bool(step.truncated[p, 0])
        self._accumulate_rewards()
        self.agent_selection = self._mover()
        self._deads_step_first()

    def _go_on(self) -> None:
        """Initialize PettingZoo's attributes from the game's fields."""
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {name: {} for name in self.agents}
        self._skip_agent_selection = None
        self.agent_selection = self._mover()

    def _mover(self) -> str:
        """Return the agent with the turn, or the next agent in order if the episode is over."""
        movers = [name for name, p in self._place.items() if self._single.has("turn", p)]
        if movers:
            return movers[0]
        after = self.possible_agents.index(self.agent_selection) + 1
        return self.possible_agents[after % len(self.possible_agents)]


class GymnasiumObject(_StateAccess, gymnasium.Env[Any, Any]):
    """A native single-player game as a Gymnasium Env, including its time limit."""

    def __init__(self, game: Game, render_mode: str | None = None) -> None:
        """Create one environment. See `parallel_env`."""
        self.render_mode = _checked_mode(game, render_mode)
        self.metadata = {"render_modes": render_modes_of(game)}
        self._single = _Single(game)
        (player,) = self._single.spec.players
        self.observation_space, self.action_space = player.observation_space, player.action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Start an episode; return the observation and an empty info."""
        super().reset(seed=seed)
        self._single.begin(int(self.np_random.integers(SEED_LIMIT)) if seed is None else seed)
        return self._single.observe(0), {}

    def step(self, action: Any) -> Any:
        """Take one step; return observation, reward, terminated, truncated and info."""
        self._single.act(0, action)
        self._single.advance()
        step = self._single.step
        ends = bool(step.terminated[0, 0]), bool(step.truncated[0, 0])
        return self._single.observe(0), float(step.reward[0, 0]), *ends, {}
