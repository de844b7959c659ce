"""Every picture that the package draws, with few short names and with many long ones: no axes collapse."""

import itertools
from typing import Any

import numpy as np
import optuna
import pandas as pd
import pytest

from marltrain.tools.comparing.report import write_report
from marltrain.tools.comparing.result import Comparison
from marltrain.tools.evaluating import pictures
from marltrain.tools.evaluating.result import EvaluationResult
from marltrain.tools.finding.find import FindResult
from marltrain.tools.finding.plots import draw_sweep
from marltrain.tools.tuning.plots import draw_population, draw_study
from marltrain.trainer.reporting.figures import write_figure
from marltrain.trainer.reporting.history import History
from marltrain.trainer.reporting.plots import plot_runs
from marltrain.trainer.reporting.run_picture import draw_run
from marltrain.trainer.reporting.run_view import RunView
from marltrain.trainer.reporting.text_charts import plain, width_of
from tests import tiers
from tests.tools.runs import write_run
from tests.whole.drawing import watched

SHORT, LONG, WIDE = "{}", "an_unusually_long_name_of_a_player_that_somebody_gave_to_it_{}", "名前" * 30 + "{}"
KINDS = [
    pytest.param(SHORT, 1, id="short-1"), *tiers.LONG * [pytest.param(LONG, 2, id="long-2")],
    *tiers.LONG * [pytest.param(WIDE, 9, id="wide-9")], pytest.param(LONG, tiers.rounds(16, 30), id="long-many"),
]  # fmt: skip
"""Few short names and many long ones; the long tier draws two long and nine wide ones, too, and all combinations."""


def with_flags() -> list[Any]:
    """Return each kind with a flag, which the short tier sets for every second one; the long tier has both."""
    flags = (False, True)
    return [
        pytest.param(flag, *kind.values, id=f"{flag}-{kind.id}")
        for i, kind in enumerate(KINDS)
        for flag in flags
        if tiers.LONG or flag == i % 2
    ]


@pytest.fixture(autouse=True)
def sound():
    """Fail the test whose pictures have faults."""
    with watched() as faults:
        yield
    assert faults == []


def names_of(pattern, count):
    return [pattern.format(i) for i in range(count)]


