"""The batch loop around a game's rules: one env step of a range of environments, compiled separately for each game.

This file is a template. `compiling.program` executes a fresh copy and replaces the names below by a game's functions
and sizes before compilation. The functions are global names because numba does not cache functions that are passed as
arguments or closed over.

`address` is the address of a TABLE: one record with the addresses of all arrays of a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from marltrain.envs.native.chance import episode_seed, seed
from marltrain.envs.native.game import TERMINATED, TRUNCATED
from marltrain.jit.compiling import inner
from marltrain.jit.views import bools, f32, i64, record_at

# Placeholders, replaced for each game.
FIELDS = np.dtype([("steps", np.int64)])
FIELDS_SIZE = FIELDS.itemsize
RULES = np.dtype([("limit", np.int64)])
TABLE = np.dtype([("num_envs", np.int64)])
PLAYERS = 1
DISCRETE = True
CONCATENATED_STATE = False
reset: Callable[..., None] = print
step: Callable[..., None] = print
observe: Callable[..., None] = print
legal: Callable[..., None] = print
state: Callable[..., None] = print

STEP, RESET, BEGIN, PUBLISH, VIEW = range(5)
FINE = -1


@inner
def run(address: int, command: int, low: int, high: int, number: int) -> int:
    """Run one command in environments `low` to `high`; return FINE, or the index p * E + e of the first wrong action.

    STEP: take one env step.  RESET: start episode 0.  BEGIN: start an episode with seed `number`.
    PUBLISH: write the arrays that the next actions depend on.
    VIEW: write the current observation and legal actions of player `number`, with or without the turn, to
      `final_obs` and `final_legal`, and the global state to `final_state`.
    """
    t = record_at(address, TABLE)
    rules = record_at(t.rules, RULES)
    if command == STEP:
        wrong = wrong_action(t, low, high)
        if wrong != FINE:
            return wrong
    for e in range(low, high):
        s = record_at(t.records + e * FIELDS_SIZE, FIELDS)
        if command == STEP:
            advance(t, rules, s, e)
        elif command == RESET:
            s.episode = 0
            begin(rules, s, episode_seed(s, 0))
        elif command == BEGIN:
            begin(rules, s, number)
        if command == VIEW:
            write_view(t, rules, s, e, number)
            write_state(t, rules, s, e, t.final_state)
        else:
            publish(t, rules, s, e)
    return FINE


@inner
def begin(rules: Any, s: Any, number: int) -> None:
    """Start an episode with seed `number`. All players are present and must act, unless the game's `reset` differs."""
    seed(s, number)
    s.steps = 0
    for p in range(PLAYERS):
        s.turn[p] = s.present[p] = 1
        s.over[p] = 0
    reset(s, rules)


@inner
def advance(t: Any, rules: Any, s: Any, e: int) -> None:
    """Take one env step: read the actions, apply the rules, write the results; restart an environment that ended."""
    for p in range(PLAYERS):
        s.reward[p] = 0.0
        if s.turn[p]:
            take_action(t, s, p, e)
    s.steps += 1
    step(s, rules)
    if rules.limit > 0 and s.steps >= rules.limit:
        for p in range(PLAYERS):
            if s.present[p] and s.over[p] == 0:
                s.over[p] = TRUNCATED
    ended = write_results(t, rules, s, e)
    bools(t.ended, t.num_envs)[e] = ended
    if ended:
        write_state(t, rules, s, e, t.final_state)
        if t.restart:
            s.episode += 1
            begin(rules, s, episode_seed(s, s.episode))


@inner
def take_action(t: Any, s: Any, p: int, e: int) -> None:
    """Copy player p's action into the record."""
    if DISCRETE:
        s.action[p] = i64(t.action[p], t.num_envs)[e]
    else:
        chosen = f32(t.action[p] + 4 * e * t.choices[p], t.choices[p])
        for i in range(len(chosen)):
            s.action[p, i] = chosen[i]


