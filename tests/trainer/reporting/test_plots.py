import json
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from marltrain.core.errors import ConfigError, SaveError
from marltrain.trainer.reporting import plots, run_picture
from marltrain.trainer.reporting.curves import read_tests
from marltrain.trainer.reporting.figures import COLORS, INK, new_figure
from marltrain.trainer.reporting.history import TESTS_FILE, History
from marltrain.trainer.reporting.legends import add_legend
from marltrain.trainer.reporting.plots import NUMBERS, _curve, _merged, plot_runs
from marltrain.trainer.reporting.run_picture import _losses, _returns, draw_run
from tests.team_toys import TEAMS
from tests.tiers import LONG


def history(folder, tests=5, *, episodes=30, shift=0.0, every=10, losses=True):
    result = History(["left", "right"], folder)
    for i in range(tests):
        if losses and i:
            result.add_update({"left": {"loss/total": 1.0 / i}})
        result.add_test(
            episodes=2 * i, env_steps=every * i, updates=i, gradient_steps=i, seconds=i / 2, metric=i + shift,
            interval=(i - 0.5, i + 0.5), returns=np.array([i, -i]), judged=["left", "right"], best=True,
            num_unfinished=0,
        )  # fmt: skip
    for i in range(episodes):
        result.add_episodes(
            envs=np.array([0]), env_steps=i, lengths=np.array([1]), seconds=0.0, returns=np.array([i, -i])[:, None]
        )
    return result


def written(folder, *, config=None, **kind):
    history(folder, **kind).write(now=True)
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def _read(folder, column, smooth):
    return _curve(folder, read_tests(folder, NUMBERS), column, smooth, "metric")


def pixels(path, color):
    """Return the number of pixels of a color."""
    wanted = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return int((np.abs(matplotlib.image.imread(path)[..., :3] - wanted).max(-1) < 0.02).sum())


def drawn(path):
    """Return whether the image contains the first color."""
    return pixels(path, COLORS[0]) > 0


@pytest.mark.parametrize(
    "kind",
    [
        {"tests": 1, "episodes": 1},
        {"losses": False},
        {"tests": 3, "episodes": 0},
        *LONG * [{}, {"tests": 40, "episodes": 3000}],
    ],
)  # fmt: skip
def test_plot_of_a_run(tmp_path, kind):
    result = history(tmp_path, **kind)
    draw_run(result.tests, result.episodes, tmp_path / "metrics.png", title="a run")
    assert drawn(tmp_path / "metrics.png")


def test_plot_of_an_empty_run(tmp_path):
    result = History(["left"], tmp_path)
    draw_run(result.tests, result.episodes, tmp_path / "metrics.png")
    assert not drawn(tmp_path / "metrics.png")


def test_plots_do_not_use_pyplot(tmp_path):
    """Pyplot keeps all figures that it creates; the plots are not among them."""
    import matplotlib.pyplot as plt

    result = history(tmp_path)
    draw_run(result.tests, result.episodes, tmp_path / "metrics.png")
    assert plt.get_fignums() == []


def test_infinite_intervals_are_not_drawn(tmp_path):
    result = History(["left"], tmp_path)
    for i in range(3):
        result.add_test(episodes=i, env_steps=i, updates=0, gradient_steps=0, seconds=0.0, metric=1.0,
                      interval=(-np.inf, np.inf), returns=np.zeros(1), judged=["left"],
                      best=not i, num_unfinished=0)  # fmt: skip
    draw_run(result.tests, result.episodes, tmp_path / "metrics.png")
    shown = pixels(tmp_path / "metrics.png", INK)
    draw_run(result.tests[:0], result.episodes, tmp_path / "metrics.png")
    assert shown > pixels(tmp_path / "metrics.png", INK) + 500  # the curve, in addition to the text


def test_unknown_image_format_is_an_error(tmp_path):
    result = history(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"must end in one of .*png"):
        draw_run(result.tests, result.episodes, tmp_path / "metrics.pmg")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("x", ["steps", "episodes", "time"])
def test_plot_of_several_runs(tmp_path, x):
    folders = [written(tmp_path / f"run-{i}", shift=i) for i in range(3)]
    assert plot_runs(folders, x=x, smooth=2, out=tmp_path / "runs.png") == tmp_path / "runs.png"
    assert drawn(tmp_path / "runs.png")


def test_smooth_averages_tests(tmp_path):
    folder = written(tmp_path / "run")
    assert _read(folder, "env_steps", 1).middle.tolist() == [0, 1, 2, 3, 4]
    assert _read(folder, "env_steps", 2).middle.tolist() == [0, 0.5, 1.5, 2.5, 3.5]
    assert _read(folder, "episodes", 1).x.tolist() == [0, 2, 4, 6, 8]
    assert _read(folder, "seconds", 3).low.tolist() == [-0.5, 0, 0.5, 1.5, 2.5]


