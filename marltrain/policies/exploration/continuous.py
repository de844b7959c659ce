"""Exploration noise for actions in [-1, 1]: Gaussian and Ornstein-Uhlenbeck, written with `ops`.

Random numbers are arguments, drawn from each agent's own stream.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marltrain.config import setting
from marltrain.errors import ConfigError, shown
from marltrain.layout import Array
from marltrain.policies.batch import Column
from marltrain.policies.distributions.draws import normal_of, uniform_of
from marltrain.policies.exploration.warmup import Warmup
from marltrain.policies.schedules import Schedule

OU = "ornstein_uhlenbeck"


@dataclass(frozen=True, kw_only=True)
class ContinuousExploration(Warmup):
    """Settings of noise on actions; part of the settings of an algorithm with a deterministic policy."""

    exploration: str = setting("gaussian", doc="exploration noise", choices=("greedy", "gaussian", OU))
    noise_std: float | Schedule = setting(
        0.1, doc="standard deviation of the noise, in half widths of the bounds", low=0, per_row=True
    )
    noise_scale: tuple[float, ...] | None = setting(
        None, doc="factor of noise_std for each dimension of the action; None: 1 for all"
    )
    noise_theta: float = setting(0.15, doc="rate at which Ornstein-Uhlenbeck noise returns to 0", low=0)
    noise_dt: float = setting(0.01, doc="time step of Ornstein-Uhlenbeck noise", above=0)


class ActionNoise:
    """Adds noise to A numbers in [-1, 1], with the rule and the numbers of `ContinuousExploration`.

    For an exploring seat, with N a standard normal number for each dimension, the noise is

    - greedy: 0.
    - gaussian: noise_std * noise_scale * N.
    - ornstein_uhlenbeck: x, which starts at 0 in each episode and follows
      x - theta * x * dt + noise_std * noise_scale * sqrt(dt) * N (Uhlenbeck and Ornstein 1930).

    `random_share` of its actions are uniform in [-1, 1] in place of these. The result is clipped to [-1, 1].
    """

    def __init__(self, settings: ContinuousExploration, dims: int, who: str) -> None:
        """Raise ConfigError unless `noise_scale` has one number of at least 0 for each of `dims` dimensions.

        who: name of the algorithm, for the error.
        """
        self.rule, self.dims = settings.exploration, dims
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
        normal = 0 if self.rule == "greedy" else 2 * math.ceil(dims / 2)
        widths = {"normal": normal, "coin": int(self.warms_up), "uniform": dims if self.warms_up else 0}
        self._widths = {name: width for name, width in widths.items() if width}

    def carry(self) -> dict[str, Column]:
        """Return the state of the noise for `Algorithm.carry`: x of Ornstein-Uhlenbeck noise, else nothing."""
        return {"noise": Column((self.dims,))} if self.rule == OU else {}

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the random numbers of one `perturb`: "coin" [K, rows], others [K, rows, A], float32.

        "normal" contains the factors `noise_scale`.
        """
        drawn = uniform_of(rngs, rows, self._widths) if self._widths else {}
        if "normal" in drawn:
            drawn["normal"] = normal_of(drawn["normal"])[..., : self.dims] * self.scale
        return {name: values[..., 0] if name == "coin" else values for name, values in drawn.items()}

    def perturb(
        self,
        ops: Any,
        action: Any,
        carry: Mapping[str, Any],
        noise: Mapping[str, Any],
        explore: Any,
        hyper: Mapping[str, Any],
    ) -> tuple[Any, dict[str, Any]]:
        """Return (actions with noise where `explore` [K, B], next carry).

        action: [K, B, A] in [-1, 1].  carry: the columns of `carry`.  hyper: "noise_std" and "random_share", each
        [K, 1].
        """
        moved, following = self._moved(ops, action, carry, noise, hyper)
        if self.warms_up:
            random = 2.0 * noise["uniform"] - 1.0
            moved = ops.where((noise["coin"] < hyper["random_share"])[..., None], random, moved)
        return ops.where(explore[..., None], ops.clip(moved, -1.0, 1.0), action), following

    def _moved(
        self, ops: Any, action: Any, carry: Mapping[str, Any], noise: Mapping[str, Any], hyper: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return (actions with noise, not clipped, next carry)."""
        if self.rule == "greedy":
            return action, {}
        added = hyper["noise_std"][..., None] * noise["normal"]
        if self.rule == "gaussian":
            return action + added, {}
        x = carry["noise"]
        x = x - (self.theta * self.dt) * x + math.sqrt(self.dt) * added
        return action + x, {"noise": x}
