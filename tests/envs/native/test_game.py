"""What a game may declare, and constructor arguments."""

import numpy as np
import pytest
from gymnasium import spaces

from marltrain.core.errors import ConfigError
from marltrain.envs import make_vector
from marltrain.envs.native.game import Game

SEES, CHOOSES = spaces.Box(0, 1, (2,)), spaces.Discrete(2)


@pytest.mark.parametrize(
    ("players", "fields", "rules", "said"),
    [
        ({"a": (SEES, CHOOSES)}, {"reward": float}, {}, "field 'reward' is the core's"),
        ({"a": (SEES, CHOOSES)}, {}, {"shape": "round"}, "rule 'shape' is 'round'; a rule is a number"),
        ({"a": (SEES, CHOOSES), "b": (SEES, SEES)}, {}, {}, "Discrete for every player, or Box for every player"),
        ({"a": (SEES, spaces.MultiDiscrete([2]))}, {}, {}, "Discrete for every player, or Box for every player"),
        ({"a": (spaces.Box(0, 255, (8, 8), np.uint8), CHOOSES)}, {}, {}, "player 'a': a native game observes vectors"),
        ({"a": (spaces.Dict({"observation": SEES, "action_mask": SEES}), CHOOSES)}, {}, {}, "it has no legal"),
    ],
)
def test_a_declaration_that_does_not_fit_is_refused(players, fields, rules, said):
    with pytest.raises(ConfigError, match=said):
        Game(players, fields, rules)


def test_rules_keep_their_kinds_and_shapes():
    rules = Game({"a": (SEES, CHOOSES)}, {}, {"yes": True, "n": 3, "x": 0.5, "table": [[1, 2], [3, 4]]}, limit=9).rules[
        0
    ]
    assert (rules["yes"], rules["n"], rules["x"], rules["limit"]) == (1, 3, 0.5, 9)
    assert rules["table"].tolist() == [[1, 2], [3, 4]] and rules["table"].dtype == np.int64


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("simple_spread_v3", {"N": 0}, "N must be a whole number of at least 1, .*, got 0"),
        ("simple_spread_v3", {"N": 2.5}, "N must be a whole number"),
        ("simple_spread_v3", {"local_ratio": 1.5}, "local_ratio must be a number from 0.0 to 1.0, got 1.5"),
        ("simple_spread_v3", {"continuous_actions": 1}, "continuous_actions must be True or False, got 1"),
        ("simple_spread_v3", {"num_agent_neighbors": 0}, "num_agent_neighbors must be a whole number of at least 1"),
        ("simple_spread_v3", {"max_cycle": 3}, "takes no argument 'max_cycle'. Did you mean 'max_cycles'"),
        ("simple_spread_v3", {"max_cycles": 0}, "max_cycles must be a whole number of at least 1"),
        ("CartPole-v1", {"sutton_barto_reward": "yes"}, "sutton_barto_reward must be True or False, got 'yes'"),
        ("Pendulum-v1", {"g": float("nan")}, "g must be a number"),
        (
            "simple_spred_v3",
            {},
            "unknown environment 'marltrain/simple_spred_v3'. Did you mean 'marltrain/simple_spread_",
        ),
    ],
)
def test_wrong_arguments_are_named(name, arguments, said):
    with pytest.raises(ConfigError, match=said):
        make_vector(f"marltrain/{name}", arguments, 1)


def test_no_record_begins_like_another():
    """Numba would take one game's record for a kind of the other's, and warn."""
    for few, many in (({}, {"x": float}), ({"x": float}, {"x": float, "y": float})):
        smaller, larger = (Game({"a": (SEES, CHOOSES)}, fields, dict.fromkeys(fields, 1)) for fields in (few, many))
        for one, other in ((smaller.fields, larger.fields), (smaller.rules.dtype, larger.rules.dtype)):
            names, others = list(one.fields or ()), list(other.fields or ())
            assert others[: len(names)] != names
