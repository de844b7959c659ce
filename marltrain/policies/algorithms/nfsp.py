"""Neural fictitious self-play: Heinrich and Silver 2016 (arXiv:1603.01121), with DQN as the best response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces

from marltrain.core.layout import Array, Layout, Space
from marltrain.core.settings import Range, setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.dqn import DQNAlgorithm, DQNSettings
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.distributions import Categorical, policy_numbers_of
from marltrain.policies.distributions.draws import uniform_of
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.algorithm import FASTEST, CompiledForm, Networks, Phase, weighted_mean
from marltrain.policies.memory.config import MOST_STEPS
from marltrain.policies.memory.needs import Column, Needs
from marltrain.policies.memory.reservoir import COLUMN, KEY
from marltrain.policies.networks.specs import Head, NetworkDefinition
from marltrain.policies.ops import Ops

MODE = "mode"
"""Name of the carry that holds what a player plays in the running episode: BEST, AVERAGE, or 0 before its first act."""
BEST, AVERAGE = 1.0, 2.0


@dataclass(frozen=True, kw_only=True)
class NFSPSettings(DQNSettings):
    """Settings of NFSP: those of DQN, for the best response, and those of the average policy."""

    eta: float | Schedule = setting(
        0.1, search=Range(0.05, 0.5, "log"), doc="share of training episodes in which a player plays its best response",
        low=0, high=1, per_row=True,
    )  # fmt: skip
    average_learning_rate: float | Schedule | None = setting(
        None, doc="the average policy's step size; None: learning_rate", low=0, high=FASTEST, per_row=True
    )
    reservoir: int = setting(200_000, doc="best responses of a player that its reservoir holds", low=1, high=MOST_STEPS)


class NFSPAlgorithm(DQNAlgorithm):
    """NFSP: a best response "q" learns by DQN from all decisions, and the policy "average" imitates its decisions.

    Each player draws for each of its training episodes whether it plays the best response, with probability eta, or the
    average policy. Best responses, with their exploration, enter a reservoir, an equal sample of all of them since the
    start, from which the average policy learns. Seats that do not explore, tests, and `agent.act` play the average
    policy: sampled with `explore`, else its most probable action.
    """

    name = "nfsp"
    Settings: ClassVar[type[NFSPSettings]] = NFSPSettings
    recurrent = ()
    acts_in_numpy = noise_by_acts = True

    def __init__(self, settings: NFSPSettings, layout: Layout, action_space: Space) -> None:
        """See `QLearning`."""
        super().__init__(settings, layout, action_space)
        self.average = Categorical(spaces.Discrete(self.choices))
        self.policy_numbers, self.sampling = policy_numbers_of(self.average, "average"), self.average.sampling

    def compiled_form(self) -> CompiledForm | None:
        """Return None: `act` chooses between two networks."""
        return None

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the Q-network and the network of the average policy."""
        average = NetworkDefinition(self.settings.network, [Head(self.choices, 0.01)], self.layout)
        return {**super().networks(), "average": average}

    def rate_name(self, network: str) -> str:
        """Return "average_learning_rate" for the average policy if it is set, else "learning_rate"."""
        own = network == "average" and self.settings.average_learning_rate is not None
        return "average_learning_rate" if own else super().rate_name(network)

    def needs(self) -> Needs:
        """Return those of DQN, and the reservoir."""
        needs = super().needs()
        return replace(needs, columns={**needs.columns, KEY: COLUMN}, reservoir=self.settings.reservoir)

    def carry(self) -> Mapping[str, Column]:
        """Return the columns of the base, and the mode of the running episode."""
        return {**super().carry(), MODE: Column()}

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phase of DQN, and the imitation of the best responses in the reservoir."""
        return (*super().phases, Phase("average", ("average",), self._average_loss))

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the noise of DQN, that of the average policy's sample, and numbers for mode and reservoir."""
        own = uniform_of(rngs, rows, {"mode": 1, "key": 1})
        drawn = {name: values[..., 0] for name, values in own.items()}
        return {**super().noise(rngs, rows), "sample": self.average.noise(rngs, rows), **drawn}

    def act(self, ops: Ops, nets: Networks, inputs: ActInputs) -> Acted:
        """Return actions of the best response or of the average policy, see the class; carry the mode."""
        (out,) = nets["average"](inputs.obs)
        action, _, _ = self.average.sample(ops, out, inputs.legal, inputs.noise["sample"], inputs.explore)
        if not inputs.training:
            return Acted(action, inputs.carry)
        carried, drawn = inputs.carry[MODE], AVERAGE - ops.flag(inputs.noise["mode"] < inputs.hyper["eta"])
        mode = ops.where(carried > 0, carried, drawn)
        responds = (mode == BEST) & inputs.explore
        action = ops.where(responds, super().act(ops, nets, inputs).action, action)
        return Acted(action, {MODE: mode}, {KEY: ops.flag(responds) * (1.0 - inputs.noise["key"])})

    def _row_loss(self, ops: Ops, error: Any) -> Any:
        """Return half the squared error, whose minimum is the mean return, as algorithm 1 has it.

        The Huber loss of DQN has its minimum between mean and median. With returns of 1 and -2 the two differ, and the
        action of the larger value is then not the best response.
        """
        return 0.5 * ops.square(error)

    def _average_loss(
        self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return the negative mean log-probability of the decisions from the reservoir (algorithm 1)."""
        (out,) = nets["average"](batch.kept_obs)
        log_prob, entropy = self.average.evaluate(ops, out, batch.kept_legal, batch.kept_action)
        loss = -weighted_mean(ops, log_prob, batch.kept_weight)
        return loss, {"loss/average": loss, "entropy": weighted_mean(ops, entropy, batch.kept_weight)}


@dataclass(frozen=True, kw_only=True)
class NFSPArguments(AgentArguments, NFSPSettings):
    """Arguments of `NFSP`."""


class NFSP(LearningAgent):
    """Agent that learns with NFSP."""

    algorithm_class = NFSPAlgorithm

    @accepts(NFSPArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
