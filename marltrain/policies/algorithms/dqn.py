"""Deep Q-learning: Mnih et al. 2015, double (arXiv:1509.06461), dueling (arXiv:1511.06581), n-step (Sutton 1988)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from marltrain.config import setting
from marltrain.errors import ConfigError, SpecError
from marltrain.layout import Array, Layout, Space
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.base import (
    FASTEST,
    MOST_PASSES,
    MOST_STEPS,
    Algorithm,
    CompiledForm,
    Networks,
    Phase,
    Settings,
    weighted_mean,
)
from marltrain.policies.batch import Needs
from marltrain.policies.distributions import masked
from marltrain.policies.exploration import ActionChoice, DiscreteExploration
from marltrain.policies.memory.config import LONGEST
from marltrain.policies.networks import Head, NetworkDefinition, NetworkSpec
from marltrain.policies.schedules import Schedule


@dataclass(frozen=True, kw_only=True)
class DQNSettings(DiscreteExploration, Settings):
    """Settings of DQN; the defaults suit small games."""

    learning_rate: float | Schedule = setting(5e-4, doc="step size", low=0, high=FASTEST, per_row=True)
    max_grad_norm: float | None = setting(10.0, doc="largest gradient norm of an agent; None: not clipped", above=0,
                                          per_row=True)  # fmt: skip
    capacity: int = setting(50_000, doc="size of the replay memory in env steps", low=1, high=MOST_STEPS)
    learning_starts: int = setting(1_000, doc="env steps of learning seats before the first update", low=0)
    update_per_step: float = setting(0.25, doc="gradient steps per env step; fractions are carried over", above=0,
                                     high=MOST_PASSES)  # fmt: skip
    n_step: int = setting(1, doc="rewards summed before bootstrapping", low=1, high=LONGEST)
    double: bool = setting(True, doc="double DQN: the online network chooses the next action")
    dueling: bool = setting(False, doc="dueling network: separate heads for value and advantages")
    target_sync: int = setting(250, doc="updates between copies to the target network (tau=None)", low=1)
    tau: float | None = setting(None, doc="rate of soft target updates; None: hard copies",
                                above=0, high=1, per_row=True)  # fmt: skip


class DQNAlgorithm(Algorithm):
    """DQN with one Q-network and its target network."""

    name = "dqn"
    Settings: ClassVar[type[DQNSettings]] = DQNSettings
    on_policy = False
    acts_in_numpy = noise_by_rows = True

    def __init__(self, settings: DQNSettings, layout: Layout, action_space: Space) -> None:
        """Raise SpecError for actions that are not Discrete, ConfigError for a custom model with `dueling`."""
        super().__init__(settings, layout, action_space)
        if not isinstance(action_space, spaces.Discrete):
            raise SpecError(f"DQN needs a Discrete action space, got {action_space}; PPO takes all three kinds")
        if settings.dueling and not isinstance(settings.network, NetworkSpec):
            raise ConfigError("DQN: dueling=True needs a NetworkSpec; a model of your own gives its Q-values directly")
        self.choices = int(action_space.n)
        self.exploration = ActionChoice(settings, self.choices)

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the Q-network: one head of A values; with `dueling`, heads of one value and A advantages."""
        heads = (Head(1), Head(self.choices)) if self.settings.dueling else (Head(self.choices),)
        return {"q": NetworkDefinition(self.settings.network, heads, self.layout)}

    def compiled_form(self) -> CompiledForm | None:
        """Return the form with the loss "q" or "double_q" and epsilon-greedy acting; None with `dueling`.

        Acting by another exploration rule is not compiled.
        """
        loss = "double_q" if self.settings.double else "q"
        return None if self.settings.dueling else CompiledForm("q", self.exploration.compiled_rule, loss)

    def targets(self) -> tuple[str, ...]:
        """Return the name of the Q-network, which has a target network."""
        return ("q",)

    def target_share(self, updates: Array, hyper: Mapping[str, Array]) -> Array:
        """Return tau (soft updates), or 1 on every `target_sync`-th update and 0 otherwise."""
        if self.settings.tau is not None:
            return np.asarray(hyper["tau"])
        return (updates % self.settings.target_sync == 0).astype(np.float64)

    def needs(self) -> Needs:
        """Return `Needs` for off-policy learning with `capacity` and `n_step`."""
        return Needs(on_policy=False, capacity=self.settings.capacity, n_step=self.settings.n_step)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The single phase, which trains the Q-network."""
        return (Phase("q", ("q",), self._loss, self._targets),)

    def values(self, ops: Any, outputs: Sequence[Any]) -> Any:
        """Return Q [K, B, A] from the heads' outputs; dueling: V + A - mean A (Wang et al. 2016, eq. 9)."""
        if not self.settings.dueling:
            return outputs[0]
        value, advantage = outputs
        return value + advantage - ops.mean(advantage, -1)[..., None]

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the random numbers of the exploration rule."""
        return self.exploration.noise(rngs, rows)

    def act(
        self, ops: Any, nets: Networks, obs: Any, legal: Any, noise: Any, explore: Any, hyper: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return the best legal action; where `explore`, the action of the exploration rule (see `ActionChoice`).

        For epsilon-greedy exploration and fully connected networks on a CPU, `compiled/acting.py` computes the same.
        """
        q = self.values(ops, nets["q"](obs))
        return self.exploration.choose(ops, q, legal, noise, explore, hyper), {}

    def _targets(self, ops: Any, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> None:
        """Add `target`: r + discount * Q_target(s', a'), a' legal and best by the online (double) or target network."""
        following = self.values(ops, nets["target_q"](batch.next_obs))
        judge = self.values(ops, nets["q"](batch.next_obs)) if self.settings.double else following
        best = ops.argmax(masked(ops, judge, batch.next_legal), -1)
        batch.target = batch.reward + batch.discount * ops.take(following, best)

    def _loss(self, ops: Any, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the mean Huber loss of the temporal-difference error."""
        q = ops.take(self.values(ops, nets["q"](batch.obs)), batch.action)
        loss = weighted_mean(ops, huber(ops, q - batch.target), batch.weight)
        return loss, {"loss/total": loss, "q_mean": weighted_mean(ops, q, batch.weight)}


def huber(ops: Any, error: Any) -> Any:
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
