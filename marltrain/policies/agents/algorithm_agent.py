"""LearningAgent: an agent that learns with an `Algorithm`; a handle to one row of a learner."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from marltrain.core.encoding import described_spaces, encoded, exploring_rows, spaces_from
from marltrain.core.errors import AgentError, ConfigError, SaveError, did_you_mean, shown
from marltrain.core.layout import Array, Obs, Space, arrays_of, map_tree
from marltrain.core.seeds import chosen_seed
from marltrain.core.settings import Unsaved, build, check_function, checked_arguments, validate
from marltrain.core.spaces import check_actions, describe_space, without_mask
from marltrain.core.spec import PlayerSpec
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.arguments import AgentArguments, AgentSignature, Place, described
from marltrain.policies.agents.placement import AUTO, CPU, Placement, moved, placement
from marltrain.policies.agents.probabilities import check_no_memory, one_hot, policy_shares
from marltrain.policies.agents.saved_images import IMAGES, check_images, described_images
from marltrain.policies.agents.weights import check_fit, network_of, read_weights, weights_in
from marltrain.policies.backends import make_backend
from marltrain.policies.backends.base import JitCompile
from marltrain.policies.backends.frameworks import makes_models, name_of, other_backend
from marltrain.policies.batches.batch import Acted, ActInputs, AgentState
from marltrain.policies.batches.player_one_hot import checked_players, layout_for, observed_by
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.hyperparameters.stacked import AgentHyperparameters
from marltrain.policies.interface.algorithm import Algorithm
from marltrain.policies.interface.reward_model import with_reward_model
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.memory.config import Replay
from marltrain.policies.memory.memory_numbers import Remembering
from marltrain.policies.networks.specs import NetworkSpec, spec_from
from marltrain.storage.checks import of_type

REWARD_MODEL = "reward_model"
"""Name of the setting that replaces the environment's rewards."""


