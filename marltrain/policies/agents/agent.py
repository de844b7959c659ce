"""Agent: the base class of everything that a user assigns to a seat."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.errors import AgentError
from marltrain.layout import Array, Layout, Obs, Space, describe_space, map_obs, without_mask
from marltrain.policies.agents.agent_learner import AgentLearner
from marltrain.policies.agents.files import write_agents
from marltrain.policies.agents.rng import RngMixin
from marltrain.policies.agents.spaces import action_dtype, action_shape, indexed
from marltrain.policies.batch import Acted, AgentState, Experience
from marltrain.policies.learner.learner import Learner
from marltrain.random import child_seed
from marltrain.spec import PlayerSpec


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
            action[rows] = indexed(space, self._checked(space, chosen, len(rows)))
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
        write_agents(path, [self])
