"""C51: Q-learning with a distribution of the return over fixed values (Bellemare et al. 2017, arXiv:1707.06887)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Layout, Space
from marltrain.core.settings import setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.q_learning import QLearning, QLearningSettings
from marltrain.policies.interface.algorithm import Networks, weighted_mean
from marltrain.policies.ops import Ops

MOST_ATOMS = 1001
LEAST = 1e-30
"""Probability whose logarithm stands in for that of 0, times 0."""


@dataclass(frozen=True, kw_only=True)
class C51Settings(QLearningSettings):
    """Settings of C51; the defaults suit small games with returns from -10 to 10."""

    atoms: int = setting(51, doc="values of the return that have a probability, N", low=2, high=MOST_ATOMS)
    v_min: float = setting(-10.0, doc="smallest of these values; smaller returns count as this one")
    v_max: float = setting(10.0, doc="largest of these values; larger returns count as this one")
    double: bool = setting(False, doc="double DQN: the online network chooses the next action")


class C51Algorithm(QLearning):
    """Categorical DQN: the network's outputs are N logits for each action, the probabilities of the values z_i.

    z_i = v_min + i (v_max - v_min) / (N - 1).
    """

    name = "c51"
    Settings: ClassVar[type[C51Settings]] = C51Settings
    recurrent = ("q",)

    def __init__(self, settings: C51Settings, layout: Layout, action_space: Space) -> None:
        """Raise ConfigError unless v_min < v_max; see also `QLearning`."""
        super().__init__(settings, layout, action_space)
        if not settings.v_min < settings.v_max:
            raise ConfigError(
                f"{self.name}: v_min must be below v_max, got v_min={settings.v_min}, v_max={settings.v_max}. Choose "
                "them around the discounted returns of the game"
            )
        self.support = np.linspace(settings.v_min, settings.v_max, settings.atoms).astype(np.float32).tolist()

    @property
    def outputs(self) -> int:
        """Number of logits for each action."""
        return int(self.settings.atoms)

    def logits(self, ops: Ops, outputs: Sequence[Any]) -> Any:
        """Return [K, B, A, N] from the heads' outputs; dueling: V + A - mean A (arXiv:1710.02298, section 3)."""
        if not self.settings.dueling:
            return ops.unflatten(outputs[0], self.outputs)
        value, advantage = outputs[0], ops.unflatten(outputs[1], self.outputs)
        return value[..., None, :] + advantage - ops.mean(advantage, -2)[..., None, :]

    def expected(self, ops: Ops, probabilities: Any) -> Any:
        """Return the mean of distributions, [..., N] -> [...]."""
        return ops.sum(probabilities * ops.tensor_like(probabilities, self.support), -1)

    def of_action(self, ops: Ops, x: Any, action: Any) -> Any:
        """Return the N numbers of the given actions [K, B], [K, B, A, N] -> [K, B, N]."""
        return ops.sum(x * ops.one_hot(action, self.choices)[..., None], -2)

    def values(self, ops: Ops, outputs: Sequence[Any]) -> Any:
        """Return Q [K, B, A], the mean of each action's distribution."""
        return self.expected(ops, ops.softmax(self.logits(ops, outputs), -1))

    def _targets(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> None:
        """Add `target` [K, B, N], the projected distribution of r + discount * Z_target(s', a').

        a' is legal and has the highest mean by the online (double) or target network.
        """
        outputs = self.next_heads(nets["target_q"], batch, "target_noise")
        following = ops.softmax(self.logits(ops, outputs), -1)
        best = self.next_action(ops, nets, batch, self.expected(ops, following))
        batch.target = self.projected(ops, batch.reward, batch.discount, self.of_action(ops, following, best))

    def projected(self, ops: Ops, reward: Any, discount: Any, probabilities: Any) -> Any:
        """Return the distribution of r + discount * z on the values z_i, [K, B, N] (algorithm 1).

        Each r + discount * z_j is clipped to [v_min, v_max], and its probability is shared by the two values z_i
        around it in proportion to their nearness.  reward, discount: [K, B].  probabilities: [K, B, N] of the z_j.
        """
        low, high, steps = self.settings.v_min, self.settings.v_max, self.outputs - 1
        moved = reward[..., None] + discount[..., None] * ops.tensor_like(reward, self.support)
        place = (ops.clip(moved, low, high) - low) * (steps / (high - low))  # b_j, from 0 to N - 1
        number = ops.tensor_like(reward, list(range(self.outputs)))[:, None]
        share = ops.clip(1.0 - ops.absolute(place[..., None, :] - number), 0.0, 1.0)  # [K, B, i, j]
        return ops.sum(share * probabilities[..., None, :], -1)

    def _loss(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the mean cross-entropy between the target and the distribution of the action taken."""
        outputs = self.heads(nets["q"], batch, "online_noise")
        log_p = ops.log_softmax(self.of_action(ops, self.logits(ops, outputs), batch.action), -1)
        batch.cross_entropy = -ops.sum(batch.target * log_p, -1)
        loss = weighted_mean(ops, batch.cross_entropy, batch.weight)
        q = self.expected(ops, ops.exp(log_p))
        return loss, {"loss/total": loss, "q_mean": weighted_mean(ops, q, batch.weight)}

    def _row_error(self, ops: Ops, batch: Any) -> Any:
        """Return the Kullback-Leibler divergence from target to prediction, Rainbow's priorities (arXiv:1710.02298)."""
        log_target = ops.log(ops.maximum(batch.target, ops.tensor_like(batch.target, [LEAST])))
        divergence = batch.cross_entropy + ops.sum(batch.target * log_target, -1)
        return ops.maximum(divergence, ops.zeros_like(divergence))


@dataclass(frozen=True, kw_only=True)
class C51Arguments(AgentArguments, C51Settings):
    """Arguments of `C51`."""


class C51(LearningAgent):
    """Agent that learns with C51."""

    algorithm_class = C51Algorithm

    @accepts(C51Arguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
