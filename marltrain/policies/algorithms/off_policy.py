"""Off-policy actor-critic algorithms: what they share. Critics learn Q from a replay memory, targets follow slowly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import ConfigError, SpecError
from marltrain.core.layout import Array, Layout, Space
from marltrain.core.settings import Range, setting
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.distributions import Continuous
from marltrain.policies.exploration import ActionNoise, ContinuousExploration
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.algorithm import (
    FASTEST,
    MOST_PASSES,
    Algorithm,
    Networks,
    Settings,
    weighted_mean,
)
from marltrain.policies.interface.recurrence import needs_of
from marltrain.policies.interface.scaled_rewards import ScaledRewards
from marltrain.policies.memory.config import LONGEST, MOST_STEPS, Replay, replay_of
from marltrain.policies.memory.needs import Column, Needs
from marltrain.policies.networks.default_network import default_network
from marltrain.policies.networks.specs import MLP, Head, NetworkDefinition, NetworkSpec
from marltrain.policies.ops import Ops


@dataclass(frozen=True, kw_only=True)
class UniformReplaySettings(ScaledRewards, Settings):
    """Settings of off-policy actor-critic algorithms over uniform draws of single steps."""

    critic_learning_rate: float | Schedule | None = setting(None, doc="the critic's step size; None: learning_rate",
                                                           low=0, high=FASTEST, per_row=True)  # fmt: skip
    max_grad_norm: float | None = setting(None, doc="largest gradient norm of an agent; None: not clipped", above=0,
                                          per_row=True)  # fmt: skip
    capacity: int = setting(200_000, doc="size of the replay memory in env steps", low=1, high=MOST_STEPS)
    learning_starts: int = setting(1_000, doc="env steps of learning seats before the first update", low=0)
    update_per_step: float = setting(1.0, doc="gradient steps per env step; fractions are carried over", above=0,
                                     high=MOST_PASSES)  # fmt: skip
    tau: float | Schedule = setting(
        0.005, search=Range(0.001, 0.05, "log"), doc="rate of soft target updates", above=0, high=1, per_row=True
    )
    critic_network: Any = setting(None, doc="the critic's network; None: like the actor's")


@dataclass(frozen=True, kw_only=True)
class OffPolicySettings(UniformReplaySettings):
    """Settings of off-policy actor-critic algorithms; the defaults suit small problems of continuous control."""

    n_step: int = setting(1, doc="rewards summed before bootstrapping", low=1, high=LONGEST)
    memory: Replay | None = setting(None, doc="Replay(...) with priorities and others; None: uniform draws")


def wide_network(layout: Layout) -> NetworkSpec:
    """Return the default network of off-policy actor-critic algorithms."""
    return default_network(layout) if layout.images else MLP((256, 256), "relu")


class OffPolicyActorCritic(Algorithm):
    """Base of off-policy actor-critic algorithms.

    The default network has 2 x 256 relu units, with which the results of the three papers' published code were made;
    images get the default CNN.

    critics: number of critics, an ensemble "critic".
    """

    on_policy = False
    update_freq, batch_size = 1, 256
    critics: ClassVar[int] = 1
    default_network: ClassVar[Callable[[Layout], NetworkSpec]] = staticmethod(wide_network)

    def __init__(self, settings: Any, layout: Layout, action_space: Space) -> None:
        """Raise ConfigError for a custom actor without a critic."""
        super().__init__(settings, layout, action_space)
        if settings.critic_network is None and not isinstance(settings.network, NetworkSpec):
            raise ConfigError(
                f"{self.name.upper()}: network={type(settings.network).__name__} is a model of your own and only the "
                "actor; give the critic's too with critic_network= (a model, MLP() or CNN())"
            )

    def critic(self, width: int, vectors: tuple[int, ...] = ()) -> NetworkDefinition:
        """Return the ensemble of critics with `width` outputs each; vectors: widths of inputs beside observations."""
        spec = self.settings.critic_network or self.settings.network
        return NetworkDefinition(spec, [Head(width)], self.layout, vectors, members=self.critics)

    def targets(self) -> tuple[str, ...]:
        """Return the name of the critic, which has a target network."""
        return ("critic",)

    def target_share(self, updates: Array, hyper: Mapping[str, Array]) -> Array:
        """Return tau: targets follow after every update."""
        return np.asarray(hyper["tau"])

    def needs(self) -> Needs:
        """Return `Needs` for off-policy learning with `memory`, `capacity` and `n_step`; a carry, if recurrent."""
        return needs_of(Needs.of(replay_of(self.settings, self.name)), self.networks())

    def rate_name(self, network: str) -> str:
        """Return the network's own setting, such as "critic_learning_rate", if it is set, else "learning_rate"."""
        own = f"{network}_learning_rate"
        return own if getattr(self.settings, own, None) is not None else "learning_rate"


