"""WQMIX, weighted QMIX: Rashid et al. 2020 (arXiv:2006.10800)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from marltrain.core.settings import setting
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.arguments import AgentArguments, accepts
from marltrain.policies.algorithms.mixer import MIXER
from marltrain.policies.algorithms.qmix import Mixing, QMIXSettings
from marltrain.policies.distributions import masked
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.policies.interface.algorithm import CompiledForm, Phase, weighted_mean
from marltrain.policies.interface.joint import Member, Team, learned_only
from marltrain.policies.networks.specs import MLP, WIDEST, Head, NetworkDefinition, Recurrent
from marltrain.policies.ops import Ops

CENTRAL_Q, CENTRAL_MIXER = "central_q", "central_mixer"


@dataclass(frozen=True, kw_only=True)
class WQMIXSettings(QMIXSettings):
    """Settings of WQMIX."""

    weighting: str = setting(
        "centralized", doc='joint actions of weight 1: "centralized" (CW): the greedy one, and those whose target '
        'exceeds its value; "optimistic" (OW): those whose target exceeds their mixed value',
        choices=("centralized", "optimistic"),
    )  # fmt: skip
    alpha: float | Schedule = setting(0.1, doc="weight of the other joint actions", above=0, high=1, per_row=True)
    central_units: int = setting(64, doc="units of each of the three hidden layers of the central Q*; the paper has "
                                 "256", low=1, high=WIDEST)  # fmt: skip


class WQMIXAlgorithm(Mixing):
    """QMIX whose errors are weighted, so that the best joint action is represented well at the cost of others.

    Beside the monotonic Q_tot, by which the agents act, the team learns a central Q* without restrictions: the agents'
    second networks give values, and a feed-forward network mixes them with the state.
    """

    name = "wqmix"
    Settings: ClassVar[type[WQMIXSettings]] = WQMIXSettings
    shared_settings = (*Mixing.shared_settings, "weighting")

    def compiled_form(self) -> CompiledForm | None:
        """Return the form of acting."""
        return self.acting_form()

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the networks of an agent's values in Q_tot and in Q*; the latter is not recurrent."""
        result, spec = super().networks()["q"], self.settings.network
        central = replace(result, spec=spec.without_memory) if isinstance(spec, Recurrent) else result
        return {"q": result, CENTRAL_Q: central}

    def targets(self) -> tuple[str, ...]:
        """Return the network of values in Q*, and that in Q_tot if it chooses the next actions (not `double`)."""
        return (CENTRAL_Q,) if self.settings.double else ("q", CENTRAL_Q)

    def team_networks(self) -> dict[str, NetworkDefinition]:
        """Return the mixers of Q_tot and of Q*."""
        inputs = (self.settings.team_size, self.settings.state_size)
        spec = MLP((self.settings.central_units,) * 3, "relu")
        central = NetworkDefinition(spec, (Head(1),), None, vectors=inputs)
        return {**super().team_networks(), CENTRAL_MIXER: central}

    def team_targets(self) -> tuple[str, ...]:
        """Return the name of the mixer of Q*; Q_tot needs no target network."""
        return (CENTRAL_MIXER,)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The single phase, which trains Q_tot and Q*."""
        networks = ("q", CENTRAL_Q), (MIXER, CENTRAL_MIXER)
        return (Phase("q", networks[0], self._joint_loss, self._joint_targets, team_trains=networks[1]),)

    def central(self, team: Team, values: Any, *, target: bool) -> Any:
        """Return Q* [1, B] for the values of the players [1, B, N]; target: after the batch step."""
        rows = team.rows
        if target:
            return team.nets[f"target_{CENTRAL_MIXER}"](values, rows.next_state)[0][..., 0]
        return team.nets[CENTRAL_MIXER](values, rows.state)[0][..., 0]

    def _joint_targets(self, ops: Ops, team: Team) -> None:
        """Add `target`: y = r + discount * Q*_target(s', a'), where a' is best by the agents of Q_tot (section 5.1)."""
        following = team.side_by_side(lambda member: _next_value(ops, member))
        team.rows.target = team.rows.reward + team.rows.discount * self.central(team, following, target=True)

    def _joint_loss(self, ops: Ops, team: Team) -> tuple[Any, dict[str, Any]]:
        """Return the mean of w (Q_tot - y)^2 + (Q* - y)^2 (eqs. 9 and 10)."""
        for member in team.members:
            own, nets, rows = member.algorithm, member.nets, member.rows
            rows.q = own.values(ops, own.heads(nets["q"], rows, ""))
            rows.central_q = own.values(ops, nets[CENTRAL_Q](rows.obs))
        total = self.mixed(ops, team, team.side_by_side(lambda m: _of(ops, m, m.rows.q, m.rows.action)), target=False)
        values = team.side_by_side(lambda m: _of(ops, m, m.rows.central_q, m.rows.action))
        central = self.central(team, values, target=False)
        share, target = team.rows.weight, team.rows.target
        weight = ops.where(self._important(ops, team, total), ops.ones_like(total), team.hyper["alpha"])
        q_loss = weighted_mean(ops, weight * ops.square(total - target), share)
        central_loss = weighted_mean(ops, ops.square(central - target), share)
        loss = q_loss + central_loss
        metrics = {
            "loss/total": loss, "loss/q": q_loss, "loss/central": central_loss,
            "q_mean": weighted_mean(ops, total, share), "central_mean": weighted_mean(ops, central, share),
            "weight_mean": weighted_mean(ops, weight, share),
        }  # fmt: skip
        return loss, metrics

    def _important(self, ops: Ops, team: Team, total: Any) -> Any:
        """Return which joint actions have weight 1, [1, B] bool (section 5.2).

        OW: Q_tot(s, u) < y.  CW: y > Q*(s, u*), or u = u*, where u* is the greedy joint action.
        """
        if self.settings.weighting == "optimistic":
            return total < team.rows.target
        for member in team.members:
            member.rows.best = ops.argmax(masked(ops, member.rows.q, member.rows.legal), -1)
        values = team.side_by_side(lambda m: _of(ops, m, m.rows.central_q, m.rows.best))
        other = team.side_by_side(lambda m: ops.where(m.rows.present, ops.flag(m.rows.action != m.rows.best), 0.0))
        return (team.rows.target > self.central(team, values, target=False)) | (ops.max(other, -1) < 0.5)


