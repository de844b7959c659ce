"""ActorCritic: base of on-policy algorithms with an actor and a critic, with GAE (arXiv:1506.02438)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array, Layout, Space
from marltrain.core.settings import Range, setting
from marltrain.policies.batches.batch import Acted, ActInputs, Batch, Rollout
from marltrain.policies.batches.normalization import SAME
from marltrain.policies.batches.tensor_batch import TensorBatch, WholeBatch, memory_of
from marltrain.policies.distributions import (
    CONTINUOUS,
    Categorical,
    Continuous,
    Gaussian,
    distribution_of,
    policy_numbers_of,
)
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.algorithm import FASTEST, Algorithm, CompiledForm, Networks, Settings, weighted_mean
from marltrain.policies.interface.recurrence import carries_after, needs_of
from marltrain.policies.memory.needs import Column, Needs
from marltrain.policies.networks.specs import Head, NetworkDefinition, NetworkSpec
from marltrain.policies.ops import Ops

TRUNK, SHARED = "actor_critic", "shared_trunk"
"""Name of the network with a policy head and a value head, and of the setting that asks for it."""
RETURN, TARGET = "return", "target"
"""Names of the running statistics of discounted returns and of the critic's targets."""


@dataclass(frozen=True, kw_only=True)
class AdvantageSettings(Settings):
    """Settings of a policy, its critic and the advantages."""

    critic_learning_rate: float | Schedule | None = setting(None, doc="the critic's step size", low=0, high=FASTEST,
                                                           per_row=True)  # fmt: skip
    gae_lambda: float | Schedule = setting(
        0.95,
        search=Range(0.8, 0.99, "complement"),
        doc="lambda of generalized advantage estimation",
        low=0,
        high=1,
        per_row=True,
    )
    critic_network: Any = setting(None, doc="the critic's network; None: like the actor's")
    policy: str | None = setting(
        None, doc="distribution of Box actions: gaussian (free deviations; None), state_gaussian (deviations from the "
        "observation), squashed_gaussian or beta", choices=CONTINUOUS,
    )  # fmt: skip
    log_std: float = setting(0.0, doc="initial log standard deviations of continuous actions", low=-20, high=20)


@dataclass(frozen=True, kw_only=True)
class ActorCriticSettings(AdvantageSettings):
    """Settings of on-policy algorithms with an actor and a critic."""

    normalize_advantage: bool = setting(True, doc="normalize the advantages of each minibatch")
    normalize_returns: bool = setting(False, doc="divide rewards by the running deviation of discounted returns")
    reward_clip: float | Schedule = setting(
        10.0, doc="largest size of a reward that normalize_returns has divided", above=0, per_row=True
    )
    normalize_values: str | None = setting(
        None, doc="the critic learns targets less their running mean, over their deviation: valuenorm; popart also "
        "keeps its outputs when these change", choices=("popart", "valuenorm"),
    )  # fmt: skip


