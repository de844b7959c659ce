"""A person in a seat of `play`, at the keys of a pygame window or at a console."""

from __future__ import annotations

import string
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.errors import ConfigError, in_line, shown
from marltrain.layout import Array
from marltrain.policies.agents.fixed import FunctionAgent

KEYS = string.digits + string.ascii_lowercase
"""Keys of the actions, in their order."""
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
        self.name, self.wait, self.console = name, wait, False
        self.keys: dict[str, int] = dict(keys or {})
        self._codes: dict[int, int] = {}

    def begin(self, *, console: bool) -> None:
        """Print the keys, once the agent has its seat.

        console: read numbers of actions from the standard input, instead of keys of the window.
        Raises ConfigError for actions that are not Discrete, and for wrong keys.
        """
        self.console, space = console, self.action_space
        if not isinstance(space, spaces.Discrete):
            raise ConfigError(f"human: {self.name}'s actions are {space}; a person can choose Discrete actions only")
        first, count = int(space.start), int(space.n)
        if console:
            if self.keys:
                raise ConfigError("keys have a meaning only in a window; this environment prints text")
            print(f"{in_line(self.name)}: type the number of an action, {first} to {first + count - 1}, and Enter")
            return
        if not self.keys and count > len(KEYS):
            raise ConfigError(f"human: {self.name} has {count} actions, and there are {len(KEYS)} keys: give keys=")
        self.keys = self.keys or {key: first + i for i, key in enumerate(KEYS[:count])}
        for key, action in self.keys.items():
            if not (isinstance(action, int) and first <= action < first + count):
                raise ConfigError(f"human: key {key!r}: {self.name}'s actions are {first} to {first + count - 1}, "
                                  f"got {shown(action)}")  # fmt: skip
        self._codes = self._actions_by_code()
        rest = "" if self.wait else f"; no key: the first legal action ({first})"
        listed = ", ".join(f"{key} = action {action}" for key, action in self.keys.items())
        print(f"{in_line(self.name)}: {listed}{rest}. Close the window to end", flush=True)

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
        return self._from_console(legal) if self.console else self._from_window(legal)

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

    def _from_console(self, legal: Array | None) -> int:
        """Return a typed action; raises PlayEndedError at the end of the input."""
        allowed = self._legal(legal)
        while True:
            try:
                text = input(f"{self.name}, action ({' '.join(map(str, allowed))}): ")
            except EOFError:
                raise PlayEndedError from None
            if text.strip().isdigit() and int(text) in allowed:
                return int(text)
            print(f"{text.strip()!r} is not legal now")