@dataclass(frozen=True, kw_only=True)
class DeterministicSettings(ContinuousExploration, OffPolicySettings):
    """Settings of actor-critic algorithms with a deterministic policy."""

    learning_rate: float | Schedule = setting(
        1e-3, search=Range(1e-5, 1e-2, "log"), doc="step size of all networks", low=0, high=FASTEST, per_row=True
    )
    random_steps: int = setting(1_000, doc="env steps at the start of a run with random actions of exploring seats",
                                low=0)  # fmt: skip


class DeterministicActorCritic(OffPolicyActorCritic):
    """Base of actor-critic algorithms with a deterministic policy tanh(actor(s)) for a bounded Box of A numbers.

    Networks compute with actions in [-1, 1], which correspond to the bounds of the Box.
    """

    acts_in_numpy = noise_by_rows = True

    def __init__(self, settings: Any, layout: Layout, action_space: Space) -> None:
        """Raise SpecError for an action space that is not a bounded Box."""
        super().__init__(settings, layout, action_space)
        who = self.name.upper()
        if not isinstance(action_space, spaces.Box):
            raise SpecError(
                f"{who} needs a Box of actions, got {action_space}; DQN and SAC take Discrete actions, PPO takes all"
            )
        self.box = self.units = Continuous(action_space)
        self.box.check_bounded(who)
        self.exploration = ActionNoise(settings, self.box.dims, who)

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the actor and the critics Q(s, a)."""
        actor = NetworkDefinition(self.settings.network, [Head(self.box.dims, 0.01)], self.layout)
        return {"actor": actor, "critic": self.critic(1, (self.box.dims,))}

    def targets(self) -> tuple[str, ...]:
        """Return the names of both networks, which have target networks."""
        return ("actor", "critic")

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the random numbers of the exploration noise."""
        return self.exploration.noise(rngs, rows)

    def carry(self) -> Mapping[str, Column]:
        """Return the state of Ornstein-Uhlenbeck noise."""
        return self.exploration.carry()

    def act(self, ops: Ops, nets: Networks, inputs: ActInputs) -> Acted:
        """Return the policy's actions, [K, B, A] in [-1, 1], with noise where `explore`; carry the noise's state."""
        return self.exploration.perturb(ops, policy(ops, nets["actor"], inputs.obs), inputs)


def policy(ops: Ops, actor: Any, obs: Any) -> Any:
    """Return the actions [K, B, A] in [-1, 1] of a deterministic policy."""
    return ops.tanh(actor(obs)[0])


def squared_errors(ops: Ops, q: Any, batch: Any) -> Any:
    """Return the mean squared errors [K], summed over the critics; add `error` to the batch.  q: [K, M, B]."""
    batch.error = q - batch.target[:, None]
    return ops.sum(weighted_mean(ops, ops.square(batch.error), batch.weight[:, None]), -1)


def mean_error(ops: Ops, batch: Any) -> Any:
    """Return the size of each row's temporal-difference error, the mean over the critics, for priorities."""
    return ops.mean(ops.absolute(batch.error), 1)
