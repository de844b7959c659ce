"""Kuhn poker (Kuhn 1950), by the rules of OpenSpiel's kuhn_poker, which take up to ten players."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.compiling import inner
from marltrain.envs.native.arguments import whole
from marltrain.envs.native.bounds import turn_of
from marltrain.envs.native.cards.table import complete, deal, pass_turn, seats
from marltrain.envs.native.game import TERMINATED, Game
from marltrain.layout import Array

PASS, BET = 0, 1
NOBODY = -1


class KuhnPoker(Game):
    """Everybody stakes one and is dealt one of P + 1 cards; in turn they pass (0) or bet one more (1).

    Once somebody bets, everybody else decides once more: to bet as well, or to be out. The highest card of those who
    bet takes all; that of everybody, if nobody did. What was won or lost is the reward of the last step.
    """

    name = "kuhn_poker_v1"
    api = "turns"

    def __init__(self, players: int = 2) -> None:
        """Declare the game. `s.moves` are all decisions so far, `s.opener` who bet first."""
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
        """Everybody's card is out of the deck; `opener` was the first to bet, and somebody has yet to decide."""
        made, opener, players = records["made"], records["opener"], len(self.players)
        bets = (records["moves"] == BET) & (np.arange(records["moves"].shape[1]) < made[:, None])
        first = np.where(bets.any(-1), bets.argmax(-1), NOBODY)
        going_on = made < players + np.maximum(opener, 0)
        cards = complete(records["deck"], records["card"], 1.0)
        return cards & (opener == first) & going_on & turn_of(records, made % players)

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Deal a card to each; player 0 decides first."""
        s.deck[:] = 1.0
        for p in range(len(s.card)):
            s.card[p] = deal(s)
        s.made, s.opener = 0, NOBODY
        pass_turn(s, 0)

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Write down a decision; settle, if it was the last."""
        players = len(s.card)
        mover = s.made % players
        s.moves[s.made] = s.action[mover]
        if s.action[mover] == BET and s.opener == NOBODY:
            s.opener = mover
        s.made += 1
        pass_turn(s, s.made % players)
        if s.made == players + max(s.opener, 0):  # once round, and again up to whoever bet first
            settle(s)
            s.over[:] = TERMINATED

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """OpenSpiel's information state: who one is [P], one's card [P + 1], decisions in order [2P - 1, 2]."""
        players = len(s.card)
        obs[:] = 0.0
        obs[p] = 1.0
        obs[players + s.card[p]] = 1.0
        for i in range(s.made):
            obs[2 * players + 1 + 2 * i + s.moves[i]] = 1.0

    @staticmethod
    def legal(s: Any, rules: Any, p: int, mask: Any) -> None:
        """Both, for whoever has the turn."""
        mask[:] = s.turn[p]


@inner
def settle(s: Any) -> None:
    """Write what everybody won or lost."""
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
    """Return what player p put in: one, and one more for a bet."""
    if s.opener == NOBODY:
        return 1.0
    last = s.moves[p] if p >= s.opener else s.moves[len(s.card) + p]
    return 2.0 if last == BET else 1.0
