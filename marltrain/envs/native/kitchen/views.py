"""Observations of a kitchen: 26 numbers of each place."""

from __future__ import annotations

from typing import Any

from marltrain.envs.native.kitchen.layouts import COUNTER, FLOOR, GOAL, ONIONS, PLAYERS, POT
from marltrain.jit.compiling import inner

ONION, PLATE, SOUP = 1, 2, 3
"""Things that a cook holds or that lie on a counter; 0: nothing."""
EMPTY_POT, FULL_POT = 23, 20
"""State of a pot: 23 less its onions; from 20 on it counts the env steps down, until the soup is ready at 0."""
ONIONS_OF_A_SOUP = 3
URGENT = 40
"""Env steps before the end at which the last channel is set."""
CHANNELS = 26
HERE, HEADING = 0, 2
"""First channels of the player itself; those of the other one follow each."""
HEADINGS = 4
POTS, COUNTERS, ONION_PILES, PLATE_PILES, GOALS = 10, 11, 12, 14, 15
ONIONS_IN_POT, ONIONS_IN_SOUP, TIME_LEFT, READY, PLATE_HERE, ONION_HERE, URGENCY = 16, 18, 20, 21, 22, 23, 25
"""Channels of places. 13, 17, 19 and 24 are those of tomatoes, and 0."""


@inner
def see(s: Any, rules: Any, p: int, obs: Any) -> None:
    """Write the observation of cook p: CHANNELS numbers of each place, row by row."""
    for i in range(len(obs)):
        obs[i] = 0.0
    urgent = rules.steps - s.steps < URGENT
    at = 0
    for row in range(s.thing.shape[0]):
        for column in range(s.thing.shape[1]):
            kind = rules.kinds[row, column]
            if kind == COUNTER:
                if s.thing[row, column] == 0:
                    obs[at + COUNTERS] = 1.0
                else:
                    see_thing(s.thing[row, column], at, obs)
            elif kind == POT:
                see_pot(s.pot[row, column], at, obs)
            elif kind != FLOOR:
                obs[at + (ONION_PILES if kind == ONIONS else GOALS if kind == GOAL else PLATE_PILES)] = 1.0
            if urgent:
                obs[at + URGENCY] = 1.0
            at += CHANNELS
    for q in range(PLAYERS):
        at = CHANNELS * (s.place[q, 0] * s.thing.shape[1] + s.place[q, 1])
        other = 0 if q == p else 1
        obs[at + HERE + other] = 1.0
        obs[at + HEADING + HEADINGS * other + s.heading[q]] = 1.0
        see_thing(s.held[q], at, obs)


@inner
def see_pot(pot: int, at: int, obs: Any) -> None:
    """Write a pot's onions, or the soup in it and the time until it is ready."""
    obs[at + POTS] = 1.0
    if pot >= FULL_POT:
        obs[at + ONIONS_IN_POT] = EMPTY_POT - pot
        return
    obs[at + ONIONS_IN_SOUP] = ONIONS_OF_A_SOUP
    obs[at + TIME_LEFT] = pot
    if pot == 0:
        obs[at + READY] = 1.0


@inner
def see_thing(thing: int, at: int, obs: Any) -> None:
    """Write a thing that lies somewhere or that a cook holds."""
    if thing == ONION:
        obs[at + ONION_HERE] = 1.0
    elif thing == PLATE:
        obs[at + PLATE_HERE] = 1.0
    elif thing == SOUP:
        obs[at + ONIONS_IN_SOUP] = ONIONS_OF_A_SOUP
        obs[at + READY] = 1.0
