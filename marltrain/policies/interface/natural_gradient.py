"""The description of a phase that solves for a natural gradient step, in place of a step of an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from marltrain.core.errors import ConfigError

Divergence = Callable[[Any, Mapping[str, Callable[..., Any]], Any, Mapping[str, Any]], Any]


@dataclass(frozen=True)
class NaturalGradient:
    """A step along the natural gradient within a trust region: TRPO, Schulman et al. 2015 (arXiv:1502.05477), app. C.

    The phase's loss has the gradient g. Conjugate gradients solve (F + damping I) s = g, where F is the second
    derivative of the divergence. The largest step -b s has the length b = sqrt(2 max_kl / s^T (F + damping I) s). A
    line search tries this step and shorter ones. It takes the first one that lowers the loss and has a divergence of at
    most `max_kl`; without one, the weights do not change. Each agent has its own solution and its own line search.

    Such a phase uses no optimizer, no learning rate and no `max_grad_norm`. `Phase.targets` runs once, before the step.

    divergence: (ops, networks, batch, hyper) -> [K], the mean divergence from the policy before the step, a sum of
        weighted rows (`weighted_mean`). It is at its minimum 0 before the step. `Phase.targets` adds what it needs of
        the policy before the step, such as the outputs of its network.
    max_kl, damping: names of the settings (hyperparameters) that hold the limit of the divergence and the damping.
    iterations: iterations of the conjugate gradient method.
    tries: number of step sizes in the line search.
    shrink: ratio of a step size to the one before.
    """

    divergence: Divergence
    max_kl: str = "max_kl"
    damping: str = "damping"
    iterations: int = 10
    tries: int = 10
    shrink: float = 0.8

    def __post_init__(self) -> None:
        """Raise ConfigError for numbers out of range."""
        for name in ("iterations", "tries"):
            if not isinstance(count := getattr(self, name), int) or count < 1:
                raise ConfigError(f"NaturalGradient: {name} must be an integer of at least 1, got {count!r}")
        if not 0 < self.shrink < 1:
            raise ConfigError(f"NaturalGradient: shrink must be greater than 0 and less than 1, got {self.shrink!r}")
