import json

import matplotlib.image
import numpy as np
import pytest

from marltrain.errors import ConfigError, SaveError
from marltrain.trainer.reporting.curves import read_tests
from marltrain.trainer.reporting.figures import COLORS, INK, new_figure
from marltrain.trainer.reporting.history import TESTS_FILE, History
from marltrain.trainer.reporting.legends import add_legend
from marltrain.trainer.reporting.plots import NUMBERS, _curve, _merged, plot_runs
from marltrain.trainer.reporting.run_picture import _losses, _returns, draw_run


def history(folder, tests=5, *, episodes=30, shift=0.0, every=10, losses=True):
    made = History(["left", "right"], folder)
    for i in range(tests):
        if losses and i:
            made.add_update({"left": {"loss/total": 1.0 / i}})
        made.add_test(
            episodes=2 * i, env_steps=every * i, updates=i, gradient_steps=i, seconds=i / 2, metric=i + shift,
            interval=(i - 0.5, i + 0.5), returns=np.array([i, -i]), judged=["left", "right"], best=True,
            num_unfinished=0,
        )  # fmt: skip
    for i in range(episodes):
        made.add_episodes(
            envs=np.array([0]), env_steps=i, lengths=np.array([1]), seconds=0.0, returns=np.array([i, -i])[:, None]
        )
    return made


def written(folder, *, config=None, **kind):
    history(folder, **kind).write(now=True)
    if config:
        (folder / "config.json").write_text(json.dumps(config))
    return folder


def _read(folder, column, smooth):
    return _curve(folder, read_tests(folder, NUMBERS), column, smooth, "metric")


def pixels(path, color):
    """Return the number of pixels of a colour."""
    wanted = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return int((np.abs(matplotlib.image.imread(path)[..., :3] - wanted).max(-1) < 0.02).sum())


def drawn(path):
    """Return whether the image contains the first colour."""
    return pixels(path, COLORS[0]) > 0


@pytest.mark.parametrize(
    "kind",
    [{}, {"tests": 1, "episodes": 1}, {"losses": False}, {"tests": 3, "episodes": 0}, {"tests": 40, "episodes": 3000}],
)
def test_plot_of_a_run(tmp_path, kind):
    made = history(tmp_path, **kind)
    draw_run(made.tests, made.episodes, tmp_path / "metrics.png", title="a run")
    assert drawn(tmp_path / "metrics.png")


def test_plot_of_an_empty_run(tmp_path):
    made = History(["left"], tmp_path)
    draw_run(made.tests, made.episodes, tmp_path / "metrics.png")
    assert not drawn(tmp_path / "metrics.png")


def test_plots_do_not_use_pyplot(tmp_path):
    """Pyplot keeps all figures that it creates; the plots are not among them."""
    import matplotlib.pyplot as plt

    made = history(tmp_path)
    draw_run(made.tests, made.episodes, tmp_path / "metrics.png")
    assert plt.get_fignums() == []


def test_infinite_intervals_are_not_drawn(tmp_path):
    made = History(["left"], tmp_path)
    for i in range(3):
        made.add_test(episodes=i, env_steps=i, updates=0, gradient_steps=0, seconds=0.0, metric=1.0,
                      interval=(-np.inf, np.inf), returns=np.zeros(1), judged=["left"],
                      best=not i, num_unfinished=0)  # fmt: skip
    draw_run(made.tests, made.episodes, tmp_path / "metrics.png")
    shown = pixels(tmp_path / "metrics.png", INK)
    draw_run(made.tests[:0], made.episodes, tmp_path / "metrics.png")
    assert shown > pixels(tmp_path / "metrics.png", INK) + 500  # the curve, in addition to the text


def test_unknown_image_format_is_an_error(tmp_path):
    made = history(tmp_path / "run")
    with pytest.raises(ConfigError, match=r"must end in one of .*png"):
        draw_run(made.tests, made.episodes, tmp_path / "metrics.pmg")
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
    """The curves of one panel: label -> (colour, line style, marker)."""
    ax = new_figure(4, 3).subplots()
    draw(ax, made)
    return {str(line.get_label()): (line.get_color(), line.get_linestyle(), line.get_marker()) for line in ax.lines}


def players(tmp_path, names, learns, episodes=1):
    made = History(names, tmp_path)
    made.add_update({name: {"loss/total": 1.0} for name in learns})
    made.add_test(episodes=1, env_steps=1, updates=1, gradient_steps=1, seconds=0.0, metric=0.0, interval=(0.0, 0.0),
                  returns=np.zeros(len(names)), judged=learns, best=True, num_unfinished=0)  # fmt: skip
    for i in range(episodes):
        made.add_episodes(envs=np.array([0]), env_steps=i, lengths=np.array([1]), seconds=0.0,
                          returns=np.zeros((len(names), 1)))  # fmt: skip
    return made


def test_player_has_the_same_colour_in_all_panels(tmp_path):
    """Only the second and third learn: their losses have the colours of their returns."""
    made = players(tmp_path, ["a", "b", "c+d", "d"], ["b", "c+d", "d"])
    returns, losses = lines(returns_of, made), lines(losses_of, made)
    assert list(losses) == ["b", "c+d", "d"]
    assert all(losses[name] == returns[name] for name in losses)
    assert len({look[0] for look in returns.values()}) == 4
    shared = lines(losses_of, players(tmp_path, ["a", "b", "c"], ["b+c"]))
    assert shared["b+c"][0] == returns["b"][0]


def test_line_styles_distinguish_players_beyond_the_colours(tmp_path):
    returns = lines(returns_of, players(tmp_path, [f"p{i}" for i in range(20)], []))
    assert len({look[:2] for look in returns.values()}) == 20


@pytest.mark.parametrize(("episodes", "marker"), [(1, "o"), (30, "o"), (3000, "None")])
def test_single_points_have_markers(tmp_path, episodes, marker):
    made = players(tmp_path, ["a"], ["a"], episodes)
    assert lines(returns_of, made)["a"][2] == marker
    assert lines(losses_of, made)["a"][2] == "o"


def named(ax):
    legend = ax.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def test_legend_names_the_curves(tmp_path):
    made = players(tmp_path, ["a", "b"], ["a", "b"])
    made.add_update({"b": {"loss/total": 2.0}})
    tests = made.tests.assign(**{"a/loss/total": np.nan})
    ax = new_figure(4, 3).subplots()
    _losses(ax, tests)
    add_legend(ax)
    assert named(ax) == ["b"]
    ax = new_figure(4, 3).subplots()
    for i in range(20):
        ax.plot([0], [0], label=str(i))
    add_legend(ax)
    assert named(ax) == [*map(str, range(11)), "and 9 more"]
