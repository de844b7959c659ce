"""Schedules: values at given env steps."""

from __future__ import annotations

import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError


@pytest.mark.parametrize(
    ("schedule", "values"),
    [
        (mt.linear(1.0, 0.2, 80), {0: 1.0, 20: 0.8, 80: 0.2, 1000: 0.2}),
        (mt.linear(0.0, 1.0, 3), {1: 1 / 3, 2: 2 / 3, 3: 1.0}),
        (mt.cosine(1.0, 0.0, 100), {0: 1.0, 25: 0.85355339, 50: 0.5, 100: 0.0, 101: 0.0}),
        (mt.exponential(1.0, 0.01, 100), {0: 1.0, 50: 0.1, 100: 0.01, 500: 0.01}),
        (
            mt.decay(1.0, 0.1, 10_000),
            {0: 1.0, 5_000: 0.1 + 0.9 * 0.60653066, 10_000: 0.1 + 0.9 * 0.36787944, 10**9: 0.1},
        ),
        (mt.switch(1.0, 0.0, 100), {0: 1.0, 99: 1.0, 100: 0.0, 5000: 0.0}),
    ],
    ids=["down", "up", "cosine", "exponential", "decay", "switch"],
)
def test_values(schedule, values):
    for env_steps, value in values.items():
        assert schedule(env_steps) == pytest.approx(value)


def test_a_description_builds_it_again():
    result = mt.exponential(1e-3, 1e-5, 700)
    assert mt.Schedule(**result.describe()) == result


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: mt.linear(1, 0, 0), "a linear schedule: steps must be at least 1, got 0"),
        (lambda: mt.exponential(1.0, 0.0, 10), "start and stop must be positive, got 1 and 0"),
        (lambda: mt.linear(1, float("nan"), 10), "a linear schedule: stop is not a number"),
        (lambda: mt.cosine("1", 0, 10), "a cosine schedule: start must be a number, got '1'"),  # type: ignore[arg-type]
        (lambda: mt.linear(1, 0, 2.5), "steps must be an integer, got 2.5"),  # type: ignore[arg-type]
        (lambda: mt.linear(1, 0, 10**400), "a linear schedule: steps must be between"),
        (lambda: mt.linear(1, 0), "linear: missing a required argument: 'steps'"),  # type: ignore[call-arg]
        (lambda: mt.Schedule("sine", 1, 0, 10), "one of linear, cosine, exponential, decay, switch, got 'sine'"),
    ],
)
def test_what_is_no_schedule(make, words):
    with pytest.raises(ConfigError, match=words):
        make()