def _of(ops: Ops, member: Member, values: Any, action: Any) -> Any:
    """Return the values [K, S * B] of actions; 0 for players that are absent."""
    return ops.where(member.rows.present, learned_only(ops, member, ops.take(values, action)), 0.0)


def _next_value(ops: Ops, member: Member) -> Any:
    """Return the members' values in the target of Q* of the next actions, [K, S * B]; 0 for players without a value."""
    algorithm, nets, rows = member.algorithm, member.nets, member.rows
    double = algorithm.settings.double
    q = None if double else algorithm.values(ops, algorithm.next_heads(nets["target_q"], rows, ""))
    best = algorithm.next_action(ops, nets, rows, q)
    following = algorithm.values(ops, nets[f"target_{CENTRAL_Q}"](rows.next_obs))
    return ops.where(rows.next_present, ops.take(following, best), 0.0)


@dataclass(frozen=True, kw_only=True)
class WQMIXArguments(AgentArguments, WQMIXSettings):
    """Arguments of `WQMIX`."""


class WQMIX(LearningAgent):
    """Agent that learns with WQMIX, together with its team."""

    algorithm_class = WQMIXAlgorithm

    @accepts(WQMIXArguments)
    def __init__(self, *args: Any, **arguments: Any) -> None:
        """Build the agent; see `LearningAgent`."""
        super().__init__(*args, **arguments)
