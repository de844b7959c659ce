"""Agent: what a user puts in a seat, and the agents that never learn."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from operator import itemgetter
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from marltrain.config import check_function, checked_arguments
from marltrain.errors import AgentError, SpecError, shown
from marltrain.layout import (
    Array,
    Layout,
    Obs,
    Space,
    action_bounds,
    arrays_of,
    describe_space,
    map_obs,
    space_from,
    split_mask,
    without_mask,
)
from marltrain.policies.agents.rng import RngMixin
from marltrain.policies.batch import Acted, AgentState, Experience
from marltrain.random import MOST_SEED, child_seed, chosen_seed
from marltrain.spec import PlayerSpec

if TYPE_CHECKING:
    from marltrain.policies.learner.learner import Learner


class Agent(RngMixin):
    """Base of every agent. Subclass it for anything of your own: define `act`, and `observe` and `update` to learn.

    observation_space, action_space: as the environment declares them; None before an agent made without them is seated.
    any_seat: made without spaces, and never learns. It is bound to no spaces: `observation_space`, `action_space` and
    `layout` are those of the seat that it decides for at present.
    """

    observation_space: Space | None = None
    action_space: Space | None = None
    layout: Layout | None = None
    any_seat: bool = False
    _seat: PlayerSpec | None = None
    _kinds: tuple[str, ...] = ()
    _learners: dict[str, Learner] | None = None

    def __repr__(self) -> str:
        """Return the class and what tells this agent from others of it, in one line."""
        return f"{type(self).__name__}({', '.join(self._marks())})"

    def _marks(self) -> list[str]:
        return [] if self.seed is None else [f"seed={self.seed}"]

    def act(self, observation: Any, legal: Any = None, explore: bool | Array = False) -> Any:
        """Return the action for one observation, or one action a row for a batch with a leading axis B.

        observation: as the environment gives it: the whole mapping (its "action_mask" fills `legal` by itself), or
        its observation part.  legal: [A] or [B, A] bool.  explore: bool, or [B] bool.
        """
        raise TypeError(f"{type(self).__name__} must define act(observation, legal=None, explore=False)")

    def observe(self, batch: Experience) -> None:
        """Take in transitions; called just before `update`. Only agents that learn define it."""

    def update(self, env_steps: int) -> Mapping[str, float]:
        """Learn, `env_steps` env steps after the last update; return metrics. Only agents that learn define it."""
        return {}

    @property
    def learns(self) -> bool:
        """Whether this kind of agent can learn at all."""
        return type(self).update is not Agent.update

    def sit(self, player: PlayerSpec, seed: int) -> None:
        """Take a seat: adopt the player's spaces if it has none of its own, else check that they fit.

        seed: what an agent without a seed of its own draws from. Raises AgentError.
        """
        if type(self).act is Agent.act and type(self).decide is Agent.decide:
            raise AgentError(
                f"player {player.name!r}: a {type(self).__name__} cannot play: its class must define "
                "act(observation, legal=None, explore=False)"
            )
        if self.action_space is None or self.observation_space is None:
            self.any_seat = not self.learns
            self.observation_space, self.action_space = player.observation_space, player.action_space
            self.layout = player.layout
        self.turn_to(player)
        self.seed = seed if self.seed is None else self.seed
        for what, mine, theirs in (
            ("observation", without_mask(self.observation_space)[0], without_mask(player.observation_space)[0]),
            ("action", self.action_space, player.action_space),
        ):
            if describe_space(mine) != describe_space(theirs):
                raise AgentError(
                    f"player {player.name!r}: its {what} space is {theirs}, but the {type(self).__name__} given for it "
                    f"was made for {mine}. Make the agent with this player's spaces"
                )

    def turn_to(self, player: PlayerSpec) -> None:
        """Decide for this player's seat from now on; nothing changes for an agent that is bound to its spaces."""
        if self.any_seat:
            self.observation_space, self.action_space = player.observation_space, player.action_space
            self.layout, self._seat = player.layout, player
            if player.kind not in self._kinds:
                self._kinds = (*self._kinds, player.kind)

    def decide(
        self, obs: Obs, legal: Array | None, carry: Any, *, turn: Array, explore: Array, rng: np.random.Generator
    ) -> Acted:
        """Decide for Step arrays [B, ...]; by default `act` is asked for the rows that have their turn."""
        layout, space = self._seated()
        rows = np.flatnonzero(turn)
        action: Array = np.zeros((len(turn), *action_shape(space)), action_dtype(space))
        if len(rows):
            observation = layout.decode(map_obs(lambda array: array[rows], obs))
            with self.drawing_from(rng):
                chosen = self.act(observation, None if legal is None else legal[rows], explore[rows])
            action[rows] = _indexed(space, self._checked(space, chosen, len(rows)))
        return Acted(action, carry)

    def _checked(self, space: Space, chosen: Any, rows: int) -> Array:
        """Return what `act` gave as an array [rows, ...]; raises AgentError when it is not one action a row."""
        actions = np.asarray(chosen)
        whole = isinstance(space, spaces.Box) or np.issubdtype(actions.dtype, np.integer)
        shape = (rows, *action_shape(space))
        if actions.shape not in (shape, (rows, *(space.shape or ()))) or not whole or actions.dtype.kind not in "iuf":
            raise AgentError(
                f"{type(self).__name__}.act gave {actions.dtype} of shape {actions.shape} for {rows} observations, "
                f"expected one action of {space} a row, shape {(rows, *(space.shape or ()))}"
            )
        return actions.reshape(shape)

    def _seated(self) -> tuple[Layout, Space]:
        if self.layout is None or self.action_space is None:
            raise AgentError(
                f"this {type(self).__name__} has no seat yet: it learns its spaces from the trainer, or give them with "
                "observation_space= and action_space="
            )
        return self.layout, self.action_space

    def frozen_copy(self) -> Agent:
        """Return an independent copy, for `FrozenAgent`."""
        return copy.deepcopy(self)

    def learner(self) -> Learner:
        """Return what the loop talks to for this agent alone: always the same, so that its streams go on.

        An agent that fits any seat has one for each kind of seat; this is the present one's.
        """
        from marltrain.policies.agents.agent_learner import AgentLearner

        kind = self._seat.kind if self._seat else ""
        self._learners = {} if self._learners is None else self._learners
        if kind not in self._learners:
            self._learners[kind] = AgentLearner(self)
        return self._learners[kind]

    def stream_seed(self) -> int:
        """Return the seed of its streams at the present kind of seat: the first kind has the agent's own."""
        own, place = int(self.seed or 0), self._kinds.index(self._seat.kind) if self._seat else 0
        return child_seed(own, "seat", place) if place else own

    def state(self) -> AgentState:
        """Return everything it is, for saving. A class of your own that learns extends this, and defines `from_state`.

        What a file cannot hold (code) is named by its class and must be supplied again when it is loaded.
        """
        return AgentState({"type": type(self).__name__}, {})

    def restore(self, state: AgentState) -> None:
        """Become, where it sits, what `state` returned; a class of your own that learns defines it beside `state`."""
        if state.info["type"] != type(self).__name__ or type(self).state is not Agent.state:
            raise AgentError(
                f"a {type(self).__name__} cannot take back the state of a {state.info['type']}: where a class defines "
                "state(), it defines restore(state) too"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return `state` as one flat mapping."""
        state = self.state()
        return {**state.arrays, "info": state.info}

    def save(self, path: Any) -> None:
        """Write this agent to a folder that `marltrain.load` reads."""
        from marltrain.policies.agents.saving import save

        save(path, self)


def encoded(layout: Layout, observation: Any, legal: Any, space: Space) -> tuple[Obs, Array | None, bool]:
    """Turn what `act` was given into arrays [B, ...] and [B, A]; say whether there was a batch axis."""
    observation, mask = split_mask(observation)
    legal = mask if legal is None else legal
    obs, batched = layout.encode(observation)
    if not batched:
        obs = map_obs(lambda array: array[None], obs)
    if legal is None:
        return obs, None, batched
    legal = np.asarray(legal).astype(bool)
    legal = legal if batched else legal[None]
    expected = (len(arrays_of(obs)[0]), int(space.n) if isinstance(space, spaces.Discrete) else None)
    if legal.shape != expected:
        raise SpecError(f"legal has shape {legal.shape[not batched :]}, expected one truth value an action of {space}")
    if not legal.any(-1).all():
        raise SpecError("legal says that no action is legal: an agent must be able to act")
    return obs, legal, batched


def exploring(explore: Any, rows: int) -> Array:
    """Return the argument `explore` of `act` as [rows] bool; raises AgentError for what holds no truth values."""
    values = np.asarray(explore)
    if values.dtype.kind not in "bui" or values.shape not in ((), (rows,)):
        raise AgentError(
            f"explore must be True or False, or one of these for each of {rows} rows, got {shown(explore)}"
        )
    return np.array(np.broadcast_to(values, rows), bool)


def action_shape(space: Space) -> tuple[int, ...]:
    """Return the shape of one action in the loop's arrays."""
    return () if isinstance(space, spaces.Discrete) else (int(np.prod(space.shape or (), dtype=int)),)


def action_dtype(space: Space) -> type:
    """Return the dtype of actions in the loop's arrays."""
    return np.float32 if isinstance(space, spaces.Box) else np.int64


def in_units(space: Space, action: Array) -> Array:
    """Turn the loop's action arrays (indices from 0, flat) into what the environment takes."""
    if isinstance(space, spaces.Discrete):
        return action + space.start
    if isinstance(space, spaces.MultiDiscrete):
        return action.reshape(*action.shape[:-1], *space.shape) + space.start
    return action.reshape(*action.shape[:-1], *(space.shape or ()))


def _indexed(space: Space, action: Array) -> Array:
    """Turn the environment's actions [B, ...] into the loop's arrays."""
    if isinstance(space, spaces.Discrete):
        return action - space.start
    if isinstance(space, spaces.MultiDiscrete):
        return action - space.start.reshape(-1)
    return action


class RandomAgent(Agent):
    """Plays a uniformly random legal action; in an unbounded Box a standard normal one. Fits any seat."""

    @checked_arguments
    def __init__(
        self, observation_space: Space | None = None, action_space: Space | None = None, *, seed: int | None = None
    ) -> None:
        """Take spaces now, or from the seat; without a seed the run's is used."""
        self.observation_space, self.action_space = observation_space, action_space
        self.seed = None if seed is None else chosen_seed(seed, "RandomAgent")
        if observation_space is not None:
            self.layout = Layout(without_mask(observation_space)[0])

    def act(self, observation: Any, legal: Any = None, explore: bool | Array = False) -> Any:
        """Return a random legal action, or one a row for a batch."""
        layout, space = self._seated()
        obs, mask, batched = encoded(layout, observation, legal, space)
        rows = len(arrays_of(obs)[0])
        action = in_units(space, _random_actions(space, mask, rows, self.rng))
        return action if batched else action[0]

    def decide(
        self, obs: Obs, legal: Array | None, carry: Any, *, turn: Array, explore: Array, rng: np.random.Generator
    ) -> Acted:
        """Draw for every row, whoever has its turn, so that the stream does not depend on turns."""
        return Acted(_random_actions(self._seated()[1], legal, len(turn), rng), carry)

    def state(self) -> AgentState:
        """Return its spaces, where it has any yet, and its seed."""
        stack = 1 if self.layout is None else self.layout.stack
        kept = {
            "type": "random",
            **described_spaces(self),
            "seed": self.seed,
            "stack": stack,
            "any_seat": self.any_seat,
        }
        return AgentState(kept, {})

    @classmethod
    def from_state(cls, state: AgentState) -> RandomAgent:
        """Build the agent that `state` described."""
        info = state.info
        agent = cls(*(spaces_from(info) if "observation_space" in info else ()), seed=info["seed"])
        agent.any_seat = info.get("any_seat") is True
        return agent

    def restore(self, state: AgentState) -> None:
        """Take the saved seed."""
        self.seed = None if state.value("seed", int, NoneType) is None else state.count("seed", high=MOST_SEED)


def _random_actions(space: Space, legal: Array | None, rows: int, rng: np.random.Generator) -> Array:
    if isinstance(space, spaces.Discrete):
        score = rng.random((rows, int(space.n)))
        return (score if legal is None else np.where(legal, score, -1.0)).argmax(-1)
    if isinstance(space, spaces.MultiDiscrete):
        return (rng.random((rows, space.nvec.size)) * space.nvec.reshape(-1)).astype(np.int64)
    if isinstance(space, spaces.Box):
        low, high = space.low.reshape(-1), space.high.reshape(-1)
        bounded = np.isfinite(low) & np.isfinite(high)
        uniform, normal = rng.random((rows, len(low))), rng.standard_normal((rows, len(low)))
        spread = np.where(bounded, high, 1.0) - np.where(bounded, low, 0.0)
        drawn = np.where(bounded, np.where(bounded, low, 0.0) + uniform * spread, normal)
        return np.clip(drawn.astype(np.float32), *action_bounds(space))
    raise SpecError(f"no random actions for action space {space}")


class FunctionAgent(Agent):
    """Plays a plain function of one observation (and its legal moves, where there are any) that gives one action."""

    @checked_arguments
    def __init__(
        self,
        function: Callable[..., Any],
        observation_space: Space | None = None,
        action_space: Space | None = None,
    ) -> None:
        """Take the function, and spaces now or from the seat."""
        if not callable(function):
            raise AgentError(f"FunctionAgent needs a function, got {shown(function)}")
        self.function = function
        self.observation_space, self.action_space = observation_space, action_space
        if observation_space is not None:
            self.layout = Layout(without_mask(observation_space)[0])

    def sit(self, player: PlayerSpec, seed: int) -> None:
        """Take a seat; raises ConfigError where the function does not take what is shown there."""
        super().sit(player, seed)
        shows = ("observation", "legal") if player.masked else ("observation",)
        check_function("FunctionAgent: function", self.function, *shows)

    def _marks(self) -> list[str]:
        return [getattr(self.function, "__name__", type(self.function).__name__)]

    def act(self, observation: Any, legal: Any = None, explore: bool | Array = False) -> Any:
        """Call the function for the observation, or for each row of a batch."""
        layout, space = self._seated()
        obs, mask, batched = encoded(layout, observation, legal, space)
        answers = []
        for row in range(len(arrays_of(obs)[0])):
            one = _first(layout.decode(map_obs(itemgetter(slice(row, row + 1)), obs)))
            answers.append(self.function(one) if mask is None else self.function(one, mask[row]))
        return np.asarray(answers) if batched else answers[0]


def _first(observation: Any) -> Any:
    """Drop the leading axis from every leaf of a decoded observation."""
    if isinstance(observation, dict):
        return {key: _first(value) for key, value in observation.items()}
    if isinstance(observation, tuple):
        return tuple(_first(value) for value in observation)
    return observation[0]


class FrozenAgent(Agent):
    """A copy of an agent that never learns and never explores."""

    def __init__(self, agent: Agent) -> None:
        """Copy the agent as it is now; what it learns later does not reach the copy."""
        if not isinstance(agent, Agent):
            raise AgentError(f"FrozenAgent: agent must be an Agent, got {shown(agent)}")
        self.inner: Agent = (agent.inner if isinstance(agent, FrozenAgent) else agent).frozen_copy()
        self.observation_space, self.action_space = self.inner.observation_space, self.inner.action_space
        self.layout = self.inner.layout

    def _marks(self) -> list[str]:
        return [repr(self.inner)]

    def act(self, observation: Any, legal: Any = None, explore: bool | Array = False) -> Any:
        """Act as the copied agent does when it does not explore."""
        return self.inner.act(observation, legal, False)

    def sit(self, player: PlayerSpec, seed: int) -> None:
        """Seat the copy."""
        self.inner.sit(player, seed)
        self.any_seat, self.seed = self.inner.any_seat, self.inner.seed
        self.turn_to(player)

    def turn_to(self, player: PlayerSpec) -> None:
        """Let the copy decide for this player's seat."""
        self.inner.turn_to(player)
        self.observation_space, self.action_space = self.inner.observation_space, self.inner.action_space
        self.layout, self._seat, self._kinds = self.inner.layout, self.inner._seat, self.inner._kinds

    def decide(
        self, obs: Obs, legal: Array | None, carry: Any, *, turn: Array, explore: Array, rng: np.random.Generator
    ) -> Acted:
        """Decide as the copy does, without exploring."""
        return self.inner.decide(obs, legal, carry, turn=turn, explore=np.zeros_like(explore), rng=rng)

    def state(self) -> AgentState:
        """Return the copy's state, marked as frozen."""
        inner = self.inner.state()
        return AgentState({"type": "frozen", "inner": inner.info}, inner.arrays)

    def restore(self, state: AgentState) -> None:
        """Let the copy become what was saved."""
        self.inner.restore(AgentState(state.value("inner", dict), state.arrays, state.place("inner")))
        self.seed = self.inner.seed


def described_spaces(agent: Agent) -> dict[str, Any]:
    """Return an agent's spaces as JSON values, or nothing when it has none yet."""
    if agent.observation_space is None or agent.action_space is None:
        return {}
    sides = {"observation_space": agent.observation_space, "action_space": agent.action_space}
    return {name: describe_space(space) for name, space in sides.items()}


def spaces_from(info: Mapping[str, Any]) -> tuple[Space, Space]:
    """Build (observation space, action space) from a saved agent's description."""
    return space_from(info["observation_space"]), space_from(info["action_space"])
