"""Repeated matrix games: everybody chooses, a table says what each receives, and again."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.compiling import inner
from marltrain.envs.native.arguments import truth, whole
from marltrain.envs.native.game import TERMINATED, Game
from marltrain.errors import ConfigError
from marltrain.layout import Array

NONE = -1
MATCHING_PENNIES = [[[1, -1], [-1, 1]], [[-1, 1], [1, -1]]]


class MatrixGame(Game):
    """A game in normal form, played several times in a row; players see what was chosen last.

    An episode is terminated, not truncated, after its last round: nothing is left to be won.
    """

    name = "matrix_game_v1"

    def __init__(
        self, payoffs: Any = MATCHING_PENNIES, num_rounds: int = 25, observe_last_actions: bool = True
    ) -> None:
        """Declare the game.

        payoffs: [A1, ..., AP, P], what each of P players receives, for every choice of all; or [A1, A2], what both of
            two players receive.
        observe_last_actions: each observes the last choices of all, one-hot, its own first and then those of the
            players after it; zeros before the first. Without it, observations are a constant 1.

        The global state is the same, in the order of players. Raises ConfigError for payoffs of another shape.
        """
        table = tensor(payoffs)
        actions = table.shape[:-1]
        size = sum(actions) if truth("observe_last_actions", observe_last_actions) else 1
        super().__init__(
            {f"player_{p}": (spaces.Box(0, 1, (size,)), spaces.Discrete(n)) for p, n in enumerate(actions)},
            fields={"last": (int, len(actions), (NONE, np.subtract(actions, 1)))},
            rules={
                "payoffs": table.reshape(-1, len(actions)),
                "actions": actions,
                "rounds": whole("num_rounds", num_rounds),
                "seen": observe_last_actions,
            },
            state_size=size,
        )

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Forget what was chosen."""
        s.last[:] = NONE

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Look up what was chosen."""
        players = len(s.last)
        row = 0
        for p in range(players):
            row = row * rules.actions[p] + s.action[p]
            s.last[p] = s.action[p]
        for p in range(players):
            s.reward[p] = rules.payoffs[row, p]
        if s.steps >= rules.rounds:
            s.over[:] = TERMINATED

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """What was chosen last, as player p sees it."""
        tell_last(s, rules, p, obs)

    @staticmethod
    def state(s: Any, rules: Any, out: Any) -> None:
        """What was chosen last."""
        tell_last(s, rules, 0, out)


@inner
def tell_last(s: Any, rules: Any, first: int, out: Any) -> None:
    """Write everybody's last choice, one-hot, beginning with player `first`; a constant where they are not seen."""
    if not rules.seen:
        out[:] = 1.0
        return
    players, at = len(s.last), 0
    out[:] = 0.0
    for i in range(players):
        p = (first + i) % players
        if s.last[p] != NONE:
            out[at + s.last[p]] = 1.0
        at += rules.actions[p]


def tensor(payoffs: Any) -> Array:
    """Return payoffs as [A1, ..., AP, P] float64; raises ConfigError where they are of another shape, or no numbers."""
    try:
        table = np.asarray(payoffs, np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"payoffs must be an array of numbers, got {payoffs!r}") from error
    if table.ndim == 2:
        table = np.stack([table, table], -1)
    if table.ndim < 3 or table.shape[-1] != table.ndim - 1 or 0 in table.shape:
        raise ConfigError(
            "payoffs must have the shape [A1, ..., AP, P], with what each of P players receives last, or [A1, A2] for "
            f"what two players both receive, got {np.shape(payoffs)}"
        )
    if not np.isfinite(table).all():
        raise ConfigError(f"payoffs must be finite, got {payoffs!r}")
    return table
