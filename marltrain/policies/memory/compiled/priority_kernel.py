"""Priorities of the rows of a ring buffer in compiled code: sum trees, proportional draws, importance weights.

Each agent has a tree for each player that it reads, called a plane. The leaves of a plane are the cells of the player,
in the order of the ring: leaf = slot * E + environment. A leaf holds p ** alpha for the row's priority p, times a power
of 2 that falls with the row's age if the agent has a half-life; it is 0 if the row may not be drawn. A node is the sum
of FAN nodes of the level below, computed anew whenever one of them changes. The sums are therefore a function of the
leaves alone, without accumulated rounding errors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float32, float64

from marltrain.jit.compiling import compiled
from marltrain.jit.views import bools, f32, f64, i64, record_at

FAN = 16
MOST_LEVELS = 8
"""Levels above the leaves; FAN ** (MOST_LEVELS + 1) leaves are more than any memory holds."""
_COUNTS = ("planes", "players", "envs", "capacity", "leaves", "levels", "nodes", "agents", "synced", "clear",
           "by_errors")  # fmt: skip
_ARRAYS = (
    "player", "agent", "planes_from", "priority", "leaf", "sums", "total", "held", "largest", "alpha", "beta",
    "initial", "epsilon", "window", "first", "decay", "reference", "waiting", "open", "next", "learnable", "complete",
)  # fmt: skip
OLDEST = 60.0
"""Half-lives beyond which a leaf decays no further before its reference; leaves stay positive float32 numbers."""
PRIORITIES = np.dtype([(name, np.int64) for name in (*_COUNTS, *_ARRAYS)] + [("start", np.int64, (MOST_LEVELS,))])
"""Numbers and addresses of the trees of K agents with S planes.

