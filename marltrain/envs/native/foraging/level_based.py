"""Level-based foraging (Albrecht, Ramamoorthy 2013; Papoudakis et al. 2021), with the rules of lbforaging 2.0."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.envs.native.arguments import number, truth, whole
from marltrain.envs.native.bounds import COUNT
from marltrain.envs.native.foraging.one_hots import one_hot_space, see_one_hots
from marltrain.envs.native.foraging.starts import place_foods, place_players
from marltrain.envs.native.foraging.text import field_text
from marltrain.envs.native.foraging.views import list_space, picture_space, see_list, see_pictures
from marltrain.envs.native.game import TERMINATED, Game
from marltrain.jit.compiling import inner

NORTH, LOAD = 1, 5
DOWN = np.array([0, -1, 1, 0, 0, 0])
RIGHT = np.array([0, 0, 0, -1, 1, 0])
NOWHERE = -1


class Foraging(Game):
    """Players move on a grid and load food; loading needs adjacent players whose levels sum to the food's level.

    Actions: stay (0), north, south, west, east (4), load (5); an impossible action counts as stay. Players that move to
    the same place stay. Each loading player's reward grows with its own level and the food's level. An episode ends
    when no food is left, or after `max_episode_steps`. As in the original, the latter is also a termination.
    """

    name = "foraging_v3"
    actions = ("stay", "north", "south", "west", "east", "load")

    def __init__(
        self,
        players: int = 2,
        min_player_level: int | Sequence[int] = 1,
        max_player_level: int | Sequence[int] = 2,
        min_food_level: int | Sequence[int] = 1,
        max_food_level: int | Sequence[int] | None = None,
        field_size: Sequence[int] = (8, 8),
        max_num_food: int = 2,
        sight: int = 8,
        max_episode_steps: int = 50,
        force_coop: bool = False,
        normalize_reward: bool = True,
        grid_observation: bool = False,
        observe_agent_levels: bool = True,
        penalty: float = 0.0,
        one_hot_observation: bool = False,
    ) -> None:
        """Declare the game with the original's arguments; defaults that it lacks are those of Foraging-8x8-2p-2f.

        The original lacks `one_hot_observation`.

        Levels are one number, or one number per player or food. The latter are assigned in random order in each
        episode.

        max_food_level: None for the sum of the three lowest player levels.
        sight: range of vision, in places.
        force_coop: all foods have their highest level.
        grid_observation: grids of players, foods and free places around the player, instead of lists.
        penalty: subtracted from the reward of players whose joint loading fails.
        one_hot_observation: one-hots of levels, and of places relative to the player, instead of lists; in sight is
          what is at most `sight` rows and columns away.

        The global state is the concatenation of all observations. Raises ConfigError.
        """
        rows, columns = shape(field_size)
        whole("players", players, 1, rows * columns)
        weakest, strongest = levels("player", min_player_level, max_player_level, players)
        limit = lowest_three(weakest) if max_food_level is None else max_food_level
        lightest, heaviest = levels("food", min_food_level, limit, whole("max_num_food", max_num_food))
        if max_food_level is None:
            heaviest[:] = lowest_three(strongest)
        reach, named = whole("sight", sight), truth("observe_agent_levels", observe_agent_levels)
        if truth("grid_observation", grid_observation):
            if truth("one_hot_observation", one_hot_observation):
                raise ConfigError("grid_observation and one_hot_observation exclude each other: leave one of them out")
            seen = picture_space(reach, strongest, heaviest, named)
            self.observe = see_pictures  # type: ignore[method-assign]
        elif truth("one_hot_observation", one_hot_observation):
            seen = one_hot_space(rows, columns, reach, strongest, heaviest, named)
            self.observe = see_one_hots  # type: ignore[method-assign]
        else:
            seen = list_space(rows, columns, strongest, heaviest, named)
        field, places = (0, [rows - 1, columns - 1]), max(players, max_num_food)
        super().__init__(
            {f"player_{p}": (seen, spaces.Discrete(6)) for p in range(players)},
            fields={
                "food": (int, (rows, columns), (0, heaviest.max())), "place": (int, (players, 2), field),
                "level": (int, players, (1, strongest.max())), "spawned": (int, (), COUNT),
                "target": (int, (players, 2), field), "loading": (bool, players),
                "order": (int, places, (0, places - 1)),
            },
            rules={
                "weakest": weakest, "strongest": strongest, "lightest": lightest, "heaviest": heaviest,
                "relative": max_food_level is None, "coop": truth("force_coop", force_coop),
                "sight": reach, "levels": named, "penalty": number("penalty", penalty),
                "normalized": truth("normalize_reward", normalize_reward),
                "steps": whole("max_episode_steps", max_episode_steps),
            },
            state_size=players * int(np.prod(seen.shape)),
        )  # fmt: skip

    def sound(self, records: Array) -> Array:
        """Check that the foods fit into the observations and that their levels do not exceed `spawned`."""
        food = records["food"].reshape(len(records), -1)
        few = (food > 0).sum(-1) <= len(self.rules["lightest"][0])
        return few & (food.sum(-1) <= records["spawned"])

    def text(self, state: Mapping[str, Any], viewers: Collection[int] | None) -> str:
        """Return the whole field, also what is out of the viewers' sight; see `field_text`."""
        text = field_text(state["food"], state["place"], state["level"], [player.name for player in self.players])
        return f"{text}\nstep {int(state['steps'])} of {int(self.rules['steps'][0])}"

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Place players, then foods, at free places, with random levels."""
        place_players(s, rules)
        place_foods(s, rules)

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Move all players, then load; end the episode if no food is left or at the step limit."""
        for p in range(len(s.place)):
            choose_target(s, p)
        for p in range(len(s.place)):
            if alone(s, p):
                s.place[p, 0], s.place[p, 1] = s.target[p, 0], s.target[p, 1]
        for p in range(len(s.place)):
            if s.loading[p]:
                load(s, rules, p)
        if s.steps >= rules.steps or not s.food.any():
            s.over[:] = TERMINATED

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write the foods in sight, the player itself and the other players in sight, with their levels."""
        see_list(s, rules, p, obs)


@inner
def choose_target(s: Any, p: int) -> None:
    """Write the place that player p moves to, and whether it loads."""
    action = s.action[p]
    row, column = s.place[p, 0] + DOWN[action], s.place[p, 1] + RIGHT[action]
    inside = 0 <= row < s.food.shape[0] and 0 <= column < s.food.shape[1]
    free = inside and s.food[row, column] == 0
    s.target[p, 0] = row if free else s.place[p, 0]
    s.target[p, 1] = column if free else s.place[p, 1]
    s.loading[p] = action == LOAD and food_beside(s, p) != NOWHERE


@inner
def alone(s: Any, p: int) -> bool:
    """Return whether no other player moves to the same place as player p."""
    for q in range(len(s.target)):
        if q != p and s.target[q, 0] == s.target[p, 0] and s.target[q, 1] == s.target[p, 1]:
            return False
    return True


@inner
def food_beside(s: Any, p: int) -> int:
    """Return the place of the food beside player p, row * columns + column, or NOWHERE; there is at most one."""
    for action in range(NORTH, LOAD):
        row, column = s.place[p, 0] + DOWN[action], s.place[p, 1] + RIGHT[action]
        if 0 <= row < s.food.shape[0] and 0 <= column < s.food.shape[1] and s.food[row, column] > 0:
            return row * s.food.shape[1] + column
    return NOWHERE


@inner
def load(s: Any, rules: Any, p: int) -> None:
    """Load the food beside player p with all players that load it; write rewards or penalties."""
    place = food_beside(s, p)
    row, column = place // s.food.shape[1], place % s.food.shape[1]
    food, strength = s.food[row, column], 0
    for q in range(len(s.place)):
        if s.loading[q] and beside(s, q, row, column):
            strength += s.level[q]
    for q in range(len(s.place)):
        if s.loading[q] and beside(s, q, row, column):
            s.loading[q] = 0
            if strength < food:
                s.reward[q] = -rules.penalty
            elif rules.normalized:
                s.reward[q] = s.level[q] * food / (strength * s.spawned)
            else:
                s.reward[q] = s.level[q] * food
    if strength >= food:
        s.food[row, column] = 0


@inner
def beside(s: Any, p: int, row: int, column: int) -> bool:
    """Return whether player p is adjacent to a place."""
    return abs(s.place[p, 0] - row) + abs(s.place[p, 1] - column) == 1


def shape(field_size: Any) -> tuple[int, int]:
    """Return rows and columns; raises ConfigError unless both are at least 3, because foods are never at a wall."""
    if not isinstance(field_size, Sequence | np.ndarray) or len(field_size) != 2:
        raise ConfigError(f"field_size must be (rows, columns), got {field_size!r}")
    return whole("field_size[0]", field_size[0], 3), whole("field_size[1]", field_size[1], 3)


def levels(of: str, low: Any, high: Any, count: int) -> tuple[Array, Array]:
    """Return lowest and highest levels [count]; raises ConfigError for a wrong count, or a lowest above a highest."""
    both = []
    for name, value in ((f"min_{of}_level", low), (f"max_{of}_level", high)):
        given = list(value) if isinstance(value, Sequence | np.ndarray) else [value] * count
        if len(given) != count:
            raise ConfigError(f"{name} must be one number, or one for each {of} ({count}), got {value!r}")
        both.append(np.array([whole(name, level) for level in given]))
    if (both[0] > both[1]).any():
        raise ConfigError(
            f"min_{of}_level must be at most max_{of}_level (of foods, if None: what the three weakest players can "
            f"always load), got {both[0].tolist()} and {both[1].tolist()}"
        )
    return both[0], both[1]


def lowest_three(level: Array) -> int:
    """Return the sum of the three lowest levels."""
    return int(np.sort(level)[:3].sum())
