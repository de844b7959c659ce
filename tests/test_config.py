"""Settings: types from annotations, bounds from metadata, errors with the nearest name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from marltrain.config import build, setting, validate
from marltrain.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Kettle:
    """Something to be set."""

    litres: float = setting(1.5, doc="how much", above=0, high=5)
    cups: int = setting(4, doc="how many", low=1)
    whistle: bool = setting(False, doc="whether it whistles")
    metal: str = setting("steel", doc="of what", choices=("steel", "copper"))
    timer: int | None = setting(None, doc="minutes", low=0)
    lid: Any = setting(None, doc="anything")


def test_what_fits():
    assert build(Kettle, {}, "kettle") == Kettle()
    made = build(Kettle, {"litres": 2, "timer": 0, "lid": [1], "metal": "copper"}, "kettle")
    assert (made.litres, made.timer, made.lid) == (2, 0, [1])
    assert build(Kettle, {"litres": np.float64(0.5)}, "kettle").litres == 0.5


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"liters": 1}, "kettle has no setting 'liters'. Did you mean 'litres'? It has: litres, cups"),
        ({"litres": 0}, "kettle: litres must be greater than 0, got 0"),
        ({"litres": 5.1}, "kettle: litres must be at most 5, got 5.1"),
        ({"litres": "2"}, "kettle: litres must be a number, got '2'"),
        ({"litres": None}, "kettle: litres must be a number, got None"),
        ({"litres": True}, "kettle: litres must be a number, got True"),
        ({"litres": float("nan")}, "kettle: litres is not a number (nan)"),
        ({"cups": 2.0}, "kettle: cups must be an integer, got 2.0"),
        ({"cups": True}, "kettle: cups must be an integer, got True"),
        ({"cups": 0}, "kettle: cups must be at least 1, got 0"),
        ({"whistle": 1}, "kettle: whistle must be True or False, got 1"),
        ({"metal": "stele"}, "kettle: metal must be one of steel, copper, got 'stele'. Did you mean 'steel'?"),
        ({"timer": -1}, "kettle: timer must be at least 0, got -1"),
        ({"timer": 1.5}, "kettle: timer must be an integer or None, got 1.5"),
    ],
)
def test_what_does_not(values, words):
    with pytest.raises(ConfigError) as caught:
        build(Kettle, values, "kettle")
    assert words in str(caught.value)


def test_validate_finds_what_was_put_past_build():
    with pytest.raises(ConfigError, match="cups must be at least 1"):
        validate(Kettle(cups=0), "kettle")
