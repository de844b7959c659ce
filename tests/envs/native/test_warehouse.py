"""The warehouse against rware's."""

from types import SimpleNamespace
from typing import Any

import gymnasium
import networkx
import numpy as np
import pytest
import rware.warehouse
from gymnasium import spaces
from rware.warehouse import Direction, RewardType, Warehouse as Theirs

from marltrain.core.errors import ConfigError
from marltrain.envs import make_vector
from marltrain.envs.native.vector import NativeVectorEnv
from marltrain.envs.native.warehouse.rware import Warehouse
from tests.envs.driving import act
from tests.envs.native.forging import CASES
from tests.envs.native.originals import assert_same_starts, hold
from tests.tiers import LONG, rounds

NAME = "marltrain/rware_v2"
SMALL = {
    "shelf_columns": 3, "column_height": 2, "shelf_rows": 2, "n_agents": 3, "sensor_range": 1,
    "request_queue_size": 3, "max_inactivity_steps": None, "max_steps": 60, "reward_type": RewardType.INDIVIDUAL,
}  # fmt: skip
"""Arguments that the original has no defaults for, but for the bits of messages."""
CROWDED = {**SMALL, **CASES["crowded"][1]}
"""Few places, so that robots often deliver, and stand in each other's way."""


class Drawing:
    """A generator that notes the index of each choice of one."""

    def __init__(self, rng, drawn):
        self._rng, self._drawn = rng, drawn

    def choice(self, items):
        chosen = self._rng.choice(items)
        self._drawn.append(items.index(chosen))
        return chosen


class Original(Theirs):
    """The original, with the joined observations as its state.

    drawn: the shelves that the last step has requested, each as its index among those that were not requested.
    """

    def __init__(self, **arguments):
        super().__init__(msg_bits=0, **arguments)
        size = sum(space.shape[0] for space in self.observation_space)
        self.state_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.drawn: list[int] = []

    def reset(self, seed=None, options=None):
        self._seen, info = super().reset(seed=seed, options=options)
        return self._seen, info

    def step(self, actions):
        rng, self.drawn = self.np_random, []
        self._np_random: Any = Drawing(rng, self.drawn)
        self._seen, *rest = super().step(actions)
        self._np_random = rng
        return self._seen, *rest

    def state(self):
        return np.concatenate(self._seen)


class InOrder(networkx.DiGraph):
    """A graph whose parts have the order of the graph; that of networkx's small parts is a set's of Python."""

    def subgraph(self, nodes):
        part = networkx.DiGraph()
        part.add_nodes_from(node for node in self if node in nodes)
        part.add_edges_from(edge for edge in self.edges if edge[0] in nodes)
        return part


def now(env):
    """The fields of the native game with the original's values."""
    carried = [robot.carrying_shelf for robot in env.agents]
    return {
        "shelf": env.grid[1],
        "requested": [shelf in env.request_queue for shelf in env.shelfs],
        "place": [(robot.y, robot.x) for robot in env.agents],
        "heading": [robot.dir.value for robot in env.agents],
        "load": [0 if shelf is None else shelf.id for shelf in carried],
        "delivered": [robot.has_delivered for robot in env.agents],
        "idle": env._cur_inactive_steps,
    }


def drawn(env):
    return env.drawn


class Busy:
    """Robots that mostly go forward or toggle their load.

    earned: the sum of all rewards.
    """

    def __init__(self):
        self.earned = 0.0

    def __call__(self, spec, step, rng):
        self.earned += step.reward.sum()
        return (rng.choice(5, (len(spec.names), 1), p=[0.02, 0.5, 0.15, 0.15, 0.18]),)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"reward_type": RewardType.GLOBAL, "request_queue_size": 1},
        {"reward_type": RewardType.TWO_STAGE, "sensor_range": 2, "request_queue_size": 11},
        {"max_inactivity_steps": 7, "max_steps": None, "normalised_coordinates": True},
    ],
)
@pytest.mark.filterwarnings("ignore:.*precision lowered")  # the original's, with coordinates from 0 to 1
def test_rware(changed):
    arguments = {**SMALL, **changed}
    hold(Original, NAME, now, arguments, episodes=rounds(5, 50), drawn=drawn)
    assert hold(Original, NAME, now, arguments, episodes=rounds(15, 200), choose=Busy(), drawn=drawn) > 0


