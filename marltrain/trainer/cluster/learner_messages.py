"""What the driver and the learner actors send each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.policies.backends.base import JitCompile
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.joint_learner import JointLearner
from marltrain.policies.learner.learner import Learner, UpdateSchedule
from marltrain.policies.learner.learner_snapshot import members_of
from marltrain.trainer.cluster.messages import packed
from marltrain.trainer.seats.seats import Seats, TeamSeats

CPU = "cpu"


@dataclass(frozen=True)
class LearningTask:
    """Some agents of a learner, as an actor needs them to learn.

    made_of: the algorithm of each member, see `packed`.  agents: the number of agents of each member.
    team: seats and order of a `JointLearner`; None for an `AlgorithmLearner`.
    backend, device, jit_compile: see `make_backend`.  threads: of an operation.
    """

    made_of: tuple[bytes, ...]
    agents: tuple[int, ...]
    team: tuple[list[int], list[int]] | None
    backend: str
    device: str
    jit_compile: JitCompile
    threads: int

    @classmethod
    def of(cls, seated: Seats, agents: int, resources: Mapping[str, float] | None, actors: int) -> LearningTask:
        """Return the task of some agents of a learner, `agents` in number, or of a whole team.

        resources: of each actor.  actors: their number.
        Raises ConfigError for a learner that actors cannot hold.
        """
        members, given = _checked(seated), dict(resources or {})
        backend = members[0].backend
        on_gpu = given.get("num_gpus", 0) > 0
        if CPU not in str(backend.device).lower() and not on_gpu:
            raise ConfigError(
                f"the agent of {seated.who} computes on {backend.device}, and learner actors get no GPU: give "
                'learner_resources={"num_gpus": 1}, or make the agent with device="cpu"'
            )
        team = seated.places if isinstance(seated, TeamSeats) else None
        return cls(
            tuple(packed(member.algorithm, seated.who) for member in members),
            (agents,) if team is None else tuple(member.num_agents for member in members), team,
            backend.name, "auto" if on_gpu else CPU, backend.jit_compile,
            max(1, int(given.get("num_cpus", 0)) or backend.threads() // actors),
        )  # fmt: skip


def _checked(seated: Seats) -> list[AlgorithmLearner]:
    """Return the members of a learner; raises ConfigError for one that actors cannot hold."""
    learner = seated.learner
    if not isinstance(learner, AlgorithmLearner | JointLearner) or any(p.weights.custom for p in members_of(learner)):
        raise ConfigError(
            "learner actors hold agents of marltrain's own algorithms over NetworkSpecs; the agent of "
            f"{seated.who} is of another kind. Leave learners out, or let it not learn (mt.FrozenAgent)"
        )
    members = members_of(learner)
    if (strategy := members[0].backend.strategy) is not None:
        raise ConfigError(
            f"the agent of {seated.who} has {strategy}, which splits its minibatches, and learners= splits agents: "
            "leave one of them out"
        )
    return members


@dataclass(frozen=True)
class Numbers:
    """What the driver may have changed in a member of a learner since the last update.

    hyper: name -> [k] float64.  update_schedule: see `Learner`.  effective, noise: see `Measurements`.
    """

    hyper: Mapping[str, Array]
    update_schedule: UpdateSchedule
    effective: bool
    noise: bool

    @classmethod
    def of(cls, member: AlgorithmLearner, rows: slice) -> Numbers:
        """Return the numbers of some agents."""
        hyper = {name: values[rows].copy() for name, values in member.hyper.values.items()}
        return cls(hyper, member.update_schedule, member.measured.effective, member.measured.noise)

    def put(self, member: AlgorithmLearner) -> None:
        """Set the numbers of a learner."""
        member.hyper.adapt(changed(member, self.hyper), np.ones(member.num_agents, bool))
        member.update_schedule = self.update_schedule
        member.measured.measure(effective=self.effective, noise=self.noise)


def changed(member: AlgorithmLearner, hyper: Mapping[str, Array]) -> dict[str, Array]:
    """Return the hyperparameters that differ from those of a learner."""
    now = member.hyper.values
    return {name: values for name, values in hyper.items() if not np.array_equal(values, now[name])}


@dataclass(frozen=True)
class UpdateOrder:
    """An update of k agents, or of a team.

    batch: their rows.  learn: [k] bool.  batch_size: see `Learner.update`.  numbers: of each member.
    """

    batch: Any
    learn: Array
    batch_size: int
    numbers: tuple[Numbers, ...]


@dataclass(frozen=True)
class UpdateAnswer:
    """The outcome of an update of k agents.

    metrics: name -> [k].  skipped: see `Learner.skipped`.  errors: [k, B], see `Transitions`; None without them.
    updates, gradient_steps: of each member, [k] int64.  hyper: of each member, name -> [k], the changed values.
    seconds: that it took.
    """

    metrics: Mapping[str, Array]
    skipped: Mapping[str, Array]
    errors: Array | None
    updates: tuple[Array, ...]
    gradient_steps: tuple[Array, ...]
    hyper: tuple[Mapping[str, Array], ...]
    seconds: float


def joined_metrics(
    answers: Sequence[UpdateAnswer | None], agents: Sequence[int], learn: Sequence[Array]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the metrics [K] and `Learner.skipped` of all agents of a learner.

    answers: those of its shares; None for a share without rows.  agents: the number of agents of each share.
    learn: of each share [k] bool.  A metric that a share did not measure is NaN there, and skipped by those that learn.
    """
    result = [answer for answer in answers if answer is not None]
    if len(result) == len(answers) == 1:
        return dict(result[0].metrics), dict(result[0].skipped)
    names = dict.fromkeys(name for answer in result for name in answer.metrics)
    metrics, skipped = {}, {}
    for name in names:
        values = [
            np.full(k, np.nan) if answer is None or name not in answer.metrics else answer.metrics[name]
            for answer, k in zip(answers, agents, strict=True)
        ]
        absent = [
            own if answer is None or name not in answer.metrics else answer.skipped.get(name, np.zeros(k, bool))
            for answer, k, own in zip(answers, agents, learn, strict=True)
        ]
        metrics[name], left = np.concatenate(values), np.concatenate(absent)
        if left.any():
            skipped[name] = left
    return metrics, skipped


def learner_of(task: LearningTask, members: Sequence[AlgorithmLearner]) -> Learner:
    """Return the learner of a task from its members."""
    return members[0] if task.team is None else JointLearner(members, *task.team)
