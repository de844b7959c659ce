"""Environments divided among matches: the same episodes, with the players of all matches side by side."""

from typing import Any

import numpy as np
import pytest

from marltrain.envs import make_vector
from marltrain.envs.matches import MatchesVectorEnv, divided, games_of
from tests.toys import Identity

TOE = "marltrain/tictactoe_v3"
GAMES: list[tuple[Any, dict[str, Any]]] = [(TOE, {}), (Identity, {"players": 3, "length": 3})]


@pytest.mark.parametrize(("name", "args"), GAMES)
def test_steps_are_those_of_the_environments_in_other_places(name, args):
    """Player p of match m is row p * 2 + m; its columns are those of the environments of the match."""
    plain, envs = make_vector(name, args, 6), MatchesVectorEnv(make_vector(name, args, 6), ["one", "two"])
    expected, step, rng = plain.reset(5), envs.reset(5), np.random.default_rng(0)
    players, ends = len(plain.spec.players), 0
    for _ in range(20):
        for key, own in step.arrays().items():
            if key in ("ended", "episode"):
                assert not own.any()
                continue
            there = expected.arrays()[key]
            for p in range(players):
                for m in range(2):
                    assert (own[p * 2 + m] == there[p, m * 3 : m * 3 + 3]).all(), key
        assert (envs.joined.ended == expected.ended).all() and (envs.joined.episode == expected.episode).all()
        ends += int(expected.ended.sum())
        choice = rng.integers(2, size=(players, 6))
        if (legal := expected.legal[0]) is not None:
            choice = np.where(legal, rng.random(legal.shape), -1).argmax(-1)
        expected = plain.step((choice,))
        step = envs.step((choice.reshape(players * 2, 3),))
    assert ends
    envs.close()
    plain.close()


def test_names_and_parts():
    inner = make_vector(TOE, {}, 4)
    envs = MatchesVectorEnv(inner, ["one", "two"])
    assert envs.spec.names == ("one", "two", "one-player_2", "two-player_2") and envs.num_envs == 2
    assert (games_of(envs), games_of(inner), divided(envs), divided(inner)) == (inner, inner, 2, 1)
    envs.close()


def test_a_restored_environment_goes_on_alike():
    one, two = (MatchesVectorEnv(make_vector(TOE, {}, 4), ["one", "two"]) for _ in range(2))
    step = one.reset(3)
    for _ in range(7):
        step = one.step((step.legal[0].argmax(-1),))  # type: ignore[union-attr]
    other, restarted = two.restore(one.state())
    assert not restarted
    for _ in range(9):
        assert all((step.arrays()[key] == other.arrays()[key]).all() for key in ("obs/0", "turn/0", "legal/0"))
        step, other = one.step((step.legal[0].argmax(-1),)), two.step((other.legal[0].argmax(-1),))  # type: ignore[union-attr]
