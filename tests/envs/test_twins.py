"""Native games and their originals: which is shown in place of which."""

import inspect
from typing import Any

import pytest

from marltrain.core.errors import ConfigError
from marltrain.envs import FrameStack, probe, resolve
from marltrain.envs.native.catalog import GAMES, ORIGINALS, find
from marltrain.envs.twins import with_pictures, with_text
from tests.envs.native.originals import assert_same_spec
from tests.toys import Identity

OTHERS: dict[str, dict[str, Any]] = {
    "foraging_v3": {"players": 3, "field_size": (6, 6), "sight": 2},
    "kuhn_poker_v1": {"players": 3},
    "leduc_poker_v1": {},
    "levers_v1": {},
    "overcooked_v1": {"layout": "coord_ring", "max_steps": 9},
    "rware_v2": {"size": "small", "difficulty": "easy"},
    "smax_v2": {"scenario": "5m_vs_6m", "max_steps": 9},
    "simple_spread_v3": {"N": 2, "max_cycles": 7},
    "simple_tag_v3": {"num_adversaries": 2, "num_obstacles": 1},
    "simple_world_comm_v3": {"num_good": 1, "num_forests": 1},
    "simple_adversary_v3": {"N": 3},
    "CartPole-v1": {"max_episode_steps": 9},
    "Pendulum-v1": {"g": 9.0, "max_episode_steps": 9},
    "MountainCar-v0": {"goal_velocity": 0.01},
}
"""Arguments other than the defaults."""


@pytest.mark.parametrize("name", ORIGINALS)
def test_an_original_has_the_players_spaces_and_arguments_of_the_native_game(name):
    source = resolve(f"marltrain/{name}", OTHERS.get(name))
    shown = with_pictures(source)
    assert (shown.name, shown.arguments) == (ORIGINALS[name], source.arguments)
    assert_same_spec(probe(shown), probe(source))
    assert with_pictures(shown) is shown  # it draws by itself
    built = shown.make("rgb_array")
    built.close()
    every = inspect.signature(find(name).__init__).parameters
    for argument in every.keys() - {"self", *find(name).training_only}:
        resolve(ORIGINALS[name], {argument: every[argument].default})  # no argument is unknown there


def test_an_original_is_shown_without_arguments_of_training():
    source = resolve("marltrain/connect_four_v3", {"random_moves": 4})
    assert with_pictures(source).arguments == {}


def test_games_without_such_an_original_and_other_environments_stay_what_they_are():
    for name in GAMES.keys() - ORIGINALS.keys():
        source = resolve(f"marltrain/{name}", OTHERS.get(name))
        assert with_pictures(source) is source
    for env in (Identity, FrameStack("marltrain/CartPole-v1", 2), "gymnasium/CartPole-v1", "pettingzoo/classic/go_v5"):
        source = resolve(env)
        assert with_pictures(source) is source and with_text(source) is source


def test_the_class_of_a_shipped_game_is_that_game_and_a_subclass_is_not():
    game = find("tictactoe_v3")
    assert with_pictures(resolve(game)).name == "pettingzoo/classic/tictactoe_v3"
    own = type("Own", (game,), {})
    assert with_pictures(resolve(own)).game is own


def test_text_of_pettingzoos_board_games_comes_from_the_native_games():
    shown = with_text(resolve("pettingzoo/classic/tictactoe_v3", {"screen_height": 300}))
    assert (shown.name, dict(shown.arguments)) == ("marltrain/tictactoe_v3", {})
    assert with_text(resolve("pettingzoo/classic/connect_four_v3")).name == "marltrain/connect_four_v3"
    spread = resolve("mpe2/simple_spread_v3")
    assert with_text(spread) is spread  # its native game draws no text


def test_text_of_lbforaging_comes_from_the_native_game_with_the_registered_arguments():
    original = resolve("gymnasium/lbforaging:Foraging-5x5-3p-1f-coop-v3", {"sight": 2})
    shown = with_text(original)
    assert shown.name == "marltrain/foraging_v3"
    assert shown.arguments == {
        "players": 3, "min_player_level": 1, "max_player_level": 2, "field_size": (5, 5), "min_food_level": 1,
        "max_food_level": None, "max_num_food": 1, "sight": 2, "max_episode_steps": 50, "force_coop": True,
        "grid_observation": False, "penalty": 0.0,
    }  # fmt: skip
    assert_same_spec(probe(original), probe(shown))


def test_text_of_rware_comes_from_the_native_game_unless_the_spaces_differ():
    original = resolve("gymnasium/rware:rware-small-3ag-hard-v2", {"sensor_range": 2})
    shown = with_text(original)
    assert shown.name == "marltrain/rware_v2"
    assert {key: shown.arguments[key] for key in ("shelf_rows", "n_agents", "request_queue_size", "sensor_range")} == {
        "shelf_rows": 2, "n_agents": 3, "request_queue_size": 1, "sensor_range": 2,
    }  # fmt: skip
    assert_same_spec(probe(original), probe(shown))
    other = resolve("gymnasium/rware:rware-small-3ag-hard-v2", {"msg_bits": 1})
    assert with_text(other) is other


def test_a_missing_original_is_named_with_its_remedy(monkeypatch):
    from marltrain.envs import registry

    monkeypatch.setattr(registry, "is_installed", lambda module: module != "mpe2")
    with pytest.raises(ConfigError, match=r"mpe2/simple_v3' needs mpe2, which is not installed.*Without it, text=True"):
        with_pictures(resolve("marltrain/simple_v3"))
