"""Value-decomposition actor-critic: Su, Adams and Beling 2021 (arXiv:2007.12306)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from marltrain.core.layout import Array, Layout, Space
from marltrain.core.settings import Range, setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.actor_critic import ActorCritic, AdvantageSettings
from marltrain.policies.algorithms.central_critic import INPUTS
from marltrain.policies.algorithms.mixer import MIXER, MonotonicMixer
from marltrain.policies.batches.batch import TeamRollout
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.algorithm import FASTEST, Algorithm, CompiledForm, Phase, weighted_mean
from marltrain.policies.interface.joint import (
    JointAlgorithm,
    Member,
    Team,
    TeamSettings,
    by_member,
    for_players,
    learned_only,
)
from marltrain.policies.memory.needs import Needs
from marltrain.policies.networks.specs import WIDEST, NetworkDefinition
from marltrain.policies.ops import Ops
from marltrain.policies.optimizers import OPTIMIZERS

MIX = "mix"


@dataclass(frozen=True, kw_only=True)
class VDACSettings(TeamSettings, AdvantageSettings):
    """Settings of VDAC; with `gae_lambda=1`, targets are those of the paper: rewards up to the rollout's end."""

    minibatches: ClassVar[int] = 1
    batch_size: ClassVar[None] = None  # type: ignore[misc]  # an update takes the complete rollout

    learning_rate: float | Schedule = setting(
        7e-4, search=Range(1e-5, 1e-2, "log"), doc="step size of all networks", low=0, high=FASTEST, per_row=True
    )
    critic_learning_rate: float | Schedule | None = setting(
        None, doc="step size of the critics and the mixer; None: learning_rate", low=0, high=FASTEST, per_row=True
    )
    max_grad_norm: float | None = setting(
        0.5, doc="largest norm of the gradient of an actor, and of all critics and the mixer; None: not clipped",
        above=0, per_row=True,
    )  # fmt: skip
    optimizer: str = setting("rmsprop", doc="adam, adamw, adamax, rmsprop or sgd", choices=tuple(OPTIMIZERS))
    gae_lambda: float | Schedule = setting(
        1.0,
        search=Range(0.8, 0.99, "complement"),
        doc="lambda of generalized advantage estimation",
        low=0,
        high=1,
        per_row=True,
    )
    entropy_coef: float | Schedule = setting(
        0.01, search=Range(1e-5, 0.1, "log"), doc="weight of the entropy bonus", low=0, per_row=True
    )
    mixing: str = setting(
        MIX,
        doc="the value of the team: a monotonic mixture by the global state (mix), or the sum",
        choices=(MIX, "sum"),
    )
    mixing_units: int = setting(32, doc="hidden units of the mixing network", low=1, high=WIDEST, only=("mixing", MIX))
    hyper_units: int = setting(64, doc="hidden units of the networks that make its weights", low=1, high=WIDEST,
                               only=("mixing", MIX))  # fmt: skip
    mixer_input: str = setting(
        "state", doc="state: the environment's global state (without one: joint); joint: the observations of all "
        "players", choices=("state", "joint"), only=("mixing", MIX),
    )  # fmt: skip

    @classmethod
    def state_kind(cls, given: Mapping[str, Any]) -> str | None:
        """Return the kind of state that the mixer reads."""
        asked = given.get("mixer_input", cls.mixer_input)
        if given.get("mixing", cls.mixing) != MIX or not isinstance(asked, str):
            return None
        return INPUTS.get(asked)  # the check of settings refuses other values


