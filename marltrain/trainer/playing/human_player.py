"""A person in a seat of `play`, at the keys of a pygame window or at a console."""

from __future__ import annotations

import re
import string
import textwrap
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import ConfigError, in_line, shown
from marltrain.core.layout import Array
from marltrain.policies.agents.fixed import FunctionAgent
from marltrain.trainer.playing.displays import check_display

KEYS = string.digits + string.ascii_lowercase
"""Keys of the actions, in their order."""
QUIT = "q"
"""What ends play on the console."""
COLUMNS = 79
"""Characters of a line on the console."""
MOST_VALUES = 200
"""Number of values of an observation that are printed one by one."""
MOST_LISTED = 20
"""Number of legal actions that are listed one by one."""
PAUSE = 0.01
"""Seconds between two looks at the keys while a turn-based game waits."""


class PlayEndedError(Exception):
    """The person has closed the window or the input."""


class Person(FunctionAgent):
    """A person who chooses Discrete actions.

    name: of the player.  keys: name of the key -> action; None: 0 to 9, then a to z.
    wait: whether the game waits for the person, as turn-based games do. Without it, the action is that of the newest
    key since the last step, of a key held down, or else the first legal one (action 0).
    """

    def __init__(self, name: str, keys: Mapping[str, int] | None, *, wait: bool) -> None:
        """Take the place of the keys; the actions are those of the seat."""
        super().__init__(self._choose)
        self.name, self.wait, self.console, self.observes = name, wait, False, False
        self.called: dict[str, int] = {}
        self.keys: dict[str, int] = dict(keys or {})
        self._codes: dict[int, int] = {}

    def begin(self, *, console: bool, observes: bool = False, called: Sequence[str] = ()) -> None:
        """Print the keys, once the agent has its seat.

        console: read actions from the standard input, instead of keys of the window.
        observes: print the player's observations there, since nothing else shows the game.
        called: names of the actions from 0, which may be typed, too; () without names.
        Raises ConfigError for actions that are not Discrete, for wrong keys, and for a window without a display.
        """
        self.console, self.observes, space = console, observes, self.action_space
        if not isinstance(space, spaces.Discrete):
            raise ConfigError(f"human: {self.name}'s actions are {space}; a person can choose Discrete actions only")
        first, count = int(space.start), int(space.n)
        if console:
            if self.keys:
                raise ConfigError("keys have a meaning only in a window; in text, actions are typed")
            self.called = {name: first + i for i, name in enumerate(called[:count])}
            self._introduce(first, count)
            return
        if not self.keys and count > len(KEYS):
            raise ConfigError(f"human: {self.name} has {count} actions, and there are {len(KEYS)} keys: give keys=")
        self.keys = self.keys or {key: first + i for i, key in enumerate(KEYS[:count])}
        for key, action in self.keys.items():
            if not (isinstance(action, int) and first <= action < first + count):
                raise ConfigError(f"human: key {key!r}: {self.name}'s actions are {first} to {first + count - 1}, "
                                  f"got {shown(action)}")  # fmt: skip
        self._codes = self._actions_by_code()
        check_display()
        rest = "" if self.wait else f"; no key: the first legal action ({first})"
        listed = ", ".join(f"{key} = action {action}" for key, action in self.keys.items())
        print(f"{in_line(self.name)}: {listed}{rest}. Close the window to end", flush=True)

    def _introduce(self, first: int, count: int) -> None:
        """Print what can be typed."""
        named = ", ".join(f"{action} {name}" for name, action in self.called.items())
        choice = named or f"{first} to {first + count - 1}"
        text = f"{in_line(self.name)}: type the number of an action and Enter: {choice}; {QUIT} ends"
        print(_filled(text), flush=True)

    def _actions_by_code(self) -> dict[int, int]:
        """Return the action of each key by pygame's code; its names may be written in capitals or not."""
        import pygame

        pygame.init()
        codes = {}
        for key, action in self.keys.items():
            try:
                codes[pygame.key.key_code(key)] = action
            except ValueError as error:
                raise ConfigError(f"human: pygame knows no key {key!r}; there are such as a, 1, left, space") from error
        return codes

    def _legal(self, legal: Array | None) -> list[int]:
        """Return the actions that are legal now."""
        space: Any = self.action_space
        allowed = np.arange(space.n) if legal is None else np.flatnonzero(legal)
        return [int(space.start + i) for i in allowed]

    def _choose(self, observation: Any, legal: Array | None = None) -> int:
        """Return the action that the person chooses."""
        if not self.console:
            return self._from_window(legal)
        if self.observes:
            print(_filled(f"{in_line(self.name)} observes {_observed(observation)}"))
        return self._from_console(self._legal(legal))

    def _from_window(self, legal: Array | None) -> int:
        """Return the action of a key; raises PlayEndedError if the window is closed."""
        import pygame

        allowed, newest = self._legal(legal), None
        while True:
            while (event := pygame.event.poll()).type != pygame.NOEVENT:
                if event.type == pygame.QUIT:
                    raise PlayEndedError
                action = self._codes.get(event.key) if event.type == pygame.KEYDOWN else None
                newest = action if action in allowed else newest
                if self.wait and newest is not None:
                    return newest
            if newest is not None:
                return newest
            if not self.wait:
                held = pygame.key.get_pressed()
                down = (action for code, action in self._codes.items() if held[code])
                return next((action for action in down if action in allowed), allowed[0])
            time.sleep(PAUSE)

    def _from_console(self, allowed: Sequence[int]) -> int:
        """Return a typed action; raises PlayEndedError for QUIT and at the end of the input."""
        listed = _filled(f"{in_line(self.name)}, action ({_ranges(allowed)}):")
        while True:
            try:
                text = input(f"{listed} ").strip()
            except EOFError:
                print()
                raise PlayEndedError from None
            if text.lower() == QUIT:
                raise PlayEndedError
            number = int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else None
            action = self.called.get(text.lower(), number)
            if action is not None and action in allowed:
                return action
            print(f"{shown(text)} is not legal now; {QUIT} ends")


def _filled(text: str) -> str:
    """Return text in lines of the console's width; its own line breaks stay."""
    return "\n".join(
        textwrap.fill(line, COLUMNS, subsequent_indent="  ", break_on_hyphens=False) for line in text.splitlines()
    )


def _ranges(actions: Sequence[int]) -> str:
    """Return actions in increasing order as text: "0 1 4", and of many such as "0-6 9"."""
    if len(actions) <= MOST_LISTED:
        return " ".join(map(str, actions))
    ends = [i for i, action in enumerate(actions) if i + 1 == len(actions) or actions[i + 1] != action + 1]
    runs = zip([0, *(i + 1 for i in ends[:-1])], ends, strict=True)
    return " ".join(str(actions[i]) if i == j else f"{actions[i]}-{actions[j]}" for i, j in runs)


def _observed(observation: Any) -> str:
    """Return an observation as text; of large arrays the first and last values."""
    if isinstance(observation, Mapping):
        return ", ".join(f"{in_line(str(name))} {_observed(value)}" for name, value in observation.items())
    if isinstance(observation, tuple):
        return ", ".join(map(_observed, observation))
    array = np.asarray(observation)
    return np.array2string(array, precision=3, suppress_small=True, threshold=MOST_VALUES, max_line_width=COLUMNS)
