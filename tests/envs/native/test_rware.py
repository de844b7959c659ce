"""The warehouse against rware's."""

from types import SimpleNamespace
from typing import Any

import gymnasium
import networkx
import numpy as np
import pytest
import rware.warehouse
from gymnasium import spaces
from rware.warehouse import RewardType, Warehouse as Theirs

from marltrain.core.errors import ConfigError
from marltrain.envs import make_vector
from marltrain.envs.native.catalog import find
from marltrain.envs.native.vector import NativeVectorEnv
from tests.envs.driving import act
from tests.envs.native.originals import assert_same_starts, hold
from tests.tiers import rounds

NAME = "marltrain/rware_v2"
STAY, FORWARD, LEFT, RIGHT, TOGGLE = range(5)
UP, DOWN, TO_LEFT, TO_RIGHT = range(4)
SMALL = {
    "shelf_columns": 3, "column_height": 2, "shelf_rows": 2, "n_agents": 3, "sensor_range": 1,
    "request_queue_size": 3, "max_inactivity_steps": None, "max_steps": 60, "reward_type": RewardType.INDIVIDUAL,
}  # fmt: skip
"""Arguments that the original has no defaults for, but for the bits of messages."""
CROWDED = """
    .x.x..
    x....x
    .gx.g.
"""


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


@pytest.mark.parametrize("reward_type", RewardType)
def test_deliveries(reward_type):
    """In a warehouse of few places, in which robots often stand at a goal, and in each other's way."""
    players = Busy()
    arguments = {**SMALL, "layout": CROWDED, "reward_type": reward_type}
    hold(Original, NAME, now, arguments, episodes=rounds(20, 300), choose=players, drawn=drawn)
    assert players.earned > rounds(5, 75)


def test_eight_robots(monkeypatch):
    """With the original's choice among equal queues, where networkx's is by the hashes of places."""
    graphs: dict[str, Any] = {name: getattr(networkx, name) for name in ("algorithms", "weakly_connected_components")}
    monkeypatch.setattr(
        rware.warehouse, "nx", SimpleNamespace(**graphs, DiGraph=InOrder, NetworkXNoCycle=networkx.NetworkXNoCycle)
    )
    players = Busy()
    arguments = {**SMALL, "layout": CROWDED, "n_agents": 8}
    hold(Original, NAME, now, arguments, episodes=rounds(20, 300), choose=players, drawn=drawn)
    assert players.earned > rounds(5, 75)


@pytest.mark.parametrize(
    ("size", "shape"), [("tiny", (11, 10)), ("small", (20, 10)), ("medium", (20, 16)), ("large", (29, 16))]
)
@pytest.mark.parametrize(
    ("difficulty", "suffix", "count"), [("easy", "-easy", 6), ("normal", "", 3), ("hard", "-hard", 1)]
)
def test_registered_names(size, shape, difficulty, suffix, count):
    original = gymnasium.make(f"rware-{size}-3ag{suffix}-v2").unwrapped
    original.reset(seed=0)
    game = find("rware_v2")(n_agents=3, size=size, difficulty=difficulty)
    rules = game.rules[0]
    assert rules["aisle"].shape == shape and (rules["aisle"] == original.highways).all()
    assert [(x, y) for y, x in rules["goals"].tolist()] == original.goals
    assert all(rules["homes"][shelf.y, shelf.x] == shelf.id for shelf in original.shelfs)
    assert (rules["queue"], rules["steps"], rules["idle"]) == (count, 500, 0) and count == len(original.request_queue)
    assert [player.observation_space for player in game.players] == list(original.observation_space)


def test_starts():
    assert_same_starts(Original, NAME, {**SMALL, "max_steps": 5}, count=rounds(800, 2000))


def started(layout, robots, actions, loads=(), **changed):
    """Robots as (row, column, heading) in a drawn warehouse, and one step; the places and headings after it."""
    vector = NativeVectorEnv(NAME, 1, {"layout": layout, "n_agents": len(robots), "request_queue_size": 1, **changed})
    vector.reset(0)
    vector.batch.set_state(0, {
        "place": [robot[:2] for robot in robots], "heading": [robot[2] for robot in robots],
        "load": loads or [0] * len(robots), "requested": [True] + [False] * (len(vector.batch.game.bounds["requested"][0]) - 1),
    })  # fmt: skip
    vector.step(act(vector.spec, 1, **{f"player_{p}": action for p, action in enumerate(actions)}))
    after = vector.batch.get_state(0)
    return [
        (*place, heading) for place, heading in zip(after["place"].tolist(), after["heading"].tolist(), strict=True)
    ]
