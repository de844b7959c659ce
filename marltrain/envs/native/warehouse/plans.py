"""Plans of a warehouse: places of shelves, aisles and goals, from a registered size or from a drawing."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from marltrain.core.errors import ConfigError, shown
from marltrain.core.layout import Array
from marltrain.envs.native.arguments import whole

SIZES = {"tiny": (1, 3), "small": (2, 3), "medium": (2, 5), "large": (3, 5)}
"""Registered size -> rows and columns of blocks of shelves."""
REQUESTS = {"easy": 2.0, "normal": 1.0, "hard": 0.5}
"""Registered difficulty -> requested shelves per robot."""
_SHELF, _AISLE, _GOAL = "x", ".", "g"


class Plan(NamedTuple):
    """Places of a warehouse.

    aisle: [rows, columns] bool: places on which no shelf may stand, goals included.
    goals: [G, 2], row and column, in the order in which deliveries are counted.
    """

    aisle: Array
    goals: Array

    @property
    def homes(self) -> Array:
        """The shelves at the start of an episode, [rows, columns]: numbers from 1 on, row by row; 0 for none."""
        standing = ~self.aisle
        return np.where(standing, np.cumsum(standing).reshape(standing.shape), 0)

    @property
    def shelves(self) -> int:
        """The number of shelves."""
        return int((~self.aisle).sum())


def plan_of(size: Any, shelf_rows: Any, shelf_columns: Any, column_height: Any, layout: Any) -> Plan:
    """Return the plan that a game's arguments describe; raises ConfigError for impossible ones."""
    if layout is not None:
        return drawn_plan(layout)
    if size not in SIZES:
        raise ConfigError(f"size must be one of {', '.join(SIZES)}, got {shown(size)}")
    rows, columns = SIZES[size]
    blocks = whole("shelf_rows", rows if shelf_rows is None else shelf_rows)
    across = whole("shelf_columns", columns if shelf_columns is None else shelf_columns)
    if across % 2 == 0:
        raise ConfigError(f"shelf_columns must be odd, got {across}")
    return block_plan(blocks, across, whole("column_height", column_height))


def block_plan(blocks: int, across: int, height: int) -> Plan:
    """Return a plan with blocks of shelves, each 2 places wide and `height` places long, and two goals below them.

    The last block of the middle column is left out, so that robots can queue for the goals.
    """
    rows, columns = (height + 1) * blocks + 2, 3 * across + 1
    row, column = np.indices((rows, columns))
    middle = (column == columns // 2 - 1) | (column == columns // 2)
    aisle = (column % 3 == 0) | (row % (height + 1) == 0) | (row == rows - 1) | (middle & (row > rows - height - 3))
    return Plan(aisle, np.array([[rows - 1, columns // 2 - 1], [rows - 1, columns // 2]]))


def drawn_plan(layout: Any) -> Plan:
    """Return the plan of a text with a line for each row: x for a shelf, g for a goal, a point for an aisle."""
    if not isinstance(layout, str):
        raise ConfigError(f"layout must be a text with a line for each row of the warehouse, got {shown(layout)}")
    lines = layout.strip().replace(" ", "").lower().split("\n")
    if {len(line) for line in lines} != {len(lines[0])} or set("".join(lines)) - {_SHELF, _AISLE, _GOAL}:
        raise ConfigError(
            f"layout must have rows of equal length of {_SHELF} (shelf), {_GOAL} (goal) and {_AISLE} (aisle), "
            f"got {shown(lines)}"
        )
    signs = np.array([list(line) for line in lines])
    goals = np.argwhere(signs == _GOAL)
    if not len(goals):
        raise ConfigError(f"layout must have a goal ({_GOAL}), got {shown(lines)}")
    return Plan(signs != _SHELF, goals)
