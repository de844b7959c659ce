"""People in seats: keys of a window (scripted events of pygame) and numbers on a console. `make play-test` uses a real
window."""

import itertools
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pygame
import pytest

from marltrain.core.errors import ConfigError
from marltrain.policies.agents.fixed import RandomAgent
from marltrain.trainer.playing import displays
from marltrain.trainer.playing.play import play
from tests.toys import Identity

BOARD = "pettingzoo/classic/tictactoe_v3"


class Text(Identity):
    """Two players; it renders as text only."""

    metadata = {"name": "text", "render_modes": ["ansi"]}  # noqa: RUF012

    def __init__(self, render_mode=None):
        super().__init__(length=2)

    def render(self):
        return f"step {self.t}"


class Picture(Text):
    metadata = {"name": "picture", "render_modes": ["human"], "render_fps": 1000}  # noqa: RUF012

    def render(self):
        return None


class Untimed:
    """A clock that does not wait: tic-tac-toe shows one picture a second."""

    def tick(self, fps: int = 0) -> int:
        return 0


def typed(monkeypatch, keys, *, closed=False):
    """Let pygame report these keys, one after another, in place of those of the window; clocks do not wait."""
    result = [pygame.event.Event(pygame.KEYDOWN, key=pygame.key.key_code(key)) for key in keys]
    result += [pygame.event.Event(pygame.QUIT)] if closed else []
    events = iter(result)
    monkeypatch.setattr(pygame.event, "poll", lambda: next(events, pygame.event.Event(pygame.NOEVENT)))
    monkeypatch.setattr(displays, "HOLD", 0.0)
    monkeypatch.setattr(pygame.time, "Clock", Untimed)
    monkeypatch.setattr(displays, "INVISIBLE", ())


def noted_actions(monkeypatch) -> list[Any]:
    """Return a list that gets the actions of every step of a Picture."""
    taken: list[Any] = []
    step = Picture.step

    def noting(self: Picture, actions: Any) -> Any:
        taken.append(actions)
        return step(self, actions)

    monkeypatch.setattr(Picture, "step", noting)
    return taken


def test_two_people_play_a_turn_based_game_by_keys(monkeypatch, capsys):
    """The first player takes a line; keys of no action and illegal moves are passed over."""
    pygame.init()
    typed(monkeypatch, ["0", "0", "3", "1", "x", "4", "2"])
    returns = play(BOARD, [RandomAgent(), RandomAgent()], human=["player_1", "player_2"], fps=1000)
    assert returns.tolist() == [[1.0, -1.0]]
    assert capsys.readouterr().out.startswith("player_1: 0 = action 0, 1 = action 1, ")


def test_closing_the_window_ends_play_with_the_finished_episodes(monkeypatch):
    pygame.init()
    typed(monkeypatch, ["0", "3", "1", "4", "2", "0"], closed=True)
    returns = play(BOARD, [RandomAgent(), RandomAgent()], human=["player_1", "player_2"], fps=1000, episodes=3)
    assert returns.tolist() == [[1.0, -1.0]]


def test_a_game_that_does_not_wait_takes_the_newest_key_or_the_first_action(monkeypatch):
    """Two keys before the first step, then none; the toy's reward is 1 for the observed symbol."""
    pygame.init()
    taken = noted_actions(monkeypatch)
    typed(monkeypatch, ["a", "b"])
    play(Picture, [RandomAgent(), RandomAgent()], human="player_0", keys={"a": 1, "B": 2})
    assert [int(actions["player_0"]) for actions in taken] == [2, 0]


def test_console_asks_until_the_action_is_legal(monkeypatch, capsys):
    answers = iter(["7", "x", "1", "2"])
    monkeypatch.setattr("builtins.input", lambda prompt: print(prompt) or next(answers))
    monkeypatch.setattr(displays, "HOLD", 0.0)
    returns = play(Text, [RandomAgent(), RandomAgent()], human="player_1", fps=1000)
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "player_1: type the number of an action and Enter: 0 to 2; q ends"
    assert shown[1:4] == ["step 0", "player_1, action (0 1 2): ", "'7' is not legal now; q ends"]
    assert "step 2" in shown and returns.shape == (1, 2)


