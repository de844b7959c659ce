"""Minibatches of the batch steps of a team, which its agents learn from together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.policies.backends.base import Backend
from marltrain.policies.batches.batch import TeamBatch
from marltrain.policies.batches.tensor_batch import shares_of
from marltrain.policies.learner.learner import UpdateSchedule
from marltrain.policies.learner.minibatches import Minibatches
from marltrain.policies.learner.trained_team import OF_TEAM, Columns, TrainedTeam


def team_minibatches(
    team: TrainedTeam, batch: TeamBatch, columns: Columns, schedule: UpdateSchedule, rng: np.random.Generator
) -> Iterator[tuple[Columns, Array]]:
    """Yield the columns of epochs x minibatches of n batch steps, and the agents that have rows in each, [K] bool.

    columns: of all rows, [K_i, S * B, ...] of each member and [1, B, ...] of the team.
    """
    if schedule.minibatches in (None, 1):
        present = present_in(batch)
        for _ in range(schedule.epochs):
            yield columns, present
        return
    steps = np.flatnonzero(batch.weight[0] > 0)
    dealt = Minibatches(batch.weight[:, steps], schedule.minibatches, 1, even=True).dealt(schedule.epochs, [rng])
    for index, (rows,) in zip(dealt.index[0], dealt.rows, strict=True):
        yield _of_steps(team, batch, columns, steps[index[:rows]])


def present_in(batch: TeamBatch) -> Array:
    """Return the agents that have rows in a batch, [K] bool."""
    return np.concatenate([rows.weight.sum(1) > 0 for rows in batch.members])


def _of_steps(team: TrainedTeam, batch: TeamBatch, columns: Columns, steps: Array) -> tuple[Columns, Array]:
    """Return the columns at some batch steps [n], and the agents that have rows in them."""
    count = batch.weight.shape[1]
    rows = {OF_TEAM: _taken(team.backend, columns[OF_TEAM], steps[None], count, batch.weight[:, steps])}
    present = []
    for key, agents, seats, held in zip(team.members, team.agents, team.seats, batch.members, strict=True):
        index = (np.arange(seats)[:, None] * count + steps).ravel()
        weight = held.weight[:, index]
        present.append(weight.sum(1) > 0)
        rows[key] = _taken(team.backend, columns[key], np.tile(index, (agents, 1)), seats * count, weight)
    return rows, np.concatenate(present)


def _taken(backend: Backend, columns: Mapping[str, Any], index: Array, count: int, weight: Array) -> dict[str, Any]:
    """Return the rows `index` [K, n] of columns [K, count, ...], with weights of sum 1."""
    held = {name: column for name, column in columns.items() if name != "weight"}
    return {**backend.rows(held, index, count), "weight": backend.tensor(shares_of(weight))}