@pytest.mark.parametrize("reward_type", RewardType if LONG else [RewardType.INDIVIDUAL])
def test_deliveries(reward_type):
    players = Busy()
    arguments = {**CROWDED, "n_agents": 3, "reward_type": reward_type}
    hold(Original, NAME, now, arguments, episodes=rounds(20, 300), choose=players, drawn=drawn)
    assert players.earned > rounds(5, 75)


def test_eight_robots(monkeypatch):
    """With the original's choice among equal queues, where networkx's is by the hashes of places."""
    graphs: dict[str, Any] = {name: getattr(networkx, name) for name in ("algorithms", "weakly_connected_components")}
    monkeypatch.setattr(
        rware.warehouse, "nx", SimpleNamespace(**graphs, DiGraph=InOrder, NetworkXNoCycle=networkx.NetworkXNoCycle)
    )
    players = Busy()
    hold(Original, NAME, now, CROWDED, episodes=rounds(20, 300), choose=players, drawn=drawn)
    assert players.earned > rounds(5, 75)


@pytest.mark.parametrize(
    ("size", "shape"), [("tiny", (11, 10)), ("small", (20, 10)), ("medium", (20, 16)), ("large", (29, 16))]
)
@pytest.mark.parametrize(
    ("difficulty", "suffix", "count"), [("easy", "-easy", 6), ("normal", "", 3), ("hard", "-hard", 1)]
)
def test_registered_names(size, shape, difficulty, suffix, count):
    original: Any = gymnasium.make(f"rware-{size}-3ag{suffix}-v2").unwrapped
    original.reset(seed=0)
    game = Warehouse(n_agents=3, size=size, difficulty=difficulty)
    rules = game.rules[0]
    assert rules["aisle"].shape == shape and (rules["aisle"] == original.highways).all()
    assert [(x, y) for y, x in rules["goals"].tolist()] == original.goals
    assert all(rules["homes"][shelf.y, shelf.x] == shelf.id for shelf in original.shelfs)
    assert (rules["queue"], rules["steps"], rules["idle"]) == (count, 500, 0) and count == len(original.request_queue)
    assert [player.observation_space for player in game.players] == list(original.observation_space)


def test_starts():
    assert_same_starts(Original, NAME, {**SMALL, "max_steps": 5}, count=rounds(800, 2000))


def moved(robots, actions):
    """The places after one step; robots: row, column, heading and load of each.  actions: a letter for each."""
    vector = NativeVectorEnv(NAME, 1, {"layout": PLAIN, "n_agents": 8, "request_queue_size": 1})
    vector.reset(0)
    everybody = [*robots, *STANDING[: 8 - len(robots)]]
    place, heading, load = ([robot[of] for robot in everybody] for of in (slice(0, 2), 2, 3))
    vector.batch.set_state(0, {"place": place, "heading": heading, "load": load})
    vector.step(
        act(vector.spec, 1, **{f"player_{p}": LETTERS.index(letter) for p, letter in enumerate(actions.ljust(8, "."))})
    )
    return [tuple(where) for where in vector.batch.get_state(0)["place"].tolist()[: len(robots)]]


def moved_there(robots, actions):
    """The places after one step of the original."""
    env = Original(**{**SMALL, "layout": PLAIN, "n_agents": len(robots), "request_queue_size": 1})
    env.reset(seed=0)
    for own, (row, column, heading, load) in zip(env.agents, robots, strict=True):
        own.y, own.x, own.dir = row, column, Direction(heading)
        own.carrying_shelf = env.shelfs[load - 1] if load else None
    env._recalc_grid()
    env.step([LETTERS.index(letter) for letter in actions])
    return [(own.y, own.x) for own in env.agents]


