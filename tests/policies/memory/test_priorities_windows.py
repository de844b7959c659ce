"""Windows of a replay memory, and its periodic clearing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.policies.memory.memory_numbers import MemoryNumbers
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.readers import UniformReader
from tests.policies.memory.test_priorities import chain, draw, go_on, statistic


def windowed(streams, **settings):
    """A uniform reader of player 0 that trims its rows."""
    return streams.reader([[0]], Needs(False, replay=mt.Replay(**{"capacity": 40, "n_step": 1, **settings})))


def seen(reader, seed=0):
    return sorted(set(draw(reader, 200, [seed]).obs[0, :, 0].tolist()))


@pytest.mark.parametrize(
    ("window", "kept"), [(7, 3), (0.25, 4), (1.0, 13), (9.5, 4), (lambda held: held // 2, 7), (1e9, 13)]
)
def test_only_the_newest_rows_are_drawn(window, kept):
    """13 closed batch steps of 3 environments; a window is rounded up to batch steps. A half of 14 x 3 is 21 steps."""
    streams = chain(14, envs=3)
    reader = windowed(streams, window=window)
    batch = draw(reader, 200)
    assert batch.rows is None and (batch.weight == 1).all()
    assert reader.size().tolist() == [3 * kept]
    assert seen(reader) == list(range(13 - kept, 13))
    cells = np.concatenate([draw(reader, 1, [seed]).cells[0] for seed in range(2000)])
    value, degrees = statistic(cells, dict.fromkeys(np.unique(cells).tolist(), 1 / (3 * kept)))
    assert degrees == 3 * kept - 1 and chi2.ppf(0.001, degrees) < value < chi2.ppf(0.999, degrees)


def test_rows_that_left_a_window_do_not_return():
    streams = chain(10)
    replay = mt.Replay(40, 1, window=2)
    numbers = MemoryNumbers(replay, "test")
    reader = streams.reader(
        [[0]], Needs(False, replay=replay), lambda ring, rows, needs: UniformReader(ring, rows, needs, numbers)
    )
    assert seen(reader) == [7, 8]
    numbers.set(0, "window", 0.5)
    go_on(streams, 10)
    assert seen(reader) == [7, 8, 9]
    state = reader.state()
    other = windowed(streams, window=2)
    other.restore(state)
    assert seen(other) == [7, 8, 9]
    go_on(streams, 11)
    assert (seen(other), seen(reader)) == ([9, 10], [7, 8, 9, 10])


def test_all_rows_are_dropped_periodically():
    """Every 6 env steps of 2 environments, at batch steps 0, 3, 6, ..."""
    streams, found = chain(1, envs=2), []
    reader = windowed(streams, clear_every=6, prioritized=mt.Prioritized())
    for value in range(1, 9):
        go_on(streams, value)
        found.append(int(reader.size()[0]) // 2)
    assert found == [1, 2, 0, 1, 2, 0, 1, 2]
    assert seen(reader) == [6, 7]


def test_a_window_that_keeps_nothing():
    for window in (0, -3, 0.0):
        with pytest.raises(ConfigError, match="Replay: window must be greater than 0"):
            mt.Replay(window=window)
    with pytest.raises(ConfigError, match="clear_every must be at least 1"):
        mt.Replay(clear_every=0)
    with pytest.raises(ConfigError, match=r"window\(held\)"):
        mt.Replay(window=lambda: 3)
    with pytest.raises(AgentError, match=r"window\(3\) must return the number of env steps to keep, at least 1, got 0"):
        windowed(chain(4), window=lambda held: 0).size()