def test_mean_of_runs_covers_their_common_range(tmp_path):
    """Runs tested at 0, 10, .., 40 and at 0, 15, 30: x = 0, 10, 15, 20, 30; the second's metric is x / 15 + 1."""
    curves = [
        _read(written(tmp_path / "a"), "env_steps", 1),
        _read(written(tmp_path / "b", tests=3, every=15, shift=1.0), "env_steps", 1),
    ]
    merged = _merged(curves)
    assert merged.x.tolist() == [0, 10, 15, 20, 30]
    first, second = merged.x / 10, merged.x / 15 + 1
    np.testing.assert_allclose(merged.middle, (first + second) / 2)
    # A resample of two runs is one of them twice with probability 1/2, so the interval is from run to run.
    np.testing.assert_allclose(merged.low, np.minimum(first, second))
    np.testing.assert_allclose(merged.high, np.maximum(first, second))


def test_runs_without_a_common_range_have_no_mean(tmp_path):
    late = written(tmp_path / "run-2")
    import pandas as pd

    tests = pd.read_parquet(late / TESTS_FILE)
    tests["env_steps"] += 1000
    tests.to_parquet(late / TESTS_FILE)
    with pytest.raises(ConfigError, match="no common range of the axis"):
        plot_runs([written(tmp_path / "run-1"), late], out=tmp_path / "a.png")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"x": "step"}, "Did you mean 'steps'"),
        ({"smooth": 0}, "smooth"),
        ({"run_dirs": []}, "at least one"),
        ({"out": "runs"}, "must end in"),
    ],
)
def test_wrong_arguments(tmp_path, changed, said):
    given = {"run_dirs": [written(tmp_path / "run")], "out": tmp_path / "runs.png"}
    with pytest.raises(ConfigError, match=said):
        plot_runs(**{**given, **changed})


def test_folder_without_a_run_is_named_in_the_error(tmp_path):
    with pytest.raises(SaveError, match=r"is not a run's folder: history\.parquet is not there, nor in the folders"):
        plot_runs([tmp_path])
    (tmp_path / TESTS_FILE).write_text("no table")
    with pytest.raises(SaveError, match=r"history\.parquet: not a table of tests"):
        plot_runs([tmp_path])
    with pytest.raises(SaveError, match="holds no test"):
        plot_runs([written(tmp_path / "empty", tests=0)])


def returns_of(ax, made):
    _returns(ax, made.tests, made.episodes)


def losses_of(ax, made):
    _losses(ax, made.tests)


def lines(draw, made):
    """The curves of one panel: label -> (color, line style, marker)."""
    ax = new_figure(4, 3).subplots()
    draw(ax, made)
    return {str(line.get_label()): (line.get_color(), line.get_linestyle(), line.get_marker()) for line in ax.lines}


def players(tmp_path, names, learns, episodes=1):
    result = History(names, tmp_path)
    result.add_update({name: {"loss/total": 1.0} for name in learns})
    result.add_test(episodes=1, env_steps=1, updates=1, gradient_steps=1, seconds=0.0, metric=0.0, interval=(0.0, 0.0),
                  returns=np.zeros(len(names)), judged=learns, best=True, num_unfinished=0)  # fmt: skip
    for i in range(episodes):
        result.add_episodes(envs=np.array([0]), env_steps=i, lengths=np.array([1]), seconds=0.0,
                          returns=np.zeros((len(names), 1)))  # fmt: skip
    return result


def test_player_has_the_same_color_in_all_panels(tmp_path):
    """Only the second and third learn: their losses have the colors of their returns."""
    result = players(tmp_path, ["a", "b", "c+d", "d"], ["b", "c+d", "d"])
    returns, losses = lines(returns_of, result), lines(losses_of, result)
    assert list(losses) == ["b", "c+d", "d"]
    assert all(losses[name] == returns[name] for name in losses)
    assert len({look[0] for look in returns.values()}) == 4
    shared = lines(losses_of, players(tmp_path, ["a", "b", "c"], ["b+c"]))
    assert shared["b+c"][0] == returns["b"][0]


def test_line_styles_distinguish_players_beyond_the_colors(tmp_path):
    returns = lines(returns_of, players(tmp_path, [f"p{i}" for i in range(20)], []))
    assert len({look[:2] for look in returns.values()}) == 20


@pytest.mark.parametrize(("episodes", "marker"), [(1, "o"), (30, "o"), (3000, "None")])
def test_single_points_have_markers(tmp_path, episodes, marker):
    result = players(tmp_path, ["a"], ["a"], episodes)
    assert lines(returns_of, result)["a"][2] == marker
    assert lines(losses_of, result)["a"][2] == "o"


