"""Labels of pictures: names of any kind are drawn as they are, and a picture that cannot be drawn costs no result."""

import warnings
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib import cbook
from matplotlib.text import Text

import marltrain as mt
from marltrain.trainer.reporting import run_picture
from marltrain.trainer.reporting.curves import Curve
from marltrain.trainer.reporting.figures import draw_curve, new_figure, not_worth_a_run, png_of, style, write_figure
from marltrain.trainer.reporting.labels import LONGEST_LABEL, label, labels
from marltrain.trainer.reporting.legends import add_legend
from tests.tiers import LONG
from tests.toys import Identity
from tests.trainer.running import ppo, trainer

NAMES = {
    "$x$": "$x$", "cost_$_per_{$}": "cost_$_per_{$}", r"$\frac{$": r"$\frac{$", r"\$": r"\$", r"a\$b$c$": r"a\$b$c$",
    "$": "$", "_hidden": " _hidden", "": "''", "  ": "'  '", "a\nb": r"a\nb", "\x1b[2J": r"\x1b[2J", "\0": r"\x00",
    "שלום": "שלום", "\u202ea": r"\u202ea", "名前": "名前", "\ud800": r"\ud800", "😀": "😀", "^_{}~#%&": "^_{}~#%&",
}  # fmt: skip


class Named(Identity):
    """Two players, the first of which has a given name."""

    def __init__(self, name: str) -> None:
        super().__init__(2, length=3)
        self.possible_agents = [name, "other"]


def drawn(text):
    """Return what matplotlib draws of a text, and whether it is a formula."""
    assert not cbook.is_math_text(text)
    return Text(text=text)._preprocess_math(text)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_drawn_as_it_is(name):
    assert drawn(label(name)) == (NAMES[name], False)


def test_long_names_lose_their_middle():
    short = label("a" * 50 + "b" * 50)
    assert short == "a" * 30 + "…" + "b" * 29
    assert len(short) == LONGEST_LABEL
    assert label("x" * LONGEST_LABEL) == "x" * LONGEST_LABEL


def test_labels_of_different_names_differ():
    names = ["a" * 50 + middle + "b" * 50 for middle in "123"]
    result = labels([*names, "short", "$"])
    assert len(set(result)) == 5
    assert all(len(each) <= LONGEST_LABEL for each in result)
    assert result[3:] == ["short", r"\$"]
    assert result[1].endswith(" (2)") and result[2].endswith(" (3)")


@pytest.mark.parametrize(
    ("suffix", "usetex"),
    [("png", False), ("svg", True), ("pdf", True), *LONG * [("png", True), ("svg", False), ("pdf", False)]],
)
def test_a_picture_of_such_names(tmp_path, suffix, usetex):
    """Also where the user's settings of matplotlib ask for TeX, which would read the names as its commands."""
    with mpl.rc_context({"text.usetex": usetex}), warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = new_figure(4, 3)
        ax = figure.subplots()
        for name in NAMES:
            draw_curve(ax, Curve(*(np.arange(1.0, 5.0) for _ in range(4))), label(name), "#333333")
        ax.set_title(label("$x$ of \0"))
        ax.set_xscale("log")
        style(ax, counts=False)
        add_legend(ax)
        write_figure(figure, tmp_path / f"picture.{suffix}")
    assert (tmp_path / f"picture.{suffix}").stat().st_size > 1000


def test_a_png_without_a_file():
    figure = new_figure(2, 2)
    figure.subplots().set_title(label("$a$"))
    assert png_of(figure).startswith(b"\x89PNG")


def test_a_picture_that_cannot_be_drawn_is_told():
    data = pytest.warns(UserWarning, match=r"x\.png: the picture cannot be drawn: ValueError: no\. No result is lost")
    with data, not_worth_a_run("x.png"):
        raise ValueError("no")
    with pytest.raises(KeyboardInterrupt), not_worth_a_run("x.png"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("error", [ValueError("no"), OSError(28, "No space left on device"), ImportError("matplotlib")])
def test_a_run_returns_its_result_without_its_picture(monkeypatch, error):
    def failing(*arguments, **named):
        raise error

    monkeypatch.setattr(run_picture, "draw_run", failing)
    with pytest.warns(UserWarning, match=r"metrics\.png: the picture cannot be drawn"):
        result = trainer(steps_per_train=12).train(ppo(), [1, 1])
    assert result["num_collected_steps"] == 12
    names = {path.name for path in Path(result["run_dir"]).iterdir()}
    assert {"last", "history.parquet", "episodes.parquet"} <= names and "metrics.png" not in names


@pytest.mark.parametrize("name", ["cost_$_per_{$}", *LONG * ["_a", "a\nb"]])
def test_a_run_of_such_names_draws_its_picture(name):
    agents = mt.make_agents("ppo", Named, env_args={"name": name}, seed=0, network=mt.MLP((4,)), epochs=1)
    pace = {"update_freq": 12, "batch_size": 6, "steps_per_train": 24, "test_freq": 2}
    result = trainer(Named, {"name": name}, **pace).train(agents, [1, 1])
    assert (Path(result["run_dir"]) / "metrics.png").stat().st_size > 1000
