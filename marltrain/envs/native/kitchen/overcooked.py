"""Overcooked (Carroll et al. 2019), with the rules of JaxMARL 0.2.0 (Rutherford et al. 2023)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.layout import Array
from marltrain.envs.native.arguments import number, truth, whole
from marltrain.envs.native.bounds import COUNT
from marltrain.envs.native.chance import integer
from marltrain.envs.native.game import TERMINATED, Game
from marltrain.envs.native.kitchen.layouts import COUNTER, FLOOR, GOAL, ONIONS, PLATES, PLAYERS, POT, kitchen_of
from marltrain.envs.native.kitchen.text import kitchen_text
from marltrain.envs.native.kitchen.views import CHANNELS, EMPTY_POT, FULL_POT, HEADINGS, ONION, PLATE, SOUP, see
from marltrain.jit.compiling import inner

MOVES, INTERACT = 4, 5
"""Actions below MOVES are headings."""
DOWN = np.array([-1, 1, 0, 0])
RIGHT = np.array([0, 0, 1, -1])
DELIVERY = 20.0
"""Reward of both cooks for a soup."""
ONION_IN_POT, USEFUL_PLATE, SOUP_ON_PLATE = 3.0, 3.0, 5.0
"""Shaped rewards of the cook who does it."""


class Overcooked(Game):
    """Two cooks put three onions into a pot, wait until the soup is ready, and deliver it on a plate.

    Actions: up (0), down, right, left, stay, interact (5). A move turns the cook, and moves it if the place is free
    floor. Two cooks who want the same place stay, and so do cooks who want to swap places. `interact` is with the place
    ahead: take an onion, a plate, a thing on a counter, or a ready soup with a plate; put a thing on an empty counter,
    an onion into a pot, or deliver a soup. The first cook interacts first, and both before they move. A pot with three
    onions cooks for 20 env steps. Each delivery is a reward of 20 for both. An episode ends after `max_steps`, as in
    the original by a termination.

    soups: the field that counts the deliveries of the episode; `record=["soups"]` reports it.
    """

    name = "overcooked_v1"
    actions = ("up", "down", "right", "left", "stay", "interact")

    def __init__(
        self,
        layout: str = "cramped_room",
        random_reset: bool = False,
        max_steps: int = 400,
        shaping: float = 0.0,
        shaping_steps: int | None = None,
    ) -> None:
        """Declare the game with the original's arguments; `layout` is its name, or a drawing (see `kitchen_of`).

        random_reset: an episode begins with cooks at random places, with random things in their hands, and with random
            pots; otherwise only their headings are random.
        shaping: factor of the original's shaped rewards, which are added to those of training: 3 for an onion put into
            a pot, 3 for a plate that is taken while no plate lies on a counter and fewer plates are held than pots are
            not empty, 5 for a soup that is put on a plate. Tests, and objects for other libraries, are without them.
        shaping_steps: env steps of each environment of training within which the factor goes linearly from `shaping` to
            0; None: it is constant. An environment's share of the run's env steps is one in `num_train_envs`.

        Observations are the original's, float32 [rows, columns, 26]. The global state is that of the first cook, who
        sees everything. Raises ConfigError.
        """
        kitchen = kitchen_of(layout)
        rows, columns = kitchen.kinds.shape
        self._shaping = number("shaping", shaping, 0.0)
        seen = spaces.Box(0, 255, (rows, columns, CHANNELS), np.float32)
        super().__init__(
            {f"agent_{p}": (seen, spaces.Discrete(len(self.actions))) for p in range(PLAYERS)},
            fields={
                "place": (int, (PLAYERS, 2), (1, [rows - 2, columns - 2])),
                "heading": (int, PLAYERS, (0, HEADINGS - 1)), "held": (int, PLAYERS, (0, SOUP)),
                "thing": (np.int8, (rows, columns), (0, SOUP * (kitchen.kinds == COUNTER))),
                "pot": (np.int8, (rows, columns), (0, EMPTY_POT * (kitchen.kinds == POT))),
                "soups": (int, (), COUNT), "played": (int, (), COUNT),
            },
            rules={
                "kinds": kitchen.kinds, "starts": kitchen.starts, "floor": kitchen.places(FLOOR),
                "pots": kitchen.places(POT), "random": truth("random_reset", random_reset),
                "steps": whole("max_steps", max_steps), "shaping": 0.0,
                "shaping_steps": 0 if shaping_steps is None else whole("shaping_steps", shaping_steps),
            },
            state_size=rows * columns * CHANNELS,
        )  # fmt: skip

    def for_training(self) -> None:
        """Add the shaped rewards."""
        self.rules["shaping"] = self._shaping

    def sound(self, records: Array) -> Array:
        """Check that cooks stand on the floor, at different places."""
        place = records["place"]
        on_floor = self.rules[0]["kinds"][place[..., 0], place[..., 1]] == FLOOR
        return on_floor.all(-1) & (place[:, 0] != place[:, 1]).any(-1)

    def text(self, state: Mapping[str, Any], viewers: Collection[int] | None) -> str:
        """Return the kitchen, which all cooks see; see `kitchen_text`."""
        text = kitchen_text(state, self.rules["kinds"][0], [player.name for player in self.players])
        return f"{text}; {int(state['soups'])} delivered; step {int(state['steps'])} of {int(self.rules['steps'][0])}"

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Clear counters and pots, and put the cooks to their places."""
        s.soups = 0
        for row in range(s.thing.shape[0]):
            for column in range(s.thing.shape[1]):
                s.thing[row, column] = s.pot[row, column] = 0
        for i in range(len(rules.pots)):
            s.pot[rules.pots[i, 0], rules.pots[i, 1]] = integer(s, EMPTY_POT + 1) if rules.random else EMPTY_POT
        for p in range(PLAYERS):
            s.place[p, 0], s.place[p, 1] = rules.starts[p, 0], rules.starts[p, 1]
            s.heading[p] = integer(s, HEADINGS)
            s.held[p] = integer(s, SOUP + 1) if rules.random else 0
        if rules.random:
            first = integer(s, len(rules.floor))
            second = integer(s, len(rules.floor) - 1)
            second += second >= first
            s.place[0, 0], s.place[0, 1] = rules.floor[first, 0], rules.floor[first, 1]
            s.place[1, 0], s.place[1, 1] = rules.floor[second, 0], rules.floor[second, 1]

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Let the cooks interact, move and turn them, and cook."""
        delivered, factor = s.soups, shaping_factor(s, rules)
        for p in range(PLAYERS):
            if s.action[p] == INTERACT:
                s.reward[p] += factor * interact(s, rules, p)
        for p in range(PLAYERS):
            s.reward[p] += DELIVERY * (s.soups - delivered)
        move(s, rules)
        for i in range(len(rules.pots)):
            row, column = rules.pots[i, 0], rules.pots[i, 1]
            if 0 < s.pot[row, column] <= FULL_POT:
                s.pot[row, column] -= 1
        s.played += 1
        if s.steps >= rules.steps:
            s.over[:] = TERMINATED

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write the whole kitchen; the cook's own channels come first."""
        see(s, rules, p, obs)

    @staticmethod
    def state(s: Any, rules: Any, out: Any) -> None:
        """Write the observation of the first cook."""
        see(s, rules, 0, out)


