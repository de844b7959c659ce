"""JointLearner: the agents of a team, which learn together; each of its members acts and is saved as in any learner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import AgentError, ConfigError
from marltrain.core.layout import Array
from marltrain.policies.batches.batch import TeamBatch, TeamRollout
from marltrain.policies.batches.normalization import NORMALIZED, RunningStatistics, normalized_batch, observe
from marltrain.policies.batches.tensor_batch import shares_of
from marltrain.policies.interface.algorithm import REWARD
from marltrain.policies.interface.joint import JointAlgorithm
from marltrain.policies.interface.recurrence import sequence_columns
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner, hindrance
from marltrain.policies.learner.copies import ActingCopies
from marltrain.policies.learner.learner import Learner, UpdateSchedule
from marltrain.policies.learner.make_steps import make_gradient_steps
from marltrain.policies.learner.passes import MeanMetrics, Passes
from marltrain.policies.learner.reward_scaling import RewardScaling, of_team
from marltrain.policies.learner.rows_on_device import gather_on_device
from marltrain.policies.learner.trained_team import OF_TEAM, TrainedTeam
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.streams import Streams
from marltrain.policies.memory.team_reader import TeamReader
from marltrain.policies.memory.team_rollouts import TeamRolloutReader

if TYPE_CHECKING:
    from marltrain.policies.learner.planned.planned_updates import PlannedUpdates

TEAM_COLUMNS = ("reward", "discount", "state", "next_state", "others", "next_others")
"""Columns of a `TeamBatch` that losses get, beside the weights, whose sum is 1."""


class JointLearner(Learner):
    """The agents of a team, K in all, in the order of their learners.

    members: the learners of the agents; the first of them brings the networks of the team, which all then share.
    """

    when_not_finite = "No weight was moved by it."

    def __init__(self, members: Sequence[AlgorithmLearner], seats: Sequence[int], order: Sequence[int]) -> None:
        """Join the learners of a `JointAlgorithm`.

        seats: [members], seats of each agent.
        order: places of the players, in their order, among the seats of the members.
        Raises AgentError for agents on several devices, or whose teams have other networks.
        """
        self.members, first = list(members), members[0]
        algorithm, team = first.algorithm, first.team
        if not isinstance(algorithm, JointAlgorithm) or team is None:
            raise TypeError(f"{algorithm.name} agents do not learn together")
        self.algorithm, self.team, self.backend = algorithm, team, first.backend
        self.needs = first.needs
        for member in members[1:]:
            self._check_same(member)
            member.team = team
        algorithm.check_team(
            [p.algorithm for p, n in zip(members, seats, strict=True) for _ in range(p.num_agents * n)]
        )
        if algorithm.one_reward and len(set(self.gammas())) > 1:
            raise AgentError(
                f"the agents of a {algorithm.name} team have one discount, and gamma is "
                f"{', '.join(f'{gamma:g}' for gamma in self.gammas())}: give make_agents one gamma="
            )
        self.rewards = RewardScaling(1, team.statistics.get(REWARD))
        self.num_agents = sum(member.num_agents for member in members)
        self.steps = make_gradient_steps(TrainedTeam(members, team, seats, order))
        self.passes = Passes(members, self.steps)

    def _check_same(self, member: AlgorithmLearner) -> None:
        """Raise AgentError unless a member has the team's networks, backend and device."""
        first, other = self.algorithm, member.algorithm
        here, there = (f"backend {b.name!r} on {b.device}" for b in (self.backend, member.backend))
        if here != there:
            raise AgentError(
                f"the agents of a {first.name} team compute on one backend and device, and theirs differ: {here}, "
                f"{there}"
            )
        if not isinstance(other, JointAlgorithm) or other.team_networks() != first.team_networks():
            raise AgentError(
                f"the agents of a {first.name} team share its networks, and their settings make different ones: "
                f"{_differing(first.settings, other.settings)}. Give all of them one value"
            )
        mine, its = (_of_the_team(each) for each in (first, other))
        if different := [name for name in mine if mine[name] != its.get(name)]:
            raise AgentError(
                f"the agents of a {first.name} team have one value of {', '.join(different)}: "
                f"{[mine[name] for name in different]} and {[its.get(name) for name in different]} were given. Give "
                "make_agents one value for all of them"
            )
        ours, theirs = ([(p.name, p.trains, p.every) for p in each.phases] for each in (first, other))
        if ours != theirs:
            raise AgentError(
                f"the agents of a {first.name} team are trained in equal phases, and their settings make different "
                f"ones (name, networks, every n-th pass): {ours}, {theirs}"
            )

    @property
    def update_schedule(self) -> UpdateSchedule:  # type: ignore[override]
        """The update schedule of the first member."""
        return self.members[0].update_schedule

    @property
    def gradient_steps(self) -> Array:  # type: ignore[override]
        """See `Learner`."""
        return np.concatenate([member.gradient_steps for member in self.members])

    def rngs(self, purpose: str) -> list[np.random.Generator]:
        """See `Learner`."""
        return [rng for member in self.members for rng in member.rngs(purpose)]

    def fork(self, who: str, wait: Callable[[], object]) -> ActingCopies:
        """Raise ConfigError: a team has no copies; see `Learner`."""
        raise ConfigError(
            f'collect="overlap" does not work with agents that learn together, and those of {who} do '
            f'({self.algorithm.name}): leave it out (collect="serial")'
        )

    def gammas(self) -> Array:
        """See `Learner`."""
        return np.concatenate([member.gammas() for member in self.members])

    def apply_schedules(self, env_steps: int) -> None:
        """See `Learner`."""
        for member in self.members:
            member.apply_schedules(env_steps)

    def reader(self, streams: Streams, seats: Sequence[Sequence[int]]) -> TeamReader:
        """See `Learner`."""
        members = [seats[own] for own in self.steps.team.own]
        needs = [member.needs for member in self.members]
        kind = TeamRolloutReader if self.algorithm.on_policy else TeamReader
        return kind(streams, members, needs, one_reward=self.algorithm.one_reward)

    def gather_on_device(self, reader: Reader, rows: int) -> str:
        """See `Learner`."""
        return gather_on_device(self.members, reader, rows)

    def update(self, batch: TeamBatch, *, learn: Array, batch_size: int) -> dict[str, Array]:
        """Make a gradient pass over the batch, or epochs x minibatches over a rollout, see `Passes`.

        Agents that do not learn act in it, and do not change.

        Neither do agents without a row to learn from.
        """
        asked, learn = learn, learn & np.concatenate([rows.weight.sum(1) > 0 for rows in batch.members])
        learns = list(self.steps.team.by_member(learn).values())
        rows = [
            normalized_batch(observed, own) if (observed := _observed(member)) else own
            for member, own in zip(self.members, batch.members, strict=True)
        ]
        columns = {
            str(i): _columns(member, own) for i, (member, own) in enumerate(zip(self.members, rows, strict=True))
        }
        columns[OF_TEAM] = {
            **{name: getattr(batch, name) for name in TEAM_COLUMNS}, "weight": shares_of(batch.weight)
        }  # fmt: skip
        self._scale_rewards(columns, batch, learns)
        tensors = self.backend.tensor(columns)
        prepared = self._prepare(tensors, batch) if isinstance(batch, TeamRollout) else {}
        metrics = MeanMetrics(self.backend)
        self.passes.run(batch, tensors, learn, self.update_schedule, batch_size, metrics)
        self._update_targets(learns, list(self.steps.team.by_member(asked).values()))
        for member, own, learning in zip(self.members, batch.members, learns, strict=True):
            observe(_observed(member), own, learning)
        self.skipped = metrics.skipped(asked)
        reported = self.members[0].reported
        settings = {
            name: np.concatenate([member.hyper.values[own] for member in self.members])
            for name, own in reported.items()
        }
        return {**metrics.result(), **prepared, **settings}

    def _scale_rewards(self, columns: dict[str, dict[str, Any]], batch: TeamBatch, learns: Sequence[Array]) -> None:
        """Scale the rewards of the losses, see `RewardScaling`: the team's one reward, or the agents' own."""
        scales = [scale for member in self.members if (scale := member.reward_scales()) is not None]
        if not scales:
            return
        if self.algorithm.one_reward:
            learn = np.array([any(learning.any() for learning in learns)])
            scaled = self.rewards(batch.reward, batch.weight, learn, of_team(np.concatenate(scales)))
            columns[OF_TEAM]["reward"] = scaled
            return
        for i, (member, rows) in enumerate(zip(self.members, batch.members, strict=True)):
            columns[str(i)]["reward"] = member.rewards(rows.reward, rows.weight, learns[i], scales[i])

    def _prepare(self, columns: dict[str, Any], batch: TeamRollout) -> dict[str, Array]:
        """Add the columns that the algorithm computes from a complete rollout; return its metrics [K]."""
        with self.backend.no_gradient():
            team = self.passes.in_pass(columns)
            added, measured = self.algorithm.prepare_team(self.backend.ops, team, batch, self.backend.numpy)
        columns[OF_TEAM] |= self.backend.tensor(added)
        return {name: np.repeat(values, self.num_agents) for name, values in measured.items()}

    def _update_targets(self, learns: Sequence[Array], asked: Sequence[Array]) -> None:
        """Count the update; move the target networks of the agents that learn, and those of the team.

        The team's move when those of the agent with most updates do, of the agents that learn. Then those of agents
        that were not `asked` to learn move, too: the team bootstraps from the targets of networks that do not change.
        """
        for member, learning in zip(self.members, learns, strict=True):
            member.updates += learning
        counts = np.concatenate([member.updates for member in self.members]) * np.concatenate(learns)
        lead = int(counts.argmax())
        if not counts[lead]:
            return
        shares = np.concatenate([
            np.where(own, learning * _share(member, member.updates), _settling(member, counts[lead]))
            for member, learning, own in zip(self.members, learns, asked, strict=True)
        ])  # fmt: skip
        self.steps.update_targets(shares, float(shares[lead]))

    def obstacle(self) -> str | None:
        """See `Learner`."""
        off_policy = not self.members[0].needs.on_policy
        return hindrance(self.members[0]) if self.steps.plannable and off_policy else None

    def planned_updates(self, reader: Reader, batch_size: int) -> PlannedUpdates | None:
        """See `Learner`."""
        if self.obstacle() != "":
            return None
        from marltrain.policies.learner.planned.team_sequence_updates import TeamSequenceUpdates
        from marltrain.policies.learner.planned.team_updates import TeamUpdates, reads_team
        from marltrain.policies.learner.programs.program_steps import ProgramSteps

        if not (reads_team(reader) and isinstance(self.steps, ProgramSteps)):
            return None
        rewards = self.rewards if self.algorithm.one_reward else self.members[0].rewards
        kind = TeamSequenceUpdates if self.members[0].needs.block else TeamUpdates
        return kind(self.members[0], self.steps, reader, rewards, batch_size)


