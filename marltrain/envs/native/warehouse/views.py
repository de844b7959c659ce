"""Observations of a robot: itself, and the places around it."""

from __future__ import annotations

from typing import Any

from marltrain.jit.compiling import inner

HEADINGS = 4
OWN = 4 + HEADINGS
"""Numbers about the robot itself: column, row, whether it carries a shelf, heading (one-hot), whether in an aisle."""
EACH = 3 + HEADINGS
"""Numbers about each place: a robot, its heading (one-hot), a shelf, whether the shelf is requested."""
ROBOT, HEADING, SHELF, REQUESTED = 0, 1, 1 + HEADINGS, 2 + HEADINGS


def view_size(sight: int) -> int:
    """Return the length of an observation with a range of `sight` places."""
    return OWN + EACH * (2 * sight + 1) ** 2


@inner
def see(s: Any, rules: Any, p: int, obs: Any) -> None:
    """Write the observation of robot p; the places are in the order of rows.

    As in the original, a place without a robot has the first heading.
    """
    row, column = s.place[p, 0], s.place[p, 1]
    obs[0], obs[1] = column / rules.scale[1], row / rules.scale[0]
    obs[2] = s.load[p] > 0
    for heading in range(HEADINGS):
        obs[3 + heading] = heading == s.heading[p]
    obs[3 + HEADINGS] = rules.aisle[row, column]
    see_shelves(s, row - rules.sight, column - rules.sight, 2 * rules.sight + 1, obs)
    see_robots(s, row - rules.sight, column - rules.sight, 2 * rules.sight + 1, obs)


@inner
def see_shelves(s: Any, top: int, left: int, width: int, obs: Any) -> None:
    """Write the shelves of a square of places, without robots."""
    at = OWN
    for row in range(top, top + width):
        for column in range(left, left + width):
            shelf = 0
            if 0 <= row < s.shelf.shape[0] and 0 <= column < s.shelf.shape[1]:
                shelf = s.shelf[row, column]
            for i in range(EACH):
                obs[at + i] = 0.0
            obs[at + HEADING] = 1.0
            if shelf > 0:
                obs[at + SHELF] = 1.0
                obs[at + REQUESTED] = s.requested[shelf - 1]
            at += EACH


@inner
def see_robots(s: Any, top: int, left: int, width: int, obs: Any) -> None:
    """Write the robots in a square of places over it."""
    for q in range(len(s.place)):
        row, column = s.place[q, 0] - top, s.place[q, 1] - left
        if 0 <= row < width and 0 <= column < width:
            at = OWN + EACH * (row * width + column)
            obs[at + ROBOT] = 1.0
            obs[at + HEADING] = 0.0
            obs[at + HEADING + s.heading[q]] = 1.0
