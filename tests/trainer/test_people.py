"""People in seats: keys of a window (scripted events of pygame) and numbers on a console. `make play-test` uses a real
window."""

import itertools
from typing import Any

import numpy as np
import pygame
import pytest

from marltrain.errors import ConfigError
from marltrain.policies.agents.fixed import RandomAgent
from marltrain.trainer import displays
from marltrain.trainer.play import play
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
    made = [pygame.event.Event(pygame.KEYDOWN, key=pygame.key.key_code(key)) for key in keys]
    made += [pygame.event.Event(pygame.QUIT)] if closed else []
    events = iter(made)
    monkeypatch.setattr(pygame.event, "poll", lambda: next(events, pygame.event.Event(pygame.NOEVENT)))
    monkeypatch.setattr(displays, "HOLD", 0.0)
    monkeypatch.setattr(pygame.time, "Clock", Untimed)


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
    assert shown[0] == "player_1: type the number of an action, 0 to 2, and Enter"
    assert shown[1:4] == ["step 0", "player_1, action (0 1 2): ", "'7' is not legal now"]
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
        (Text, {"human": "player_0", "keys": {"a": 0}}, "keys have a meaning only in a window"),
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
    from marltrain.trainer import people

    monkeypatch.setattr(people, "KEYS", "01")
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