@inner
def write_results(t: Any, rules: Any, s: Any, e: int) -> bool:
    """Write rewards, terminations, truncations and final observations; return whether the episode ended."""
    running = False
    for p in range(PLAYERS):
        over = s.over[p]
        f32(t.reward[p], t.num_envs)[e] = s.reward[p]
        bools(t.terminated[p], t.num_envs)[e] = over == TERMINATED
        bools(t.truncated[p], t.num_envs)[e] = over == TRUNCATED
        if over != 0:
            write_final(t, rules, s, e, p)
        elif s.present[p]:
            running = True
    for p in range(PLAYERS):
        if s.over[p] != 0:
            s.over[p] = s.present[p] = 0
            if running:
                s.turn[p] = 0  # at an episode's end turns keep the game's values: `legal` may read them
    return not running


@inner
def write_final(t: Any, rules: Any, s: Any, e: int, p: int) -> None:
    """Write player p's final observation and legal actions; if no action is legal, all are marked legal."""
    write_view(t, rules, s, e, p)
    if t.final_legal[p]:
        mask = bools(t.final_legal[p] + e * t.choices[p], t.choices[p])
        for allowed in mask:
            if allowed:
                return
        for i in range(len(mask)):
            mask[i] = True


@inner
def write_view(t: Any, rules: Any, s: Any, e: int, p: int) -> None:
    """Write player p's observation and legal actions to the final arrays."""
    observe(s, rules, p, f32(t.final_obs[p] + 4 * e * t.width[p], t.width[p]))
    if t.final_legal[p]:
        legal(s, rules, p, bools(t.final_legal[p] + e * t.choices[p], t.choices[p]))


@inner
def write_state(t: Any, rules: Any, s: Any, e: int, address: int) -> None:
    """Write the global state to row e of the array at `address`; 0 for no array."""
    if address:
        out = f32(address + 4 * e * t.state_size, t.state_size)
        if CONCATENATED_STATE:
            concatenate_observations(t, rules, s, out)
        else:
            state(s, rules, out)


@inner
def publish(t: Any, rules: Any, s: Any, e: int) -> None:
    """Write the arrays that the next actions depend on: turns, observations, legal actions, global state."""
    for p in range(PLAYERS):
        bools(t.turn[p], t.num_envs)[e] = s.turn[p] != 0
        bools(t.alive[p], t.num_envs)[e] = s.present[p] != 0
        if s.turn[p]:
            observe(s, rules, p, f32(t.obs[p] + 4 * e * t.width[p], t.width[p]))
            if t.legal[p]:
                legal(s, rules, p, bools(t.legal[p] + e * t.choices[p], t.choices[p]))
    i64(t.episode, t.num_envs)[e] = s.episode
    write_state(t, rules, s, e, t.state)


@inner
def wrong_action(t: Any, low: int, high: int) -> int:
    """Return the index p * E + e of an invalid action of a player that must act, or FINE."""
    for p in range(PLAYERS):
        turn = bools(t.turn[p], t.num_envs)
        for e in range(low, high):
            if turn[e] and not (is_legal(t, p, e) if DISCRETE else is_finite(t, p, e)):
                return p * t.num_envs + e
    return FINE


@inner
def is_legal(t: Any, p: int, e: int) -> bool:
    """Return whether a discrete action is in range and legal."""
    n, action = t.choices[p], i64(t.action[p], t.num_envs)[e]
    return 0 <= action < n and (t.legal[p] == 0 or bools(t.legal[p] + e * n, n)[action])


@inner
def is_finite(t: Any, p: int, e: int) -> bool:
    """Return whether all entries of a continuous action are finite."""
    finite = True
    for value in f32(t.action[p] + 4 * e * t.choices[p], t.choices[p]):
        finite = finite and np.isfinite(value)
    return finite


@inner
def concatenate_observations(t: Any, rules: Any, s: Any, out: Any) -> None:
    """Write the global state of a game without a `state` function: the concatenated observations of all players."""
    start = 0
    for p in range(PLAYERS):
        observe(s, rules, p, out[start : start + t.width[p]])
        start += t.width[p]


@inner
def no_state(s: Any, rules: Any, out: Any) -> None:
    """Replace `state` in a game without a global state."""


@inner
def no_mask(s: Any, rules: Any, p: int, mask: Any) -> None:
    """Replace `legal` in a game without action masks."""
