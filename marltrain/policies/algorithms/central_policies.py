"""Policies of agents whose critics read actions as vectors: of a Box, and of Discrete and MultiDiscrete actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import SpecError
from marltrain.core.layout import Array, Space
from marltrain.core.settings import setting
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.distributions import Continuous, RelaxedCategorical, policy_numbers_of
from marltrain.policies.distributions.draws import gumbel_of, uniform_of
from marltrain.policies.exploration import ActionNoise, ContinuousExploration
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.memory.needs import Column
from marltrain.policies.networks.specs import Head
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class VectorPolicySettings(ContinuousExploration):
    """Settings of policies for all action spaces."""

    random_steps: int = setting(1_000, doc="env steps at the start of a run with random actions of exploring seats",
                                low=0)  # fmt: skip
    gumbel_temperature: float | Schedule = setting(
        1.0, doc="temperature of the Gumbel-softmax, for Discrete and MultiDiscrete actions", above=0, per_row=True
    )
    straight_through: bool = setting(
        True, doc="the critics read one-hot samples of the actors' Discrete actions, with the gradient of the relaxed "
        "ones; False: the relaxed samples",
    )  # fmt: skip


class BoxPolicy:
    """A deterministic policy tanh(actor(o)) for a bounded Box of A numbers; exploration adds noise to it.

    numbers, sampling, units: see `Algorithm.policy_numbers`, `Algorithm.sampling` and `Algorithm.units`.
    """

    def __init__(self, settings: VectorPolicySettings, space: spaces.Box, who: str) -> None:
        """Raise SpecError for a Box without bounds, ConfigError for a wrong `noise_scale`.  who: for errors."""
        self.units = Continuous(space)
        self.numbers, self.sampling = None, None
        self.units.check_bounded(who)
        self.width = self.units.dims
        self._exploration = ActionNoise(settings, self.width, who)

    def head(self) -> Head:
        """Return the head of the actor."""
        return Head(self.width, 0.01)

    def vectors(self, ops: Ops, action: Any) -> Any:
        """Return stored actions as vectors, in [-1, 1]."""
        return self.units.from_units(ops, action)

    def training_noise(self, rngs: Sequence[np.random.Generator], rows: int) -> Array | None:
        """Return None: the actions in training have no noise."""
        return None

    def sample(self, ops: Ops, out: Any, legal: Any, noise: Any, hyper: Mapping[str, Any]) -> Any:
        """Return the actions as vectors [K, B, A], through which gradients flow."""
        return ops.tanh(out)

    def carry(self) -> Mapping[str, Column]:
        """Return the state of Ornstein-Uhlenbeck noise."""
        return self._exploration.carry()

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the random numbers of one act."""
        return self._exploration.noise(rngs, rows)

    def act(self, ops: Ops, out: Any, inputs: ActInputs) -> Acted:
        """Return actions in [-1, 1] for the outputs of the actor, with noise where `explore`, and its next carry."""
        return self._exploration.perturb(ops, ops.tanh(out), inputs)


class ChoicePolicy:
    """A stochastic policy softmax(actor(o)) for Discrete or MultiDiscrete actions, sampled where the agent explores.

    In training, gradients flow through samples of the Gumbel-softmax.

    numbers, sampling, units: see `Algorithm.policy_numbers`, `Algorithm.sampling` and `Algorithm.units`.
    """

    def __init__(self, settings: VectorPolicySettings, space: spaces.Discrete | spaces.MultiDiscrete) -> None:
        """Store the settings."""
        self._choices = RelaxedCategorical(space)
        self.numbers, self.sampling = policy_numbers_of(self._choices, "actor"), self._choices.sampling
        self.units = None
        self.width = self._choices.width
        self._straight = settings.straight_through
        warm_up = {} if settings.random_share is None else {"coin": 1}
        self._widths = {**warm_up, "gumbel": self.width}

    def head(self) -> Head:
        """Return the head of the actor."""
        return self._choices.head(0.01)

    def vectors(self, ops: Ops, action: Any) -> Any:
        """Return stored actions as one-hot vectors."""
        return self._choices.vectors(ops, action)

    def training_noise(self, rngs: Sequence[np.random.Generator], rows: int) -> Array | None:
        """Draw the Gumbel noise of one `sample` call, [K, rows, W]."""
        return self._choices.noise(rngs, rows)

    def sample(self, ops: Ops, out: Any, legal: Any, noise: Any, hyper: Mapping[str, Any]) -> Any:
        """Return samples as vectors [K, B, W], through which gradients flow."""
        temperature = hyper["gumbel_temperature"]
        return self._choices.sample(ops, out, legal, noise, temperature, straight_through=self._straight)

    def carry(self) -> Mapping[str, Column]:
        """Return no columns."""
        return {}

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the random numbers of one act."""
        drawn = uniform_of(rngs, rows, self._widths)
        return {**drawn, "gumbel": gumbel_of(drawn["gumbel"])}

    def act(self, ops: Ops, out: Any, inputs: ActInputs) -> Acted:
        """Return the most probable legal actions for the outputs of the actor, samples where `explore`."""
        logits, noise = out, inputs.noise
        if "coin" in noise:  # samples of equal logits are uniform
            random = inputs.explore[..., None] & (noise["coin"] < inputs.hyper["random_share"][..., None])
            logits = ops.where(random, ops.zeros_like(out), out)
        return Acted(self._choices.choose(ops, logits + ops.only(noise["gumbel"], inputs.explore), inputs.legal))


def policy_of(settings: VectorPolicySettings, space: Space, who: str) -> BoxPolicy | ChoicePolicy:
    """Return the policy for an action space; raises SpecError for another one than those of the module.

    who: name of the algorithm, for errors.
    """
    if isinstance(space, spaces.Box):
        return BoxPolicy(settings, space, who)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return ChoicePolicy(settings, space)
    raise SpecError(f"{who} needs a Box, Discrete or MultiDiscrete action space, got {space}")
