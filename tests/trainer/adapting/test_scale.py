import numpy as np
import pytest

from marltrain.core.errors import ConfigError
from marltrain.trainer.adapting.scale import Scale


@pytest.mark.parametrize(
    ("scale", "middle"),
    [
        (Scale(0.0, 1.0), 0.5),
        (Scale(0.1, 0.9), 0.5),  # less than ten times: linear
        (Scale(0.01, 1.0), 0.1),
        (Scale(0.01, 1.0, "linear"), 0.505),
        (Scale(0.25, 1.0, "log"), 0.5),
        (Scale(8, 128, sizes=True), 32),
        (Scale(10, 100, sizes=True), 40),  # 10, 20, 40, 80, 100: the middle is 31.6
    ],
)
def test_places_by_hand(scale, middle):
    assert scale.value(0.0) == pytest.approx(scale.low)
    assert scale.value(1.0) == scale.high
    assert scale.value(0.5) == pytest.approx(middle)
    places = np.linspace(0, 1, 41)
    values = [scale.value(place) for place in places]
    assert values == sorted(values)
    assert scale.low <= values[0] <= values[-1] <= scale.high
    if not scale.sizes:
        assert [scale.position(value) for value in values] == pytest.approx(places.tolist())


def test_there_are_few_sizes():
    scale = Scale(10, 100, sizes=True)
    assert {scale.value(place) for place in np.linspace(0, 1, 101)} == {10, 20, 40, 80, 100}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1.0, 1.0), "low must be less than high, got low=1 and high=1"),
        ((0.0, 1.0, "log"), 'scale="log" needs a lower bound above 0'),
    ],
)
def test_wrong_bounds_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        Scale(*arguments)
    with pytest.raises(ConfigError, match=r"sizes are integers of at least 1, got low=0\.5 and high=9"):
        Scale(0.5, 9, sizes=True)