class VDACAlgorithm(JointAlgorithm, ActorCritic):
    """VDAC: critics V_i(o_i) whose mixture V_tot is the value of the team, and actors with the team's advantage."""

    name = "vdac"
    Settings: ClassVar[type[VDACSettings]] = VDACSettings
    on_policy = True
    reads_arrays = False
    recurrent = ()
    update_freq = 80

    def __init__(self, settings: Any, layout: Layout, action_space: Space) -> None:
        """See `JointAlgorithm` and `ActorCritic`."""
        self.mixer = MonotonicMixer(settings) if settings.mixing == MIX else None
        super().__init__(settings, layout, action_space)
        self.log_ratio = None  # updates do not measure it

    def compiled_form(self) -> CompiledForm | None:
        """Return the form of acting; the framework makes the gradient steps."""
        return self.acting_form()

    def needs(self) -> Needs:
        """Return those of `ActorCritic`, and the global state for the mixer."""
        needs = super().needs()
        return needs if self.mixer is None else replace(needs, state=self.mixer.need)

    def statistics(self) -> dict[str, int]:
        """Return those of observations."""
        return Algorithm.statistics(self)

    def team_networks(self) -> dict[str, NetworkDefinition]:
        """Return the mixer."""
        return {} if self.mixer is None else {MIXER: self.mixer.network()}

    def rate_name(self, network: str) -> str:
        """Return the rate of the critic for the mixer, too."""
        return super().rate_name("critic" if network == MIXER else network)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The critics with the mixer, and the actors, with the values before the step of the critics."""
        return (
            Phase("critic", ("critic",), self._critic_loss, team_trains=tuple(self.team_networks())),
            Phase("actor", ("actor",), self._actor_loss, apart=True),
        )

    def mixed(self, ops: Ops, team: Team, values: Any, state: Any) -> Any:
        """Return V_tot [1, B] for the values of the players [1, B, N], which are 0 for those that are absent.

        VDAC-sum: their sum.  VDAC-mix: a network that increases in every value, see `MonotonicMixer`.
        """
        if self.mixer is None:
            return ops.sum(values, -1)
        return self.mixer.mixed(ops, team.nets[MIXER], values, state)

    def prepare_team(
        self, ops: Ops, team: Team, batch: TeamRollout, to_numpy: Callable[[Any], Array]
    ) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return `advantage` and the critics' `target` (section 4), and metrics.

        With lambda = 1, the target is r_t + gamma r_t+1 + ... + gamma^n V_tot(s_t+n) up to the end of the rollout, and
        the advantage is the target less V_tot(s_t); with lambda = 0, it is r_t + gamma V_tot(s_t+1) - V_tot(s_t).
        """
        from marltrain.policies.algorithms.returns import explained_variance, gae

        value = to_numpy(self._team_value(ops, team))
        following = team.side_by_side(lambda member: _next_value(ops, member))
        next_value = to_numpy(self.mixed(ops, team, following, team.rows.next_state))
        lam = to_numpy(team.hyper["gae_lambda"])[:, 0]
        advantage = gae(batch.reward, batch.discount, value, next_value, batch.cut, lam)
        target, weight = advantage + value, batch.weight
        columns = {"reward_mean": batch.reward, "value_mean": value, "return_mean": target}
        metrics = {name: (weight * column).sum(1) / weight.sum(1) for name, column in columns.items()}
        metrics["explained_variance"] = explained_variance(value, target, weight)
        return {"advantage": advantage, "target": target}, metrics

    def _team_value(self, ops: Ops, team: Team) -> Any:
        """Return V_tot at the batch steps, [1, B]."""
        return self.mixed(ops, team, team.side_by_side(lambda member: _value(ops, member)), team.rows.state)

    def _critic_loss(self, ops: Ops, team: Team) -> tuple[Any, dict[str, Any]]:
        """Return the mean of (y - V_tot(s))^2."""
        errors = ops.square(self._team_value(ops, team) - team.rows.target)
        loss = weighted_mean(ops, errors, team.rows.weight)
        return loss, {"loss/critic": loss}

    def _actor_loss(self, ops: Ops, team: Team) -> tuple[list[Any], dict[str, list[Any]]]:
        """Return the losses of all actors."""
        return by_member(team, lambda member: member.algorithm.own_actor_loss(ops, team, member))

    def own_actor_loss(self, ops: Ops, team: Team, member: Member) -> tuple[Any, dict[str, Any]]:
        """Return the means of -log pi_i(a_i|o_i) A - c_e entropy, over the batch steps at which the player acted."""
        rows, advantage = member.rows, for_players(ops, member, team.rows.advantage)
        (out,) = member.nets["actor"](rows.obs)
        action = rows.extras.get("raw", rows.action)
        log_prob, entropy = self.distribution.evaluate(ops, out, rows.legal, action)
        loss = -weighted_mean(ops, log_prob * advantage, rows.weight)
        bonus = weighted_mean(ops, entropy, rows.weight)
        return loss - member.hyper["entropy_coef"][:, 0] * bonus, {"loss/actor": loss, "entropy": bonus}


def _value(ops: Ops, member: Member) -> Any:
    """Return the members' values V_i(o_i), [K, S * B]; 0 for players that are absent."""
    value = member.nets["critic"](member.rows.obs)[0][..., 0]
    return ops.where(member.rows.present, learned_only(ops, member, value), 0.0)


def _next_value(ops: Ops, member: Member) -> Any:
    """Return the members' values after the batch step, [K, S * B]; 0 for players without one."""
    return ops.where(member.rows.next_present, member.nets["critic"](member.rows.next_obs)[0][..., 0], 0.0)


@dataclass(frozen=True, kw_only=True)
class VDACArguments(AgentArguments, VDACSettings):
    """Arguments of `VDAC`."""


class VDAC(LearningAgent):
    """Agent that learns with VDAC, together with its team."""

    algorithm_class = VDACAlgorithm

    @accepts(VDACArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