class LearningAgent(Remembering, Agent):
    """Agent that learns with an `Algorithm`.

    A new agent has its own learner; a trainer stacks agents of the same kind in one learner.

    masked: whether its environment gives masks of legal actions, as far as the agent knows: the observation space holds
      one, or the agent was made or seated for a player with masks.
    placement: the device that device="auto" chose, with the reason; None if a device or a strategy was given.
    """

    placement: Placement | None = None

    algorithm_class: ClassVar[type[Algorithm]]
    __signature__: ClassVar[AgentSignature] = AgentSignature()

    def __init_subclass__(cls) -> None:
        """Add the arguments and settings to the docstring of a class that names its algorithm."""
        super().__init_subclass__()
        if "algorithm_class" in vars(cls):
            cls.__doc__ = described(vars(cls).get("__doc__"), cls.algorithm_class.Settings)

    @checked_arguments
    def __init__(
        self,
        observation_space: Space,
        action_space: Space,
        *,
        backend: str = "torch",
        device: str = "auto",
        jit_compile: JitCompile = False,
        strategy: Any = None,
        seed: int | None = None,
        frame_stack: int = 1,
        identity: Sequence[str] = (),
        **settings: Any,
    ) -> None:
        """Build the agent with weights drawn from `seed`.

        backend: "torch" or "tensorflow".
        device: "auto", "cpu", "cuda" or "cuda:1"; "auto" selects a GPU if one is available and a network is large
            enough to be faster there, else the CPU. With a strategy, "auto" is a GPU if one is available.
        jit_compile: compile the gradient passes: on a CPU by marltrain's own compiler, where it can ("require": else
            a ConfigError); on a GPU as CUDA graphs (PyTorch); otherwise by XLA (TensorFlow), which starts slowly.
        strategy: distribution of minibatches over devices or processes, such as `mt.DataParallel(processes=2)`, the
            name of such a class, or a `tf.distribute.MirroredStrategy`; None: no distribution.
        frame_stack: number of frames on axis 0 of images, if the environment stacks frames.
        identity: names of the players of a shared agent, whose one-hot is added to its observations.
        settings: settings of the algorithm; a wrong name or value raises ConfigError.
        """
        name = type(self).__name__
        self.identity = checked_players(name, identity)
        place = Place(
            backend=backend, device=device, jit_compile=jit_compile, frame_stack=frame_stack, identity=self.identity
        )
        validate(place, name)
        self._set_spaces(observation_space, action_space, place.frame_stack)
        own_layout, action_space = self._seated()
        layout = layout_for(own_layout, self.identity)
        check_actions(action_space)
        self.masked = without_mask(observation_space)[1]
        self.seed = chosen_seed(seed, name)
        kind = self.algorithm_class
        if kind.on_policy and not kind.replays and isinstance(settings.get("memory"), Replay):
            raise ConfigError(
                f"{name} learns on-policy, from each rollout once: it has no replay memory, and thus no priorities. "
                "Leave memory= out, or take an off-policy agent (DQN, SAC) or one that replays rollouts (PPO)"
            )
        given = build(self.algorithm_class.Settings, settings, name, [f.name for f in fields(AgentArguments)])
        default = self.algorithm_class.default_network(layout)
        self.settings = replace(given, network=default) if given.network is None else given
        chooses = device == AUTO and strategy is None
        self.backend = make_backend(
            backend, CPU if chooses else device, jit_compile=place.jit_compile, strategy=strategy
        )
        for network in (f.name for f in fields(self.settings) if f.name.endswith("network")):
            model = getattr(self.settings, network)
            if isinstance(model, type) and issubclass(model, NetworkSpec):
                raise AgentError(f"{name}: {network} is the class {model.__name__}: write {model.__name__}()")
            if model is not None and not isinstance(model, NetworkSpec) and not self.backend.is_module(model):
                raise AgentError(
                    f"{name}: {network} must be a NetworkSpec (MLP(...), CNN(...), GRU(...), LSTM(...)), a model of "
                    f"backend {backend!r} or a function that makes one, got {shown(model)}"
                    f"{other_backend(model, backend)}"
                )
            if makes_models(model) and not isinstance(model, NetworkSpec):
                check_function(f"{name}: {network}", model)
        rewarded = getattr(self.settings, REWARD_MODEL, None) is not None
        algorithm_class = with_reward_model(self.algorithm_class) if rewarded else self.algorithm_class
        self.algorithm = algorithm_class(self.settings, layout, action_space)
        self.attach(AlgorithmLearner(self.algorithm, self.backend, [self.seed], draw=True), 0)
        if chooses:
            self.placement = placement(self.learner_)
            if self.placement.device != CPU:
                self.attach(moved(self.learner_, 0, self.placement.device), 0)

    def attach(self, learner: AlgorithmLearner, row: int) -> None:
        """Set the learner and the row of this agent."""
        self.learner_, self.row, self.backend = learner, row, learner.backend

    def _marks(self) -> list[str]:
        network = self.settings.network
        text = repr(network) if isinstance(network, NetworkSpec) else _plain(network)["model"]
        return [f"network={text}", f"backend={self.backend.name!r}", *super()._marks()]

    @property
    def hyper(self) -> Any:
        """The settings; hyperparameters may be set at any time."""
        return AgentHyperparameters(self.learner_.hyper, self.row, self.learner_.set_hyper)

    @property
    def learns(self) -> bool:
        """Always True."""
        return True

    @property
    def stackable(self) -> bool:
        """Whether the agent can share a learner with others; False for custom models."""
        return not any(self.backend.is_module(result.spec) for result in self.algorithm.networks().values())

    @property
    def kind(self) -> str:
        """Description of structure, spaces and backend; equal for two agents exactly if they can share a learner."""
        structure = {
            f.name: _shared(getattr(self.settings, f.name))
            for f in fields(self.settings)
            if not f.metadata.get("per_row") or getattr(self.settings, f.name) is None
        } | self.learner_.hyper.common
        backend = self.backend
        place = [backend.name, str(backend.device), backend.jit_compile, repr(backend.strategy)]
        layout, action_space = self._seated()
        sides = [describe_space(layout.space), describe_space(action_space), layout.stack]
        own = [*self.identity, *map(id, self._unsaved), *([] if self.stackable else [id(self)])]
        return json.dumps([type(self).__name__, *place, structure, *sides, *own], sort_keys=True, default=repr)

    @property
    def _unsaved(self) -> list[Any]:
        """Values of the settings that are not saved."""
        return [getattr(self.settings, f.name) for f in fields(self.settings) if not f.metadata.get("saved", True)]

    def sit(self, player: PlayerSpec, seed: int) -> None:
        """Take a seat; raises AgentError if the spaces or the number of stacked frames differ."""
        super().sit(player, seed)
        self.masked = self.masked or player.masked
        stack = self._seated()[0].stack
        if player.layout.stack != stack:
            raise AgentError(
                f"player {player.name!r}: its images hold {player.layout.stack} frames, the agent was made with "
                f"frame_stack={stack}"
            )

    def act(self, observation: Any, legal: Any = None, explore: bool | Array = False, player: Any = None) -> Any:
        """Return the action; see `Agent.act`.

        player: for an agent with an `identity`, the name of the player that observes, or a name for each row of a
            batch. Raises AgentError if it is missing or unknown, or given for an agent without an identity.
        """
        return self.act_with_carry(observation, None, legal, explore, player)[0]

    def act_with_carry(
        self, observation: Any, carry: Any, legal: Any = None, explore: bool | Array = False, player: Any = None
    ) -> tuple[Any, Any]:
        """Return (action, next carry), to act over an episode with a recurrent network.

        carry: None at the first decision of an episode, then what the last call returned. `act` starts from None.
        Raises AgentError for a carry that is neither.
        """
        if carry is not None and not isinstance(carry, Mapping):
            raise AgentError(
                f"carry must be None, at the start of an episode, or the carry that the last act_with_carry returned, "
                f"got {shown(carry)}"
            )
        return self._act_by_decide(
            observation, legal, explore, lambda: self.learner_.rngs("act")[self.row], player, carry
        )

    def probabilities(self, observation: Any, legal: Any = None, explore: bool = True, player: Any = None) -> Array:
        """Return the probabilities of the actions; see `Agent.probabilities`, and `act` for the player.

        With `explore`, those of a stochastic policy, without the random actions of a warm-up. Raises AgentError for
        choices by values and for recurrent networks.
        """
        who, (layout, space), actor = type(self).__name__, self._seated(), self.learner_.actor
        check_no_memory(who, actor.recurrent)
        if not explore:
            return one_hot(who, space, self.act(observation, legal, False, player))
        obs, mask, batched = encoded(layout, observation, legal, space)
        obs = observed_by(player, self.identity, layout, obs)
        sampled = exploring_rows(True, len(arrays_of(obs)[0]))
        lifted = (map_tree(lambda array: array[None], tree) for tree in (obs, mask, sampled))
        shares = policy_shares(who, space, actor.policy_numbers_of_row(self.row, ActInputs(*lifted)), mask)
        return shares if batched else shares[0]

    def decide(
        self, obs: Obs, legal: Array | None, carry: Any, *, turn: Array, explore: Array, rng: np.random.Generator
    ) -> Acted:
        """Choose actions for Step arrays [B, ...] with this agent's row of the learner."""
        lifted = (map_tree(lambda array: array[None], tree) for tree in (obs, legal, explore, carry))
        acted = self.learner_.actor.act_row(self.row, ActInputs(*lifted), rng)
        following = map_tree(lambda array: array[0], acted.carry)
        return Acted(acted.action[0], following, {name: value[0] for name, value in acted.extras.items()})

    def frozen_copy(self) -> LearningAgent:
        """Return an independent copy with its own learner."""
        clone = copy.copy(self)
        models = [result.spec for result in self.algorithm.networks().values() if self.backend.is_module(result.spec)]
        shared = {id(each): each for each in (*models, *self._unsaved)}  # each network copies its model
        clone.algorithm = copy.deepcopy(self.algorithm, shared)
        clone.settings = clone.algorithm.settings
        clone.attach(AlgorithmLearner(clone.algorithm, self.backend, [self.learner_.seeds[self.row]], draw=False), 0)
        clone.learner_.load(0, self.learner_.export(self.row))
        return clone

    def learner(self) -> AlgorithmLearner:
        """Return the learner that holds this agent."""
        return self.learner_

    def state(self) -> AgentState:
        """Return the complete state: type, spaces, settings, weights, moments and random streams."""
        inner, unsaved, networks = self.learner_.export(self.row), self._unsaved, self.algorithm.networks()
        info = {
            "type": self.algorithm.name,
            **described_spaces(self.observation_space, self.action_space),
            "frame_stack": self._seated()[0].stack,
            **({"identity": list(self.identity)} if self.identity else {}),
            **({"masked": True} if self.masked else {}),
            **described_images(self.algorithm),
            "backend": self.backend.name,
            "settings": {
                f.name: self._setting(getattr(self.settings, f.name), unsaved, networks) for f in fields(self.settings)
            },
            "learner": inner.info,
        }
        return AgentState(info, inner.arrays)

    def _setting(self, value: Any, unsaved: Sequence[Any], networks: Mapping[str, Any]) -> Any:
        """Return a setting as JSON values; for a custom model, with the names of its networks and its structure.

        unsaved: values of the settings that are not saved.  networks: those of the algorithm.
        """
        if value is not None and any(value is each for each in unsaved):
            return {"unsaved": value.name if isinstance(value, Unsaved) else name_of(value)}
        of_it = [name for name, network in networks.items() if network.spec is value]
        if value is None or not of_it or isinstance(value, NetworkSpec):
            return _plain(value)
        return {**_plain(value), "networks": of_it, "structure": self.learner_.weights.online[of_it[0]].structure()}

    def restore(self, state: AgentState) -> None:
        """Load the state that `state` returned into this agent's row of its learner.

        Raises SaveError for a state that does not fit, and for one whose networks read images in another way.
        """
        check_images(self.algorithm, state.info.get(IMAGES))
        self.learner_.load(self.row, AgentState(state.value("learner", dict), state.arrays, state.place("learner")))
        self.seed = self.learner_.seeds[self.row]

    def load_weights(
        self, path: str | Path, *, networks: Sequence[str] | None = None, player: str | int | None = None
    ) -> None:
        """Load the weights of networks from a folder of `save`, with `weights_only` or without, of either framework.

        Settings, moments of the optimizer and random streams stay. Target networks become copies of the loaded ones.

        networks: names of the networks to load, and of statistics ("observation"); None: all, and those of the team.
        player: name or seat of the player in the folder; None: of its only agent.
        Raises SaveError for other networks or shapes, and names each difference; no weight has changed then.
        """
        file, found, images = read_weights(path, player)
        own = weights_in(self.learner_.export(self.row).arrays)
        if networks is not None:
            for name in networks:
                if name not in (known := dict.fromkeys(map(network_of, own))):
                    raise ConfigError(
                        f"load_weights: a {type(self).__name__} has no network {name!r}.{did_you_mean(name, known)} It "
                        f"has {', '.join(known)}"
                    )
            found, own = ({n: a for n, a in arrays.items() if network_of(n) in networks} for arrays in (found, own))
        check_fit(type(self).__name__, file, found, own)
        try:
            check_images(self.algorithm, images)
        except SaveError as error:
            raise SaveError(f"{file}: {error}") from error
        self.learner_.load_weights(self.row, found)

    @classmethod
    def from_state(
        cls, state: AgentState, custom_objects: Mapping[str, Any], backend: str | None, device: str | None = None
    ) -> LearningAgent:
        """Build the agent from its state; `custom_objects` maps network or class names to custom models.

        backend, device: None: those of the saved agent, and "auto".
        """
        info = state.info
        settings = {name: _restored(name, value, custom_objects) for name, value in info["settings"].items()}
        agent = cls(
            *spaces_from(info), backend=backend or info["backend"], device=device or AUTO,
            seed=int(info["learner"]["seed"]), frame_stack=info["frame_stack"], identity=info.get("identity", ()),
            **settings,
        )  # fmt: skip
        check_images(agent.algorithm, info.get(IMAGES))
        agent.masked = agent.masked or of_type("masked", info.get("masked", False), bool)
        agent.learner_.load(0, AgentState(info["learner"], state.arrays))
        return agent


