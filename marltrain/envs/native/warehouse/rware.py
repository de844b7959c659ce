"""The multi-robot warehouse (Papoudakis et al. 2021), with the rules of rware 2.0."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import ConfigError, shown
from marltrain.core.layout import Array
from marltrain.envs.native.arguments import truth, whole
from marltrain.envs.native.bounds import COUNT
from marltrain.envs.native.chance import integer
from marltrain.envs.native.game import TERMINATED, Game
from marltrain.envs.native.warehouse.plans import REQUESTS, plan_of
from marltrain.envs.native.warehouse.text import warehouse_text
from marltrain.envs.native.warehouse.traffic import FREE, plan_moves, robot_at
from marltrain.envs.native.warehouse.views import HEADINGS, see, view_size
from marltrain.jit.compiling import inner

LEFT, TURN_RIGHT, TOGGLE = 2, 3, 4
LEFT_OF = np.array([2, 3, 1, 0])
RIGHT_OF = np.array([3, 2, 0, 1])
"""Headings (up, down, left, right) after a turn."""
REWARDS = ("global", "individual", "two_stage")
GLOBAL, INDIVIDUAL, TWO_STAGE = range(3)
HALF = 0.5
"""Each of the two rewards with two stages."""
OUTSIDE = -1
"""Row and column of a robot that has no place yet."""


class Warehouse(Game):
    """Robots bring requested shelves to a goal and put them down at a free place; each delivery requests another shelf.

    Actions: stay (0), forward, turn left, turn right, toggle the load (4): lift the shelf at the robot's place, or put
    it down outside of the aisles. Robots without a shelf pass below shelves. An episode ends after `max_steps`, as in
    the original by a termination.
    """

    name = "rware_v2"
    actions = ("stay", "forward", "left", "right", "toggle_load")

    def __init__(
        self,
        n_agents: int = 2,
        size: str = "tiny",
        difficulty: str = "normal",
        shelf_rows: int | None = None,
        shelf_columns: int | None = None,
        column_height: int = 8,
        request_queue_size: int | None = None,
        sensor_range: int = 1,
        reward_type: Any = "individual",
        max_steps: int | None = 500,
        max_inactivity_steps: int | None = None,
        layout: str | None = None,
        normalised_coordinates: bool = False,
    ) -> None:
        """Declare the game with the names that the original registers, or with its own arguments.

        size: "tiny", "small", "medium" or "large": the default of `shelf_rows` and `shelf_columns`.
        difficulty: "easy", "normal" or "hard": twice as many requested shelves as robots, as many, or half as many,
            rounded down; the default of `request_queue_size`.
        shelf_rows, shelf_columns, column_height: blocks of shelves below and beside each other (an odd number), and
            their length in places.
        sensor_range: places that a robot sees in each direction.
        reward_type: of a delivery, "individual": 1 for the robot; "global": 1 for all robots; "two_stage": 0.5 for the
            robot, and again when it puts a delivered shelf down. A member of the original's `RewardType` does, too.
        max_steps: env steps of an episode; None for no end.
        max_inactivity_steps: env steps without a delivery that end an episode; None for any number.
        layout: the warehouse as text, a line for each row: x for a shelf, g for a goal, a point for an aisle. It
            replaces the sizes.
        normalised_coordinates: a robot's place in its observation is from 0 to 1.

        The global state is the concatenation of all observations. Raises ConfigError.
        """
        plan = plan_of(size, shelf_rows, shelf_columns, column_height, layout)
        rows, columns = plan.aisle.shape
        robots, sight = whole("n_agents", n_agents, 1, rows * columns), whole("sensor_range", sensor_range)
        scaled = truth("normalised_coordinates", normalised_coordinates)
        scale = [float(max(side - 1, 1)) if scaled else 1.0 for side in (rows, columns)]
        seen = spaces.Box(-np.inf, np.inf, (view_size(sight),), np.float32)
        field = (0, [rows - 1, columns - 1])
        super().__init__(
            {f"player_{p}": (seen, spaces.Discrete(len(self.actions))) for p in range(robots)},
            fields={
                "shelf": (np.int32, (rows, columns), (0, plan.shelves)), "requested": (bool, plan.shelves),
                "place": (int, (robots, 2), field), "heading": (int, robots, (0, HEADINGS - 1)),
                "load": (int, robots, (0, plan.shelves)), "delivered": (bool, robots), "idle": (int, (), COUNT),
                "target": (int, (robots, 2), field), "ahead": (int, robots, (FREE, robots - 1)),
                "chain": (int, robots, (0, robots)), "moves": (bool, robots),
            },
            rules={
                "homes": plan.homes, "aisle": plan.aisle, "goals": plan.goals, "scale": scale,
                "queue": queue_of(request_queue_size, difficulty, robots, plan.shelves), "sight": sight,
                "reward": REWARDS.index(reward_name(reward_type)),
                "steps": 0 if max_steps is None else whole("max_steps", max_steps),
                "idle": 0 if max_inactivity_steps is None else whole("max_inactivity_steps", max_inactivity_steps),
            },
            state_size=robots * view_size(sight),
        )  # fmt: skip

    def sound(self, records: Array) -> Array:
        """Check that robots are apart, that each shelf is at one place, and that shelves in aisles are carried."""
        rules = self.rules[0]
        shelf, count = records["shelf"].reshape(len(records), -1), rules["homes"].max()
        place = records["place"][..., 0] * rules["homes"].shape[1] + records["place"][..., 1]
        load, aisle = records["load"], rules["aisle"].reshape(-1) == 1
        every = np.concatenate([np.zeros(shelf.shape[1] - count, int), np.arange(1, count + 1)])
        held = (load == 0) | (np.take_along_axis(shelf, place, 1) == load)
        in_aisles = ((shelf > 0) & aisle).sum(-1) == ((load > 0) & aisle[place]).sum(-1)
        apart = (np.diff(np.sort(place)) > 0).all(-1)
        requests = records["requested"].sum(-1) == rules["queue"]
        return held.all(-1) & in_aisles & apart & requests & (np.sort(shelf) == every).all(-1)

    def text(self, state: Mapping[str, Any], viewers: Collection[int] | None) -> str:
        """Return the whole warehouse, also what is out of the viewers' sight; see `warehouse_text`."""
        steps, limit = int(state["steps"]), int(self.rules["steps"][0])
        text = warehouse_text(state, self.rules["goals"][0], [player.name for player in self.players])
        return f"{text}; step {steps} of {limit}" if limit else f"{text}; step {steps}"

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Put all shelves to their places, and robots to random ones; request random shelves."""
        for row in range(s.shelf.shape[0]):
            for column in range(s.shelf.shape[1]):
                s.shelf[row, column] = rules.homes[row, column]
        s.place[:, :] = OUTSIDE
        s.idle = 0
        for p in range(len(s.place)):
            row, column = integer(s, s.shelf.shape[0]), integer(s, s.shelf.shape[1])
            while robot_at(s, row, column) != FREE:
                row, column = integer(s, s.shelf.shape[0]), integer(s, s.shelf.shape[1])
            s.place[p, 0], s.place[p, 1] = row, column
            s.heading[p] = integer(s, HEADINGS)
            s.load[p] = s.delivered[p] = 0
        s.requested[:] = 0
        for i in range(rules.queue):
            request(s, integer(s, len(s.requested) - i))

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Move and turn robots, lift or put down shelves, count deliveries; end the episode at a limit."""
        plan_moves(s)
        move(s)
        for p in range(len(s.place)):
            if s.action[p] == LEFT:
                s.heading[p] = LEFT_OF[s.heading[p]]
            elif s.action[p] == TURN_RIGHT:
                s.heading[p] = RIGHT_OF[s.heading[p]]
            elif s.action[p] == TOGGLE:
                toggle(s, rules, p)
        s.idle += 1
        for g in range(len(rules.goals)):
            deliver(s, rules, rules.goals[g, 0], rules.goals[g, 1])
        if 0 < rules.steps <= s.steps or 0 < rules.idle <= s.idle:
            s.over[:] = TERMINATED

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write the robot itself, and the robots and shelves around it."""
        see(s, rules, p, obs)


@inner
def move(s: Any) -> None:
    """Move the robots that go forward, with their shelves."""
    for p in range(len(s.place)):
        if s.moves[p] and s.load[p] > 0:
            s.shelf[s.place[p, 0], s.place[p, 1]] = 0
    for p in range(len(s.place)):
        if s.moves[p]:
            s.place[p, 0], s.place[p, 1] = s.target[p, 0], s.target[p, 1]
            if s.load[p] > 0:
                s.shelf[s.place[p, 0], s.place[p, 1]] = s.load[p]


@inner
def toggle(s: Any, rules: Any, p: int) -> None:
    """Lift the shelf at robot p's place, or put its shelf down if it is not in an aisle."""
    if s.load[p] == 0:
        s.load[p] = s.shelf[s.place[p, 0], s.place[p, 1]]
    elif not rules.aisle[s.place[p, 0], s.place[p, 1]]:
        s.load[p] = 0
        if s.delivered[p]:
            s.reward[p] += HALF
        s.delivered[p] = 0


