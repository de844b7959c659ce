"""Level-based foraging against lbforaging's."""

import numpy as np
import pytest
from gymnasium import spaces
from lbforaging.foraging import ForagingEnv
from pettingzoo import ParallelEnv

from marltrain.core.errors import ConfigError
from marltrain.envs import make_vector
from marltrain.envs.native.vector import NativeVectorEnv
from tests.envs.driving import act, column
from tests.envs.native.forging import CASES, SMALL_FIELD
from tests.envs.native.originals import assert_same_starts, hold
from tests.tiers import rounds

NAME = "marltrain/foraging_v3"
SMALL = {
    **SMALL_FIELD,
    "min_player_level": 1,
    "max_player_level": 2,
    "min_food_level": 1,
    "max_food_level": None,
    "max_episode_steps": 25,
    "force_coop": False,
}
"""All arguments that the original has no defaults for."""


class Mended(ForagingEnv):
    """The original gives its pictures a space whose shape Gymnasium refuses."""

    def _get_observation_space(self):
        if not self._grid_observation:
            return super()._get_observation_space()
        player, food = max(self.max_player_level), sum(sorted(self.max_player_level)[:3])
        top = np.array([player if self._observe_agent_levels else 1, food, 1], np.float32)
        high = np.ones((3, 2 * self.sight + 1, 2 * self.sight + 1), np.float32) * top[:, None, None]
        return spaces.Box(np.zeros_like(high), high)


class OriginalEnv(ParallelEnv):
    """The original as a ParallelEnv, fresh in every episode: what was where before keeps places from being used."""

    def __init__(self, **arguments):
        self.metadata = {"name": "foraging"}
        self._arguments = arguments
        self.field = Mended(**arguments)
        self.possible_agents = [f"player_{p}" for p in range(self.field.n_agents)]

    def observation_space(self, agent):
        return self.field.observation_space[self.possible_agents.index(agent)]

    def action_space(self, agent):
        return spaces.Discrete(6)

    @property
    def state_space(self):
        size = sum(int(np.prod(space.shape)) for space in self.field.observation_space)
        return spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def state(self):
        return np.concatenate([seen.reshape(-1) for seen in self._seen])

    def reset(self, seed=None, options=None):
        self.field = Mended(**self._arguments)
        self._seen, _ = self.field.reset(seed=seed)
        self.agents = list(self.possible_agents)
        return self._by_name(self._seen), self._by_name([{}] * len(self.agents))

    def step(self, actions):
        self._seen, rewards, done, truncated, _ = self.field.step([actions[name] for name in self.possible_agents])
        everybody = len(self.possible_agents)
        if done:
            self.agents = []
        ends = self._by_name([done] * everybody), self._by_name([truncated] * everybody)
        return self._by_name(self._seen), self._by_name(rewards), *ends, self._by_name([{}] * everybody)

    def _by_name(self, values):
        return dict(zip(self.possible_agents, values, strict=True))


def field(env):
    return {
        "food": env.field.field,
        "place": [player.position for player in env.field.players],
        "level": [player.level for player in env.field.players],
        "spawned": env.field._food_spawned,
    }


def greedy(foods):
    """Mostly walk to the first food in sight, and load; to be given lists, with levels."""

    def choose(spec, step, rng):
        seen = step.obs[0][:, 0]
        chosen = rng.integers(6, size=(len(seen), 1))
        for p, (*place, level) in enumerate(seen[:, :3]):
            down, right = place - seen[p, 3 * foods : 3 * foods + 2]
            if level > 0 and rng.random() < 0.8:
                towards = (2 if down > 0 else 1) if abs(down) > abs(right) else (4 if right > 0 else 3)
                chosen[p, 0] = 5 if abs(down) + abs(right) == 1 else towards
        return (chosen,)

    return choose