def named(ax):
    legend = ax.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def test_legend_names_the_curves(tmp_path):
    result = players(tmp_path, ["a", "b"], ["a", "b"])
    result.add_update({"b": {"loss/total": 2.0}})
    tests = result.tests.assign(**{"a/loss/total": np.nan})
    ax = new_figure(4, 3).subplots()
    _losses(ax, tests)
    add_legend(ax)
    assert named(ax) == ["b"]
    ax = new_figure(4, 3).subplots()
    for i in range(20):
        ax.plot([0], [i], label=str(i))
    add_legend(ax)
    assert named(ax) == [*map(str, range(11)), "and 9 more"]


def drawn_lines(monkeypatch, *runs, **options):
    """Return the lines of a picture of runs by their labels, its title, and the name of its vertical axis."""
    seen: list[Any] = []

    def keep(figure, path):
        (ax,) = figure.axes
        data = {str(line.get_label()): line.get_ydata().tolist() for line in ax.lines}
        seen.append((data, ax.get_title(loc="left"), ax.get_ylabel()))

    monkeypatch.setattr(plots, "write_figure", keep)
    plot_runs(runs, **options)
    return seen[0]


def settled(rate, **changed):
    """A config.json of two players that differs in the learning rate."""
    seats = [{"player": name, "agent": {"type": "dqn", "settings": {"learning_rate": rate}}} for name in "ab"]
    return {"algo": "dqn", "env": "mpe2/simple_v3", "seats": seats, **changed}


def test_labels_say_only_what_differs(tmp_path, monkeypatch):
    runs = [written(tmp_path / str(i), config=settled(rate), shift=i) for i, rate in enumerate((1e-3, 1e-4, 1e-4))]
    lines, title, name = drawn_lines(monkeypatch, *runs)
    assert list(lines) == ["lr 1e-3", "lr 1e-4 (2 runs)"] and title == "dqn on mpe2/simple_v3"
    assert name == "metric in tests" and lines["lr 1e-4 (2 runs)"] == [1.5, 2.5, 3.5, 4.5, 5.5]
    lines, title, _ = drawn_lines(monkeypatch, runs[0])
    assert list(lines) == ["dqn on mpe2/simple_v3"] and title == ""
    other = written(tmp_path / "ppo", config=settled(1e-3, algo="ppo"), shift=8)
    lines, title, _ = drawn_lines(monkeypatch, *runs, other)
    assert list(lines) == ["dqn, lr 1e-3", "dqn, lr 1e-4 (2 runs)", "ppo"] and title == "mpe2/simple_v3"
    other = written(tmp_path / "tag", config=settled(1e-3, env="mpe2/tag"), shift=8)
    lines, title, _ = drawn_lines(monkeypatch, runs[0], other)
    assert list(lines) == ["mpe2/simple_v3", "mpe2/tag"] and title == "dqn"
    lines, title, _ = drawn_lines(monkeypatch, runs[0], written(tmp_path / "bare", shift=8))
    assert list(lines) == ["dqn on mpe2/simple_v3", "bare"] and title == ""


def test_own_labels_and_title(tmp_path, monkeypatch):
    """A label stands for a run, or for all runs of a folder; runs of equal labels are one curve."""
    runs = [written(tmp_path / "more" / str(i), config=settled(i), shift=i) for i in range(2)]
    runs.append(written(tmp_path / "c", shift=5))
    lines, title, _ = drawn_lines(monkeypatch, *runs, labels=["mine", "yours", "mine"], title="both")
    assert lines == {"mine (2 runs)": [2.5, 3.5, 4.5, 5.5, 6.5], "yours": [1, 2, 3, 4, 5]} and title == "both"
    lines, title, _ = drawn_lines(monkeypatch, tmp_path / "more", runs[2], labels=["$x$", "_c"])
    assert list(lines) == [r"\$x\$ (2 runs)", " _c"] and title == ""
    assert drawn_lines(monkeypatch, *runs[:2], title="")[1] == ""


@pytest.mark.parametrize("labels", [["a"], ["a", "b", "c"], "ab", []])
def test_a_label_for_each_run(tmp_path, labels):
    runs = [written(tmp_path / str(i)) for i in range(2)]
    with pytest.raises(ConfigError, match="one name for each of the 2 entries of run_dirs"):
        plot_runs(runs, labels=labels, out=tmp_path / "a.png")


def test_a_label_is_not_for_several_environments(tmp_path):
    runs = [written(tmp_path / env, config=settled(1, env=env)) for env in ("one", "two")]
    with pytest.raises(ConfigError, match="label 'x' is given to runs of several environments, one, two"):
        plot_runs(runs, labels=["x", "x"], out=tmp_path / "a.png")


