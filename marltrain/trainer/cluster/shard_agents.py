"""The agents of a run are split over learner actors, before training starts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.envs.faults import FaultPolicy
from marltrain.policies.memory.streams import Streams
from marltrain.processes.ray_actors import Cluster
from marltrain.trainer.cluster.learner_messages import LearningTask
from marltrain.trainer.cluster.learners import LearnerActors
from marltrain.trainer.cluster.remote_learner import RemoteLearner
from marltrain.trainer.cluster.remote_scheduler import RemoteScheduler
from marltrain.trainer.seats.seats import Seats, TeamSeats
from marltrain.trainer.settings import TrainerSettings
from marltrain.trainer.updating.scheduler import UpdateScheduler
from marltrain.trainer.updating.update_schedule import Defaults


def remote_schedulers(
    learners: Sequence[Seats], streams: Streams, num_envs: int, defaults: Defaults, settings: TrainerSettings,
    stack: ExitStack,
) -> tuple[list[UpdateScheduler], LearnerActors]:  # fmt: skip
    """Start the learner actors and build the agents there; return the schedulers of the learners, and the actors.

    stack: gets the functions that close them.
    Raises ConfigError for agents that actors cannot hold, and for more actors than there are agents for.
    """
    number, resources = settings.learners or 1, settings.learner_resources
    _check_number(learners, number)
    places = split([_splits(seated) for seated in learners], number)
    tasks = [
        [_task(seated, a, rows, settings) for a, rows in own] for seated, own in zip(learners, places, strict=True)
    ]
    cluster = Cluster(settings.address)
    try:
        cluster.check_room(resources, "each learner actor", "learner_resources")
        policy = FaultPolicy(settings.on_fault, settings.max_env_restarts)
        actors = LearnerActors(number, cluster, resources, settings.timeout, policy)
    except BaseException:
        cluster.close()
        raise
    stack.callback(actors.close)
    shares = iter(actors.hold([task for own in tasks for task in own]))
    schedulers: list[UpdateScheduler] = []
    for seated, own in zip(learners, tasks, strict=True):
        remote = RemoteLearner(seated.learner, [next(shares) for _ in own], actors)
        stack.callback(remote.close)
        schedulers.append(RemoteScheduler(seated, streams, num_envs, defaults, remote, actors))
    return schedulers, actors


def _task(seated: Seats, a: int, rows: slice, settings: TrainerSettings) -> tuple[int, LearningTask, slice, str]:
    """Return the number of an actor, the task of its share, the agents of the share, and their names."""
    task = LearningTask.of(seated, rows.stop - rows.start, settings.learner_resources, settings.learners or 1)
    rows = slice(None) if isinstance(seated, TeamSeats) else rows
    return a, task, rows, ", ".join(seated.labels[rows])


def split(agents: Sequence[int], number: int) -> list[list[tuple[int, slice]]]:
    """Return, for each learner, its shares: (number of the actor, agents).

    The agents of a learner are split over as many actors as possible, in shares that differ by one agent at most. The
    first share of a learner goes to the actor after that of the last share before it.
    agents: of each learner the number of agents that can be split; a team counts as one.  number: of actors.
    """
    places, a = [], 0
    for count in agents:
        parts = np.array_split(np.arange(count), min(count, number))
        places.append([((a + i) % number, slice(int(own[0]), int(own[-1]) + 1)) for i, own in enumerate(parts)])
        a += len(parts)
    return places


def _splits(seated: Seats) -> int:
    """Return the number of agents of a learner that can be split; those of a team stay together."""
    return 1 if isinstance(seated, TeamSeats) else seated.learner.num_agents


def _check_number(learners: Sequence[Seats], number: int) -> None:
    """Raise ConfigError if some actors would hold no agent."""
    most = sum(map(_splits, learners))
    if number > most:
        teams = any(isinstance(seated, TeamSeats) for seated in learners)
        together = " (agents that learn from one loss stay together)" if teams else ""
        raise ConfigError(
            f"learners={number} actors, but there are agents for {most}{together}: lower learners. Each actor holds at "
            "least one agent, and an agent that holds several seats counts once"
        )
