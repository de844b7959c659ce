"""Deep Q-learning: Mnih et al. 2015, double (arXiv:1509.06461), dueling (arXiv:1511.06581), n-step (Sutton 1988).

With `noisy`, NoisyNet-DQN (Fortunato et al. 2017, arXiv:1706.10295).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.q_learning import QLearning, QLearningSettings
from marltrain.policies.interface.algorithm import CompiledForm, Networks, weighted_mean
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class DQNSettings(QLearningSettings):
    """Settings of DQN; the defaults suit small games."""


class DQNAlgorithm(QLearning):
    """DQN with one Q-network and its target network."""

    name = "dqn"
    Settings: ClassVar[type[DQNSettings]] = DQNSettings
    recurrent: tuple[str, ...] = ("q",)

    def compiled_form(self) -> CompiledForm | None:
        """Return the form of epsilon-greedy acting; None with `dueling` or `noisy`, or for a recurrent network."""
        if self.settings.dueling or self.settings.noisy or self.carry():
            return None
        return CompiledForm("q", self.exploration.compiled_rule)

    def values(self, ops: Ops, outputs: Sequence[Any]) -> Any:
        """Return Q [K, B, A] from the heads' outputs; dueling: V + A - mean A (Wang et al. 2016, eq. 9)."""
        if not self.settings.dueling:
            return outputs[0]
        value, advantage = outputs
        return value + advantage - ops.mean(advantage, -1)[..., None]

    def _targets(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> None:
        """Add `target`: r + discount * Q_target(s', a'), a' legal and best by the online (double) or target network."""
        following = self.values(ops, self.next_heads(nets["target_q"], batch, "target_noise"))
        best = self.next_action(ops, nets, batch, following)
        batch.target = batch.reward + batch.discount * ops.take(following, best)

    def _loss(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the mean loss of the temporal-difference error."""
        q = ops.take(self.values(ops, self.heads(nets["q"], batch, "online_noise")), batch.action)
        batch.error = q - batch.target
        loss = weighted_mean(ops, self._row_loss(ops, batch.error), batch.weight)
        return loss, {"loss/total": loss, "q_mean": weighted_mean(ops, q, batch.weight)}

    def _row_loss(self, ops: Ops, error: Any) -> Any:
        """Return the loss of each row."""
        return huber(ops, error)


def huber(ops: Ops, error: Any) -> Any:
    """Return the Huber loss with threshold 1: quadratic near 0, linear beyond (Mnih et al. 2015)."""
    size = ops.absolute(error)
    near = ops.minimum(size, ops.ones_like(size))
    return near * (size - 0.5 * near)


@dataclass(frozen=True, kw_only=True)
class DQNArguments(AgentArguments, DQNSettings):
    """Arguments of `DQN`."""


class DQN(LearningAgent):
    """Agent that learns with DQN."""

    algorithm_class = DQNAlgorithm

    @accepts(DQNArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
