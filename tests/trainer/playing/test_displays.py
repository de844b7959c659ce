"""Pictures and cut episodes; films and windows are tested with `play`."""

import time
from pathlib import Path

import imageio.v3
import pytest

from marltrain.core.errors import ConfigError
from marltrain.trainer.playing.play import play
from tests.trainer.playing.test_play import Canvas, copycats


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_every_second_picture_and_the_last_are_written():
    play(Canvas, copycats(), episodes=2, frames="shown", every=2, env_args={"length": 5})
    assert names("shown") == [f"{episode:03}-{step:06}.png" for episode in (0, 1) for step in (0, 2, 4, 5)]
    picture = imageio.v3.imread("shown/001-000004.png")
    assert picture.shape == (33, 17, 3) and (picture == 240).all()


def test_pictures_and_a_film_are_made_at_once():
    play(Canvas, copycats(), frames="shown", out="film.gif")
    assert names("shown") == ["000-000000.png", "000-000001.png", "000-000002.png", "000-000003.png"]
    assert len(imageio.v3.imread("film.gif")) >= 4


def test_episodes_are_cut_and_the_next_one_is_whole():
    returns = play(Canvas, copycats(), frames="shown", episodes=2, max_steps=2)
    assert returns.tolist() == [[2.0, 2.0]] * 2
    assert play(Canvas, copycats(), frames="shown", max_steps=3).tolist() == [[3.0, 3.0]]


def test_delay_is_a_pause_after_each_step_of_pictures_and_the_time_of_a_picture_in_a_film(monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    play(Canvas, copycats(), frames="shown", delay=0.05)
    assert slept == [0.05] * 4
    play(Canvas, copycats(), out="film.gif", delay=0.05)
    assert slept[4:] == [0.0] * 4
    assert imageio.v3.immeta("film.gif")["duration"] == 50


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"every": 2}, "every has a meaning only with frames"),
        ({"frames": "x", "every": 0}, "every must be at least 1, got 0"),
        ({"frames": "x", "max_steps": 0}, "max_steps must be at least 1, got 0"),
        ({"frames": "x", "delay": -1}, "delay must be at least 0, got -1"),
        ({"fps": 2, "delay": 1}, "fps and delay say the same"),
    ],
)
def test_wrong_arguments_are_refused(given, message):
    with pytest.raises(ConfigError, match=message):
        play(Canvas, copycats(), **given)