leaves: leaves of a plane, a multiple of FAN.  nodes: nodes of a plane.  start: first node of each level, from the one
above the leaves on; the last level has at most FAN nodes.  synced: batch step that the trees have followed the ring to.
clear: batch steps between two moments at which all rows are dropped; 0: never.
by_errors: 1: a row has no priority until its errors are known; 0: it gets the initial one when it is closed.
player, agent: [S] int64.  planes_from: [K + 1] int64, each agent's first plane.
priority, leaf: [S, leaves] float32.  sums: [S, nodes] float64.  total: [S] float64.  held: [S] int64, positive leaves.
largest: [K] float64, largest priority so far.  alpha, beta, initial, epsilon: [K] float64; initial is NaN for the
largest so far.  window: [K] int64, newest batch steps that may be drawn.  first: [K] int64, the earliest of them; it
never decreases.  decay: [K] float64, half-lives per batch step; 0: none.  reference: [K] int64, the batch step whose
rows have p ** alpha itself as leaves; later ones have larger leaves.  waiting: [P, E] int64, times of rows that were
open when the trees followed the ring, or -1.  open, next, learnable, complete: the ring's; complete may be 0 (none).
"""


@compiled
def trees_at(address: int) -> Any:
    """Return the PRIORITIES record at an address."""
    return record_at(address, PRIORITIES)


@compiled
def set_leaf(t: Any, plane: int, leaf: int, priority: float, time: int) -> None:
    """Set the priority of a leaf, 0 for none; `add_up` must follow.  time: batch step of the row."""
    agent = i64(t.agent, t.planes)[plane]
    place = plane * t.leaves + leaf
    priorities, leaves = f32(t.priority, place + 1), f32(t.leaf, place + 1)
    held = i64(t.held, t.planes)
    held[plane] += (priority > 0.0) - (priorities[place] > 0.0)
    priorities[place] = float32(priority)
    leaves[place] = powered(priorities[place], f64(t.alpha, t.agents)[agent], age_factor(t, agent, time))


@compiled
def powered(priority: float, alpha: float, factor: float) -> Any:
    """Return priority ** alpha * factor, 0 for a priority of 0."""
    return float32(float64(priority) ** alpha * factor) if priority > 0.0 else float32(0.0)


@compiled
def age_factor(t: Any, k: int, time: int) -> float:
    """Return the factor of the leaves of a batch step: it doubles with each half-life of agent k; 1 without one."""
    decay = f64(t.decay, t.agents)[k]
    if decay == 0.0:
        return 1.0
    return 2.0 ** max((time - i64(t.reference, t.agents)[k]) * decay, -OLDEST)


@compiled
def time_of(t: Any, leaf: int) -> int:
    """Return the batch step of a leaf's row."""
    return t.synced - (t.synced - leaf // t.envs) % t.capacity


@compiled
def add_up(t: Any, plane: int, start: int, stop: int) -> None:
    """Compute the sums above the leaves from `start` to before `stop`."""
    low, high = start // FAN, (stop - 1) // FAN
    sums, leaves = f64(t.sums + 8 * plane * t.nodes, t.nodes), f32(t.leaf + 4 * plane * t.leaves, t.leaves)
    for node in range(low, high + 1):
        at = node * FAN
        a, b, c, d = float64(leaves[at]), float64(leaves[at + 1]), float64(leaves[at + 2]), float64(leaves[at + 3])
        for i in range(at + 4, at + FAN, 4):
            a, b, c, d = a + leaves[i], b + leaves[i + 1], c + leaves[i + 2], d + leaves[i + 3]
        sums[t.start[0] + node] = (a + b) + (c + d)
    for level in range(1, t.levels):
        low, high = low // FAN, high // FAN
        for node in range(low, high + 1):
            sums[t.start[level] + node] = sum_of(sums, t.start[level - 1] + node * FAN)
    f64(t.total, t.planes)[plane] = sum_of(sums, t.start[t.levels - 1])


@compiled
def sum_of(sums: Any, at: int) -> float:
    """Return the sum of FAN numbers."""
    a, b, c, d = sums[at], sums[at + 1], sums[at + 2], sums[at + 3]
    for i in range(at + 4, at + FAN, 4):
        a, b, c, d = a + sums[i], b + sums[i + 1], c + sums[i + 2], d + sums[i + 3]
    return (a + b) + (c + d)


@compiled
def found(t: Any, plane: int, point: float) -> int:
    """Return the leaf whose interval holds a point of [0, total of the plane); intervals lie in the order of leaves."""
    sums, leaves = f64(t.sums + 8 * plane * t.nodes, t.nodes), f32(t.leaf + 4 * plane * t.leaves, t.leaves)
    node = 0
    for level in range(t.levels - 1, -1, -1):
        at, last = t.start[level] + node * FAN, 0
        for i in range(FAN):
            share = sums[at + i]
            if share > 0.0:
                last = i
                if point < share:
                    break
                point -= share
        else:
            point = sums[at + last]  # rounding: the last positive interval
        node = node * FAN + last
    at, last = node * FAN, 0
    for i in range(FAN):
        share = float64(leaves[at + i])
        if share > 0.0:
            last = i
            if point < share:
                break
            point -= share
    return at + last


@compiled
def follow_ring(t: Any, now: int) -> None:
    """Follow the ring to batch step `now`, whose row has begun.

    Overwritten rows and those that leave the window lose their priorities; closed rows that may be drawn get the
    initial one, and open rows get it once they are closed.
    """
    earliest = max(now - t.capacity + 1, 0)
    begun, waiting = max(t.synced + 1, earliest), i64(t.waiting, t.players * t.envs)
    trim(t, now, earliest)
    for plane in range(t.planes):
        first = i64(t.first, t.agents)[i64(t.agent, t.planes)[plane]]
        for time in range(begun, now + 1):
            clear(t, plane, time)
        for time in range(max(t.synced, earliest, first), now):
            start = time % t.capacity * t.envs
            admit(t, plane, time, 0, t.envs)
            add_up(t, plane, start, start + t.envs)
        player = i64(t.player, t.planes)[plane]
        for env in range(t.envs):
            time = waiting[player * t.envs + env]
            if time >= 0 and time >= max(earliest, first):
                start = time % t.capacity * t.envs + env
                admit(t, plane, time, env, env + 1)
                add_up(t, plane, start, start + 1)
    opened = i64(t.open, t.players * t.envs)
    for i in range(t.players * t.envs):
        waiting[i] = opened[i] if opened[i] < now else -1
    t.synced = now


@compiled
def trim(t: Any, now: int, earliest: int) -> None:
    """Remove the priorities of the rows that leave each agent's window or are dropped by `clear`."""
    firsts, windows = i64(t.first, t.agents), i64(t.window, t.agents)
    for k in range(t.agents):
        first = max(firsts[k], now - windows[k])
        if t.clear > 0:
            first = max(first, now // t.clear * t.clear)
        drop_before(t, k, first, earliest)


@compiled
def drop_before(t: Any, k: int, first: int, earliest: int) -> None:
    """Remove the priorities of agent k's rows before batch step `first`; those before `earliest` are overwritten."""
    firsts, starts = i64(t.first, t.agents), i64(t.planes_from, t.agents + 1)
    for time in range(max(firsts[k], earliest), min(first, t.synced + 1)):
        for plane in range(starts[k], starts[k + 1]):
            clear(t, plane, time)
    firsts[k] = first


@compiled
def keep_effective(t: Any, k: int, share: float, start: int, stop: int, kept: int) -> None:
    """Drop agent k's oldest rows until the effective sample size of the others is `share` of their number.

    It is that of the law of the draws, see `Chosen`, over rows from before batch step `stop`. The rows since `kept`
    stay in any case, and so do those that are newer than all rows with a priority. Nothing is dropped if the share is
    reached with all rows since batch step `start`.
    """
    starts, first = i64(t.planes_from, t.agents + 1), start
    total, squares, held = float64(0.0), float64(0.0), 0
    for time in range(stop - 1, start - 1, -1):
        begin, newer = time % t.capacity * t.envs, held
        for plane in range(starts[k], starts[k + 1]):
            leaves = f32(t.leaf + 4 * plane * t.leaves, t.leaves)
            for leaf in range(begin, begin + t.envs):
                value = float64(leaves[leaf])
                total, squares, held = total + value, squares + value * value, held + (value > 0.0)
        if held and not newer:
            first = time + 1
        if held and total * total >= share * held * squares:
            first = time
    if first > start:
        drop_before(t, k, max(min(first, kept), i64(t.first, t.agents)[k]), max(t.synced - t.capacity + 1, 0))


@compiled
def clear(t: Any, plane: int, time: int) -> None:
    """Remove the priorities of the slot of a batch step."""
    start = time % t.capacity * t.envs
    leaves = f32(t.leaf + 4 * plane * t.leaves, t.leaves)
    some = False
    for leaf in range(start, start + t.envs):
        if leaves[leaf] > 0.0:
            set_leaf(t, plane, leaf, 0.0, time)
            some = True
    if some:
        add_up(t, plane, start, start + t.envs)


@compiled
def admit(t: Any, plane: int, time: int, start: int, stop: int) -> None:
    """Give the initial priority to the rows of a batch step that may be drawn, in a range of environments."""
    player, agent = i64(t.player, t.planes)[plane], i64(t.agent, t.planes)[plane]
    row = player * t.capacity + time % t.capacity
    if t.by_errors or not bools(t.learnable, row + 1)[row]:
        return
    following, initial = i64(t.next + 8 * row * t.envs, t.envs), f64(t.initial, t.agents)[agent]
    if np.isnan(initial):
        initial = f64(t.largest, t.agents)[agent]
    for env in range(start, stop):
        if following[env] == -1 or (t.complete and not bools(t.complete + row * t.envs, t.envs)[env]):
            continue
        set_leaf(t, plane, time % t.capacity * t.envs + env, initial, time)


@compiled
def rebuild(t: Any) -> None:
    """Compute all leaves, counts and sums from the priorities."""
    for plane in range(t.planes):
        priorities = f32(t.priority + 4 * plane * t.leaves, t.leaves)
        leaves = f32(t.leaf + 4 * plane * t.leaves, t.leaves)
        agent, held = i64(t.agent, t.planes)[plane], 0
        alpha = f64(t.alpha, t.agents)[agent]
        for leaf in range(t.leaves):
            held += priorities[leaf] > 0.0
            factor = age_factor(t, agent, time_of(t, leaf)) if priorities[leaf] > 0.0 else 1.0
            leaves[leaf] = powered(priorities[leaf], alpha, factor)
        i64(t.held, t.planes)[plane] = held
        add_up(t, plane, 0, t.leaves)


@compiled
def withdraw(t: Any, row: int) -> None:
    """Remove the priority of a row, in all planes of its player; row: its number, see `draw_rows`."""
    env, at = row % t.envs, row // t.envs
    player, time = at % t.players, at // t.players
    players, leaf = i64(t.player, t.planes), time % t.capacity * t.envs + env
    if time > t.synced - t.capacity:
        for plane in range(t.planes):
            if players[plane] == player:
                set_leaf(t, plane, leaf, 0.0, time)
                add_up(t, plane, leaf, leaf + 1)


@compiled
def draw_rows(t: Any, k: int, random: Any, cells: Any, weights: Any, rows: Any) -> float:
    """Draw rows of agent k in proportion to their leaves: one from each of B equal parts of the total.

    random: [B] float64 in [0, 1).  Writes the cells, the weights (p_i / min_j p_j) ** (-alpha beta), and the rows'
    numbers (time * P + player) * E + environment, [B] each. Returns the effective share of the rows, see `Chosen`.
    """
    count, starts = len(random), i64(t.planes_from, t.agents + 1)
    totals, players = f64(t.total, t.planes), i64(t.player, t.planes)
    total, size, now, held, drawn = float64(0.0), t.capacity * t.envs, t.synced, 0, float64(0.0)
    for plane in range(starts[k], starts[k + 1]):
        total += totals[plane]
        held += i64(t.held, t.planes)[plane]
    least, aging = np.inf, f64(t.decay, t.agents)[k] > 0.0
    for i in range(count):
        point, plane = (i + random[i]) / count * total, starts[k]
        while plane < starts[k + 1] - 1 and (point >= totals[plane] or totals[plane] == 0.0):
            point -= totals[plane]
            plane += 1
        while totals[plane] == 0.0:
            plane -= 1
        leaf, player = found(t, plane, point), players[plane]
        share = float64(f32(t.leaf + 4 * plane * t.leaves, t.leaves)[leaf])
        slot, drawn = leaf // t.envs, drawn + share
        time = now - (now - slot) % t.capacity
        if aging:  # weights correct the priorities, not the age
            share /= age_factor(t, k, time)
        least = min(least, share)
        cells[i], weights[i] = player * size + leaf, float32(share)
        rows[i] = (time * t.players + player) * t.envs + leaf % t.envs
    beta = f64(t.beta, t.agents)[k]
    for i in range(count):
        weights[i] = float32((float64(weights[i]) / least) ** -beta)
    return min(1.0, total / held * count / drawn)


@compiled
def share_out(weights: Any, shares: Any) -> Any:
    """Write weights [B] scaled to a sum of 1; return their mean, or 1 if all are 0."""
    total, count = float64(0.0), 0
    for weight in weights:
        total += weight
        count += weight > 0.0
    for i in range(len(weights)):
        shares[i] = float32(weights[i] / total) if count else float32(0.0)
    return float32(total / count) if count else float32(1.0)


@compiled
def set_priorities(t: Any, k: int, rows: Any, errors: Any, admits: bool) -> bool:
    """Set the priorities of rows of agent k to their errors + epsilon; return whether all errors are finite.

    Rows that were overwritten, withdrawn or trimmed since they were drawn are left out.  rows: [B] int64, numbers as
    in `draw_rows`, or -1 for none.  errors: [B] float32, at least 0.
    admits: whether rows without a priority get one, too.
    """
    for error in errors:
        if not (error >= 0.0 and error < np.inf):
            return False
    planes, epsilon = i64(t.planes_from, t.agents + 1), f64(t.epsilon, t.agents)[k]
    players, largest = i64(t.player, t.planes), f64(t.largest, t.agents)
    first = i64(t.first, t.agents)[k]
    for i in range(len(rows)):
        if rows[i] < 0:
            continue
        env, at = rows[i] % t.envs, rows[i] // t.envs
        player, time = at % t.players, at // t.players
        if time <= t.synced - t.capacity:
            continue
        leaf, plane = time % t.capacity * t.envs + env, planes[k]
        while plane < planes[k + 1] - 1 and players[plane] != player:
            plane += 1
        known = f32(t.leaf + 4 * plane * t.leaves, t.leaves)[leaf] > 0.0
        if not known and (not admits or time < first):
            continue
        priority = float64(float32(errors[i] + epsilon))
        largest[k] = max(largest[k], priority)
        set_leaf(t, plane, leaf, priority, time)
        add_up(t, plane, leaf, leaf + 1)
    return True
