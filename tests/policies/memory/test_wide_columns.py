"""Batches gathered on a device equal those of main memory to the bit, in random worlds that wrap around the ring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from marltrain.core.layout import arrays_of
from marltrain.policies.backends.torch.row_memory import RowMemory
from marltrain.policies.memory import Storage, Streams, mirror
from marltrain.policies.memory.config import Prioritized, Replay
from marltrain.policies.memory.needs import Column, Needs, StateNeed
from marltrain.policies.memory.states import JOINED, state_size
from marltrain.policies.memory.team_reader import TeamReader
from marltrain.policies.memory.team_rollouts import TeamRolloutReader
from marltrain.policies.memory.wide_columns import mirror_size
from tests.policies.memory.worlds import Record, World, drive, one_group, seeing, two_groups
from tests.tiers import LONG

COLUMNS = {"log_prob": Column()}
ENVS, GAMMA = 3, 0.9
SIZES = [5, 40, *LONG * [11]]
"""Batch steps that a ring holds; 120 batch steps are played, and the first is too few for a rollout of 13."""
Make = Callable[[Streams], Any]


def reader_of(needs: Needs, seats: Any, streams: Streams) -> Any:
    from marltrain.policies.memory.compiled.replay_kernel import reader_of as fastest

    plain = not needs.on_policy and not needs.sequence
    return streams.reader(seats, needs, fastest if plain else None)


def team_of(kind: type[TeamReader], needs: Needs, seats: Any, streams: Streams) -> TeamReader:
    return kind(streams, seats, [needs] * len(seats), one_reward=False)


def joined(spec: Any) -> StateNeed:
    return StateNeed(JOINED, state_size(spec, JOINED))


REPLAY = Needs(False, COLUMNS)
PRIORITIES = Replay(capacity=60, prioritized=Prioritized())
CASES: dict[str, tuple[Any, Make, bool]] = {
    "transitions": (one_group, partial(reader_of, REPLAY, [[0], [1, 2]]), False),
    "compiled transitions": (one_group, partial(reader_of, Needs(False), [[0], [1], [2]]), False),
    "three steps": (one_group, partial(reader_of, Needs(False, COLUMNS, n_step=3), [[0], [2]]), False),
    "priorities": (one_group, partial(reader_of, Needs(False, COLUMNS, replay=PRIORITIES), [[0], [1]]), False),
    "stacked images": (seeing, partial(reader_of, Needs(False, COLUMNS, n_step=2), [[0], [1]]), False),
    "sequences": (one_group, partial(reader_of, Needs(False, COLUMNS, sequence=4, block=4, burn_in=1), [[0]]), False),
    "identity": (one_group, partial(reader_of, Needs(False, COLUMNS, identity=("c", "a", "b")), [[0, 1, 2]]), False),
    "identity with images": (seeing, partial(reader_of, Needs(False, identity=("b", "a")), [[0, 1]]), False),
    "rollouts": (one_group, partial(reader_of, Needs(True, COLUMNS), [[0], [1], [2]]), True),
    "rollouts of images": (seeing, partial(reader_of, Needs(True, COLUMNS), [[1], [0]]), True),
    "rollouts with states": (
        two_groups, partial(reader_of, Needs(True, COLUMNS, state=joined(two_groups())), [[0], [2]]), True,
    ),
    "transitions with states": (
        two_groups, partial(reader_of, Needs(False, COLUMNS, state=joined(two_groups())), [[0], [2]]), False,
    ),
    "team": (
        two_groups,
        partial(team_of, TeamReader, Needs(False, COLUMNS, state=joined(two_groups())), [[[0, 2]], [[1], [3]]]), False,
    ),
    "team with identity": (
        one_group, partial(team_of, TeamReader, Needs(False, COLUMNS, identity=("a", "b", "c")), [[[0, 1, 2]]]), False,
    ),
    "team rollouts": (
        two_groups, partial(team_of, TeamRolloutReader, Needs(True, COLUMNS), [[[0], [2]], [[1], [3]]]), True,
    ),
}  # fmt: skip


def leaves(batch: Any) -> dict[str, np.ndarray]:
    """Return all arrays of a batch by name; tensors as arrays."""
    found: dict[str, np.ndarray] = {}
    for held in fields(batch):
        value = getattr(batch, held.name)
        if isinstance(value, list):
            found |= {f"{held.name}{i}/{n}": a for i, part in enumerate(value) for n, a in leaves(part).items()}
        elif value is not None:
            named = value.items() if isinstance(value, dict) else [("", value)]
            found |= {f"{held.name}/{n}": a.numpy() if isinstance(a, torch.Tensor) else a for n, a in named}
    return found


def equal(one: Any, other: Any) -> list[str]:
    """Return the names of arrays that are not the same bits, shapes and dtypes."""
    mine, theirs = leaves(one), leaves(other)
    return sorted(mine.keys() ^ theirs.keys()) + [
        name
        for name, array in mine.items()
        if name in theirs
        and (array.dtype, array.shape, array.tobytes())
        != (theirs[name].dtype, theirs[name].shape, theirs[name].tobytes())
    ]


def play(case: str, rows: int, check: Callable[[Any, Any], None]) -> Streams:
    """Play a random world; call `check` with a batch of main memory, and the same one of a device."""
    spec, make, takes = CASES[case]
    spec = spec()
    groups = range(len(spec.groups))
    storage = Storage(rows, COLUMNS, states=(JOINED,) if "state" in case or case == "team" else (), trees=4)
    streams = Streams(spec, ENVS, dict.fromkeys(groups, storage))
    here, there = make(streams), make(streams)
    there.mirror(RowMemory(torch.device("cpu")))
    rngs = [[np.random.default_rng(k) for k in range(8)] for _ in range(2)]
    gamma = np.full(len(here.size()), GAMMA)

    def on_step(time: int) -> None:
        if time % (13 if takes else 2) or not here.size().all():
            return
        batches = []
        for own, reader in zip(rngs, (here, there), strict=True):
            batch = reader.take(gamma) if takes else reader.sample(own[: len(gamma)], gamma, 7)
            batches.append(batch)
            reader.learned(batch)
        check(*batches)

    world = World(spec, ENVS, 4, dense="team" in case, end_chance=0.15)
    drive(world, streams, Record(spec, ENVS), on_step, 120, resets=[31], cuts=[(17, [0]), (44, [2])],
          masks=[(50, [True, False] * 2), (70, [True] * 4)] if len(spec.players) == 4 else ())  # fmt: skip
    return streams


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("case", CASES)
def test_batches_are_equal(case, rows):
    made = []

    def check(here: Any, there: Any) -> None:
        assert equal(here, there) == []
        members = getattr(there, "members", [there])
        assert all(isinstance(array, torch.Tensor) for each in members for array in arrays_of(each.obs))
        made.append(here)

    play(case, rows, check)
    assert len(made) >= 5


def test_rows_are_sent_in_parts(monkeypatch):
    """Parts of one batch step carry the same rows as a single one."""
    monkeypatch.setattr(mirror, "LARGEST_COPY", 1)
    play("rollouts", 40, lambda here, there: _none(equal(here, there)))


def _none(found: list[str]) -> None:
    assert found == []


def test_new_rows_alone_are_sent(monkeypatch):
    """After the first batch, each call sends the rows since the last one, and the newest row again."""
    sent: list[int] = []
    news = mirror.Mirror._news

    def counted(self: mirror.Mirror) -> Any:
        found = news(self)
        sent.append(sum(new.slots.stop - new.slots.start for new in found))
        return found

    monkeypatch.setattr(mirror.Mirror, "_news", counted)
    play("transitions", 40, lambda here, there: None)
    assert set(sent[1:]) <= {3, 5} and len(sent) > 40  # a batch at every second batch step, unless an agent has no row


def test_tables_have_the_size_that_is_checked():
    """They hold a blank row in addition."""
    streams = play("transitions with states", 11, lambda here, there: None)
    ring, needs = streams.rings[0], Needs(False, COLUMNS, state=joined(two_groups()))
    tables = [
        table
        for source in (ring, ring.states[JOINED])
        for own in source.mirrors.values()
        for table in (*own._rows.values(), *own._final.values())
    ]
    blank = sum(table[0].nbytes for table in tables if len(table) % (ring.capacity * ENVS) == 1)
    assert sum(table.nbytes for table in tables) - blank == mirror_size(ring, needs)


def test_a_run_releases_the_tables():
    streams = play("transitions with states", 11, lambda here, there: None)
    assert streams.rings[0].mirrors and streams.states[JOINED].mirrors
    streams.release()
    assert not streams.rings[0].mirrors and not streams.states[JOINED].mirrors
