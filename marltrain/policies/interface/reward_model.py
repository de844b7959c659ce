"""Rewards that an agent learns from in place of the environment's: a function, or a model that is trained as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

from marltrain.core.encoding import in_units
from marltrain.core.errors import AgentError, ConfigError, shown
from marltrain.core.layout import Array, map_tree
from marltrain.core.settings import Unsaved, check_function
from marltrain.policies.batches.batch import Batch
from marltrain.policies.batches.tensor_batch import WholeBatch
from marltrain.policies.interface.algorithm import NORMALIZE, Algorithm, CompiledForm, Networks, Phase
from marltrain.policies.networks.specs import NetworkDefinition
from marltrain.policies.ops import Ops

RewardFunction = Callable[[Any, Array, Array], Array]


class RewardModel:
    """Rewards of an agent's transitions, computed once for every update; the setting `reward_model` of an agent.

    A subclass defines `rewards`. If it is trained, it also names its networks and phases, which run before those of
    the agent's algorithm, with the same rows.
    """

    def networks(self, algorithm: Algorithm) -> dict[str, NetworkDefinition]:
        """Return the trained networks by name; the algorithm has the layout and the action space."""
        return {}

    def phases(self, algorithm: Algorithm) -> tuple[Phase, ...]:
        """Return the phases that train the networks."""
        return ()

    def rewards(self, algorithm: Algorithm, ops: Ops, nets: Networks, tensors: WholeBatch) -> Array:
        """Return the rewards of all rows, [K, B] float32, without gradients.

        tensors: the batch; `tensors.batch` has its arrays, with the environment's rewards.
        """
        raise TypeError(f"{type(self).__name__} must define rewards")


class FunctionReward(RewardModel):
    """A function of B transitions: (observation, action, reward) -> [B].

    observation, action: in the environment's format, with a leading axis B.  reward: [B], the environment's.
    """

    def __init__(self, function: RewardFunction) -> None:
        """Raise ConfigError unless the function takes three positional arguments."""
        check_function("reward_model", function, "observation", "action", "reward")
        self.function = function

    def rewards(self, algorithm: Algorithm, ops: Ops, nets: Networks, tensors: WholeBatch) -> Array:
        """See `RewardModel`; raises AgentError if the function returns another shape, or no numbers."""
        batch = tensors.batch
        result = np.zeros_like(batch.reward)
        for k, valid in enumerate(batch.weight > 0):
            if not valid.any():
                continue
            observation = algorithm.layout.decode(map_tree(itemgetter((k, valid)), batch.obs))
            action = in_units(algorithm.action_space, batch.action[k][valid])
            given = _numbers(algorithm.name, self.function(observation, action, batch.reward[k][valid]))
            if given.shape != (valid.sum(),):
                raise AgentError(
                    f"{algorithm.name}: reward_model must return one reward for each of the {valid.sum()} transitions, "
                    f"an array of shape ({valid.sum()},); it returned shape {given.shape}"
                )
            result[k][valid] = given
        return result


def _numbers(who: str, given: Any) -> Array:
    """Return rewards as float32; raises AgentError for anything but numbers."""
    try:
        return np.asarray(given, np.float32)
    except (TypeError, ValueError):
        raise AgentError(f"{who}: reward_model must return an array of numbers, it returned {shown(given)}") from None


class UnknownReward(RewardModel):
    """The reward model of a loaded agent, which is not saved with it: the agent acts, and cannot learn."""

    def __init__(self, name: str) -> None:
        """Store the name of the function or class."""
        self.name = name

    def rewards(self, algorithm: Algorithm, ops: Ops, nets: Networks, tensors: WholeBatch) -> Array:
        """Raise AgentError."""
        raise AgentError(
            f"the agent learned from the reward model {self.name!r}, which is not saved with it: to train it further, "
            f"load it with custom_objects={{{self.name!r}: the function or RewardModel}}"
        )


class Rewarded(Algorithm):
    """Mix-in: an algorithm that learns from the rewards of `reward_model`; it stands before the algorithm's class."""

    def __init__(self, *arguments: Any) -> None:
        """Raise ConfigError for settings that need the environment's own rewards or observations."""
        super().__init__(*arguments)
        if self.needs().n_step > 1:
            raise ConfigError(
                f"{self.name}: reward_model gives a reward for each transition, so that n_step must be 1, got "
                f"n_step={self.needs().n_step}"
            )
        replay = self.needs().replay
        if replay is not None and replay.hindsight is not None:
            raise ConfigError(
                f"{self.name}: reward_model replaces the rewards that hindsight computes for other goals: leave one of "
                "them out"
            )
        if getattr(self.settings, NORMALIZE, False):
            raise ConfigError(
                f"{self.name}: reward_model gets the environment's observations, which {NORMALIZE}=True changes: leave "
                "one of them out"
            )

    @property
    def reward_model(self) -> RewardModel:
        """The reward model: by default, the setting of this name."""
        given = self.settings.reward_model
        if isinstance(given, Unsaved):
            return UnknownReward(given.name)
        return given if isinstance(given, RewardModel) else FunctionReward(given)

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the networks of the algorithm and of the reward model."""
        return {**super().networks(), **self.reward_model.networks(self)}

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases of the reward model, then those of the algorithm, which do not train the networks of the model."""
        of_model = self.reward_model.networks(self)
        own = (
            replace(phase, trains=tuple(name for name in phase.trains if name not in of_model))
            for phase in super().phases
        )
        return (*self.reward_model.phases(self), *own)

    def form_for_acting(self) -> CompiledForm | None:
        """Return the algorithm's compiled form."""
        return super().compiled_form()

    def prepare(
        self, ops: Ops, nets: Networks, batch: Batch, tensors: WholeBatch, hyper: Mapping[str, Any]
    ) -> WholeBatch:
        """Replace the rewards; raises AgentError for rewards of a wrong shape, and for nan and infinite ones.

        The phases of the reward model get the actions in the environment's units as `acted`.
        """
        tensors.acted = tensors.action
        rewards = _numbers(self.name, self.reward_model.rewards(self, ops, nets, tensors))
        if rewards.shape != batch.reward.shape:
            raise AgentError(
                f"{self.name}: reward_model {type(self.reward_model).__name__} must return rewards [agents, rows] of "
                f"shape {batch.reward.shape}, it returned {rewards.shape}"
            )
        rewards = np.where(batch.weight > 0, rewards, np.float32(0))
        if not (finite := np.isfinite(rewards)).all():
            raise AgentError(
                f"{self.name}: reward_model returned {rewards[~finite][0]} for {(~finite).sum()} of "
                f"{(batch.weight > 0).sum()} transitions; rewards must be finite"
            )
        batch = tensors.batch = replace(batch, reward=rewards)
        tensors.reward = tensors.to_tensor(rewards)
        rows = np.maximum(batch.weight.sum(1), 1e-8)
        tensors.metrics["model_reward"] = (rewards * batch.weight).sum(1).astype(np.float64) / rows
        return super().prepare(ops, nets, batch, tensors, hyper)


def with_reward_model(algorithm_class: type[Algorithm]) -> type[Algorithm]:
    """Return the subclass of an algorithm that learns from the rewards of its setting `reward_model`."""
    forms = {"compiled_form": Rewarded.form_for_acting} if "compiled_form" in vars(algorithm_class) else {}
    return type(f"{algorithm_class.__name__}WithRewardModel", (Rewarded, algorithm_class), forms)