@inner
def shaping_factor(s: Any, rules: Any) -> float:
    """Return the factor of shaped rewards in this env step."""
    if rules.shaping_steps == 0:
        return rules.shaping
    return rules.shaping * max(0.0, 1.0 - s.played / rules.shaping_steps)


@inner
def interact(s: Any, rules: Any, p: int) -> float:
    """Let cook p interact with the place ahead; return its shaped reward."""
    row, column = s.place[p, 0] + DOWN[s.heading[p]], s.place[p, 1] + RIGHT[s.heading[p]]
    kind, held = rules.kinds[row, column], s.held[p]
    if kind == POT:
        return use_pot(s, p, row, column)
    if kind == GOAL and held == SOUP:
        s.held[p] = 0
        s.soups += 1
    elif kind == ONIONS and held == 0:
        s.held[p] = ONION
    elif kind == PLATES and held == 0:
        useful = is_plate_useful(s, rules)
        s.held[p] = PLATE
        return USEFUL_PLATE * useful
    elif kind == COUNTER and (held == 0 or s.thing[row, column] == 0):
        s.held[p], s.thing[row, column] = s.thing[row, column], held  # a plate lay here: it is not rewarded
    return 0.0


@inner
def use_pot(s: Any, p: int, row: int, column: int) -> float:
    """Put cook p's onion into a pot, or its soup onto cook p's plate; return the shaped reward."""
    pot = s.pot[row, column]
    if pot > FULL_POT and s.held[p] == ONION:
        s.pot[row, column] = pot - 1
        s.held[p] = 0
        return ONION_IN_POT
    if pot == 0 and s.held[p] == PLATE:
        s.pot[row, column] = EMPTY_POT
        s.held[p] = SOUP
        return SOUP_ON_PLATE
    return 0.0


@inner
def is_plate_useful(s: Any, rules: Any) -> bool:
    """Return whether no plate lies on a counter, and fewer plates are held than pots are not empty."""
    left = 0
    for i in range(len(rules.pots)):
        left += s.pot[rules.pots[i, 0], rules.pots[i, 1]] != EMPTY_POT
    for p in range(PLAYERS):
        left -= s.held[p] == PLATE
    for row in range(s.thing.shape[0]):
        for column in range(s.thing.shape[1]):
            if s.thing[row, column] == PLATE:
                return False
    return left > 0


@inner
def move(s: Any, rules: Any) -> None:
    """Turn both cooks, and move those whose way is free."""
    row, column = ahead(s, rules, 0)
    other_row, other_column = ahead(s, rules, 1)
    same = row == other_row and column == other_column
    swap = (
        row == s.place[1, 0] and column == s.place[1, 1]
        and other_row == s.place[0, 0] and other_column == s.place[0, 1]
    )  # fmt: skip
    if not (same or swap):
        s.place[0, 0], s.place[0, 1] = row, column
        s.place[1, 0], s.place[1, 1] = other_row, other_column
    for p in range(PLAYERS):
        if s.action[p] < MOVES:
            s.heading[p] = s.action[p]


@inner
def ahead(s: Any, rules: Any, p: int) -> tuple[int, int]:
    """Return the place to which cook p's action leads if no other cook were there: row and column."""
    row, column, action = s.place[p, 0], s.place[p, 1], s.action[p]
    if action < MOVES and rules.kinds[row + DOWN[action], column + RIGHT[action]] == FLOOR:
        return row + DOWN[action], column + RIGHT[action]
    return row, column
