"""Q-learning with a network, a target network and a replay memory: the common part of its algorithms.

It has the options of Hessel et al. 2018 (arXiv:1710.02298) that do not depend on what the network predicts: double
Q-learning (arXiv:1509.06461), dueling heads (arXiv:1511.06581), n-step returns (Sutton 1988) and noisy networks
(arXiv:1706.10295).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import ConfigError, SpecError
from marltrain.core.layout import Array, Layout, Space
from marltrain.core.settings import Range, setting
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.batches.tensor_batch import memory_of
from marltrain.policies.distributions import masked
from marltrain.policies.distributions.draws import normals
from marltrain.policies.exploration import ActionChoice, DiscreteExploration
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.algorithm import (
    FASTEST,
    MOST_PASSES,
    Algorithm,
    Networks,
    Phase,
    Settings,
    absolute_error,
    missing,
)
from marltrain.policies.interface.recurrence import BurnIn, needs_of
from marltrain.policies.interface.scaled_rewards import ScaledRewards
from marltrain.policies.memory.config import LONGEST, MOST_STEPS, Replay, replay_of
from marltrain.policies.memory.needs import Needs
from marltrain.policies.networks.specs import Head, NetworkDefinition, NetworkSpec
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class QLearningSettings(BurnIn, DiscreteExploration, ScaledRewards, Settings):
    """Settings of Q-learning; the defaults suit small games."""

    learning_rate: float | Schedule = setting(
        5e-4, search=Range(1e-5, 1e-2, "log"), doc="step size", low=0, high=FASTEST, per_row=True
    )
    max_grad_norm: float | None = setting(10.0, doc="largest gradient norm of an agent; None: not clipped", above=0,
                                          per_row=True)  # fmt: skip
    capacity: int = setting(50_000, doc="size of the replay memory in env steps", low=1, high=MOST_STEPS)
    learning_starts: int = setting(1_000, doc="env steps of learning seats before the first update", low=0)
    update_per_step: float = setting(0.25, doc="gradient steps per env step; fractions are carried over", above=0,
                                     high=MOST_PASSES)  # fmt: skip
    n_step: int = setting(1, doc="rewards summed before bootstrapping", low=1, high=LONGEST)
    memory: Replay | None = setting(None, doc="Replay(...) with priorities and others; None: uniform draws")
    double: bool = setting(True, doc="double DQN: the online network chooses the next action")
    dueling: bool = setting(False, doc="dueling network: separate heads for value and advantages")
    noisy: float = setting(0.0, doc="noisy networks: initial noise sigma_0 of the weights, such as 0.5; 0: no noise",
                           low=0, high=10)  # fmt: skip
    target_sync: int = setting(250, doc="updates between copies to the target network (tau=None)", low=1)
    tau: float | None = setting(None, doc="rate of soft target updates; None: hard copies",
                                above=0, high=1, per_row=True)  # fmt: skip


class QLearning(Algorithm):
    """Q-learning with one network "q" and its target network.

    A subclass defines `values`, `_targets` and `_loss`, and `outputs` if an action has several outputs.
    """

    Settings: ClassVar[type[Any]] = QLearningSettings
    on_policy = False
    acts_in_numpy = noise_by_rows = True

    def __init__(self, settings: QLearningSettings, layout: Layout, action_space: Space) -> None:
        """Raise SpecError unless actions are Discrete, ConfigError for a custom model that is dueling or noisy."""
        super().__init__(settings, layout, action_space)
        who = type(self).__name__.removesuffix("Algorithm")
        if not isinstance(action_space, spaces.Discrete):
            raise SpecError(
                f"{who} needs a Discrete action space, got {action_space}; PPO, MAPPO and VDAC take all kinds"
            )
        self.choices = int(action_space.n)
        self.policy_numbers = self._policy_numbers
        self.exploration = ActionChoice(
            settings, self.choices, default="greedy" if settings.noisy else "epsilon_greedy"
        )
        if not isinstance(settings.network, NetworkSpec):
            for name in ("dueling", "noisy"):
                if given := getattr(settings, name):
                    raise ConfigError(
                        f"{who}: {name}={given} needs a NetworkSpec; a model of your own gives its outputs directly"
                    )
        self.noise_width = next(iter(self.networks().values())).noise_width

    @property
    def outputs(self) -> int:
        """Number of outputs of the network for each action."""
        return 1

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the Q-network: one head for all actions; with `dueling`, heads of a value and of advantages."""
        actions = Head(self.choices * self.outputs)
        heads = (Head(self.outputs), actions) if self.settings.dueling else (actions,)
        spec, noisy, burn_in = self.settings.network, self.settings.noisy, self.settings.burn_in
        return {"q": NetworkDefinition(spec, heads, self.layout, noisy=noisy, burn_in=burn_in)}

    def targets(self) -> tuple[str, ...]:
        """Return the name of the Q-network, which has a target network."""
        return ("q",)

    def target_share(self, updates: Array, hyper: Mapping[str, Array]) -> Array:
        """Return tau (soft updates), or 1 on every `target_sync`-th update and 0 otherwise."""
        if self.settings.tau is not None:
            return np.asarray(hyper["tau"])
        return (updates % self.settings.target_sync == 0).astype(np.float64)

    @property
    def counted_actions(self) -> int:
        """Number of actions that the exploration rule counts."""
        return self.exploration.counted

    def needs(self) -> Needs:
        """Return `Needs` for off-policy learning with `memory`, `capacity` and `n_step`; a carry, if recurrent."""
        return needs_of(Needs.of(replay_of(self.settings, self.name)), self.networks())

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The single phase, which trains the Q-network."""
        draw = self._drawn if self.noise_width else None
        return (Phase("q", ("q",), self._loss, self._targets, draw=draw, row_error=self._row_error),)

    def values(self, ops: Ops, outputs: Sequence[Any]) -> Any:
        """Return Q [K, B, A] from the heads' outputs."""
        raise missing(self, "values")

    def _targets(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> None:
        """Add `target` of the loss to the batch."""
        raise missing(self, "_targets")

    def _loss(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the mean loss and the metrics; add what `_row_error` needs to the batch."""
        raise missing(self, "_loss")

    def _row_error(self, ops: Ops, batch: Any) -> Any:
        """Return the size of each row's temporal-difference error, for priorities."""
        return absolute_error(ops, batch)

    # acting

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the random numbers of the exploration rule, and the noise of a noisy network's weights for each row."""
        if not self.noise_width:
            return self.exploration.noise(rngs, rows)
        if not self.exploration.draws:
            return {"weights": weight_noise(rngs, rows, self.noise_width)}
        by_row = [
            {"weights": weight_noise(rngs, 1, self.noise_width), **self.exploration.noise(rngs, 1)} for _ in range(rows)
        ]
        return {name: np.concatenate([noise[name] for noise in by_row], 1) for name in by_row[0]}

    def act(self, ops: Ops, nets: Networks, inputs: ActInputs) -> Acted:
        """Return the best legal action; where `explore`, the action of the exploration rule (see `ActionChoice`).

        The values of a noisy network are noisy where `explore`.
        """
        noise = (ops.only(inputs.noise["weights"], inputs.explore),) if self.noise_width else ()
        outputs, carry = inputs.evaluate(nets, "q", *noise)
        return Acted(self.exploration.choose(ops, self.values(ops, outputs), inputs), carry)

    def _policy_numbers(self, ops: Ops, nets: Networks, inputs: ActInputs) -> dict[str, Any]:
        """Return Q [K, B, A]."""
        noise = (inputs.noise["weights"],) if self.noise_width else ()
        return {"values": self.values(ops, inputs.evaluate(nets, "q", *noise)[0])}

    # learning

    def _drawn(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the weights' noise of a gradient pass; one sample of an agent holds for all its rows.

        The online network, the target network and the online network that chooses the next action have noise of their
        own (Fortunato et al. 2017, eqs. 13 to 15).
        """
        names = ("online_noise", "target_noise", *(("chooser_noise",) if self.settings.double else ()))
        drawn = weight_noise(rngs, len(names), self.noise_width)
        shape = (len(rngs), rows, self.noise_width)
        return {name: np.broadcast_to(drawn[:, i : i + 1], shape) for i, name in enumerate(names)}

    def heads(self, net: Any, batch: Any, noise: str) -> Any:
        """Return the outputs of a network's heads for a batch's rows, with the named noise of a pass if it is noisy."""
        if memory := memory_of(batch, "q"):
            return net(batch.obs, *memory)[:-1]
        return net(batch.obs, getattr(batch, noise)) if self.noise_width else net(batch.obs)

    def next_heads(self, net: Any, batch: Any, noise: str) -> Any:
        """Return the same for the next observations, with the carries after the rows if the network is recurrent.

        The carries begin with those that the online network stored, also in the target network.
        """
        if memory := memory_of(batch, "q"):
            return net(batch.next_obs, net(batch.obs, *memory)[-1])[:-1]
        return net(batch.next_obs, getattr(batch, noise)) if self.noise_width else net(batch.next_obs)

    def next_action(self, ops: Ops, nets: Networks, batch: Any, values: Any) -> Any:
        """Return a' [K, B], legal and best by the online network (double) or by `values` [K, B, A] of the target's."""
        if self.settings.double:
            values = self.values(ops, self.next_heads(nets["q"], batch, "chooser_noise"))
        return ops.argmax(masked(ops, values, batch.next_legal), -1)


def weight_noise(rngs: Sequence[np.random.Generator], rows: int, width: int) -> Array:
    """Draw the factors of factorized noise, [K, rows, width]: f(e) = sign(e) sqrt(|e|) of standard normal numbers e.

    Fortunato et al. 2017, section 3 (b). The factors of agent k are drawn row by row from its own generator.
    """
    normal = normals(rngs, rows, width)
    factors: Array = np.sign(normal) * np.sqrt(np.abs(normal))
    return factors
