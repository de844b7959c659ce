import shutil
import sys
from pathlib import Path

import imageio.v3
import numpy as np
import pytest

import marltrain as mt
from tests.toys import Identity
from tests.trainer.running import ppo, trainer, weights


class Canvas(Identity):
    """Two players; a picture whose brightness is the step."""

    metadata = {"name": "canvas", "render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(self, render_mode=None):
        super().__init__(length=3)

    def render(self):
        return np.full((16, 16, 3), 60 * self.t, np.uint8)


def run(*callbacks, **arguments):
    agents = ppo(Canvas, {})
    result = trainer(Canvas, {}, callbacks=[mt.Checkpoint(every_steps=30), *callbacks], test_freq=10, **arguments)
    result.train(agents, [1, 1], plot=False, resume="run" if Path("run").exists() else None)
    return weights(agents)


def test_every_second_test_is_filmed_and_training_stays_the_same(monkeypatch, tmp_path):
    filmed = run(mt.Film(Canvas, every=2, max_steps=2), steps_per_train=90)
    films = sorted(path.name for path in Path("run/films").iterdir())
    assert films == ["000000000.gif", "000000063.gif"]  # tests are at 0, 36, 63 and 90 env steps
    frames = imageio.v3.imread("run/films/000000000.gif")
    assert [int(frame.mean()) for frame in frames][:3] == [0, 60, 120]
    run(mt.Film(Canvas, every=2), steps_per_train=150)
    assert "000000090.gif" not in {path.name for path in Path("run/films").iterdir()}, "the count of tests continues"
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    for one, other in zip(filmed, run(steps_per_train=90), strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"every": 0}, "Film: every must be an integer, at least 1, got 0"),
        ({"suffix": ".avi"}, "Film: suffix must be .gif or .mp4, got '.avi'"),
        ({"evry": 2}, "Did you mean 'every'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(mt.ConfigError, match=message):
        mt.Film(Canvas, **arguments)


def test_mp4_films_without_their_package_are_refused_before_training(monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)  # as if it were absent
    with pytest.raises(mt.ConfigError, match=r'pip install "marltrain\[mp4\]"'):
        mt.Film(Canvas, suffix=".mp4")


def test_only_the_first_film_that_fails_ends_the_run(monkeypatch):
    """A missing render mode is known at the first test; a full disk, hours later, costs no result."""
    film = mt.Film(Canvas, every=1, max_steps=2)

    def failing(*arguments, **named):
        raise OSError(28, "No space left on device")

    class Fails(mt.Callback):
        def on_test_end(self, moment):
            if moment.env_steps:
                monkeypatch.setattr("marltrain.tools.film.play", failing)

    with pytest.warns(UserWarning, match=r"0000000(36|42)\.gif: the picture cannot be drawn"):
        run(Fails(), film, steps_per_train=40)
    shutil.rmtree("run")
    with pytest.raises(OSError, match="No space left"):
        run(mt.Film(Canvas, every=1, max_steps=2), steps_per_train=40)