def _share(member: AlgorithmLearner, updates: Array) -> Array:
    """Return the shares by which the target networks of a member move after updates of these numbers, [K_i]."""
    return member.algorithm.target_share(updates, member.hyper.values)


def _settling(member: AlgorithmLearner, update: int) -> Array:
    """Return the shares by which they move if the agents do not learn, after an update of the team, [K_i]."""
    updates = np.full(member.num_agents, update)
    share: Array = member.algorithm.settling_share(updates, member.hyper.values)  # type: ignore[attr-defined]
    return share


def _columns(member: AlgorithmLearner, rows: Any) -> dict[str, Any]:
    """Return the columns of a member's rows that losses get."""
    columns = {name: getattr(rows, name) for name in rows.loss_columns}
    sequences = sequence_columns(rows, member.algorithm.networks()) if member.actor.recurrent else {}
    return {**columns, **sequences, "weight": shares_of(rows.weight)}


def _observed(member: AlgorithmLearner) -> dict[str, RunningStatistics]:
    """Return the statistics that normalize the inputs of a member's networks."""
    return {name: member.weights.statistics[name] for name in NORMALIZED if name in member.weights.statistics}


def _of_the_team(algorithm: JointAlgorithm) -> dict[str, Any]:
    """Return the settings that the agents of a team share, and those of their sequences."""
    needs = algorithm.needs()
    shared = {name: getattr(algorithm.settings, name, None) for name in algorithm.shared_settings}
    return {**shared, "sequence_length": needs.block, "burn_in": needs.burn_in}


def _differing(first: Any, other: Any) -> str:
    """Return the settings that differ, with both values."""
    pairs = {f.name: (getattr(first, f.name), getattr(other, f.name, None)) for f in fields(first)}
    return ", ".join(f"{name}={mine!r} and {its!r}" for name, (mine, its) in pairs.items() if mine != its)
