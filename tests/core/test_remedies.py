"""Remedies: settings under the names of other libraries, written as the user's place writes them."""

import pytest

import marltrain as mt
from marltrain.core.errors import did_you_mean
from marltrain.core.remedies import network_remedy, on_command_line, rollout_remedy, setting_in_file, written

SETTINGS = ["gamma", "network", "update_freq"]


@pytest.mark.parametrize(
    ("name", "value", "in_python", "on_the_command_line"),
    [
        ("hidden_sizes", [64], "network=mt.MLP((64,))", "--set 'network=MLP((64,))'"),
        ("net_arch", (128, 32), "network=mt.MLP((128, 32))", "--set 'network=MLP((128, 32))'"),
        ("hidden_size", 256, "network=mt.MLP((256,))", "--set 'network=MLP((256,))'"),
        ("--hidden-sizes", None, "network=mt.MLP((64, 64))", "--set 'network=MLP((64, 64))'"),
        ("policy_kwargs", {"net_arch": [9]}, "network=mt.MLP((64, 64))", "--set 'network=MLP((64, 64))'"),
        ("hidden_units", [64, "x"], "network=mt.MLP((64, 64))", "--set 'network=MLP((64, 64))'"),
        ("layers", [True], "network=mt.MLP((64, 64))", "--set 'network=MLP((64, 64))'"),
        (
            "recurrent",
            True,
            "network=mt.GRU(), or network=mt.LSTM()",
            "--set 'network=GRU()', or --set 'network=LSTM()'",
        ),
        ("USE_LSTM", 1, "network=mt.GRU(), or network=mt.LSTM()", "--set 'network=GRU()', or --set 'network=LSTM()'"),
        ("activation_fn", "relu", 'network=mt.MLP((64, 64), activation="relu")', "--set 'network=MLP((64, 64), act"),
        ("conv_filters", [], "network=mt.CNN()", "--set 'network=CNN()'"),
    ],
)
def test_parts_of_networks_are_given_by_the_network(name, value, in_python, on_the_command_line):
    assert in_python in network_remedy(name, value, SETTINGS)
    with on_command_line():
        assert on_the_command_line in network_remedy(name, value, SETTINGS)
    assert in_python in network_remedy(name, value, SETTINGS)


@pytest.mark.parametrize(
    ("name", "known"),
    [("hidden_sizes", ["gamma"]), ("hidden", [*SETTINGS, "hidden"]), ("gama", SETTINGS), (3, SETTINGS)],
)
def test_other_names_and_own_settings_have_no_remedy(name, known):
    assert network_remedy(name, 64, known) == ""


def test_a_file_holds_the_remedy_as_text():
    assert "network = 'MLP((7,))'" in network_remedy("hidden_dims", [7], SETTINGS, setting_in_file)


def test_the_place_ends_with_its_context_also_after_an_error():
    with pytest.raises(KeyError), on_command_line():
        assert written("a", "b") == "b"
        raise KeyError
    assert written("a", "b") == "a"


def test_the_unit_of_a_rollout_is_told_only_where_the_suggestion_is_update_freq():
    """16 environments x 128 steps = 2,048 env steps."""
    assert "128 steps in each of 16 are 2048" in rollout_remedy("n_steps", did_you_mean("n_steps", SETTINGS))
    assert rollout_remedy("n_steps", did_you_mean("n_steps", ["n_step"])) == ""
    assert rollout_remedy("update_frequency", did_you_mean("update_frequency", SETTINGS)) == ""


@pytest.mark.parametrize(
    ("algorithm", "setting", "said"),
    [
        ("ppo", {"n_steps": 128}, "Did you mean 'update_freq'? update_freq counts the env steps of all environments"),
        ("dqn", {"n_steps": 3}, "Did you mean 'n_step' or 'update_freq'?"),
        ("dqn", {"hidden_sizes": [24, 17]}, "network=mt.MLP((24, 17)). It has:"),
        ("ppo", {"recurrent": True}, "network=mt.GRU(), or network=mt.LSTM(). It has:"),
        ("maddpg", {"rnn": True}, "network=mt.GRU()"),
    ],
)
def test_agents_name_the_setting_that_does_this(algorithm, setting, said):
    with pytest.raises(mt.ConfigError, match="has no setting") as caught:
        mt.make_agents(algorithm, "marltrain/simple_spread_v3", **setting)
    assert said in str(caught.value)