def _plain(value: Any) -> Any:
    """Convert a setting to JSON values; a custom model is stored by the name of its class or constructor function."""
    if isinstance(value, Schedule):
        return {"schedule": value.describe()}
    if isinstance(value, NetworkSpec):
        return {"network": value.describe()}
    if isinstance(value, Replay):
        return {"replay": value.describe()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple) and all(isinstance(each, int | float) for each in value):
        return list(value)
    return {"model": getattr(value, "__name__", type(value).__name__)}


def _shared(value: Any) -> Any:
    """Convert the part of a setting that agents of one learner share to JSON values."""
    return value.structure() if isinstance(value, Replay) else _plain(value)


def _restored(setting: str, value: Any, custom_objects: Mapping[str, Any]) -> Any:
    if not isinstance(value, dict):
        return tuple(value) if isinstance(value, list) else value
    if "schedule" in value:
        return Schedule(**value["schedule"])
    if "network" in value:
        return spec_from(value["network"])
    if "replay" in value:
        return Replay.described(value["replay"])
    if "unsaved" in value:
        kept = str(value["unsaved"])
        return custom_objects.get(setting, custom_objects.get(kept, Unsaved(kept)))
    name, networks = value.get("model"), value.get("networks", ())
    keys = [key for key in (*networks, setting, name) if key in custom_objects]
    if not isinstance(name, str) or not keys:
        raise SaveError(
            f"the saved agent uses a model of your own, {name!r}: give it with custom_objects={{{name!r}: the model or "
            "a function that makes it}"
        )
    given = custom_objects[keys[0]]
    return _under(name, given) if makes_models(given) else given


def _under(name: str, make: Callable[[], Any]) -> Callable[[], Any]:
    """Return the function with the name under which the model was saved."""

    def made() -> Any:
        return make()

    made.__name__ = name
    return made
