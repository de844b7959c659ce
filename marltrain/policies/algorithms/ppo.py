"""Proximal policy optimization: Schulman et al. 2017 (arXiv:1707.06347), with GAE (arXiv:1506.02438).

It may also learn from earlier rows, drawn by priorities; see `replayed_rollouts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array, Layout, Space
from marltrain.core.settings import Range, setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.actor_critic import ActorCritic, ActorCriticSettings, scaled_rewards
from marltrain.policies.algorithms.lagging import ClippedLag, centered, check_correction, ratio_metrics, traces
from marltrain.policies.algorithms.replayed_rollouts import (
    ReplayedRollouts,
    check_replay,
    replay_needs,
    row_sizes,
    truncated,
)
from marltrain.policies.batches.batch import Batch
from marltrain.policies.batches.tensor_batch import WholeBatch, shares_of
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.algorithm import MOST_PASSES, CompiledForm, Networks, Phase, weighted_mean
from marltrain.policies.memory.needs import Needs
from marltrain.policies.ops import Ops

PENALTIES = 1e-6, 1e6
"""Smallest and largest adapted `kl_penalty`."""


@dataclass(frozen=True, kw_only=True)
class PPOSettings(ClippedLag, ReplayedRollouts, ActorCriticSettings):
    """Settings of PPO; the defaults suit small games."""

    shared_trunk: bool = setting(False, doc="one network with a head for the policy and one for the value")
    clip: float | Schedule | None = setting(
        0.2,
        search=Range(0.1, 0.4),
        doc="clipping range of the ratio around 1; None: no clipping",
        above=0,
        per_row=True,
    )
    value_clip: float | None = setting(None, doc="clipping range of value updates; None: no clipping", above=0,
                                       per_row=True)  # fmt: skip
    entropy_coef: float | Schedule = setting(
        0.01, search=Range(1e-5, 0.1, "log"), doc="weight of the entropy bonus", low=0, per_row=True
    )
    value_coef: float | Schedule = setting(
        0.5, search=Range(0.25, 1.0), doc="weight of the critic's loss", low=0, per_row=True
    )
    target_kl: float | None = setting(
        None, doc="an agent's update ends before a gradient step with approx_kl above 1.5 times this; None: never",
        above=0, per_row=True,
    )  # fmt: skip
    kl_penalty: float | None = setting(
        None, doc="weight of a penalty on KL(old policy, policy), adapted after each update; None: no penalty",
        above=0, per_row=True,
    )  # fmt: skip
    kl_penalty_target: float = setting(
        0.01, doc="kl_penalty is doubled where KL exceeds 1.5 times this, and halved below two thirds of it", above=0,
        per_row=True,
    )  # fmt: skip
    epochs: int = setting(4, doc="passes over each rollout", low=1, high=MOST_PASSES)
    minibatches: int | None = setting(None, doc="minibatches per epoch; None: rollout / batch_size", low=1)


class PPOAlgorithm(ActorCritic):
    """PPO: one clipped loss trains actor and critic, optionally with a penalty on the divergence from the old one."""

    name = "ppo"
    Settings: ClassVar[type[PPOSettings]] = PPOSettings
    replays = corrects_lag = True
    reads_arrays = False

    def __init__(self, settings: PPOSettings, layout: Layout, action_space: Space) -> None:
        """See `ActorCritic`; with `target_kl`, updates end where approx_kl exceeds 1.5 times it.

        Raises ConfigError for settings of the replay that contradict each other.
        """
        super().__init__(settings, layout, action_space)
        check_replay(settings, self.name)
        if settings.memory is not None:
            check_correction(settings, self.name, "with a replay memory, whose rows are always corrected")
        elif not settings.lag_correction:
            check_correction(settings, self.name, "with lag_correction=False", ["lag_kl"])
        if settings.memory is not None and settings.target_kl is not None:
            raise ConfigError(
                f"{self.name}: target_kl={settings.target_kl} ends updates by the divergence from the policy that "
                "acted, which is large for replayed rows at once: leave target_kl out, or use kl_penalty"
            )
        self.ends_update = None if settings.target_kl is None else _too_far
        self.row_errors = None if settings.memory is None else self._row_errors

    def compiled_form(self) -> CompiledForm | None:
        """See `acting_form`."""
        return self.acting_form()

    def needs(self) -> Needs:
        """Return those of `ActorCritic`, with sequences of earlier rows if there is a replay memory."""
        return replay_needs(self.settings, super().needs())

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The single phase, which trains all networks."""
        return (Phase("policy", tuple(self.networks()), self._loss),)

    def prepare(
        self, ops: Ops, nets: Networks, batch: Batch, tensors: WholeBatch, hyper: Mapping[str, Any]
    ) -> WholeBatch:
        """Add the columns of the base and, for a penalty, the outputs `old` of the policy before the update."""
        tensors = super().prepare(ops, nets, batch, tensors, hyper)
        if self.settings.kl_penalty is not None:
            tensors.old = self.policy(nets, tensors)
            tensors.metrics["kl_penalty"] = tensors.to_numpy(hyper["kl_penalty"])[:, 0].astype(np.float64)
        return tensors

    def _traces(self, ops: Ops, nets: Networks, tensors: WholeBatch, hyper: Mapping[str, Any]) -> Array | None:
        """Return the truncated ratios of the present policy to the one that acted, for `returns.gae`.

        Rows of a replay memory: min(1, ratio), and the ratios with which the loss begins are limited. A rollout that
        lags: the objective of Hilton et al. 2021 (arXiv:2110.00641), whose ratios are those to the policy of `centered`
        and whose advantages are multiplied by the truncated ratios of that policy to the one that acted. Other
        rollouts: None, as the rows are those of the present policy.
        """
        batch: Any = tensors.batch
        replaying, lagging = self.settings.memory is not None, batch.lag is not None
        if not (replaying or lagging):
            return None
        log_ratio = tensors.to_numpy(self._log_ratio(ops, nets, tensors))
        if lagging:
            tensors.metrics |= ratio_metrics(log_ratio, batch.fresh_weight)
        if not (replaying or self.settings.lag_correction):
            return None
        acted, limit = tensors.to_numpy(tensors.extras["log_prob"]), tensors.to_numpy(hyper["replay_truncation"])
        if replaying:
            tensors.log_prob = tensors.to_tensor(truncated(acted, log_ratio, limit))
            return traces(log_ratio)
        center = centered(log_ratio, batch.fresh_weight, tensors.to_numpy(hyper["lag_kl"]))
        tensors.log_prob, tensors.trace = tensors.to_tensor(acted + center), tensors.to_tensor(traces(center, limit))
        return traces(log_ratio, limit)

    def _row_errors(self, ops: Ops, nets: Networks, tensors: WholeBatch, hyper: Mapping[str, Any]) -> Array:
        """Return lambda |TD error| + (1 - lambda) |ratio - 1| by the updated networks; see `Algorithm.row_errors`."""
        batch: Any = tensors.batch
        value, follows = self._values(nets, batch, tensors)
        error = scaled_rewards(batch.reward, tensors, hyper) + batch.discount * follows - value
        log_ratio = tensors.to_numpy(self._log_ratio(ops, nets, tensors))
        return row_sizes(error, log_ratio, tensors.to_numpy(hyper["priority_lambda"]))

    def adapted(self, ops: Ops, nets: Networks, tensors: WholeBatch, hyper: Mapping[str, Any]) -> Mapping[str, Array]:
        """Return `kl_penalty`, halved or doubled by the divergence of the update (Schulman et al. 2017, section 4)."""
        if self.settings.kl_penalty is None:
            return {}
        kl = tensors.to_numpy(self.distribution.kl(ops, tensors.old, self.policy(nets, tensors), tensors.legal))
        weight = shares_of(tensors.batch.weight)
        mean = (kl * weight).sum(1)
        penalty, target = (tensors.to_numpy(hyper[name])[:, 0] for name in ("kl_penalty", "kl_penalty_target"))
        factor = np.where(mean > 1.5 * target, 2.0, np.where(mean < target / 1.5, 0.5, 1.0))
        return {"kl_penalty": np.clip(penalty * factor, *PENALTIES)}

    def _loss(self, ops: Ops, nets: Networks, batch: Any, hyper: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return L = -L_clip + c_v L_value - c_e entropy (Schulman et al. 2017, eq. 9, signs for descent).

        With a penalty, L is larger by beta KL(old, new) (eq. 8).
        """

        def mean(x: Any) -> Any:
            return weighted_mean(ops, x, batch.weight)

        out, value = self.policy_and_value(nets, batch)
        log_prob, entropy = self.distribution.evaluate(ops, out, batch.legal, batch.action)
        log_ratio = log_prob - batch.log_prob
        ratio = ops.exp(log_ratio)
        actor_loss = -mean(clipped_surrogate(ops, ratio, batch.advantage, hyper["clip"]))
        if self.settings.value_clip is None:
            errors = ops.square(value - batch.target)
        else:
            errors = clipped_value_loss(ops, value, batch.value, batch.target, hyper["value_clip"])
        critic_loss = 0.5 * mean(errors)
        bonus = mean(entropy)
        total = actor_loss + hyper["value_coef"][:, 0] * critic_loss - hyper["entropy_coef"][:, 0] * bonus
        more = {}
        if self.settings.kl_penalty is not None:
            more["kl"] = mean(self.distribution.kl(ops, batch.old, out, batch.legal))
            total = total + hyper["kl_penalty"][:, 0] * more["kl"]
        return total, {
            "loss/actor": actor_loss,
            "loss/critic": critic_loss,
            "loss/total": total,
            "entropy": bonus,
            "approx_kl": mean(approx_kl(ops, ops.stop_gradient(log_ratio))),
            "clip_share": mean(ops.flag(ops.absolute(ratio - 1.0) > hyper["clip"])),
            **more,
        }


def _too_far(metrics: Mapping[str, Any], hyper: Mapping[str, Any]) -> Any:
    """Return whether the policy of each agent has moved too far from the old one, [K] bool."""
    return metrics["approx_kl"] > 1.5 * hyper["target_kl"]


def clipped_surrogate(ops: Ops, ratio: Any, advantage: Any, clip: Any) -> Any:
    """Return PPO's clipped objective, which is maximized: Schulman et al. 2017 (arXiv:1707.06347), eq. 7."""
    bounded = ops.minimum(ops.maximum(ratio, 1.0 - clip), 1.0 + clip)
    return ops.minimum(ratio * advantage, bounded * advantage)


def clipped_value_loss(ops: Ops, value: Any, old_value: Any, target: Any, clip: Any) -> Any:
    """Return the larger squared error of the value and of the value clipped to old_value +- clip.

    This is the value clipping of Schulman et al.'s published code; an infinite clip gives the plain squared error.
    """
    step = ops.minimum(ops.maximum(value - old_value, -clip), clip)
    return ops.maximum(ops.square(value - target), ops.square(old_value + step - target))


def approx_kl(ops: Ops, log_ratio: Any) -> Any:
    """Return (ratio - 1) - log ratio, an unbiased, non-negative estimate of KL(old, new) (Schulman 2020)."""
    return ops.exp(log_ratio) - 1.0 - log_ratio


@dataclass(frozen=True, kw_only=True)
class PPOArguments(AgentArguments, PPOSettings):
    """Arguments of `PPO`."""


class PPO(LearningAgent):
    """Agent that learns with PPO."""

    algorithm_class = PPOAlgorithm

    @accepts(PPOArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
