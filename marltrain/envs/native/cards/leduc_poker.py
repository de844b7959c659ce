"""Leduc poker (Southey et al. 2005), with the rules of OpenSpiel's leduc_poker, for up to ten players."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.envs.native.arguments import truth, whole
from marltrain.envs.native.bounds import turn_of
from marltrain.envs.native.cards.table import complete, deal, dealt, pass_turn, seats
from marltrain.envs.native.game import TERMINATED, Game
from marltrain.jit.compiling import inner

FOLD, CALL, RAISE = 0, 1, 2
MOST_RAISES = 2
RAISES = np.array([2, 4])
"""Size of a raise in each of the two rounds."""
HIGHEST = 1 + MOST_RAISES * int(RAISES.sum())
"""A player's stake after all raises."""
NONE = -1


class LeducPoker(Game):
    """P + 1 ranks in two suits; each player stakes one, gets a card, and folds (0), calls (1) or raises (2) in turn.

    A round has at most two raises and ends when all remaining players have equal stakes. After the first round a public
    card is dealt and a second round follows. A pair with the public card wins, else the higher cards; equal hands share
    the pot. Players that have folded stay in the episode: the reward of the last step is the gain or loss.
    """

    name = "leduc_poker_v1"
    api = "turns"
    actions = ("fold", "call", "raise")

    def __init__(
        self, players: int = 2, action_mapping: bool = False, suit_isomorphism: bool = False, starting_player: int = 0
    ) -> None:
        """Declare the game with the original's arguments.

        action_mapping: all three actions are always legal; actions that the rules forbid count as a call.
        suit_isomorphism: cards of equal rank are identical; a card's number is its rank.
        starting_player: the player that decides first in both rounds; if it has folded, the next remaining one.

        `s.deck` holds the number of copies of each card, `s.moves[r]` the decisions of round r, `s.made[r]` how many.
        """
        whole("players", players, 2, 10)
        alike = truth("suit_isomorphism", suit_isomorphism)
        cards, most = (players + 1) * (1 if alike else 2), 3 * players - 2
        super().__init__(
            seats(players, size=players + 2 * cards + 4 * most, moves=3),
            fields={
                "deck": (float, cards, (0, 2)),
                "card": (int, players, (0, cards - 1)), "open": (int, (), (NONE, cards - 1)),
                "round": (int, (), (0, 1)), "mover": (int, (), (0, players - 1)),
                "paid": (int, players, (1, HIGHEST)), "stakes": (int, (), (1, HIGHEST)),
                "folded": (bool, players), "left": (int, (), (1, players)),
                "calls": (int, (), (0, players)), "raises": (int, (), (0, MOST_RAISES)),
                "moves": (int, (2, most), (FOLD, RAISE)), "made": (int, 2, (0, most)),
            },
            rules={
                "mapped": truth("action_mapping", action_mapping),
                "suits": 1 if alike else 2,
                "first": whole("starting_player", starting_player, 0, players - 1),
            },
        )  # fmt: skip

    def sound(self, records: Array) -> Array:
        """Check that hands and deck are complete, the mover has not folded, and `moves` has room for the rest.

        After each raise, all other remaining players call or fold once more. `due`: the number of players that still
        have to.
        """
        rows, second, mover = np.arange(len(records)), records["round"], records["mover"]
        folded, left, raises, decided = (records[name] for name in ("folded", "left", "raises", "made"))
        hands = np.column_stack([records["card"], records["open"]])
        cards = complete(records["deck"], hands, 2.0 / self.rules["suits"][0])
        cards &= (records["open"] == NONE) == (second == 0)
        staying = (left == (folded == 0).sum(-1)) & (left > 1) & (folded[rows, mover] == 0)
        due = left - (raises > 0) - records["calls"]
        most = decided[rows, second] + due + (MOST_RAISES - raises) * (left - 1)
        room = (due > 0) & (most <= records["moves"].shape[2]) & ((second == 1) | (decided[:, 1] == 0))
        return cards & staying & room & turn_of(records, mover)

    def text(self, state: Mapping[str, Any], viewers: Collection[int] | None) -> str:
        """Return the ranks of the cards that viewers see, the stakes, and the decisions of both rounds in order."""
        suits, names = int(self.rules["suits"][0]), [player.name for player in self.players]
        paid, folded, decided = (state[field].tolist() for field in ("paid", "folded", "made"))
        public = "none" if state["open"] == NONE else int(state["open"]) // suits
        stakes = [f"{name} {stake}{' (folded)' * out}" for name, stake, out in zip(names, paid, folded, strict=True)]
        rounds = [
            f"round {r + 1}: {', '.join(self.actions[i] for i in state['moves'][r, : decided[r]]) or 'no decision'}"
            for r in range(2)
        ]
        cards = dealt(names, [card // suits for card in state["card"].tolist()], viewers)
        return "\n".join([f"cards: {cards}; public card: {public}", f"stakes: {', '.join(stakes)}", *rounds])

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Take the players' stakes and deal a card to each player."""
        s.deck[:] = 2.0 / rules.suits
        for p in range(len(s.card)):
            s.card[p] = deal(s)
        s.open = NONE
        s.paid[:] = s.stakes = 1
        s.folded[:] = 0
        s.left = len(s.card)
        s.made[:] = s.round = s.calls = s.raises = 0
        s.mover = rules.first
        pass_turn(s, s.mover)

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Apply the mover's decision; then pass the turn, deal the public card, or settle the rewards."""
        decide(s, allowed(s, s.mover, s.action[s.mover]))
        full = s.calls == s.left - (1 if s.raises > 0 else 0)
        if s.left == 1 or (full and s.round == 1):
            settle(s, rules)
            s.over[:] = TERMINATED
            s.turn[:] = 0
            return
        after = s.mover + 1
        if full:
            s.round, s.calls, s.raises, s.open = 1, 0, 0, deal(s)
            after = rules.first
        s.mover = next_staying(s, after)
        pass_turn(s, s.mover)

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write OpenSpiel's information state.

        Own number [P], own card, public card, calls and raises [2, 3P - 2, 2].
        """
        players, cards, most = len(s.card), len(s.deck), s.moves.shape[1]
        obs[:] = 0.0
        obs[p] = 1.0
        obs[players + s.card[p]] = 1.0
        if s.open != NONE:
            obs[players + cards + s.open] = 1.0
        start = players + 2 * cards
        for r in range(2):
            for i in range(s.made[r]):
                if s.moves[r, i] != FOLD:
                    obs[start + 2 * (most * r + i) + s.moves[r, i] - CALL] = 1.0

    @staticmethod
    def legal(s: Any, rules: Any, p: int, mask: Any) -> None:
        """Write the legal actions of the player with the turn: fold only after a raise, raise only twice a round."""
        for action in range(3):
            mask[action] = s.turn[p] and (rules.mapped or allowed(s, p, action) == action)


@inner
def allowed(s: Any, p: int, action: int) -> int:
    """Return the effective action of player p: a call instead of an action that the rules forbid."""
    if (action == FOLD and s.stakes <= s.paid[p]) or (action == RAISE and s.raises >= MOST_RAISES):
        return CALL
    return action


@inner
def decide(s: Any, action: int) -> None:
    """Apply the mover's fold, call or raise."""
    p = s.mover
    s.moves[s.round, s.made[s.round]] = action
    s.made[s.round] += 1
    if action == FOLD:
        s.folded[p] = 1
        s.left -= 1
        return
    if action == CALL:
        s.calls += 1
    else:
        s.stakes += RAISES[s.round]
        s.raises += 1
        s.calls = 0
    s.paid[p] = s.stakes


@inner
def next_staying(s: Any, p: int) -> int:
    """Return player p, or the next player that has not folded."""
    players = len(s.card)
    while s.folded[p % players]:
        p += 1
    return p % players


@inner
def settle(s: Any, rules: Any) -> None:
    """Divide the pot among the best hands of the players that have not folded."""
    best, winners, pot = NONE, 0, 0
    for p in range(len(s.card)):
        pot += s.paid[p]
        worth = hand(s, rules, p)
        if worth > best:
            best, winners = worth, 0
        winners += worth == best
    for p in range(len(s.card)):
        s.reward[p] = -s.paid[p]
        if hand(s, rules, p) == best:
            s.reward[p] += pot / winners


@inner
def hand(s: Any, rules: Any, p: int) -> int:
    """Return the value of player p's hand: the highest value wins; less than NONE if the player has folded."""
    if s.folded[p]:
        return NONE - 1
    if s.open == NONE:
        return 0
    ranks = len(s.deck) // rules.suits
    own, shared = s.card[p] // rules.suits, s.open // rules.suits
    if own == shared:
        return ranks * ranks + own
    return max(own, shared) * ranks + min(own, shared)
