"""Kuhn poker (Kuhn 1950), with the rules of OpenSpiel's kuhn_poker, for up to ten players."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.envs.native.arguments import whole
from marltrain.envs.native.bounds import turn_of
from marltrain.envs.native.cards.table import complete, deal, dealt, pass_turn, seats
from marltrain.envs.native.game import TERMINATED, Game
from marltrain.jit.compiling import inner

PASS, BET = 0, 1
NOBODY = -1


class KuhnPoker(Game):
    """Each of P players stakes one and gets one of P + 1 cards; in turn they pass (0) or bet one more (1).

    After the first bet, each other player decides once more: bet as well, or leave the pot. The highest card among the
    players that bet wins the pot; without any bet, the highest card of all. The reward of the last step is the gain or
    loss.
    """

    name = "kuhn_poker_v1"
    api = "turns"
    actions = ("pass", "bet")

    def __init__(self, players: int = 2) -> None:
        """Declare the game. `s.moves` holds all decisions so far, `s.opener` the player that bet first."""
        most = 2 * whole("players", players, 2, 10) - 1
        super().__init__(
            seats(players, size=players + (players + 1) + 2 * most, moves=2),
            fields={
                "deck": (float, players + 1, (0, 1)),
                "card": (int, players, (0, players)),
                "moves": (int, most, (PASS, BET)),
                "made": (int, (), (0, most)),
                "opener": (int, (), (NOBODY, players - 1)),
            },
        )

    def sound(self, records: Array) -> Array:
        """Check that hands and deck are complete, `opener` bet first, and a decision is still to be made."""
        decided, opener, players = records["made"], records["opener"], len(self.players)
        bets = (records["moves"] == BET) & (np.arange(records["moves"].shape[1]) < decided[:, None])
        first = np.where(bets.any(-1), bets.argmax(-1), NOBODY)
        going_on = decided < players + np.maximum(opener, 0)
        cards = complete(records["deck"], records["card"], 1.0)
        return cards & (opener == first) & going_on & turn_of(records, decided % players)

    def text(self, state: Mapping[str, Any], viewers: Collection[int] | None) -> str:
        """Return the cards that viewers see, and the decisions in order."""
        names = [player.name for player in self.players]
        moves = state["moves"][: state["made"]].tolist()
        decisions = [f"{names[i % len(names)]} {self.actions[move]}" for i, move in enumerate(moves)]
        return f"cards: {dealt(names, state['card'].tolist(), viewers)}\ndecisions: {', '.join(decisions) or 'none'}"

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Deal a card to each player; player 0 decides first."""
        s.deck[:] = 1.0
        for p in range(len(s.card)):
            s.card[p] = deal(s)
        s.made, s.opener = 0, NOBODY
        pass_turn(s, 0)

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Record a decision; settle the rewards after the last one."""
        players = len(s.card)
        mover = s.made % players
        s.moves[s.made] = s.action[mover]
        if s.action[mover] == BET and s.opener == NOBODY:
            s.opener = mover
        s.made += 1
        pass_turn(s, s.made % players)
        if s.made == players + max(s.opener, 0):  # one round, and a second one up to the first to bet
            settle(s)
            s.over[:] = TERMINATED

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write OpenSpiel's information state: own number [P], own card [P + 1], decisions in order [2P - 1, 2]."""
        players = len(s.card)
        obs[:] = 0.0
        obs[p] = 1.0
        obs[players + s.card[p]] = 1.0
        for i in range(s.made):
            obs[2 * players + 1 + 2 * i + s.moves[i]] = 1.0

    @staticmethod
    def legal(s: Any, rules: Any, p: int, mask: Any) -> None:
        """Allow both actions, for the player with the turn."""
        mask[:] = s.turn[p]


@inner
def settle(s: Any) -> None:
    """Write the gain or loss of each player to the rewards."""
    pot, winner = 0.0, NOBODY
    for p in range(len(s.card)):
        pot += stake(s, p)
        staying = s.opener == NOBODY or stake(s, p) == 2.0
        if staying and (winner == NOBODY or s.card[p] > s.card[winner]):
            winner = p
    for p in range(len(s.card)):
        s.reward[p] = -stake(s, p)
    s.reward[winner] += pot


@inner
def stake(s: Any, p: int) -> float:
    """Return player p's stake: one, and one more for a bet."""
    if s.opener == NOBODY:
        return 1.0
    last = s.moves[p] if p >= s.opener else s.moves[len(s.card) + p]
    return 2.0 if last == BET else 1.0
