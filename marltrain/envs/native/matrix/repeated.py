"""Repeated matrix games: in each round all players choose, and a table gives the payoffs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.envs.native.arguments import truth, whole
from marltrain.envs.native.game import TERMINATED, Game
from marltrain.jit.compiling import inner

NONE = -1
MATCHING_PENNIES = [[[1, -1], [-1, 1]], [[-1, 1], [1, -1]]]


class MatrixGame(Game):
    """A game in normal form, repeated for several rounds; players observe the last joint action.

    An episode is terminated, not truncated, after its last round: no further payoff is possible.
    """

    name = "matrix_game_v1"

    def __init__(
        self, payoffs: Any = MATCHING_PENNIES, num_rounds: int = 25, observe_last_actions: bool = True
    ) -> None:
        """Declare the game.

        payoffs: [A1, ..., AP, P], the payoff of each of P players for every joint action; or [A1, A2], a common payoff
            of two players.
        observe_last_actions: each player observes the last actions of all players, one-hot: its own first, then those
            of the following players, cyclically. Zeros before the first round. If False, observations are a constant 1.

        The global state has the same content, in the order of players. Raises ConfigError for payoffs of a wrong shape.
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

    def text(self, state: Mapping[str, Any], viewers: Collection[int] | None) -> str:
        """Return the number of finished rounds; before the first one also the payoffs of two players.

        A row of these is an action of the first player. The last actions are not shown: observations may hide them.
        """
        rounds = f"round {int(state['steps'])} of {int(self.rules['rounds'][0])}"
        first, *others = (int(player.action_space.n) for player in self.players)  # type: ignore[attr-defined]
        if len(others) != 1 or state["steps"]:
            return rounds
        payoffs = self.rules["payoffs"][0].reshape(first, others[0], 2)
        cells = [[f"{one:g}, {other:g}" for one, other in row] for row in payoffs.tolist()]
        width = max(len(cell) for row in cells for cell in row) + 1
        head = " ".join([" " * 3, *(f"{action:>{width}}" for action in range(others[0]))])
        rows = [" ".join([f"{action:>3}", *(f"{cell:>{width}}" for cell in row)]) for action, row in enumerate(cells)]
        return "\n".join([rounds, head, *rows])

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Clear the last actions."""
        s.last[:] = NONE

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Look up the payoffs of the joint action."""
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
        """Write the last actions, beginning with player p."""
        write_last_actions(s, rules, p, obs)

    @staticmethod
    def state(s: Any, rules: Any, out: Any) -> None:
        """Write the last actions, beginning with player 0."""
        write_last_actions(s, rules, 0, out)


@inner
def write_last_actions(s: Any, rules: Any, first: int, out: Any) -> None:
    """Write the last actions of all players, one-hot, from player `first` on; ones if they are not observed."""
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
    """Return payoffs as [A1, ..., AP, P] float64; raises ConfigError for a wrong shape or non-numeric values."""
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
