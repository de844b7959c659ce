"""The choice of a distribution by the action space and a name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, overload

from gymnasium import spaces

from marltrain.core.errors import ConfigError, SpecError, did_you_mean, shown
from marltrain.core.layout import Space
from marltrain.policies.batches.batch import ActInputs
from marltrain.policies.distributions.beta import Beta
from marltrain.policies.distributions.categorical import Categorical, MultiCategorical
from marltrain.policies.distributions.gaussian import LOG_STD_BOUNDS, Gaussian, SquashedGaussian, StateGaussian
from marltrain.policies.ops import Ops

Distribution = Categorical | MultiCategorical | Gaussian | Beta

CONTINUOUS = ("gaussian", "state_gaussian", "squashed_gaussian", "beta")
"""Names of the distributions of Box actions."""


@overload
def distribution_of(
    space: Space, log_std: float = ..., *, name: str, log_std_bounds: tuple[float, float] = ...
) -> Gaussian | Beta: ...
@overload
def distribution_of(
    space: Space, log_std: float = ..., *, name: None = None, log_std_bounds: tuple[float, float] = ...
) -> Distribution: ...
def distribution_of(
    space: Space,
    log_std: float = 0.0,
    *,
    name: str | None = None,
    log_std_bounds: tuple[float, float] = LOG_STD_BOUNDS,
) -> Distribution:
    """Return the distribution for a Discrete, MultiDiscrete or Box space.

    log_std: initial log standard deviation of the Gaussians.
    name: for a Box "gaussian" (free log standard deviations, the default), "state_gaussian" (log standard deviations
        that depend on the observation), "squashed_gaussian" (tanh of these) or "beta"; None for other spaces.
    log_std_bounds: bounds of log standard deviations that depend on the observation.
    Raises ConfigError for an unknown name. Raises SpecError for another space, for a name with a space that is not a
    Box, and for a squashed Gaussian or a Beta distribution of an unbounded Box.
    """
    if name is not None and name not in CONTINUOUS:
        near = did_you_mean(name, CONTINUOUS)
        raise ConfigError(f"a distribution must be one of {', '.join(CONTINUOUS)}, got {shown(name)}.{near}")
    if name is not None and not isinstance(space, spaces.Box):
        raise SpecError(f'the distribution "{name}" needs a Box of actions, got {space}; leave the name out')
    if isinstance(space, spaces.Discrete):
        return Categorical(space)
    if isinstance(space, spaces.MultiDiscrete):
        return MultiCategorical(space)
    if not isinstance(space, spaces.Box):
        raise SpecError(f"action space {space} has no distribution; marltrain takes Discrete, MultiDiscrete and Box")
    if name == "beta":
        return Beta(space)
    if name == "state_gaussian":
        return StateGaussian(space, log_std, log_std_bounds)
    if name == "squashed_gaussian":
        return SquashedGaussian(space, log_std, log_std_bounds)
    return Gaussian(space, log_std)


def policy_numbers_of(distribution: Any, network: str) -> Callable[..., dict[str, Any]]:
    """Return the function `Algorithm.policy_numbers` of a policy whose distribution reads the outputs of a network."""
    return partial(_numbers, distribution, network)


def _numbers(distribution: Any, network: str, ops: Ops, nets: Any, inputs: ActInputs) -> dict[str, Any]:
    if isinstance(distribution, Gaussian | Beta):
        return {}
    outputs, _ = inputs.evaluate(nets, network)
    return {"probabilities": distribution.probabilities(ops, outputs[0], inputs.legal)}