@pytest.mark.parametrize(("same", "pattern", "count"), with_flags())
def test_of_a_run(tmp_path, pattern, count, same):
    players = names_of(pattern, count)
    result = History(players, None)
    for i in range(6):
        result.add_update({name: {"loss/total": 1.0 / (1 + i + p * (not same))} for p, name in enumerate(players)})
        values = np.array([i * (1 if same else (-1.0) ** p * (1 + p // 2)) for p in range(count)])
        result.add_test(
            episodes=i, env_steps=100_000 * i, updates=i, gradient_steps=i, seconds=0.0, metric=values.mean(),
            interval=(values.mean() - 1, values.mean() + 1), returns=values, judged=players, best=True,
            num_unfinished=0,
        )  # fmt: skip
        result.add_episodes(envs=np.array([0]), env_steps=100_000 * i, lengths=np.array([1]), seconds=0.0,
                          returns=1e6 * values[:, None])  # fmt: skip
    draw_run(result.tests, result.episodes, tmp_path / "metrics.png", title=pattern.format(3) * 3)


@pytest.mark.parametrize(("pattern", "count"), KINDS)
def test_of_several_runs(tmp_path, pattern, count):
    """The runs differ in four settings with long values; every second curve is another one's again."""
    runs = []
    for i, name in enumerate(names_of(pattern, count)):
        settings = {"learning_rate": {"kind": "linear", "start": 10.0 ** -(1 + i % 9), "stop": 0.0, "steps": 10_000},
                    "network": {"type": "MLP", "hidden": [32 + i] * 9, "activation": name}, "gamma": i / 100,
                    "text": name}  # fmt: skip
        seats = [{"player": "a", "agent": {"type": "ppo", "settings": settings}, "learns": True}]
        runs.append(write_run(tmp_path / str(i), np.arange(5.0) * (i // 2 + 1), seats=seats, env=SHORT * 3 + "a/b"))
    plot_runs(runs, out=tmp_path / "settings.png")
    plot_runs(runs, out=tmp_path / "labels.png", labels=names_of(pattern, count), title=pattern * 3)
    plot_runs(runs, out=tmp_path / "labels.png", metric="return/player_0", smooth=2, x="time")


@pytest.mark.parametrize(("pattern", "count"), KINDS)
def test_of_a_comparison(tmp_path, pattern, count):
    groups = names_of(pattern, count)
    rng = np.random.default_rng(0)
    scores = {name: rng.normal(size=(3, 1)) for name in groups}
    whole = [{"group": n, "environment": "e", "runs": 3, "env_steps": 9, "iqm": i, "low": i - 1.0, "high": i + 1.0,
              "median": 1.0, "mean": 1.0} for i, n in enumerate(groups)]  # fmt: skip
    chosen = list(itertools.combinations(groups, 2))[:60]
    ends = {f"{name}{end}": 0.5 for name in ("probability", "difference") for end in ("", "_low", "_high")}
    pairs = [{"first": one, "second": other, **ends, "verdict": "equal"} for one, other in chosen]
    lines = [{"group": n, "x": x, "y": x * i, "low": x * i - 1, "high": x * i + 1.0}
             for i, n in enumerate(groups) for x in (0, 1, 2)]  # fmt: skip
    profiles = pd.DataFrame(lines).rename(columns={"x": "threshold", "y": "share"})
    curves = pd.DataFrame(lines).rename(columns={"x": "env_steps", "y": "iqm"})
    members = {name: {"e": [tmp_path / "r"]} for name in groups}
    result = Comparison(members, scores, pd.DataFrame(whole), pd.DataFrame(pairs), profiles, curves,
                      f"return/{pattern * 3}", "last", False)  # fmt: skip
    write_report(result, tmp_path / "comparison.html")


def study(parameters, trials=12):
    result = optuna.create_study(direction="maximize")
    rng = np.random.default_rng(0)
    for _ in range(trials):
        values = {name: options[rng.integers(len(options))] for name, options in parameters.items()}
        known = {name: optuna.distributions.CategoricalDistribution(options) for name, options in parameters.items()}
        result.add_trial(optuna.trial.create_trial(params=values, distributions=known, value=float(rng.normal())))
    rows = [{"trial": t.number, "state": "complete", "metric": t.value, **t.params, "error": ""} for t in result.trials]
    return result, pd.DataFrame(rows)


@pytest.mark.parametrize(("pattern", "count"), KINDS)
def test_of_a_study(tmp_path, pattern, count):
    """Choices by name, integers, numbers over decades and within one, large ones."""
    parameters = {
        pattern.format("choice"): [f"MLP(({64 + i}, 64), {pattern})" for i in range(count)] + ["x"],
        "epochs": [1, 2, 3, 4], "learning_rate": [10.0**-e for e in range(2, 9)], "gamma": [0.9, 0.99, 0.999],
        "capacity": [100_000, 5_000_000, 123_456], "flag": ["False", "True"],
        pattern.format("rate"): [0.00123, 0.00124, 0.00125],
    }  # fmt: skip
    result, table = study(parameters, trials=40)
    drawn = draw_study(result, table, tmp_path)
    assert len(drawn) == 3


@pytest.mark.parametrize(("pattern", "count"), KINDS)
def test_of_a_population(tmp_path, pattern, count):
    columns = [pattern.format(i) for i in range(min(count, 9))]
    rows = [{"member": m, "env_steps": 1e6 * t, "copied": -1, "metric": m * t,
             **dict.fromkeys(columns, 10.0 ** (m - t))}
            for m in range(4) for t in range(5)]  # fmt: skip
    draw_population(pd.DataFrame(rows), 2, tmp_path / "population.png")


@pytest.mark.parametrize(("numeric", "pattern", "count"), with_flags())
def test_of_a_search(tmp_path, pattern, count, numeric):
    count = max(2, count)
    values = [10.0 ** -(i / 4) for i in range(count)] if numeric else names_of(pattern, count)
    names = [*map(str, values)]
    rows = [{"candidate": name, "seed": seed, "env_steps": step * 1000, "metric": c * step + seed, "loss/total": 1.0}
            for c, name in enumerate(names) for seed in (0, 1) for step in (0, 10, 20)]  # fmt: skip
    table = pd.DataFrame({"candidate": names, "value": values})
    errors = pd.DataFrame([], columns=["candidate", "seed"])
    what = pattern.format("setting")
    found = FindResult(what, "metric", 0.5, numeric, values[-1], None, table, pd.DataFrame(rows), errors)
    found.plot(tmp_path / "a.png")
    draw_sweep(np.geomspace(1e-5, 1, 50), np.arange(50.0), tmp_path / "b.png", by="loss", skip=(0, 0), limits=None)


def evaluation(grid, players, competitors, zero_sum=False):
    rows: list[dict[str, Any]] = []
    for match, (cell, one, other) in enumerate(itertools.product(
        [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())], competitors, competitors
    )):  # fmt: skip
        for p, player in enumerate(players):
            value = float(len(rows) % 7)
            shares = {"won": 0.5, "drawn": 0.2, "lost": 0.3} if zero_sum else dict.fromkeys(("won", "drawn", "lost"))
            against = [other, one][p % 2]
            rows.append({"match": match, **cell, "player": player, "agent": [one, other][p % 2], "against": against,
                         "return": value, "low": value - 1, "high": value + 1, **shares})  # fmt: skip
    table = pd.DataFrame(rows)
    held = {f"agent/{p}": [c for c in competitors for _ in competitors] for p in players[:1]}
    held |= {f"agent/{p}": [c for _ in competitors for c in competitors] for p in players[1:]}
    size = len(competitors) ** 2
    outcomes = {f"outcome/{p}": np.arange(size) % 3 - 1 for p in players}
    episodes = pd.DataFrame({**held, **outcomes, **{f"return/{p}": np.arange(size) * 1e4 for p in players}})
    return EvaluationResult(tuple(grid), tuple(players), tuple(competitors), tuple((p,) for p in players), table,
                            episodes, (), 0)  # fmt: skip


GRIDS: list[dict[str, Any]] = [
    {},
    {"N": [3, 4, 5]},
    {"shaped": [True, False]},
    {"N": [3, 4, 5], "shaped": [True, False]},
    {"N": [3, 4, 5], "a_setting_of_a_long_name": ["a", "b", "c", "d"], "shaped": [True, False]},
    {"map": [f"map_number_{i}" for i in range(20)], "shaped": [True, False]},
]
SIDES: dict[str, tuple[int, int, str]] = {
    "1-long": (1, 0, LONG),
    "3-short": (3, 0, SHORT),
    "2-long-against-3": (2, 3, LONG),
    "12-long": (12, 0, LONG),
}
"""Name -> numbers of players and of opponents, pattern of the names."""


@pytest.mark.parametrize(
    ("grid", "sides"),
    [
        pytest.param(grid, name, id="-".join([name, *grid]))
        for i, grid in enumerate(GRIDS)
        for j, name in enumerate(SIDES)
        if tiers.LONG or j == i % len(SIDES)
    ],
)
def test_of_an_evaluation(tmp_path, grid, sides):
    players, opponents, pattern = SIDES[sides]
    found = evaluation(grid, names_of(f"player_{pattern}", players), names_of(f"run_{pattern}", 1 + opponents))
    write_figure(pictures.draw_returns(found), tmp_path / "returns.png")


@pytest.mark.parametrize(("pattern", "count"), KINDS)
def test_of_wins(tmp_path, pattern, count):
    found = evaluation({"N": [3]}, names_of(f"player_{pattern}", 2), names_of(pattern, max(2, min(count, 12))), True)
    write_figure(pictures.draw_wins(found), tmp_path / "wins.png")
    write_figure(pictures.draw_matrix(found), tmp_path / "matrix.png")


@pytest.mark.parametrize(("pattern", "count"), KINDS)
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 12)])
def test_of_a_dashboard(pattern, count, width, height):
    """Its curve keeps at least 0.3 of the width, and every line is as wide as the screen."""
    view = RunView(pattern.format("title") * 3, {"env_steps": 1000})
    for step in (1, 500, 1000):
        players = {
            f"{kind}/return/{name}": 1.5 * step for kind in ("train", "test") for name in names_of(pattern, count)
        }
        losses = {f"{name}/loss/total": 1.0 / step for name in names_of(pattern, count)}
        view.add({"test/metric": 1.0 * step, **players, **losses}, step)
    view.count(10, 1000, 5, 60.0)
    lines = view.lines(width, height)
    assert {width_of(line) for line in lines} == {width} and len(lines) == height
    panel = next(line for line in plain(lines).splitlines() if "metric" in line)
    assert panel[1:].index("┐") >= 0.3 * width