def test_the_end_of_the_input_ends_play(monkeypatch):
    def ended(prompt):
        raise EOFError

    monkeypatch.setattr("builtins.input", ended)
    assert play(Text, [RandomAgent(), RandomAgent()], human="player_1").shape == (0, 2)


@pytest.mark.parametrize(
    ("env", "given", "message"),
    [
        (Text, {"human": "player_7"}, "human: there is no player 'player_7'. Did you mean 'player_"),
        (Text, {"human": "player_0", "keys": {"a": 0}}, "only in a window; in text, actions are typed"),
        (Picture, {"keys": {"a": 0}}, "keys have a meaning only with human="),
        (Picture, {"human": "player_0", "keys": {"a": 3}}, "key 'a': player_0's actions are 0 to 2, got 3"),
        (Picture, {"human": "player_0", "keys": {"nokey": 1}}, "pygame knows no key 'nokey'"),
        (Picture, {"human": "player_0", "out": "x.gif"}, "human needs a window or a console"),
        ("gymnasium/Pendulum-v1", {"human": "player_0"}, "a person can choose Discrete actions only"),
    ],
)
def test_errors_name_the_cause(env, given, message):
    agents = [RandomAgent()] if isinstance(env, str) else [RandomAgent(), RandomAgent()]
    with pytest.raises(ConfigError, match=message):
        play(env, agents, **given)


def test_keys_beyond_the_alphabet_have_to_be_given(monkeypatch):
    from marltrain.trainer.playing import human_player

    monkeypatch.setattr(human_player, "KEYS", "01")
    with pytest.raises(ConfigError, match="player_0 has 3 actions, and there are 2 keys: give keys="):
        play(Picture, [RandomAgent(), RandomAgent()], human="player_0")


def test_held_keys_count_in_a_game_that_does_not_wait(monkeypatch):
    pygame.init()
    typed(monkeypatch, [])
    held = itertools.chain([{pygame.K_b}], itertools.repeat(set()))
    monkeypatch.setattr(
        pygame.key, "get_pressed", lambda: (lambda down: np.isin(np.arange(2000), list(down)))(next(held))
    )
    taken = noted_actions(monkeypatch)
    play(Picture, [RandomAgent(), RandomAgent()], human="player_0", keys={"a": 1, "b": 2})
    assert [int(actions["player_0"]) for actions in taken] == [2, 0]


def typed_lines(monkeypatch, *answers):
    """Let these lines be typed; return the list of the prompts."""
    given, prompts = iter(answers), []

    def asked(prompt: str) -> str:
        prompts.append(prompt)
        return next(given)

    monkeypatch.setattr("builtins.input", asked)
    monkeypatch.setattr(displays, "HOLD", 0.0)
    return prompts


def test_a_person_plays_a_board_game_in_the_terminal(monkeypatch, capsys):
    """The native game is shown in place of PettingZoo's, which draws no text. Two people take turns; X wins."""
    prompts = typed_lines(monkeypatch, "4", "4", "²", "-1", " 0 ", "3", "1", "5")
    returns = play(BOARD, [RandomAgent(), RandomAgent()], human=["player_1", "player_2"], text=True)
    assert returns.tolist() == [[1.0, -1.0]]
    out = capsys.readouterr().out
    assert out.startswith("player_1: type the number of an action and Enter: 0 to 8; q ends\n")
    assert "'4' is not legal now; q ends\n'²' is not legal now" in out and "'-1' is not legal" in out
    assert out.endswith("step 5: player_1 5; rewards: player_1 1, player_2 -1\n O | X | 6 \n---+---+---\n "
                        "O | X | 7 \n---+---+---\n 2 | X | 8 \n")  # fmt: skip
    assert prompts[0] == "player_1, action (0 1 2 3 4 5 6 7 8): "
    assert prompts[1:5] == ["player_2, action (0 1 2 3 5 6 7 8): "] * 4


