"""Native games as text, worked out by hand; and what viewers may not see."""

from typing import Any

import numpy as np
import pytest

from marltrain.core.errors import ConfigError
from marltrain.envs.native import aec_env, gymnasium_env, parallel_env
from marltrain.envs.native.catalog import GAMES, find
from marltrain.envs.native.objects import native_object
from tests.envs.native.forging import CASES, SMALL_FIELD

CROWDED = CASES["crowded"][1]
WITH_TEXT = [name for name in GAMES if find(name).has_text()]


def native(env: Any) -> Any:
    """The object of a native game inside of its wrappers."""
    return native_object(env)


def played(name, actions, **arguments):
    """A turn-based game with text after these actions."""
    env = aec_env(name, render_mode="ansi", **arguments)
    env.reset(seed=0)
    for action in actions:
        env.step(action)
    return env


def test_board_and_card_games_matrix_games_and_foraging_have_text():
    assert {name for name in GAMES if "simple" not in name and name[0].islower()} == set(WITH_TEXT)


def test_tictactoe_numbers_squares_column_by_column():
    """As the original draws them: 0, 1, 2 is the left column."""
    assert played("tictactoe_v3", [4, 2, 3, 8]).render() == "\n".join([
        " 0 | X | 6 ",
        "---+---+---",
        " 1 | X | 7 ",
        "---+---+---",
        " O | 5 | O ",
    ])  # fmt: skip


def test_connect_four_stacks_pieces():
    assert played("connect_four_v3", [3, 3, 3, 0, 6]).render() == "\n".join([
        ". . . . . . .",
        ". . . . . . .",
        ". . . . . . .",
        ". . . X . . .",
        ". . . O . . .",
        "O . . X . . X",
        "0 1 2 3 4 5 6",
    ])  # fmt: skip


def test_kuhn_poker_shows_each_viewer_its_own_card():
    env = aec_env("kuhn_poker_v1")
    env.set_chances([2, 0])
    env.reset()
    for action in (0, 1):
        env.step(action)
    game = native(env)
    decisions = "\ndecisions: player_0 pass, player_1 bet"
    assert game.text() == "cards: player_0 2, player_1 0" + decisions
    assert game.text(["player_1"]) == "cards: player_0 ?, player_1 0" + decisions
    assert game.text(["player_1", "player_0"]) == game.text()
    assert game.text([]) == "cards: player_0 ?, player_1 ?" + decisions


def test_leduc_poker_shows_ranks_stakes_and_both_rounds():
    """Cards 0 to 5 are ranks 0, 0, 1, 1, 2, 2. A raise is 2 in the first round and 4 in the second."""
    env = aec_env("leduc_poker_v1")
    env.set_chances([5, 2, 1])
    env.reset()
    game = native(env)
    start = "stakes: player_0 1, player_1 1\nround 1: no decision\nround 2: no decision"
    assert game.text(["player_0"]) == f"cards: player_0 2, player_1 ?; public card: none\n{start}"
    for action in (2, 1, 2, 0):  # raise, call; raise, fold
        env.step(action)
    assert game.text() == "\n".join([
        "cards: player_0 2, player_1 1; public card: 0",
        "stakes: player_0 7, player_1 3 (folded)",
        "round 1: raise, call",
        "round 2: raise, fold",
    ])  # fmt: skip


def test_matrix_games_show_payoffs_before_the_first_round():
    env = parallel_env("matrix_game_v1", payoffs=[[[3, 3], [0, -1.5]], [[0, 0], [1, 1]]], num_rounds=2)
    env.reset(seed=0)
    game = native(env)
    assert game.text() == "round 0 of 2\n           0        1\n  0     3, 3  0, -1.5\n  1     0, 0     1, 1"
    env.step({"player_0": 0, "player_1": 1})
    assert game.text() == "round 1 of 2"
    levers = parallel_env("levers_v1")
    levers.reset(seed=0)
    assert native(levers).text() == "round 0 of 1"


def test_foraging_shows_the_whole_field():
    env = parallel_env("foraging_v3", render_mode="ansi", **{**SMALL_FIELD, "max_episode_steps": 9})
    env.reset(seed=0)
    food = np.zeros((6, 6), int)
    food[1, 2] = 3
    env.set_state({"food": food, "place": [[0, 0], [2, 3], [5, 5]], "level": [1, 2, 1], "spawned": 3})
    env.step({"player_0": 4, "player_1": 1, "player_2": 0})  # east, north
    assert env.render() == "\n".join([
        "   .  A1   .   .   .   .",
        "   .   .   3  B2   .   .",
        "   .   .   .   .   .   .",
        "   .   .   .   .   .   .",
        "   .   .   .   .   .   .",
        "   .   .   .   .   .  C1",
        "A1 player_0, B2 player_1, C1 player_2",
        "step 1 of 9",
    ])  # fmt: skip
    assert native(env).action_names == ("stay", "north", "south", "west", "east", "load")


