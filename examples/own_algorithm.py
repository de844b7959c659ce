"""An algorithm of your own: a soft actor-critic over the public interface, for both frameworks.

    marltrain train gymnasium/Pendulum-v1 --algo examples.own_algorithm:Soft --steps-per-train 10000

It uses every part of the interface: networks with several inputs, an ensemble, a trained constant, a target network,
random numbers in phases, running statistics, and a phase that runs on every second pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import marltrain as mt


@dataclass(frozen=True, kw_only=True)
class SoftSettings(mt.Settings):
    """Settings of the algorithm."""

    tau: float = mt.setting(0.05, doc="rate of the target network", above=0, high=1, per_row=True)
    temperature_rate: float = mt.setting(1e-2, doc="step size of the temperature", low=0, per_row=True)
    capacity: int = mt.setting(1_000, doc="env steps in memory", low=1)
    learning_starts: int = mt.setting(16, doc="env steps before the first update", low=0)


class SoftAlgorithm(mt.Algorithm):
    """A soft actor-critic with two critics, a trained temperature and rewards divided by their running deviation."""

    name, Settings, on_policy = "soft", SoftSettings, False
    acts_in_numpy = noise_by_rows = True

    def __init__(self, settings: Any, layout: Any, action_space: Any) -> None:
        super().__init__(settings, layout, action_space)
        self.policy: Any = mt.distribution_of(action_space, name="squashed_gaussian")
        self.units = self.policy

    def networks(self) -> dict[str, mt.NetworkDefinition]:
        network, actions = self.settings.network, self.policy.dims
        return {
            "actor": mt.NetworkDefinition(network, [self.policy.head(0.01)], self.layout),
            "critic": mt.NetworkDefinition(network, [mt.Head(1)], self.layout, vectors=(actions,), members=2),
            "log_alpha": mt.NetworkDefinition(None, [mt.Head(0, free=1, free_start=-1.0)], None),
        }

    def targets(self) -> tuple[str, ...]:
        return ("critic",)

    def target_share(self, updates: np.ndarray, hyper: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.asarray(hyper["tau"])

    def rate_name(self, network: str) -> str:
        return "temperature_rate" if network == "log_alpha" else "learning_rate"

    def statistics(self) -> dict[str, int]:
        return {**super().statistics(), "reward": 1}

    def needs(self) -> mt.Needs:
        return mt.Needs(
            on_policy=False, capacity=self.settings.capacity, columns={"raw": mt.Column((self.policy.dims,))}
        )

    @property
    def phases(self) -> tuple[mt.Phase, ...]:
        return (
            mt.Phase("critic", ("critic",), self.critic_loss, self.critic_targets, draw=self.draw),
            mt.Phase("actor", ("actor",), self.actor_loss, every=2, draw=self.draw),
            mt.Phase("temperature", ("log_alpha",), self.temperature_loss, draw=self.draw),
        )

    def draw(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, np.ndarray]:
        return {"sample": self.policy.noise(rngs, rows)}

    noise = draw

    def act(self, ops: Any, nets: Any, inputs: mt.ActInputs) -> mt.Acted:
        (out,) = nets["actor"](inputs.obs)
        action, raw, _ = self.policy.sample(ops, out, inputs.legal, inputs.noise["sample"], inputs.explore)
        return mt.Acted(action, extras={"raw": raw})

    def prepare(self, ops: Any, nets: Any, batch: Any, tensors: Any, hyper: Any) -> Any:
        scale = tensors.statistics["reward"]
        scale.update(batch.reward[..., None], batch.weight)
        tensors.scaled = tensors.to_tensor((batch.reward / scale.deviation).astype(np.float32))
        return tensors

    def sampled(self, ops: Any, nets: Any, obs: Any, batch: Any) -> tuple[Any, Any]:
        """Return an action of the policy and its log-density; gradients pass through both."""
        (out,) = nets["actor"](obs)
        action, _, log_prob = self.policy.sample(ops, out, None, batch.sample, ops.ones_like(batch.weight) > 0)
        return action, log_prob

    def value(self, ops: Any, nets: Any, critic: str, obs: Any, batch: Any) -> Any:
        """Return the smaller value of both critics less the weighted log-density, [K, B]."""
        action, log_prob = self.sampled(ops, nets, obs, batch)
        both = nets[critic](obs, action)[0][..., 0]
        alpha = ops.stop_gradient(ops.exp(nets["log_alpha"]()[0][..., 0]))
        return ops.minimum(both[:, 0], both[:, 1]) - alpha * log_prob

    def critic_targets(self, ops: Any, nets: Any, batch: Any, hyper: Any) -> None:
        batch.target = batch.scaled + batch.discount * self.value(ops, nets, "target_critic", batch.next_obs, batch)

    def critic_loss(self, ops: Any, nets: Any, batch: Any, hyper: Any) -> Any:
        both = nets["critic"](batch.obs, ops.tanh(batch.extras["raw"]))[0][..., 0]
        errors = ops.square(both - batch.target[:, None])
        loss = mt.weighted_mean(ops, ops.sum(errors, 1), batch.weight)
        return loss, {"loss/critic": loss}

    def actor_loss(self, ops: Any, nets: Any, batch: Any, hyper: Any) -> Any:
        loss = -mt.weighted_mean(ops, self.value(ops, nets, "critic", batch.obs, batch), batch.weight)
        return loss, {"loss/actor": loss}

    def temperature_loss(self, ops: Any, nets: Any, batch: Any, hyper: Any) -> Any:
        _, log_prob = self.sampled(ops, nets, batch.obs, batch)
        excess = ops.stop_gradient(log_prob - self.policy.dims)
        loss = -mt.weighted_mean(ops, nets["log_alpha"]()[0][..., 0] * excess, batch.weight)
        return loss, {"loss/temperature": loss}


class Soft(mt.LearningAgent):
    """Agent of the algorithm."""

    algorithm_class = SoftAlgorithm