def test_another_column_is_drawn(tmp_path, monkeypatch):
    run = written(tmp_path / "run")
    lines, _, name = drawn_lines(monkeypatch, run, metric="return/right")
    assert [*lines.values()] == [[0, -1, -2, -3, -4]] and name == "return/right in tests"
    lines, _, _ = drawn_lines(monkeypatch, run, metric="left/loss/total")  # the first test is before any update
    assert [*lines.values()] == [[1, 0.5, 1 / 3, 0.25]]
    with pytest.raises(ConfigError, match=r"no column of numbers 'return/rihgt'.*Did you mean 'return/right'"):
        plot_runs([run], metric="return/rihgt", out=tmp_path / "a.png")
    with pytest.raises(ConfigError, match="no column of numbers 'judged'"):
        plot_runs([run], metric="judged", out=tmp_path / "a.png")


def zero_sum(folder, scale=1.0, config=None):
    """Write a run of five players in two teams, whose returns in test i sum to zero; the metric is their mean, 0."""
    players = [name for team in TEAMS.values() for name in team]
    result = History(players, folder)
    for i in range(4):
        red, blue = scale * i * np.array([2.0, 4.0]), -scale * i * np.array([1.0, 2.0, 3.0])
        result.add_test(
            episodes=i, env_steps=10 * i, updates=i, gradient_steps=i, seconds=i, metric=0.0, interval=(0.0, 0.0),
            returns=np.concatenate([red, blue]), judged=players, best=True, num_unfinished=0,
        )  # fmt: skip
    result.write(now=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_sides_of_zero_sum_runs_are_drawn(tmp_path, monkeypatch):
    """Their metric is 0 in every test. Team red has 2 and 4 times i, mean 3i; blue -1, -2 and -3 times i: -2i."""
    config = settled(1e-3, trainer={"team_reward": TEAMS})
    run, twice = zero_sum(tmp_path / "a", config=config), zero_sum(tmp_path / "b", 3.0, config=config)
    lines, title, name = drawn_lines(monkeypatch, run)
    assert lines == {"red": [0, 3, 6, 9], "blue": [0, -2, -4, -6]} and name == "return in tests"
    assert title == "dqn on mpe2/simple_v3"
    lines, _, _ = drawn_lines(monkeypatch, run, twice)
    assert lines == {"red (2 runs)": [0, 6, 12, 18], "blue (2 runs)": [0, -4, -8, -12]}
    lines, _, _ = drawn_lines(monkeypatch, run, twice, labels=["x", "y"])
    assert list(lines) == ["x: red", "x: blue", "y: red", "y: blue"]
    lines, _, _ = drawn_lines(monkeypatch, zero_sum(tmp_path / "c"))
    assert lines["blue_2"] == [0, -3, -6, -9] and len(lines) == 5
    assert list(drawn_lines(monkeypatch, run, metric="metric")[0].values()) == [[0, 0, 0, 0]]
    assert (
        len(drawn_lines(monkeypatch, run, written(tmp_path / "d", shift=1))[0]) == 2
    )  # another one's metric says something


def panels(monkeypatch, made, **told):
    """Return the lines of each panel of a run's picture, by the names of the vertical axes."""
    seen: list[Any] = []
    monkeypatch.setattr(run_picture, "write_figure", lambda figure, path: seen.append(figure))
    draw_run(made.tests, made.episodes, "metrics.png", **told)
    return {ax.get_ylabel(): {str(line.get_label()): line.get_ydata().tolist() for line in ax.lines}
            for ax in seen[0].axes}  # fmt: skip


def test_returns_of_each_side_in_tests_are_drawn(tmp_path, monkeypatch):
    result = History([name for team in TEAMS.values() for name in team], None)
    for i in range(3):
        result.add_test(episodes=i, env_steps=i, updates=0, gradient_steps=0, seconds=0.0, metric=0.0,
                      interval=(0.0, 0.0), returns=i * np.array([2.0, 4.0, -1.0, -2.0, -3.0]), judged=["red_0"],
                      best=True, num_unfinished=0)  # fmt: skip
    lines = panels(monkeypatch, result, sides=TEAMS)["return in tests"]
    assert lines == {"red (mean of 2 players)": [0, 3, 6], "blue (mean of 3 players)": [0, -2, -4]}
    assert panels(monkeypatch, result)["return in tests"]["red_1"] == [0, 4, 8]


def test_returns_that_are_the_metric_are_not_drawn_again(tmp_path, monkeypatch):
    result = History(["a", "b"], None)
    for i in range(3):
        result.add_test(episodes=i, env_steps=i, updates=0, gradient_steps=0, seconds=0.0, metric=float(i),
                      interval=(0.0, 0.0), returns=np.array([i, i]), judged=["a", "b"], best=True,
                      num_unfinished=0)  # fmt: skip
    assert list(panels(monkeypatch, result)) == ["metric in tests"]