class ActorCritic(Algorithm):
    """An actor and a critic, acting, and advantages; a subclass defines `phases` and, for compiled code, its form.

    Losses of subclasses get the columns `obs`, `legal`, `action` (the raw one of `distribution`), `log_prob` of the
    policy that acted, `value` of the old critic, `advantage` and `target`. Where a subclass adds the column `trace`,
    `advantage` is multiplied by it after it is normalized.
    """

    Settings: ClassVar[type[Any]] = ActorCriticSettings
    on_policy = True
    acts_in_numpy = noise_by_rows = True
    reads_arrays = False
    recurrent: tuple[str, ...] = ("actor", "critic", TRUNK)
    optimizer_epsilon = 1e-5
    update_freq = 2_048

    def __init__(self, settings: Any, layout: Layout, action_space: Space) -> None:
        """Choose the distribution for the action space; raises ConfigError for a custom actor without a critic."""
        super().__init__(settings, layout, action_space)
        _check_networks(self.name, settings)
        if isinstance(settings, ActorCriticSettings):
            _check_clip(self.name, settings)
        self.distribution = distribution_of(action_space, settings.log_std, name=settings.policy)
        self.units = self.distribution if isinstance(self.distribution, Continuous) else None
        self.shared = getattr(settings, SHARED, False)
        self.actor, self.critic_head = (TRUNK, (TRUNK, 1)) if self.shared else ("actor", ("critic", 0))
        self.log_ratio = self._log_ratio
        self.policy_numbers, self.sampling = (
            policy_numbers_of(self.distribution, self.actor),
            self.distribution.sampling,
        )

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the actor and the critic; with `shared_trunk`, one network with two heads directly on its layers."""
        actor, policy, value = self.settings.network, self.distribution.head(0.01), Head(1)
        if self.shared:
            return {TRUNK: NetworkDefinition(actor, [policy, value], self.layout, head_layers=0)}
        critic = self.settings.critic_network or actor
        return {
            "actor": NetworkDefinition(actor, [policy], self.layout),
            "critic": NetworkDefinition(critic, [value], self.layout),
        }

    def statistics(self) -> dict[str, int]:
        """Return those of the base, of discounted returns and of the critic's targets, as the settings ask for."""
        kept = super().statistics()
        if self.settings.normalize_returns:
            kept[RETURN] = 1
        return kept if self.settings.normalize_values is None else kept | {TARGET: 1}

    def acting_form(self) -> CompiledForm | None:
        """Return the form of acting of separate networks without memory, if the distribution has one."""
        if self.shared or self.carry():
            return None
        if type(self.distribution) is Gaussian:
            return CompiledForm("actor", "gaussian", actions=self.distribution)
        return CompiledForm("actor", "categorical") if isinstance(self.distribution, Categorical) else None

    def needs(self) -> Needs:
        """Return `Needs` for on-policy learning with log-probabilities, raw actions (Box) and carries (recurrent)."""
        columns = {"log_prob": Column()}
        if isinstance(self.distribution, Continuous):
            columns["raw"] = Column((self.distribution.dims,))
        return needs_of(Needs(on_policy=True, columns=columns), self.networks())

    def rate_name(self, network: str) -> str:
        """Return "critic_learning_rate" for the critic if it is set, otherwise "learning_rate"."""
        own = network == "critic" and self.settings.critic_learning_rate is not None
        return "critic_learning_rate" if own else "learning_rate"

    def policy(self, nets: Networks, batch: Any) -> Any:
        """Return the outputs of the actor for a batch's rows, which `distribution` reads, [K, B, outputs]."""
        return nets[self.actor](batch.obs, *memory_of(batch, self.actor))[0]

    def value(self, nets: Networks, batch: Any) -> Any:
        """Return the outputs of the critic, [K, B]: values, in the units of `normalize_values` if it is set."""
        network, head = self.critic_head
        return nets[network](*self.critic_inputs(batch.obs, batch.state), *memory_of(batch, network))[head][..., 0]

    def critic_inputs(self, obs: Any, state: Any) -> tuple[Any, ...]:
        """Return the inputs of the critic: the observation; central critics read the global state."""
        return (obs,)

    def policy_and_value(self, nets: Networks, batch: Any) -> tuple[Any, Any]:
        """Return `policy` and `value` of a batch's rows, by one pass through a shared trunk."""
        if self.shared:
            policy, value, *_ = nets[TRUNK](batch.obs, *memory_of(batch, TRUNK))
            return policy, value[..., 0]
        return self.policy(nets, batch), self.value(nets, batch)

    def noise(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Array]:
        """Draw the sampling noise of the distribution."""
        return {"sample": self.distribution.noise(rngs, rows)}

    def act(self, ops: Ops, nets: Networks, inputs: ActInputs) -> Acted:
        """Return actions, sampled where `explore` and the mode elsewhere, and their log-probabilities as extras.

        The carries are those of all recurrent networks, the critic's, too. For fully connected networks on a CPU,
        `compiled/acting.py` computes the same for some distributions.
        """
        results = {name: nets[name](inputs.obs, kept) for name, kept in inputs.carry.items() if name in nets}
        out = (results[self.actor] if self.actor in results else nets[self.actor](inputs.obs))[0]
        action, extras = _sampled(self.distribution, ops, out, inputs)
        return Acted(action, {name: result[-1] for name, result in results.items()}, extras)

    def prepare(
        self, ops: Ops, nets: Networks, batch: Batch, tensors: WholeBatch, hyper: Mapping[str, Any]
    ) -> WholeBatch:
        """Add `value`, `advantage` (GAE) and the critic's `target`, and metrics of rewards, returns and old values.

        With `normalize_returns`, advantages and targets are those of the divided rewards. With `normalize_values`,
        `value` and `target` are in the critic's units.
        """
        from marltrain.policies.algorithms.returns import gae, rollout_metrics

        if not isinstance(batch, Rollout):
            raise TypeError(f"{self.name} learns from a Rollout, got {type(batch).__name__}")
        value, follows = self._values(nets, batch, tensors)
        tensors.action = tensors.extras.get("raw", tensors.action)
        tensors.log_prob = tensors.extras["log_prob"]
        trace = self._traces(ops, nets, tensors, hyper)
        lam = tensors.to_numpy(hyper["gae_lambda"])[:, 0]
        advantage = gae(rewards_of(batch, tensors, hyper), batch.discount, value, follows, batch.cut, lam, trace)
        target = advantage + value if trace is None else trace * advantage + value
        tensors.metrics |= rollout_metrics(batch, value, target)
        value, target = self._in_units_of_the_critic(value, target, batch.fresh_weight, tensors)
        tensors.value, tensors.advantage, tensors.target = map(tensors.to_tensor, (value, advantage, target))
        return tensors

    def _traces(self, ops: Ops, nets: Networks, tensors: WholeBatch, hyper: Mapping[str, Any]) -> Array | None:
        """Return the coefficients [K, B] by which `returns.gae` corrects for the policy that acted; None: all 1."""
        return None

    def _log_ratio(self, ops: Ops, nets: Networks, batch: Any) -> Any:
        """Return the log-ratios of the policy to the one that acted, [K, B], of a batch with all columns."""
        log_prob, _ = self.distribution.evaluate(ops, self.policy(nets, batch), batch.legal, batch.action)
        return log_prob - batch.extras["log_prob"]

    def _values(self, nets: Networks, batch: Rollout, tensors: WholeBatch) -> tuple[Array, Array]:
        """Return the old critic's values of the rows and of what follows each row, [K, B].

        A recurrent critic evaluates what follows the last row of a trace with the carry after that row.
        """
        from marltrain.policies.algorithms.returns import next_values

        (network, head), memory = self.critic_head, memory_of(tensors, self.critic_head[0])
        outputs = nets[network](*self.critic_inputs(tensors.obs, tensors.state), *memory)
        after = [tensors.to_tensor(carries_after(tensors.to_numpy(outputs[-1]), batch))] if memory else []
        boots = nets[network](*self.critic_inputs(tensors.boot_obs, tensors.boot_state), *after)
        value, boot = (tensors.to_numpy(result[head])[..., 0] for result in (outputs, boots))
        if TARGET in tensors.statistics:
            known = tensors.statistics[TARGET]
            value, boot = ((out * known.deviation + known.mean).astype(np.float32) for out in (value, boot))
        return value, next_values(value, boot, batch.boot)

    def _in_units_of_the_critic(
        self, value: Array, target: Array, weight: Array, tensors: WholeBatch
    ) -> tuple[Array, Array]:
        """Add the targets to the running statistics; return old values and targets as outputs of the critic.

        PopArt (van Hasselt et al. 2016, arXiv:1602.07714; Hessel et al. 2018, arXiv:1809.04474) rescales the critic's
        last layer, so that values do not change with the statistics. ValueNorm (Yu et al. 2021, arXiv:2103.01955) does
        not: the outputs stay.
        """
        if TARGET not in tensors.statistics:
            return value, target
        known = tensors.statistics[TARGET]
        mean, deviation = known.mean.copy(), known.deviation
        known.update(target[..., None], weight)
        if self.settings.normalize_values == "popart":
            scale, shift = deviation / known.deviation, (mean - known.mean) / known.deviation
            tensors.rescale(*self.critic_head, scale[:, 0], shift[:, 0])
            mean, deviation = known.mean, known.deviation
        normalized: Array = ((target - known.mean) / known.deviation).astype(np.float32)
        return ((value - mean) / deviation).astype(np.float32), normalized

    def over_rows(self, ops: Ops, batch: TensorBatch) -> None:
        """Normalize the advantages of the minibatch if `normalize_advantage` is set, then multiply by the traces."""
        if self.settings.normalize_advantage:
            batch.advantage = _normalized(ops, batch.advantage, batch.weight)
        if "trace" in batch.columns:
            batch.advantage = batch.trace * batch.advantage


