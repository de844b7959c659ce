"""Spaces: fixed values, ranges, choices, default ranges of algorithms."""

from typing import Any

import optuna
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.tools.tuning.space import Space, from_words


def test_default_ranges_are_those_of_the_settings():
    space = Space.of("ppo", {"gamma": 0.9, "learning_rate": (1e-4, 1e-3), "epochs": [4, 10]}, per_row=True)
    assert space.fixed == {"gamma": 0.9} and space.choices == {"epochs": [4, 10]}
    assert space.ranges["learning_rate"] == mt.Range(1e-4, 1e-3, "log")  # the scale of the default range
    assert set(space.ranges) == {"learning_rate", "gae_lambda", "clip", "entropy_coef", "value_coef"}
    assert "tau" in Space.of("sac", {}, per_row=True).ranges and "max_kl" in Space.of("trpo", {}, per_row=True).ranges


def test_settings_of_a_pair_are_fixed_unless_a_range_is_given():
    """PPO has six default ranges; the pair names two of them, and the space gives one of these a range."""
    pair = ("ppo", {"gamma": 0.5, "clip": 0.3, "max_grad_norm": None})
    space = Space.of(pair, {"clip": (0.1, 0.2)}, per_row=True)
    assert set(space.ranges) == {"learning_rate", "gae_lambda", "clip", "entropy_coef", "value_coef"}
    assert space.ranges["clip"] == mt.Range(0.1, 0.2) and space.fixed == {} == space.choices
    ranged = Space.of(pair, {"gamma": (0.9, 0.99)}, per_row=True)
    assert ranged.ranges["gamma"] == mt.Range(0.9, 0.99, "complement")  # the scale of the default range
    assert Space.of(pair, {"gamma": [0.5, 0.9]}, per_row=True).choices == {"gamma": [0.5, 0.9]}
    assert "gamma" not in Space.of((mt.PPO, {"gamma": mt.linear(0.5, 0.9, 10)}), {}, per_row=True).ranges
    assert Space.of(("ppo", {"network": mt.MLP((8,))}), {"network": mt.MLP((8,))}, per_row=True).fixed


def test_two_values_of_a_setting_are_an_error_that_names_both():
    pair, space = ("ppo", {"gamma": 0.5}), {"gamma": 0.9, "learning_rate": (1e-4, 1e-3)}
    several: list[tuple[Any, str]] = [
        (pair, "name"), ({"a*": "ppo", "b": pair}, r"name\['b'\]"), (["ppo", pair], r"name\[1\]"),
        (("ppo", pair), r"name\[1\]"),
    ]  # fmt: skip
    for given, where in several:
        with pytest.raises(ConfigError, match=f"gamma is 0.9.*0.5 in {where}"):
            Space.of(given, space, per_row=True)
        assert "learning_rate" in Space.of(given, {**space, "gamma": 0.5}, per_row=True).ranges
        assert "gamma" in Space.of(given, {"gamma": (0.4, 0.9)}, per_row=True).ranges


def test_suggestions_become_settings():
    given = {"gamma": mt.Range(0.9, 0.999, "complement"), "epochs": (2, 5), "clip": 0.2, "network": ["a", "b"]}
    space = Space.of("ppo", given | dict.fromkeys(("learning_rate", "gae_lambda", "entropy_coef", "value_coef"), 0.5),
                     per_row=False)  # fmt: skip
    trial = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1)).ask()
    settings = space.suggest(trial)
    assert settings["clip"] == 0.2 and settings["network"] in "ab" and settings["epochs"] in (2, 3, 4, 5)
    assert isinstance(settings["epochs"], int) and 0.9 <= settings["gamma"] <= 0.999
    assert settings["gamma"] == 1 - trial.params["1 - gamma"]
    assert space.settings_of(trial.params) == settings


def test_values_in_words():
    words: dict[str, list[Any]] = {
        "a": [1],
        "b": [0.1, 1],
        "c": [1, 2, 3],
        "d": ["x", "y"],
        "e": [4, 8, 8],
        "f": [True, False],
    }
    assert from_words(words) == {"a": 1, "b": (0.1, 1), "c": [1, 2, 3], "d": ["x", "y"], "e": [4, 8, 8],
                                 "f": [True, False]}  # fmt: skip
    assert Space.of("ppo", {"epochs": [4, 8, 8]}, per_row=True).choices == {"epochs": [4, 8]}


@pytest.mark.parametrize(
    ("algo", "space", "message"),
    [
        ("ppo", {"epochs": [4, 4]}, "at least two different choices"),
        ("ppo", {"lr": 0.1}, "no setting 'lr'. Did you mean 'learning_rate'"),
        ("random", {}, "an algorithm or a class of agents that learn"),
        ({"*": "ppo"}, {"learning_rate": 0.1}, "every setting is fixed"),
    ],
)
def test_wrong_spaces_are_refused(algo, space, message):
    with pytest.raises(ConfigError, match=message):
        Space.of(algo, space, per_row=True)


@pytest.mark.parametrize("wrong", [(1, 1), (0, 1, "log"), (0.5, 1.0, "complement"), (1, 2, "quadratic")])
def test_wrong_ranges_are_refused(wrong):
    with pytest.raises(ConfigError, match="a Range goes from low to a larger high"):
        mt.Range(*wrong)
