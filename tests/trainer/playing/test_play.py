import os
import subprocess
import sys
import time

import imageio.v3
import imageio_ffmpeg
import numpy as np
import pytest

from marltrain.core.errors import AgentError, ConfigError, EnvError
from marltrain.policies.agents.fixed import FunctionAgent, RandomAgent
from marltrain.trainer.make_agents import make_agents
from marltrain.trainer.playing.play import play
from tests.toys import Crowd, Identity, Relay


class Canvas(Identity):
    """Two players; an image with odd sides whose brightness is the step; it can raise, or return other values."""

    metadata = {"name": "canvas", "render_modes": ["rgb_array", "human"], "render_fps": 4}  # noqa: RUF012
    shown: list[int] = []  # noqa: RUF012
    built = 0

    def __init__(self, render_mode=None, fault="", length=3):
        super().__init__(length=length)
        self.fault = fault
        type(self).built += 1

    def step(self, actions):
        if self.fault == "step" and self.t == 1:
            raise ZeroDivisionError("broken")
        return super().step(actions)

    def render(self):
        self.shown.append(self.t)
        if self.fault == "frame":
            return "no picture"
        return np.full((33, 17, 3), 60 * self.t % 256, np.uint8)


@pytest.fixture(autouse=True)
def canvas():
    Canvas.shown, Canvas.built = [], 0


def copycats(players=2):
    """Agents that play the observed symbol, which has the reward 1 per step."""
    return [FunctionAgent(lambda symbol: symbol) for _ in range(players)]


def test_play_returns_the_returns_of_complete_episodes():
    returns = play(Canvas, copycats(), episodes=3, out="film.gif")
    assert returns.tolist() == [[3.0, 3.0]] * 3
    assert returns.dtype == np.float64


def test_film_contains_every_step_and_the_end():
    play(Canvas, copycats(), episodes=2, out="film.gif")
    assert Canvas.shown == [0, 1, 2, 3, 0, 1, 2, 3]
    pictures = imageio.v3.imread("film.gif")
    assert pictures[:, 0, 0, 0].tolist() == [0, 60, 120, 180, 0, 60, 120, 180]
    assert pictures.shape[1:] == (32, 16, 3)  # even sides
    durations = [imageio.v3.immeta("film.gif", index=i)["duration"] for i in range(4)]
    assert durations == [250, 250, 250, 1000]  # the last picture stays for a second


def test_mp4_films():
    play(Canvas, copycats(), episodes=1, out="film.mp4")
    words = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", "film.mp4", "-f", "rawvideo", "-pix_fmt", "gray", "-"]
    raw = subprocess.run(words, capture_output=True, check=True).stdout
    brightness = np.frombuffer(raw, np.uint8).reshape(-1, 32 * 16).mean(1)
    np.testing.assert_allclose(brightness, [0, 60, 120, 180, 180, 180, 180], atol=4)
    assert os.listdir() == ["film.mp4"]


@pytest.mark.parametrize("name", ["film.mp4", "film.MP4"])
def test_mp4_films_without_their_package_are_refused_before_an_episode(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)  # as if it were absent
    monkeypatch.setattr("marltrain.trainer.playing.play.resolve", None)  # nothing is built
    with pytest.raises(ConfigError, match=r'\.mp4 needs imageio_ffmpeg, .*: pip install "marltrain\[mp4\]"'):
        play(Canvas, copycats(), out=name)
    assert os.listdir() == []


