"""Pictures of finders: their numbers, and files for every kind of result."""

import numpy as np
import pandas as pd
import pytest

from marltrain.core.errors import ConfigError
from marltrain.tools.finding.find import FindResult
from marltrain.tools.finding.plots import moving_mean, rate_of_change


def result(numeric=True, failed=()):
    values = [1e-4, 1e-3, 1e-2, 1e-1] if numeric else ["a", "b", "c", "d"]
    names = [str(value) for value in values]
    rows = [
        {"candidate": name, "seed": seed, "env_steps": step, "metric": c * step + seed, "loss/total": 1.0 / (1 + c)}
        for c, name in enumerate(names)
        for seed in (0, 1, 2)
        for step in (0, 10, 20)
    ]
    table = pd.DataFrame({"candidate": names, "value": values})
    errors = pd.DataFrame([{"candidate": name, "seed": 0} for name in failed], columns=["candidate", "seed"])
    return FindResult("learning_rate", "metric", 0.5, numeric, values[-1], None, table, pd.DataFrame(rows), errors)


def test_moving_means_and_rates_of_change():
    values = np.array([1.0, 2.0, 6.0, 3.0])
    assert moving_mean(values, 1).tolist() == values.tolist()
    assert moving_mean(values, 3).tolist() == [1.5, 3.0, 11 / 3, 4.5]
    assert moving_mean(values, 2).tolist() == [1.5, 4.0, 4.5, 3.0]
    assert rate_of_change(values, 1).tolist() == [1.0, 4.0, -3.0] and rate_of_change(values, 2).tolist() == [2.5, 0.5]


@pytest.mark.parametrize("numeric", [True, False])
@pytest.mark.parametrize("arguments", [{}, {"by": "loss", "smooth": 2, "skip_end": 1, "limits": (0, 2)}])
def test_a_picture_is_written(tmp_path, numeric, arguments):
    path = result(numeric, failed=["1e-05", "0.01"] if numeric else ()).plot(tmp_path / "a.png", **arguments)
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("arguments", "match"),
    [({"skip_start": 2, "skip_end": 1}, "leave 2 of 4"), ({"smooth": 0}, "smooth must be at least 1"),
     ({"by": "loss/x"}, "the updates measure loss/total")],
)  # fmt: skip
def test_wrong_arguments_of_a_picture(tmp_path, arguments, match):
    with pytest.raises(ConfigError, match=match):
        result().plot(tmp_path / "a.png", **arguments)
