"""Settings: types from annotations, bounds from metadata, errors with the nearest name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.core.settings import build, check_function, checked_arguments, setting, validate
from tests.toys import Identity


@dataclass(frozen=True, kw_only=True)
class Kettle:
    """Something to be set."""

    liters: float = setting(1.5, doc="how much", above=0, high=5)
    cups: int = setting(4, doc="how many", low=1)
    whistle: bool = setting(False, doc="whether it whistles")
    metal: str = setting("steel", doc="of what", choices=("steel", "copper"))
    timer: int | None = setting(None, doc="minutes", low=0)
    lid: Any = setting(None, doc="anything")
    steam: float = setting(0.0, doc="a number without bounds")


def test_what_fits():
    assert build(Kettle, {}, "kettle") == Kettle()
    result = build(Kettle, {"liters": 2, "timer": 0, "lid": [1], "metal": "copper"}, "kettle")
    assert (result.liters, result.timer, result.lid) == (2, 0, [1])
    assert build(Kettle, {"liters": np.float64(0.5)}, "kettle").liters == 0.5


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"litres": 1}, "kettle has no setting 'litres'. Did you mean 'liters'? It has: liters, cups"),
        ({"liters": 0}, "kettle: liters must be greater than 0, got 0"),
        ({"liters": 5.1}, "kettle: liters must be at most 5, got 5.1"),
        ({"liters": "2"}, "kettle: liters must be a number, got '2'"),
        ({"liters": None}, "kettle: liters must be a number, got None"),
        ({"liters": True}, "kettle: liters must be a number, got True"),
        ({"liters": float("nan")}, "kettle: liters is not a number (nan)"),
        ({"cups": 1.5}, "kettle: cups must be an integer, got 1.5"),
        ({"cups": True}, "kettle: cups must be an integer, got True"),
        ({"cups": 0}, "kettle: cups must be at least 1, got 0"),
        ({"whistle": 1}, "kettle: whistle must be True or False, got 1"),
        ({"metal": "stele"}, "kettle: metal must be one of steel, copper, got 'stele'. Did you mean 'steel'?"),
        ({"timer": -1}, "kettle: timer must be at least 0, got -1"),
        ({"timer": 1.5}, "kettle: timer must be an integer or None, got 1.5"),
        ({"timer": float("inf")}, "kettle: timer must be an integer or None, got inf"),
        ({"timer": 2**63}, "kettle: timer must be between -9223372036854775807 and 9223372036854775807, got 922337203"),
        ({"timer": 10**400}, "kettle: timer must be between"),
        ({"cups": 1e30}, "kettle: cups must be between -9223372036854775807 and"),
        ({"cups": -(10**400)}, "kettle: cups must be at least 1, got -1000"),
        ({"cups": np.int64(0)}, "kettle: cups must be at least 1, got 0"),
        ({"cups": np.float32(2.5)}, "kettle: cups must be an integer, got 2.5"),
        ({"cups": np.array([2])}, "kettle: cups must be an integer, got array([2])"),
        ({"cups": np.timedelta64(2, "s")}, "kettle: cups must be an integer, got datetime.timedelta(seconds=2)"),
        ({"liters": np.float32("nan")}, "kettle: liters is not a number (nan)"),
        ({"steam": float("-inf")}, "kettle: steam must be between -1e+30 and 1e+30, got -inf"),
        ({"steam": 1e31}, "kettle: steam must be between"),
        ({"metal": np.array(["steel"])}, "kettle: metal must be a string, got array(['steel']"),
        ({3: 1}, "kettle has no setting 3. It has: liters"),
    ],
)
def test_what_does_not(values, words):
    with pytest.raises(ConfigError) as caught:
        build(Kettle, values, "kettle")
    assert words in str(caught.value)


def test_a_setting_without_effect():
    @dataclass(frozen=True, kw_only=True)
    class Two:
        mode: str = setting("plain", doc="mode", choices=("plain", "fast"))
        speed: float = setting(1.0, doc="speed of the mode fast", only=("mode", "fast"))

    assert build(Two, {"speed": 1}, "here").speed == 1  # its default
    assert build(Two, {"mode": "fast", "speed": 2.0}, "here").speed == 2
    with pytest.raises(
        ConfigError, match=r"here: speed=2.0 has no effect with mode='plain'; it needs mode='fast'\. Leave"
    ):
        build(Two, {"speed": 2.0}, "here")


def test_a_setting_with_an_effect_for_several_values_of_another():
    @dataclass(frozen=True, kw_only=True)
    class Three:
        mode: str | None = setting(None, doc="mode", choices=("fast", "faster"))
        speed: float = setting(1.0, doc="speed of other modes than None", only=("mode", "fast", "faster"))

    assert [build(Three, {"mode": mode, "speed": 2.0}, "here").mode for mode in ("fast", "faster")] == [
        "fast",
        "faster",
    ]
    with pytest.raises(ConfigError, match=r"speed=2.0 has no effect with mode=None; it needs mode='fast' or 'faster'"):
        build(Three, {"speed": 2.0}, "here")


def test_numbers_of_numpy_become_pythons():
    given = {"liters": np.float32(0.5), "cups": np.int64(3), "whistle": np.True_, "timer": np.uint8(7)}
    result = build(Kettle, given, "kettle")
    values = result.liters, result.cups, result.whistle, result.timer
    assert values == (0.5, 3, True, 7)
    assert [type(value) for value in values] == [float, int, bool, int]


def test_a_float_without_a_fraction_is_an_integer_only_where_an_integer_is_wanted():
    result = build(Kettle, {"liters": 2.0, "cups": 1e6, "timer": np.float32(3), "lid": 4.0}, "kettle")
    assert (result.cups, result.timer) == (1_000_000, 3)
    assert [type(value) for value in (result.liters, result.cups, result.timer, result.lid)] == [float, int, int, float]


@pytest.mark.parametrize("fits", [lambda a, b: 0, lambda *a: 0, lambda a, b=1, *, c=2: 0, max, {}.setdefault])
def test_functions_that_take_what_they_are_given(fits):
    check_function("pour", fits, "cup", "liters")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: 0, "pour is called as pour(cup, liters), but what was given takes (): too many positional arguments"),
        (lambda cup: 0, "takes (cup): too many positional arguments"),
        (lambda a, b, c: 0, "takes (a, b, c): missing a required argument: 'c'"),
        (lambda a, b, *, hot: 0, "takes (a, b, *, hot): missing a required "),
        (3, "pour must be a function or None, got 3; it is called as pour(cup, liters)"),
    ],
)
def test_functions_that_do_not(wrong, words):
    with pytest.raises(ConfigError) as caught:
        check_function("pour", wrong, "cup", "liters")
    assert words in str(caught.value)


def test_a_call_that_is_written_wrong_names_the_nearest_argument():
    @checked_arguments
    def boil(liters: float, *, lid: bool = False) -> float:
        """Boil."""
        return liters

    result = checked_arguments(Kettle)(liters=2)
    assert (boil(1.5, lid=True), result.liters, boil.__doc__) == (1.5, 2, "Boil.")
    wrong: Any = boil
    with pytest.raises(ConfigError, match=r"boil: got an unexpected keyword argument 'lidd'. Did you mean 'lid'\?"):
        wrong(1.5, lidd=True)
    with pytest.raises(ConfigError, match=r"boil: missing a required argument: 'liters'"):
        wrong()
    with pytest.raises(ConfigError, match=r"Kettle: got an unexpected keyword argument 'cusp'. Did you mean 'cups'\?"):
        checked_arguments(Kettle)(cusp=3)  # type: ignore[call-arg]


def test_validate_finds_what_was_put_past_build():
    with pytest.raises(ConfigError, match="cups must be at least 1"):
        validate(Kettle(cups=0), "kettle")


def test_text_is_no_truth_value():
    """It would count as true."""
    text: Any = "False"
    for call in (
        lambda: mt.play(Identity, mt.make_agents("random", Identity), greedy=text),
        lambda: mt.check_env(Identity, strict=text),
        lambda: mt.DummyVectorEnv(Identity, 1, recording=text),
        lambda: mt.DummyVectorEnv(Identity, 1, with_state=text),
        lambda: mt.SubprocVectorEnv(Identity, 1, recording=text),
        lambda: mt.Checkpoint(every_steps=1, best=text),
    ):
        with pytest.raises(ConfigError, match=r"\w+ must be True or False, got 'False'"):
            call()