def test_the_warehouse_shows_shelves_requests_goals_and_loads():
    layout = "x.g...\n..x..g\nxx.x.."  # of the size of CROWDED
    env = parallel_env(
        "rware_v2", **{**CROWDED, "layout": layout, "n_agents": 3, "request_queue_size": 1, "max_steps": None}
    )
    env.reset(seed=0)
    state = {"place": [[0, 0], [1, 1], [2, 1]], "heading": [0, 3, 2], "load": [0, 0, 4], "requested": [0, 1, 0, 0, 0]}
    env.set_state(state)
    env.step({"player_0": 4, "player_1": 1, "player_2": 2})
    assert native(env).text() == "\n".join([
        " A^#   .   g   .   .   .",
        "   .   . B>!   .   .   g",
        "   # Cv#   .   #   .   .",
        "A player_0 (loaded), B player_1, C player_2 (loaded); # shelf, ! requested, g goal; step 1",
    ])  # fmt: skip
    assert native(env).action_names == ("stay", "forward", "left", "right", "toggle_load")


def test_the_kitchen_shows_cooks_their_things_and_pots():
    env = parallel_env("overcooked_v1", layout="WPPWP\nO1.2X\nW...W\nWWBWW", max_steps=9)
    env.reset(seed=0)
    grids = {"pot": [[0, 21, 0, 0, 7], *[[0] * 5] * 3], "thing": [*[[0] * 5] * 3, [0, 2, 0, 3, 0]]}
    env.set_state({"heading": [0, 2], "held": [1, 0], "soups": 2, **grids})
    env.step({"agent_0": 4, "agent_1": 1})
    assert native(env).text() == "\n".join([
        "    W  Poo   Ps    W   P6",
        "    O  1^o    .    .    X",
        "    W    .    .   2v    W",
        "    W   Wp    B   Ws    W",
        "W counter, O onions, B plates, P pot, X delivery; o onion, p plate, s soup",
        "1 agent_0 (onion), 2 agent_1; 2 delivered; step 1 of 9",
    ])  # fmt: skip
    assert native(env).action_names == ("up", "down", "right", "left", "stay", "interact")


def test_the_battle_shows_units_and_whom_they_attack():
    env = parallel_env("smax_v2")
    env.reset(seed=0)
    place = [[2, 6], [14, 6], [8, 6], [6, 31], [27, 1], [17.5, 6]]
    env.set_state({"place": place, "health": [45, 9, 0, 0, 45, 160], "kind": [0, 0, 0, 3, 0, 2], "goal": [[0, 1]] * 3})
    env.step({"ally_0": 4, "ally_1": 7, "ally_2": 4})
    assert native(env).text() == "\n".join([
        *["." * 32] * 6,
        "..A..............c..............",
        "." * 25 + "b" + "." * 6,
        "allies: A m45, B dead, C dead",
        "enemies: a dead, b m45, c s151>B",
        "m marine, M marauder, s stalker, Z zealot, z zergling, h hydralisk",
        "A>b: A attacks b; step 1 of 100",
    ])  # fmt: skip
    assert native(env).action_names == ("up", "right", "down", "left", "stop", "attack_0", "attack_1", "attack_2")


def test_more_players_than_letters_have_numbers():
    game: Any = find("foraging_v3")
    game = game(players=27, field_size=(8, 8))
    place = np.stack(np.divmod(np.arange(27), 8), axis=1)
    state = {"food": np.zeros((8, 8)), "place": place, "level": np.ones(27), "steps": 0}
    *rows, who, _ = game.text(state, None).splitlines()
    assert "#26" in "".join(rows) and who.endswith("player_25, #26 player_26") and max(map(len, rows)) == 32


def test_render_modes():
    assert parallel_env("foraging_v3").metadata["render_modes"] == ["ansi"]
    assert parallel_env("foraging_v3").render() is None
    assert gymnasium_env("CartPole-v1").metadata["render_modes"] == []
    for make, name, drawn in (
        (parallel_env, "simple_spread_v3", "nothing, got render_mode='ansi'"),
        (gymnasium_env, "CartPole-v1", "nothing, got render_mode='ansi'"),
        (aec_env, "tictactoe_v3", "text .render mode 'ansi'. and no pictures, got render_mode='human'"),
    ):
        mode = "human" if name == "tictactoe_v3" else "ansi"
        with pytest.raises(ConfigError, match=f"native game {name} draws {drawn}: play.*text=True"):
            make(name, render_mode=mode)
    assert native(parallel_env("foraging_v3")) is not None and native(object()) is None


@pytest.mark.parametrize("name", WITH_TEXT)
def test_text_fits_into_a_terminal_at_the_start(name):
    env = aec_env(name)
    env.reset(seed=1)
    lines = native(env).text().splitlines()
    assert 1 <= len(lines) <= 12 and max(map(len, lines)) < 80
