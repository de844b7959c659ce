"""Exploration noise for actions in [-1, 1]: Gaussian and Ornstein-Uhlenbeck, written with `ops`.

Random numbers are arguments, drawn from each agent's own stream.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError, shown
from marltrain.core.layout import Array
from marltrain.core.settings import setting
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.distributions.draws import normal_of, uniform_of
from marltrain.policies.exploration.warmup import Warmup
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.memory.needs import Column
from marltrain.policies.ops import Ops

GREEDY, GAUSSIAN, OU = "greedy", "gaussian", "ornstein_uhlenbeck"


@dataclass(frozen=True, kw_only=True)
class NoiseSettings(Warmup):
    """Numbers of the noise on actions, for a subclass with the setting `exploration`."""

    noise_std: float | Schedule = setting(
        0.1, doc="standard deviation of the noise, in half widths of the bounds", low=0, per_row=True,
        only=("exploration", GAUSSIAN, OU),
    )  # fmt: skip
    noise_scale: tuple[float, ...] | None = setting(
        None, doc="factor of noise_std for each dimension of the action; None: 1 for all",
        only=("exploration", GAUSSIAN, OU),
    )  # fmt: skip
    noise_theta: float = setting(0.15, doc="rate at which Ornstein-Uhlenbeck noise returns to 0", low=0,
                                 only=("exploration", OU))  # fmt: skip
    noise_dt: float = setting(0.01, doc="time step of Ornstein-Uhlenbeck noise", above=0,
                              only=("exploration", OU))  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ContinuousExploration(NoiseSettings):
    """Settings of noise on actions; part of the settings of an algorithm with a deterministic policy."""

    exploration: str = setting(GAUSSIAN, doc="exploration noise", choices=(GREEDY, GAUSSIAN, OU))


@dataclass(frozen=True, kw_only=True)
class SampleNoise(NoiseSettings):
    """Settings of noise on sampled actions; part of the settings of an algorithm with a stochastic policy."""

    exploration: str | None = setting(
        None, doc="noise added to the policy's samples, Box actions only; None: no noise", choices=(GAUSSIAN, OU)
    )


class ActionNoise:
    """Adds noise to A numbers in [-1, 1], with the rule and the numbers of `ContinuousExploration` or `SampleNoise`.

    For an exploring seat, with N a standard normal number for each dimension, the noise is

    - greedy, None: 0.
    - gaussian: noise_std * noise_scale * N.
    - ornstein_uhlenbeck: x, which starts at 0 in each episode and follows
      x - theta * x * dt + noise_std * noise_scale * sqrt(dt) * N (Uhlenbeck and Ornstein 1930).

    `random_share` of its actions are uniform in [-1, 1] in place of these. The result is clipped to [-1, 1].

    widths: name -> uniform numbers that the noise of a row is made from, in the order in which they are drawn.
    """

    def __init__(self, settings: ContinuousExploration | SampleNoise, dims: int, who: str) -> None:
        """Raise ConfigError unless `noise_scale` has one number of at least 0 for each of `dims` dimensions.

        who: name of the algorithm, for the error.
        """
        self.rule, self.dims = settings.exploration or GREEDY, dims
        self.theta, self.dt = settings.noise_theta, settings.noise_dt
        self.warms_up = settings.random_share is not None
        self.scale = np.ones(dims, np.float32)
        if (scale := settings.noise_scale) is not None:
            if len(scale) != dims or not all(isinstance(s, int | float) and 0 <= s < math.inf for s in scale):
                raise ConfigError(
                    f"{who}: noise_scale must have one number of at least 0 for each dimension of the action, {dims} "
                    f"in all, got {shown(scale)}"
                )
            self.scale = np.array(scale, np.float32)
        normal = 0 if self.rule == GREEDY else 2 * math.ceil(dims / 2)
        widths = {"normal": normal, "coin": int(self.warms_up), "uniform": dims if self.warms_up else 0}
        self.widths = {name: width for name, width in widths.items() if width}

    def carry(self) -> dict[str, Column]:
        """Return the state of the noise for `Algorithm.carry`: x of Ornstein-Uhlenbeck noise, else nothing."""
        return {"noise": Column((self.dims,))} if self.rule == OU else {}

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the random numbers of one `perturb`: "coin" [K, rows], others [K, rows, A], float32.

        "normal" contains the factors `noise_scale`.
        """
        return self.noise_of(uniform_of(rngs, rows, self.widths) if self.widths else {})

    def noise_of(self, drawn: Mapping[str, Array]) -> dict[str, Array]:
        """Return the result of `noise` for uniform numbers by `widths`, [K, rows, width]."""
        noise = dict(drawn)
        if "normal" in noise:
            noise["normal"] = normal_of(noise["normal"])[..., : self.dims] * self.scale
        if "coin" in noise:
            noise["coin"] = noise["coin"][..., 0]
        return noise

    def perturb(self, ops: Ops, action: Any, inputs: ActInputs) -> Acted:
        """Return the actions, with noise where `explore`, and the next carry.

        action: [K, B, A] in [-1, 1].  inputs: of the act, with "noise_std" and "random_share" in `hyper`.
        """
        if not self.widths:
            return Acted(action)
        noisy, carry = self._noisy(ops, action, inputs)
        if self.warms_up:
            random = 2.0 * inputs.noise["uniform"] - 1.0
            tossed = inputs.noise["coin"] < inputs.hyper["random_share"]
            noisy = ops.where(tossed[..., None], random, noisy)
        return Acted(ops.where(inputs.explore[..., None], noisy, action), carry)

    def _noisy(self, ops: Ops, action: Any, inputs: ActInputs) -> tuple[Any, dict[str, Any]]:
        """Return (actions with noise in [-1, 1], next carry)."""
        if self.rule == GREEDY:
            return action, {}
        added = inputs.hyper["noise_std"][..., None] * inputs.noise["normal"]
        if self.rule == GAUSSIAN:
            return ops.clip(action + added, -1.0, 1.0), {}
        x = inputs.carry["noise"]
        x = x - (self.theta * self.dt) * x + math.sqrt(self.dt) * added
        return ops.clip(action + x, -1.0, 1.0), {"noise": x}