LETTERS = ".flrt"
PLAIN = ".....x\n.....x\nxx.ggx"
"""A warehouse of the size of CROWDED, with the same number of robots: one program."""
U, D, L, R = range(4)
STANDING = [(0, 5, R, 0), (1, 5, R, 0), (2, 5, R, 0), (2, 4, D, 0), (1, 4, R, 0)]
"""Robots that stay out of the way."""


@pytest.mark.parametrize(
    ("robots", "actions", "after"),
    [
        ([(0, 0, R, 0), (0, 1, R, 0), (1, 2, U, 0)], "fff", [(0, 1), (0, 2), (1, 2)]),  # the longer queue goes first
        ([(0, 1, R, 0), (0, 3, L, 0), (1, 2, U, 0)], "fff", [(0, 2), (0, 3), (1, 2)]),  # equal: the first robot
        ([(0, 3, L, 0), (1, 2, U, 0), (1, 3, U, 0)], "fff", [(0, 2), (1, 2), (0, 3)]),  # a queue of two
        ([(0, 0, R, 0), (0, 1, L, 0), (0, 2, L, 0)], "fff", [(0, 0), (0, 1), (0, 2)]),  # two face each other
        ([(0, 0, R, 0), (0, 1, R, 0), (0, 2, D, 0)], "ff.", [(0, 0), (0, 1), (0, 2)]),  # one stays
        ([(0, 0, U, 0), (1, 0, U, 0), (1, 1, L, 0)], "fff", [(0, 0), (1, 0), (1, 1)]),  # a wall
        ([(2, 0, R, 3), (1, 1, D, 0), (0, 0, D, 0)], "fff", [(2, 0), (2, 1), (1, 0)]),  # no shelf goes below a shelf
        ([(2, 0, R, 3), (2, 1, R, 4), (0, 0, D, 0)], "fff", [(2, 1), (2, 2), (1, 0)]),  # it follows a shelf that leaves
        ([(2, 0, R, 3), (2, 1, R, 0), (0, 0, D, 0)], "fff", [(2, 0), (2, 2), (1, 0)]),
    ],
)  # fmt: skip
def test_traffic_by_hand(robots, actions, after):
    assert moved(robots, actions) == moved_there(robots, actions) == after


CIRCLE = [(0, 0, R, 0), (0, 1, D, 0), (1, 1, L, 0), (1, 0, U, 0)]
LINE = [(0, 0, R, 0), (0, 3, L, 0), (0, 1, R, 0), (0, 4, L, 0)]


@pytest.mark.parametrize(
    ("robots", "actions", "after"),
    [
        (CIRCLE, "ffff", [(0, 1), (1, 1), (1, 0), (0, 0)]),
        (CIRCLE, "fff.", [(0, 0), (0, 1), (1, 1), (1, 0)]),
        (
            LINE,
            "ffff",
            [(0, 1), (0, 3), (0, 2), (0, 4)],
        ),  # equal queues: that of the first robot, which does not lead it
    ],
)
def test_four_robots_by_hand(robots, actions, after):
    assert moved(robots, actions) == moved_there(robots, actions) == after


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"size": "huge"}, "size must be one of tiny, small, medium, large, got 'huge'"),
        ({"difficulty": 2}, "difficulty must be one of easy, normal, hard, got 2"),
        ({"difficulty": "hard", "n_agents": 1}, "request_queue_size must be a whole number from 1 to 31, got 0"),
        ({"shelf_columns": 2}, "shelf_columns must be odd, got 2"),
        ({"shelf_columns": 1}, "a warehouse must have at least 2 shelves, got 0"),
        ({"n_agents": 111}, "n_agents must be a whole number from 1 to 110, got 111"),
        ({"reward_type": "shared"}, "reward_type must be one of global, individual, two_stage, got 'shared'"),
        ({"layout": "xx.\nxx"}, r"rows of equal length of x \(shelf\), g \(goal\) and . \(aisle\), got"),
        ({"layout": "xx\n.."}, r"layout must have a goal \(g\)"),
        ({"layout": ["xg"]}, "layout must be a text"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(arguments, said):
    with pytest.raises(ConfigError, match=said):
        make_vector(NAME, arguments, 1)
