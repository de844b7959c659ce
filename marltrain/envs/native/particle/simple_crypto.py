"""Crypto: Alice sends Bob a secret with a key that the eavesdropper Eve lacks; rules of MPE2's simple_crypto_v3."""

from __future__ import annotations

from typing import Any

from marltrain.envs.native.arguments import truth, whole
from marltrain.envs.native.chance import integer
from marltrain.envs.native.game import Game
from marltrain.envs.native.particle.world import (
    message_space,
    observation_space,
    read_message,
    write_color,
    write_values,
)
from marltrain.jit.compiling import inner

EVE, BOB, ALICE = range(3)
CHANNELS = 4
"""Length of messages, and of the colors that represent secrets and keys."""
COLORS = 2


class SimpleCrypto(Game):
    """Eve's reward is minus the error of her guess; the others' reward is Eve's error minus Bob's error.

    The original's positions are omitted, because they have no effect.
    """

    name = "simple_crypto_v3"

    def __init__(self, max_cycles: int = 25, continuous_actions: bool = False) -> None:
        """Declare the game with the original's arguments, except those for rendering and infos."""
        action_space = message_space(truth("continuous_actions", continuous_actions), CHANNELS)
        super().__init__(
            {
                "eve_0": (observation_space(CHANNELS), action_space),
                "bob_0": (observation_space(2 * CHANNELS), action_space),
                "alice_0": (observation_space(2 * CHANNELS), action_space),
            },
            fields={
                "secret": (int, (), (0, COLORS - 1)),
                "key": (int, (), (0, COLORS - 1)),
                "said": (float, (3, CHANNELS)),
            },
            limit=whole("max_cycles", max_cycles),
            state_size=5 * CHANNELS,
        )

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Draw the secret and the key."""
        s.secret = integer(s, COLORS)
        s.key = integer(s, COLORS)
        s.said[:, :] = 0.0

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Read all messages and compute the rewards from the errors of Eve's and Bob's guesses."""
        for a in range(3):
            read_message(s.said[a], s.action, a, False)
        eve, bob = wrongness(s.said[EVE], s.secret), wrongness(s.said[BOB], s.secret)
        s.reward[:] = eve - bob
        s.reward[EVE] = -eve

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write, for Alice, the secret and the key; for Bob, the key and Alice's message; for Eve, Alice's message."""
        at = 0
        if p == ALICE:
            at = write_color(s.secret, 0.0, 1.0, obs, at, CHANNELS)
        if p != EVE:
            at = write_color(s.key, 0.0, 1.0, obs, at, CHANNELS)
        if p != ALICE:
            write_values(s.said[ALICE], obs, at)


@inner
def wrongness(guess: Any, secret: int) -> float:
    """Return the squared distance of a guess from the secret; 0 for an empty message."""
    silent, total = True, 0.0
    for i in range(len(guess)):
        silent = silent and guess[i] == 0.0
        total += (guess[i] - (1.0 if i == secret else 0.0)) ** 2
    return 0.0 if silent else total