def _normalized(ops: Ops, advantage: Any, weight: Any) -> Any:
    """Return advantages less their mean, over their deviation; equal ones become 0.

    The mean is taken twice, so that its rounding does not count as a deviation. The compiled update does the same.
    """
    mean = weighted_mean(ops, advantage, weight)
    centered = advantage - mean[:, None]
    centered = centered - weighted_mean(ops, centered, weight)[:, None]
    deviation = ops.sqrt(weighted_mean(ops, ops.square(centered), weight))
    equal = deviation <= SAME * ops.absolute(mean)
    return centered / ops.where(equal, ops.ones_like(deviation), deviation + 1e-8)[:, None]


def _sampled(distribution: Any, ops: Ops, out: Any, inputs: ActInputs) -> tuple[Any, dict[str, Any]]:
    """Return actions by the outputs of the actor, and the extras of an act."""
    action, raw, log_prob = distribution.sample(ops, out, inputs.legal, inputs.noise["sample"], inputs.explore)
    return action, {"log_prob": log_prob, **({"raw": raw} if isinstance(distribution, Continuous) else {})}


def rewards_of(batch: Rollout, tensors: WholeBatch, hyper: Mapping[str, Any]) -> Array:
    """Return the rewards, divided by the deviation of discounted returns if an algorithm normalizes returns.

    The statistics hold the returns of all rollouts including this one, see `returns_so_far`.
    """
    from marltrain.policies.algorithms.returns import returns_so_far

    if RETURN in tensors.statistics:
        returns = returns_so_far(batch.reward, batch.discount, batch.cut)
        tensors.statistics[RETURN].update(returns[..., None], batch.fresh_weight)
    return scaled_rewards(batch.reward, tensors, hyper)