def test_names_of_actions_may_be_typed_and_q_ends(monkeypatch, capsys):
    prompts = typed_lines(monkeypatch, "North", "5", "lift", "stay", "Q")
    returns = play("marltrain/foraging_v3", [RandomAgent(), RandomAgent()], human="player_0", text=True)
    assert returns.shape == (0, 2)
    out = capsys.readouterr().out
    first = "player_0: type the number of an action and Enter: 0 stay, 1 north, 2 south, 3"
    assert out.startswith(first) and "\n  west, 4 east, 5 load; q ends\n" in out
    assert [word in out for word in ("player_0 north", "player_0 load", "'lift' is not", "player_0 stay")] == [True] * 4
    assert set(prompts) == {"player_0, action (0 1 2 3 4 5): "}


def test_a_person_sees_its_own_card_only_and_all_at_the_end(monkeypatch, capsys):
    typed_lines(monkeypatch, *["pass"] * 9)
    play("marltrain/kuhn_poker_v1", [RandomAgent(), RandomAgent()], human="player_1")
    *going, end = [line for line in capsys.readouterr().out.splitlines() if line.startswith("cards")]
    assert going and all(line.startswith("cards: player_0 ?, player_1 ") and line[-1] != "?" for line in going)
    assert "?" not in end


def test_where_nothing_is_drawn_a_person_reads_the_observation(monkeypatch, capsys):
    """The toy observes a symbol 0 to 2; two steps."""
    typed_lines(monkeypatch, "0", "1")
    play("marltrain/CartPole-v1", [RandomAgent()], human="player_0", text=True, max_steps=2, seed=3)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "start" and lines[2].startswith("player_0 observes [") and lines[2].count(".") == 4
    assert lines[3].startswith("step 1: player_0 0; rewards: player_0 1")


def test_many_legal_actions_are_listed_as_ranges(monkeypatch):
    from marltrain.trainer.playing.human_player import _ranges

    assert _ranges([0, 1, 4]) == "0 1 4"
    assert _ranges([*range(21)]) == "0-20"
    assert _ranges([3, *range(5, 25), 40, 41, 50]) == "3 5-24 40-41 50"


def test_a_window_without_a_display_is_an_error_at_once(monkeypatch):
    """Under pygame's dummy driver, as in these tests, and without the variables of a display."""
    for human in ("player_1", ()):
        with pytest.raises(ConfigError, match=r"no display.*text=True.*out='game.gif'"):
            play(BOARD, [RandomAgent(), RandomAgent()], human=human)
    monkeypatch.delenv("SDL_VIDEODRIVER")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="human: a person plays by keys in a window, and there is no display"):
        play(BOARD, [RandomAgent(), RandomAgent()], human="player_1")


def test_agents_alone_need_a_display_too(tmp_path):
    """In a process of its own, in which pygame has not used another driver before."""
    code = "import marltrain as mt; mt.play('marltrain/CartPole-v1', [mt.RandomAgent()])"
    hidden = ("SDL_VIDEODRIVER", "DISPLAY", "WAYLAND_DISPLAY")
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=variables, check=False
    )
    assert done.returncode == 1 and "ConfigError: play: the window is on no display" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("variables", "platform", "right"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ""}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({"DISPLAY": ":0", "SDL_VIDEODRIVER": "dummy"}, "linux", False),
        ({"DISPLAY": ":0", "SDL_VIDEODRIVER": "offscreen"}, "linux", False),
        ({"SDL_VIDEODRIVER": "kmsdrm"}, "linux", True),
        ({}, "darwin", True),
        ({"SDL_VIDEODRIVER": "dummy"}, "win32", False),
    ],
)
def test_variables_tell_whether_there_is_a_display(monkeypatch, variables, platform, right):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert displays.has_display() is right
