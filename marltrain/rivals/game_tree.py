"""The information states of a two-player zero-sum game, from its tree in OpenSpiel.

A native game is walked as its twin in OpenSpiel: equal rules and equal numbers of actions. Each information state has
the observation that the environment gives there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.extras import imported
from marltrain.core.layout import Array
from marltrain.envs.openspiel import EXTRA, MODULE, NAMESPACE, OpenSpielGame
from marltrain.envs.registry import Source

PROBES, MARGIN = 9, 1000
"""Random episodes by which a tree that is much too large is recognized, and how many times the limit that is."""
Observe = Callable[[Any, int], Array]
"""(pyspiel's state, player) -> the observation, without the mask of legal actions."""
Decisions = tuple[tuple[int, int] | None, tuple[int, int] | None]
"""The last decision of each player: the row of its information state, and the action."""


@dataclass
class InformationStates:
    """The information states of one player.

    places: OpenSpiel's text of a state -> its row.  observations: [*O] by row.  legal: lists of actions by row.
    before: the row and the action of the player's decision before, by row; None at the first. It is a row further up.
    """

    places: dict[str, int] = field(default_factory=dict)
    observations: list[Array] = field(default_factory=list)
    legal: list[list[int]] = field(default_factory=list)
    before: list[tuple[int, int] | None] = field(default_factory=list)

    def add(self, key: str, observation: Array, legal: list[int], before: tuple[int, int] | None) -> None:
        """Add a state that is not known yet."""
        self.places[key] = len(self.places)
        self.observations.append(observation)
        self.legal.append(legal)
        self.before.append(before)


def _cards(state: Any, p: int) -> Array:
    """Return the observation of a native card game: OpenSpiel's information state."""
    return np.array(state.information_state_tensor(p), np.float32)


def _marks(state: Any, p: int) -> Array:
    """Return the observation of native tic-tac-toe: own marks and the opponent's, [3, 3, 2]."""
    seen, history = np.zeros((9, 2), np.int8), state.history()
    seen[history[p::2], 0] = seen[history[1 - p :: 2], 1] = 1
    return seen.reshape(3, 3, 2)


_TWINS: dict[str, tuple[str, Observe]] = {
    "kuhn_poker_v1": ("kuhn_poker", _cards),
    "leduc_poker_v1": ("leduc_poker", _cards),
    "tictactoe_v3": ("tic_tac_toe", _marks),
}
"""Native games: the name in OpenSpiel, whose parameters have equal names, and the native observation of a state.

Squares of tic-tac-toe are numbered by columns in one and by rows in the other, which is the same game.
"""


class GameTree:
    """A game of OpenSpiel that can be walked, and the observations of its environment.

    game: pyspiel's game, in which players decide in turn.
    """

    def __init__(self, source: Source) -> None:
        """Load the game of an environment.

        Raises ConfigError for an environment that is neither a game of OpenSpiel nor has a twin there, and for a game
        that is not a zero-sum game of two players.
        """
        pyspiel = imported(MODULE, EXTRA, "exploitability")
        self.name = source.name
        arguments = dict(source.arguments)
        if source.game is not None and source.game.name in _TWINS:
            twin, self.observe = _TWINS[source.game.name]
            game = OpenSpielGame(twin, arguments).game
        elif source.name.startswith(f"{NAMESPACE}/"):
            whole = OpenSpielGame(source.name.split("/", 1)[1], arguments, arguments.pop("observation", None))
            self.observe = lambda state, p: whole.observe(state, p)["observation"]
            game = whole.game
        else:
            raise ConfigError(
                f"exploitability needs the tree of a game: one of {', '.join(f'marltrain/{name}' for name in _TWINS)} "
                f"or a game of OpenSpiel ({NAMESPACE}/...), got {source.name}"
            )
        kind = game.get_type()
        if game.num_players() != 2:
            raise ConfigError(f"exploitability needs a game of two players, and {self.name} has {game.num_players()}")
        if kind.utility != kind.Utility.ZERO_SUM:
            raise ConfigError(
                f"exploitability needs a zero-sum game, and the returns of {self.name} do not always sum to zero"
            )
        self.simultaneous = kind.dynamics == kind.Dynamics.SIMULTANEOUS
        self.game = pyspiel.convert_to_turn_based(game) if self.simultaneous else game

    def information_states(self, max_states: int) -> tuple[InformationStates, InformationStates]:
        """Walk the tree and return the information states of both players.

        Raises ConfigError if the tree has more than `max_states` states in which chance or a player moves.
        """
        if self._is_surely_larger(max_states):
            raise self._too_large(max_states)
        found = InformationStates(), InformationStates()
        states = 0
        left: list[tuple[Any, Decisions]] = [(self.game.new_initial_state(), (None, None))]
        while left:
            state, before = left.pop()
            if state.is_terminal():
                continue
            states += 1
            if states > max_states:
                raise self._too_large(max_states)
            legal = state.legal_actions()
            if state.is_chance_node():
                left += [(state.child(action), before) for action in legal]
                continue
            p = state.current_player()
            key = state.information_state_string(p)
            if key not in found[p].places:
                seen = state.simultaneous_game_state() if self.simultaneous else state
                found[p].add(key, self.observe(seen, p), legal, before[p])
            left += [(state.child(action), _after(before, p, found[p].places[key], action)) for action in legal]
        return found

    def _is_surely_larger(self, max_states: int) -> bool:
        """Return whether most of `PROBES` random episodes tell that the tree has more than `max_states` states.

        The product of the numbers of choices that lead to the last decision of an episode is, on average, at most the
        number of states (Knuth 1975). By Markov's inequality, in a tree of `max_states` states it exceeds MARGIN times
        that in at most 1 of MARGIN episodes. Games such as chess, whose states are slow to visit, are so refused at
        once.
        """
        rng, exceeding = np.random.default_rng(0), 0
        for _ in range(PROBES):
            state, product = self.game.new_initial_state(), 1
            while not state.is_terminal() and product <= MARGIN * max_states:
                choices = state.legal_actions()
                product *= len(choices)
                state.apply_action(choices[rng.integers(len(choices))])
            exceeding += not state.is_terminal()
        return exceeding > PROBES // 2

    def _too_large(self, max_states: int) -> ConfigError:
        return ConfigError(
            f"exploitability walks the whole tree, and that of {self.name} has more than {max_states:,} states: take a "
            "smaller game, or raise max_states if memory and time suffice"
        )


def _after(before: Decisions, p: int, row: int, action: int) -> Decisions:
    """Return the last decisions after one of player p."""
    return ((row, action), before[1]) if p == 0 else (before[0], (row, action))
