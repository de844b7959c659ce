"""Common functions of card games: the players' spaces, the deck, and the turn."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.layout import Array
from marltrain.envs.native.chance import choice
from marltrain.jit.compiling import inner


def seats(players: int, size: int, moves: int) -> dict[str, Any]:
    """Return the spaces of each player: observations of `size` numbers with an action mask, and `moves` actions."""
    seen, mask = spaces.Box(0, 1, (size,), np.float32), spaces.Box(0, 1, (moves,), np.int8)
    sides = (spaces.Dict({"observation": seen, "action_mask": mask}), spaces.Discrete(moves))
    return {f"player_{p}": sides for p in range(players)}


def complete(deck: Array, hands: Array, copies: float) -> Array:
    """Return whether decks [E, cards] and hands [E, n] together hold `copies` of each card: [E] bool.

    Numbers in a hand that are not cards, such as -1, are ignored.
    """
    held = (hands[:, :, None] == np.arange(deck.shape[1])).sum(1)
    return (deck == copies - held).all(-1)


def dealt(names: Sequence[str], cards: Sequence[int], viewers: Collection[int] | None) -> str:
    """Return each player's card as text, "?" for those that no viewer holds; viewers: see `Game.text`."""
    shown = [str(card) if viewers is None or p in viewers else "?" for p, card in enumerate(cards)]
    return ", ".join(f"{name} {card}" for name, card in zip(names, shown, strict=True))


@inner
def deal(s: Any) -> int:
    """Draw a random card from `s.deck`, the number of copies of each card; a queued outcome is a card's number."""
    card = choice(s, s.deck)
    s.deck[card] -= 1
    return card


@inner
def pass_turn(s: Any, p: int) -> None:
    """Give the turn to player p only."""
    s.turn[:] = 0
    s.turn[p] = 1