def test_gif_films_need_no_package_of_mp4(monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    play(Canvas, copycats(), episodes=1, out="film.gif")
    assert os.listdir() == ["film.gif"]


def test_a_window_shows_every_step(monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    play(Canvas, copycats(), fps=50)
    assert Canvas.shown == [0, 1, 2, 3]
    assert slept[0] == 0
    assert all(0 < pause <= 0.02 for pause in slept[1:])


class Read(Identity):
    """Renders text in mode "human"."""

    metadata = {"name": "read", "render_modes": ["human"]}  # noqa: RUF012

    def __init__(self, render_mode=None):
        super().__init__(length=2)

    def render(self):
        return f"step {self.t}"


def test_an_environment_whose_window_prints_text_cannot_be_filmed(capsys, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    assert play(Read, copycats()).tolist() == [[2.0, 2.0]]
    assert capsys.readouterr().out == "step 0\nstep 1\nstep 2\n"
    with pytest.raises(EnvError, match=r"no render mode 'rgb_array' or 'ansi'; it has human\. It cannot be"):
        play(Read, copycats(), out="film.gif")


def test_play_of_turn_based_games():
    """Relay, always move 1 (ann 0, bob 1, cat 2, ...), worked out by hand.

    ann: 1 for each of moves 0, 3, 6; 20 for moves 1, 4; 30 for 2, 5, 7; 500 at the end = 633.
    bob: 1 for 1, 4; 10 for 0, 3; 30 for 2, 5; -1000 = -918.
    cat: 1 for 2, 5, 7; 10 for 0, 3, 6; 20 for 1, 4; 502 = 575.
    """
    agents = [FunctionAgent(lambda observation, legal: 1) for _ in range(3)]
    returns = play(Relay, agents, env_args={"absences": False}, episodes=2, out="film.gif")
    assert returns.tolist() == [[633.0, -918.0, 575.0]] * 2


def test_random_agents_play_legal_moves():
    returns = play(Relay, [RandomAgent() for _ in range(3)], episodes=4, out="film.gif")
    assert returns.shape == (4, 3)


def test_an_illegal_move_is_named():
    agents = [FunctionAgent(lambda observation, legal: 2) for _ in range(3)]
    with pytest.raises(EnvError, match=r"step 1: .*'(bob|cat)'"):
        play(Relay, agents, out="film.gif")
    assert not os.listdir()


def test_seed_determines_the_episodes():
    agents = [FunctionAgent(lambda symbol: 0) for _ in range(2)]
    seen = [play(Canvas, agents, env_args={"length": 20}, out="film.gif", seed=seed, episodes=2) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(seen[0], seen[1])
    assert (seen[0] != seen[2]).any()
    assert (seen[0][0] != seen[0][1]).any()


def test_every_episode_uses_a_new_environment():
    play(Canvas, copycats(), episodes=3, out="film.gif")
    assert Canvas.built == 1 + 3  # one is looked at first


@pytest.mark.parametrize("greedy", [True, False])
def test_agents_explore_only_if_asked(greedy):
    class Told(FunctionAgent):
        def act(self, observation, legal=None, explore=False):
            assert np.asarray(explore).all() != greedy
            return super().act(observation, legal, explore)

    play(Canvas, [Told(lambda symbol: symbol) for _ in range(2)], out="film.gif", greedy=greedy)


def test_play_does_not_change_agents():
    agents = make_agents("ppo", Identity, seed=0)
    before = [agent.learner() for agent in agents]
    play(Canvas, agents, out="film.gif")
    assert [agent.learner() for agent in agents] == before


def test_gymnasium_environments_are_filmed():
    agents = make_agents("ppo", "gymnasium/CartPole-v1", seed=0)
    returns = play("gymnasium/CartPole-v1", agents, env_args={"max_episode_steps": 7}, out="film.gif")
    assert returns.tolist() == [[7.0]]
    shown = len(imageio.v3.imread("film.gif"))  # equal pictures are one that stays longer
    assert sum(imageio.v3.immeta("film.gif", index=i)["duration"] for i in range(shown)) == 7 * 20 + 1000


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"out": "film.avi"}, ConfigError, r"\.gif or \.mp4, got 'film.avi'"),
        ({"episodes": 0}, ConfigError, "episodes must be at least 1"),
        ({"fps": 0.0}, ConfigError, "fps must be greater than 0"),
        ({"agents": copycats(3)}, AgentError, "2 players"),
        ({"env_args": {"fault": "step"}}, EnvError, r"Canvas.*step 1: ZeroDivisionError: broken"),
        ({"env_args": {"fault": "frame"}}, EnvError, r"render\(\) returned str"),
        (
            {"env": Relay, "agents": [RandomAgent() for _ in range(3)], "out": None},
            EnvError,
            r"no render mode 'human' or 'ansi'; it has .*Film",
        ),
        (
            {"env": Crowd, "agents": [RandomAgent() for _ in range(3)]},
            EnvError,
            r"render_mode='rgb_array'.*takes render_mode",
        ),
    ],
)
def test_play_errors_name_the_cause(changed, error, said):
    given = {"env": Canvas, "agents": copycats(), "out": "film.gif"}
    with pytest.raises(error, match=said):
        play(**{**given, **changed})
    assert not os.listdir()  # no half of a film


def test_video_driver_is_restored(monkeypatch):
    monkeypatch.delenv("SDL_VIDEODRIVER")
    drivers: list[str | None] = []

    class Watching(Canvas):
        def render(self):
            drivers.append(os.environ.get("SDL_VIDEODRIVER"))
            return super().render()

    play(Watching, copycats(), out="film.gif")
    assert "SDL_VIDEODRIVER" not in os.environ
    assert drivers and set(drivers) == {"offscreen,dummy"}  # with "dummy", highway-env draws nothing
    monkeypatch.setenv("SDL_VIDEODRIVER", "x11")
    play(Canvas, copycats(), out="film.gif")
    assert os.environ["SDL_VIDEODRIVER"] == "x11"