def scaled_rewards(reward: Array, tensors: WholeBatch, hyper: Mapping[str, Any]) -> Array:
    """Return rewards [K, B] divided by the known deviation of returns, if an algorithm normalizes returns.

    They are clipped to +- `reward_clip`: while the returns so far differ little, a division alone gives any size.
    """
    if RETURN not in tensors.statistics:
        return reward
    limit = tensors.to_numpy(hyper["reward_clip"])
    return np.clip(reward / tensors.statistics[RETURN].deviation, -limit, limit).astype(np.float32)


def _check_clip(name: str, settings: Any) -> None:
    """Raise ConfigError for a clip of normalized rewards that are not normalized."""
    default = next(f.default for f in fields(ActorCriticSettings) if f.name == "reward_clip")
    if not settings.normalize_returns and settings.reward_clip != default:
        raise ConfigError(
            f"{name}: reward_clip={settings.reward_clip!r} has no effect without normalize_returns=True: leave it out"
        )


def _check_networks(name: str, settings: Any) -> None:
    """Raise ConfigError for networks that do not fit `shared_trunk` or `normalize_values`, or a missing critic."""
    own = not isinstance(settings.network, NetworkSpec)
    if getattr(settings, SHARED, False):
        for critic in ("critic_network", "critic_learning_rate"):
            if (value := getattr(settings, critic)) is not None:
                raise ConfigError(
                    f"{name}: {critic}={value!r} has no effect with shared_trunk=True, where one network has both "
                    "heads: leave one of them out"
                )
    elif own and settings.critic_network is None:
        raise ConfigError(
            f"{name}: network={type(settings.network).__name__} is a model of your own and only the actor; give the "
            "critic's too with critic_network= (a model with one output, or MLP() or CNN()), or shared_trunk=True for "
            "a model that returns the policy's outputs and the value"
        )
    critic = settings.network if settings.critic_network is None else settings.critic_network
    if getattr(settings, "normalize_values", None) == "popart" and not isinstance(critic, NetworkSpec):
        raise ConfigError(
            f'{name}: normalize_values="popart" rescales the last layer of the critic, which is a model of your own, '
            f'{type(critic).__name__}: use normalize_values="valuenorm", or MLP() or CNN() for the critic'
        )
