"""Saving and checked loading of a ring buffer."""

from __future__ import annotations

import numpy as np

from marltrain.core.errors import SaveError
from marltrain.core.layout import Array
from marltrain.core.spec import Step
from marltrain.policies.memory.checks import check_rows, span_of
from marltrain.policies.memory.ends import check_ends
from marltrain.policies.memory.ring import Ring
from marltrain.storage.state import State


def ring_state(ring: Ring) -> State:
    """Return the state of a ring: its rows, oldest first, end table and counters.

    Call it between `record_step` and `record_actions`. Actions and extras are 0 in rows without a decision: an agent
    may return any value there.
    """
    held = ring.held()
    rows = {name: column[:, held] for name, column in ring.columns.items()}
    for name, column in rows.items():
        if name == "action" or name.startswith("extras/"):
            column[~rows["acted"]] = 0
    state = State.joined(rows=State({}, rows), ends=ring.ends.state())
    state.info |= {"capacity": ring.capacity, "now": ring.now, "oldest": ring.oldest}
    state.arrays |= {"open": ring.open, "whole": ring.drawable_count, "turn": ring.turn}
    return state


def restore_ring(ring: Ring, state: State) -> None:
    """Load a state of `ring_state` into an empty ring; raises SaveError if it is invalid or does not fit."""
    capacity, now, oldest = span_of(ring, state)
    rows = check_rows(ring, state, now, oldest)
    turn, ends = state.array("turn", bool, ring.turn.shape), state.part("ends")
    check_ends(ends, rows["next"], now, ring.ends.obs, ring.ends.legal)
    ring.ends.load(ends)
    ring.load(capacity, now, oldest, rows, {**state.arrays, "turn": turn})


def check_shown(ring: Ring, step: Step, envs: Array) -> None:
    """Raise SaveError unless the newest row of a restored ring matches the Step of the environments `envs` [n]."""
    if len(envs) == 0:
        return
    turn = step.turn[ring.index][:, envs]
    if (turn != ring.turn[:, envs]).any():
        raise SaveError(f"the memory of {', '.join(ring.names)}: other players have the turn in the environments")
    cells = ring.cells(np.full(ring.open.shape, ring.now))[:, envs]
    wanted = turn if ring.complete is None else turn & ring.read(ring.complete, cells)
    rebuilt = ring.named(ring.obs_at(cells))
    for name, array in ring.named(step.obs[ring.index]).items():
        same = (array[:, envs] == rebuilt[name]).reshape(*wanted.shape, -1).all(-1)
        if not same[wanted].all():
            player, env = np.argwhere(wanted & ~same)[0]
            raise SaveError(
                f"the memory's newest row shows player {ring.names[player]!r} another {name!r} than environment "
                f"{envs[env]} does"
            )
