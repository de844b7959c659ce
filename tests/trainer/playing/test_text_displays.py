"""Episodes as text: printed, and drawn as pictures."""

import sys
import time

import gymnasium
import imageio.v3
import numpy as np
import pytest

from marltrain.policies.agents.fixed import FunctionAgent, RandomAgent
from marltrain.trainer.make_agents import make_agents
from marltrain.trainer.playing.play import play
from tests.toys import Crowd, Identity, Relay


class Spoken(Identity):
    """Two players and two steps; renders text, in color, in mode "ansi"."""

    metadata = {"name": "spoken", "render_modes": ["human", "ansi"]}  # noqa: RUF012

    def __init__(self, render_mode=None):
        super().__init__(length=2)
        self.render_mode = render_mode

    def render(self):
        assert self.render_mode == "ansi"
        return f"\x1b[31mstep {self.t}\x1b[0m\n"


class OnlySpoken(Spoken):
    metadata = {"name": "spoken", "render_modes": ["ansi"]}  # noqa: RUF012


class TextWalk(gymnasium.Env):
    """One step of reward 0.5; renders text."""

    metadata = {"render_modes": ["ansi"]}  # noqa: RUF012
    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2, start=5)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return 0, {}

    def step(self, action):
        self.t += 1
        return 0, 0.5, True, False, {}

    def render(self):
        return f"at {self.t}"


def always(action):
    """An agent with one action; it takes masks, too."""
    return FunctionAgent(lambda observation, legal=None: action)


def copycats():
    """Agents that play the observed symbol, which has the reward 1 per step."""
    return [FunctionAgent(lambda symbol: symbol) for _ in range(2)]


@pytest.mark.parametrize(("env", "given"), [(OnlySpoken, {}), (OnlySpoken, {"text": True}), (Spoken, {"text": True})])
def test_the_environments_own_text_follows_actions_and_rewards(env, given, capsys):
    assert play(env, [always(1), always(2)], max_steps=1, **given).shape == (1, 2)
    start, step, *rest = capsys.readouterr().out.split("\n\n")
    assert start == "\x1b[31mstep 0\x1b[0m" and not rest
    data, drawn = step.splitlines()
    assert data.startswith("step 1: player_0 1, player_1 2") and drawn == "\x1b[31mstep 1\x1b[0m"


def test_gymnasium_text_and_actions_that_begin_at_five(capsys):
    play(TextWalk, [always(6)])
    assert capsys.readouterr().out == "at 0\n\nstep 1: player_0 6; rewards: player_0 0.5\nat 1\n"


def test_an_environment_without_text_tells_its_actions_and_rewards(capsys):
    """Crowd has neither render modes nor a `render_mode`. Relay's first move pays 10 to bob and cat, 1 to ann."""
    play(Crowd, [RandomAgent() for _ in range(3)], text=True, max_steps=2)
    start, first, second = capsys.readouterr().out.splitlines()
    assert start == "start" and first.startswith("step 1: ") and second.startswith("step 2: ")
    play(Relay, [always(1) for _ in range(3)], env_args={"absences": False}, text=True, max_steps=1)
    assert capsys.readouterr().out == "start\nstep 1: ann 1; rewards: ann 1, bob 10, cat 10\n"


def test_continuous_actions_and_many_players_fit_into_eighty_columns(capsys):
    play("marltrain/Pendulum-v1", [always(np.array([-0.125]))], text=True, max_steps=1)
    start, step = capsys.readouterr().out.splitlines()
    assert start == "start" and step.startswith("step 1: player_0 [-0.125]; rewards: player_0 -")
    agents = make_agents("random", "marltrain/simple_world_comm_v3", seed=0)
    play("marltrain/simple_world_comm_v3", agents, text=True, max_steps=2)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) < 80
    assert [line for line in lines if not line.startswith(("step", "  "))] == ["start"]


def test_a_pause_follows_each_step_in_a_terminal_only(monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    play(OnlySpoken, copycats())
    assert not slept
    play(OnlySpoken, copycats(), fps=50)
    assert slept == [0.02, 0.02, 1.0]  # the end stays for a second
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    play(OnlySpoken, copycats())
    assert slept[3:] == [0.1, 0.1, 1.0]


def ink(picture):
    """Bounds of what differs from the ground: first row, last row, first column, last column."""
    rows, columns = np.nonzero((picture != picture[-1, -1]).any(-1))
    return rows.min(), rows.max(), columns.min(), columns.max()


def test_text_is_drawn_as_pictures_of_equal_size_in_place_of_a_film():
    """A picture holds the newest scene; the colors of terminals are left out."""
    play(OnlySpoken, copycats(), frames="shown", out="film.gif")
    first, last = (imageio.v3.imread(f"shown/000-00000{i}.png") for i in (0, 2))
    assert first.shape == last.shape and first.dtype == np.uint8
    (top, bottom, left, right), later = ink(first), ink(last)
    assert top >= 12 and left >= 12
    assert bottom - top < 21 and 5 * 9 < right - left < 7 * 11  # "step 0", six letters of about ten pixels
    assert later[3] > right and later[1] > bottom  # a line of actions above
    assert imageio.v3.imread("film.gif").shape[1:3] == first.shape[:2]


def test_pictures_of_an_environment_without_text_keep_the_last_lines():
    """12 lines fit: "start" and 11 of 20 steps are gone at the end, so that the pictures still change there."""
    play(Identity, copycats(), env_args={"length": 20}, text=True, frames="shown")
    few, full, end = (imageio.v3.imread(f"shown/000-0000{i:02}.png") for i in (3, 15, 20))
    line = 21
    assert ink(few)[1] < 12 + 4 * line < ink(full)[1] <= few.shape[0] - 12
    assert abs(int(ink(full)[1]) - int(ink(end)[1])) < 6
    assert (full != end).any()
