"""Agent: the base class of all agents that a user assigns to seats."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.encoding import action_dtype, action_shape, encoded, exploring_rows, in_units, indexed
from marltrain.core.errors import AgentError
from marltrain.core.layout import Array, Layout, Obs, Space, arrays_of, map_tree
from marltrain.core.seeds import child_seed
from marltrain.core.spaces import as_choices, describe_space, without_mask
from marltrain.core.spec import PlayerSpec
from marltrain.policies.agents.agent_learner import AgentLearner
from marltrain.policies.agents.files import write_agents
from marltrain.policies.agents.probabilities import of_repeated_acts
from marltrain.policies.agents.rng import RngMixin
from marltrain.policies.batches.batch import Acted, AgentState, Experience
from marltrain.policies.batches.player_one_hot import observed_by
from marltrain.policies.learner.learner import Learner


class Agent(RngMixin):
    """Base class of agents. A custom agent defines `act`; a learning one also defines `observe` and `update`.

    observation_space, action_space: as the environment declares them. An agent made without spaces has None until it
    takes a seat.
    identity: names of the players that a shared agent tells apart: the one-hot of the observing player is added to its
    observations, by the training loop and by `act`; see `batches.player_one_hot`. Empty for other agents.
    any_seat: whether the agent was made without spaces and never learns. Such an agent fits every seat. Its
    `observation_space`, `action_space` and `layout` are those of its current seat.
    """

    observation_space: Space | None = None
    action_space: Space | None = None
    layout: Layout | None = None
    identity: tuple[str, ...] = ()
    any_seat: bool = False
    _seat: PlayerSpec | None = None
    _kinds: tuple[str, ...] = ()
    _learners: dict[str, Learner] | None = None

    def __repr__(self) -> str:
        """Return the class name and the distinguishing arguments of this agent, in one line."""
        return f"{type(self).__name__}({', '.join(self._marks())})"

    def _marks(self) -> list[str]:
        return [] if self.seed is None else [f"seed={self.seed}"]

    def act(self, observation: Any, legal: Any = None, explore: bool | Array = False) -> Any:
        """Return the action for one observation, or one action per row for a batch with a leading axis B.

        observation: in the environment's format, either the whole mapping or its observation part. The "action_mask"
        of a mapping is the default of `legal`.
        legal: [A] or [B, A] bool.  explore: bool, or [B] bool.
        """
        raise TypeError(f"{type(self).__name__} must define act(observation, legal=None, explore=False)")

    def probabilities(self, observation: Any, legal: Any = None, explore: bool = True) -> Array:
        """Return the probabilities with which `act` chooses the actions, [A] or [B, A] float64; Discrete actions only.

        observation, legal: see `act`.  explore: those of acts with exploration; False: of acts without, which always
        choose the same action for an observation.

        A class whose actions are drawn at random defines this method. Raises AgentError if the probabilities are
        unknown.
        """
        who, (_, space) = type(self).__name__, self._seated()
        if explore:
            raise AgentError(
                f"{who} has no action probabilities: set explore=False if it chooses one action for an observation, or "
                "define probabilities(observation, legal=None, explore=True)"
            )
        return of_repeated_acts(who, space, lambda: self.act(observation, legal, False))

    def observe(self, batch: Experience) -> None:
        """Receive new transitions; called just before `update`. Only learning agents define it."""

    def update(self, env_steps: int) -> Mapping[str, float]:
        """Learn and return metrics. Only learning agents define it.

        env_steps: env steps since the last update.
        """
        return {}

    @property
    def learns(self) -> bool:
        """Whether agents of this class can learn."""
        return type(self).update is not Agent.update

    def sit(self, player: PlayerSpec, seed: int) -> None:
        """Take a seat: adopt the player's spaces, or check that the agent's own spaces match them.

        seed: the seed for an agent without its own seed.
        Raises AgentError if the spaces differ or the class does not define `act`.
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
        if self.identity and player.name not in self.identity:
            raise AgentError(
                f"player {player.name!r}: the {type(self).__name__} given for it tells the players "
                f"{', '.join(self.identity)} apart, and no other: make it for this environment, with "
                "make_agents(..., share=True, identify=True)"
            )
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
        """Make this player's seat the current seat. An agent with its own spaces ignores the call."""
        if self.any_seat:
            self.observation_space, self.action_space = player.observation_space, player.action_space
            self.layout, self._seat = player.layout, player
            if player.kind not in self._kinds:
                self._kinds = (*self._kinds, player.kind)

    def decide(
        self, obs: Obs, legal: Array | None, carry: Any, *, turn: Array, explore: Array, rng: np.random.Generator
    ) -> Acted:
        """Choose actions for Step arrays [B, ...]; the default calls `act` for the rows where `turn` is True.

        obs: with the one-hots of the players if the agent has an `identity`.
        """
        layout, space = self._seated()
        rows = np.flatnonzero(turn)
        action: Array = np.zeros((len(turn), *action_shape(space)), action_dtype(space))
        if len(rows):
            observation = layout.decode(map_tree(lambda array: array[rows], obs))
            with self.drawing_from(rng):
                chosen = self.act(observation, None if legal is None else legal[rows], explore[rows])
            action[rows] = indexed(space, self._checked(space, chosen, len(rows)))
        return Acted(action, carry)

    def _checked(self, space: Space, chosen: Any, rows: int) -> Array:
        """Return the actions of `act` as an array [rows, ...]; raises AgentError unless there is one action per row."""
        actions = np.asarray(chosen)
        kinds = "iuf" if isinstance(space, spaces.Box) else "biu" if isinstance(space, spaces.MultiDiscrete) else "iu"
        shape = (rows, *action_shape(space))
        if actions.shape not in (shape, (rows, *(space.shape or ()))) or actions.dtype.kind not in kinds:
            raise AgentError(
                f"{type(self).__name__}.act returned {actions.dtype} of shape {actions.shape} for {rows} observations, "
                f"expected one action of {space} a row, shape {(rows, *(space.shape or ()))}"
            )
        return actions.reshape(shape)

    def _act_by_decide(
        self, observation: Any, legal: Any, explore: Any, rng: Callable[[], np.random.Generator], player: Any = None,
        carry: Any = None,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Return the action of `act` and the next carry, by `decide`.

        rng: returns the generator to draw from.  player: that of an `identity`.  carry: of the acts before.
        """
        layout, space = self._seated()
        obs, mask, batched = encoded(layout, observation, legal, space)
        rows = len(arrays_of(obs)[0])
        exploring = exploring_rows(explore, rows)
        obs = observed_by(player, self.identity, layout, obs)
        acted = self.decide(obs, mask, carry, turn=np.ones(rows, bool), explore=exploring, rng=rng())
        action = in_units(space, acted.action)
        return action if batched else action[0], acted.carry

    def _set_spaces(self, observation_space: Space | None, action_space: Space | None, frame_stack: int = 1) -> None:
        """Set the agent's own spaces and their layout; None for spaces that are not known before it takes a seat."""
        self.observation_space = observation_space
        self.action_space = None if action_space is None else as_choices(action_space)
        if observation_space is not None:
            self.layout = Layout(without_mask(observation_space)[0], frame_stack)

    def _seated(self) -> tuple[Layout, Space]:
        if self.layout is None or self.action_space is None:
            raise AgentError(
                f"this {type(self).__name__} has no seat yet: it gets its spaces from the trainer, or give them with "
                "observation_space= and action_space="
            )
        return self.layout, self.action_space

    def frozen_copy(self) -> Agent:
        """Return an independent copy, for `FrozenAgent`."""
        return copy.deepcopy(self)

    def learner(self) -> Learner:
        """Return the learner that the training loop calls for this agent alone.

        Every call returns the same learner, so that its random streams continue. An agent that fits any seat has one
        learner per kind of seat; the call returns the learner of the current kind.
        """
        kind = self._seat.kind if self._seat else ""
        self._learners = {} if self._learners is None else self._learners
        if kind not in self._learners:
            self._learners[kind] = AgentLearner(self)
        return self._learners[kind]

    def stream_seed(self) -> int:
        """Return the seed of the random streams for the current kind of seat; the first kind uses the agent's seed."""
        own, place = int(self.seed or 0), self._kinds.index(self._seat.kind) if self._seat else 0
        return child_seed(own, "seat", place) if place else own

    def state(self) -> AgentState:
        """Return the complete state of the agent, for saving.

        A custom learning agent extends this method and defines `from_state`. A file cannot hold code: it stores the
        class name, and the user supplies the code again when loading.
        """
        return AgentState({"type": type(self).__name__}, {})

    def restore(self, state: AgentState) -> None:
        """Restore, in the current seat, the state that `state` returned.

        A custom learning agent defines it together with `state`. Raises AgentError for the state of another class.
        """
        if state.info["type"] != type(self).__name__ or type(self).state is not Agent.state:
            raise AgentError(
                f"a {type(self).__name__} cannot restore the state of a {state.info['type']}: a class that defines "
                "state() must also define restore(state)"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the result of `state` as one flat mapping."""
        state = self.state()
        return {**state.arrays, "info": state.info}

    def save(self, path: Any) -> None:
        """Write this agent to a folder that `marltrain.load` reads."""
        write_agents(path, [self])