@pytest.mark.parametrize(
    ("changed", "episodes"),
    [
        ({}, rounds(40, 200)),
        ({"normalize_reward": False, "penalty": 0.25, "sight": 6}, rounds(12, 30)),
        ({"force_coop": True, "penalty": 0.1, "sight": 1}, rounds(20, 30)),
        ({"max_food_level": [2, 4], "min_food_level": [1, 3], "max_player_level": [1, 2, 4]}, rounds(12, 30)),
    ],
)
def test_foraging(changed, episodes):
    arguments = {**SMALL, **changed}
    hold(OriginalEnv, NAME, field, arguments, episodes=episodes)
    ended = hold(OriginalEnv, NAME, field, arguments, episodes=episodes // 4, choose=greedy(foods=2))
    assert ended > 0


def test_foraging_without_levels():
    hold(OriginalEnv, NAME, field, {**SMALL, "observe_agent_levels": False}, episodes=20)


@pytest.mark.parametrize("levels", [True, False])
def test_foraging_in_pictures(levels):
    arguments = {**SMALL, **CASES["pictures"][1], "observe_agent_levels": levels}
    hold(OriginalEnv, NAME, field, arguments, episodes=20)


@pytest.mark.parametrize("changed", [{}, {"force_coop": True, "max_player_level": [1, 2, 4]}])
def test_starts(changed):
    assert_same_starts(OriginalEnv, NAME, {**SMALL, "sight": 6, **changed}, count=rounds(800, 2000))


def test_foods_keep_apart_and_off_the_walls():
    vector = NativeVectorEnv(NAME, rounds(200, 500), CASES["pictures"][1])
    vector.reset(0)
    records = vector.batch.records
    counts = set()
    for food, place in zip(records["food"], records["place"], strict=True):
        assert not food[[0, -1]].any() and not food[:, [0, -1]].any()
        foods = np.argwhere(food)
        counts.add(len(foods))
        for i, one in enumerate(foods):
            for other in foods[:i]:
                away = sorted(abs(one - other))
                assert away[1] >= 2 and (away[0] > 0 or away[1] > 2)
        assert len({tuple(where) for where in [*place, *foods]}) == len(place) + len(foods)
    assert max(counts) > 2 and min(counts) < 4  # there is not always room for all
    assert (records["food"].sum((1, 2)) == records["spawned"]).all()


def started(places, levels, foods, **changed):
    """A field of 6 x 6, with three players and with foods as told."""
    vector = NativeVectorEnv(NAME, 1, {**SMALL, **changed})
    vector.reset(0)
    food = np.zeros((6, 6), int)
    for place, level in foods.items():
        food[place] = level
    vector.batch.set_state(0, {"food": food, "place": places, "level": levels, "spawned": food.sum()})
    return vector


def test_loading_by_hand():
    """Levels 1 and 2 take a food of 3 out of 5: 1 * 3 / (3 * 5) and 2 * 3 / (3 * 5). One of them alone pays for it."""
    vector = started([(1, 2), (2, 1), (5, 5)], [1, 2, 1], {(1, 1): 3, (3, 3): 2}, penalty=0.5)
    step = vector.step(act(vector.spec, 1, player_0=5))
    assert step.reward[:, 0].tolist() == [-0.5, 0.0, 0.0] and not step.ended[0]
    step = vector.step(act(vector.spec, 1, player_0=5, player_1=5))
    assert step.reward[:, 0] == pytest.approx([0.2, 0.4, 0.0])
    # Sight of 2 from (2, 1): rows from 0, columns from 0. The food, oneself, the other; one player is out of sight.
    assert column(vector.spec, step)["obs"]["player_1"] == [3, 3, 2, -1, -1, 0, 2, 1, 2, 1, 2, 1, -1, -1, 0]


def numbers_of(hots, foods, sight, side, food_level, player_level):
    """Row, column and level of every object, from one-hots [width] of three players; None for what is missing."""
    away, near = 2 * sight + 1, min(sight, side - 1) + 1
    widths = [[away, away, food_level]] * foods + [[away, away, player_level]] * 2 + [[near, near, player_level]]
    parts = np.split(hots, np.cumsum(np.concatenate(widths))[:-1])
    return [[int(part.argmax()) if part.any() else None for part in parts[i : i + 3]] for i in range(0, len(parts), 3)]


def test_one_hots_by_hand():
    """Sight of 2 from (2, 1): the food at (1, 1), the player at (1, 2), oneself; (3, 4) and (5, 5) are out of sight."""
    foods = {(1, 1): 3, (3, 4): 2}
    vector = started([(1, 2), (2, 1), (5, 5)], [1, 2, 1], foods, one_hot_observation=True)
    step = vector.step(act(vector.spec, 1, player_0=0))
    seen = np.array(column(vector.spec, step)["obs"]["player_1"])
    assert set(seen.tolist()) == {0.0, 1.0}
    missing = [None] * 3
    assert numbers_of(seen, 2, 2, 6, 6, 2) == [[1, 2, 2], missing, [1, 3, 0], missing, [2, 1, 1]]


def test_one_hots_hold_what_lists_hold_if_all_is_in_sight():
    both = [NativeVectorEnv(NAME, 20, {**SMALL, "sight": 6, "one_hot_observation": hot}) for hot in (False, True)]
    for lists, hots in zip(*(np.asarray(vector.reset(3).obs[0]).reshape(60, -1) for vector in both), strict=True):
        *objects, (row, column, level) = numbers_of(hots, 2, 5, 6, 6, 2)
        own = [row, column, level + 1]
        foods, others = (
            [[r + row - 5, c + column - 5, one + 1] for r, c, one in part] for part in (objects[:2], objects[2:])
        )
        assert np.concatenate([*foods, own, *others]).tolist() == lists.tolist()


FAR = {(4, 1): 1}


@pytest.mark.parametrize(
    ("places", "foods", "moves", "after"),
    [
        ([(0, 0), (0, 2), (4, 0)], FAR, (4, 3, 3), [(0, 0), (0, 2), (4, 0)]),  # two want one place; a wall
        ([(2, 2), (2, 3), (4, 4)], {(1, 3): 1}, (4, 1, 1), [(2, 2), (2, 3), (3, 4)]),  # a food stops one
        ([(2, 2), (2, 3), (4, 4)], FAR, (4, 3, 5), [(2, 3), (2, 2), (4, 4)]),  # two change places
        ([(2, 2), (2, 3), (2, 5)], FAR, (4, 4, 3), [(2, 3), (2, 3), (2, 5)]),  # as in the original: one wanted to leave
    ],
)  # fmt: skip
def test_walking_by_hand(places, foods, moves, after):
    vector = started(places, [1, 1, 1], foods)
    vector.step(act(vector.spec, 1, **{f"player_{p}": move for p, move in enumerate(moves)}))
    assert [tuple(place) for place in vector.batch.get_state(0)["place"]] == after


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"field_size": (2, 8)}, r"field_size\[0\] must be a whole number of at least 3, below 2\*\*63, got 2"),
        ({"field_size": 8}, r"field_size must be \(rows, columns\), got 8"),
        ({"players": 65}, "players must be a whole number from 1 to 64, got 65"),
        ({"max_player_level": [1, 2, 3]}, r"max_player_level must be one number, or one for each player \(2\)"),
        ({"min_player_level": 3}, r"min_player_level must be at most max_player_level .* got \[3, 3\] and \[2, 2\]"),
        ({"grid_observation": True, "one_hot_observation": True}, "grid_observation and one_hot_observation exclude"),
        ({"min_food_level": 3}, r"min_food_level must be at most max_food_level .* got \[3, 3\] and \[2, 2\]"),
    ],
)
def test_what_cannot_be_is_said(arguments, said):
    with pytest.raises(ConfigError, match=said):
        make_vector(NAME, arguments, 1)