@inner
def deliver(s: Any, rules: Any, row: int, column: int) -> None:
    """Count a requested shelf at a goal, and request another one in its place."""
    shelf = s.shelf[row, column]
    if shelf == 0 or not s.requested[shelf - 1]:
        return
    s.idle = 0
    request(s, integer(s, len(s.requested) - rules.queue))
    s.requested[shelf - 1] = 0
    if rules.reward == GLOBAL:
        for p in range(len(s.place)):
            s.reward[p] += 1.0
        return
    p = robot_at(s, row, column)
    if rules.reward == TWO_STAGE:
        s.delivered[p] = 1
        s.reward[p] += HALF
    else:
        s.reward[p] += 1.0


@inner
def request(s: Any, k: int) -> None:
    """Request the shelf number k of those that are not requested, counted from 0."""
    for shelf in range(len(s.requested)):
        if not s.requested[shelf]:
            if k == 0:
                s.requested[shelf] = 1
                return
            k -= 1


def queue_of(given: Any, difficulty: Any, robots: int, shelves: int) -> int:
    """Return the number of requested shelves; raises ConfigError unless one is requested and one is not."""
    if difficulty not in REQUESTS:
        raise ConfigError(f"difficulty must be one of {', '.join(REQUESTS)}, got {shown(difficulty)}")
    if shelves < 2:
        raise ConfigError(f"a warehouse must have at least 2 shelves, got {shelves}")
    wanted = int(robots * REQUESTS[difficulty]) if given is None else given
    return whole("request_queue_size", wanted, 1, shelves - 1)


def reward_name(given: Any) -> str:
    """Return an entry of REWARDS from its name, or from a member of the original's enumeration; raises ConfigError."""
    name = str(getattr(given, "name", given)).lower()
    if name not in REWARDS:
        raise ConfigError(f"reward_type must be one of {', '.join(REWARDS)}, got {shown(given)}")
    return name
