"""Players change seats from episode to episode: the same episodes, with rows by entry of the line-up."""

from typing import Any

import numpy as np
import pytest

from marltrain.core.spec import BY_ENV
from marltrain.envs import make_vector
from marltrain.envs.rotating import RotatingVectorEnv
from marltrain.envs.rotation import Rotation
from tests.toys import Identity

TOE = "marltrain/tictactoe_v3"
GAMES: list[tuple[Any, dict[str, Any]]] = [(TOE, {}), (Identity, {"players": 3, "length": 3})]


def rotating(name: Any, args: dict[str, Any], num_envs: int) -> RotatingVectorEnv:
    envs = make_vector(name, args, num_envs)
    return RotatingVectorEnv(envs, Rotation(envs.spec))


@pytest.mark.parametrize(("name", "args"), GAMES)
def test_steps_are_those_of_the_environment_with_players_in_other_places(name, args):
    plain, envs = make_vector(name, args, 3), rotating(name, args, 3)
    expected, step, rng = plain.reset(5), envs.reset(5), np.random.default_rng(0)
    groups, columns, ends = plain.spec.groups, np.arange(3), 0
    for _ in range(20):
        before, episode = envs.seats.copy(), step.episode.copy()
        actions = [rng.integers(2, size=(g.size, 3)) for g in groups]
        if (legal := expected.legal[0]) is not None:
            actions = [np.where(legal, rng.random(legal.shape), -1).argmax(-1)]
        sent = []
        for group, given in zip(groups, actions, strict=True):
            place = {player: row for row, player in enumerate(group.players)}
            sent.append(np.array([[given[place[envs.seats[p, e]], e] for e in range(3)] for p in group.players]))
        expected, step = plain.step(tuple(actions)), envs.step(tuple(sent))
        ends += int(expected.ended.sum())
        assert (envs.seats_in(np.arange(3), episode) == before).all()
        for key, array in step.arrays().items():
            part, _, g = key.partition("/")
            seats = before if part in ("reward", "terminated", "truncated", "final_obs", "final_legal") else envs.seats
            there = expected.arrays()[key]
            if part not in BY_ENV:
                players = list(groups[int(g[0])].players) if g else list(range(len(plain.spec.players)))
                rows = np.array([[players.index(p) for p in seats[q]] for q in players])
                there = there[rows, columns]
            assert (array == there).all(), key
    assert ends
    assert (
        envs.seats == [[seat_by_rule(groups, p, e, step.episode[e]) for e in range(3)] for p in range(len(before))]
    ).all()
    envs.close()
    plain.close()


def seat_by_rule(groups: Any, player: int, env: int, episode: int) -> int:
    """The seat of an entry by the rule: (i + episode + environment) mod P within its group."""
    group = next(g.players for g in groups if player in g.players)
    return group[(group.index(player) + episode + env) % len(group)]


def test_cycles_by_hand():
    """Entries of cycles move on in their cycle, the others stay: four players, 3 and 0 change places."""
    envs = make_vector(Identity, {"players": 4, "length": 3}, 1)
    rotation = Rotation(envs.spec, [(3, 0)])
    assert rotation.seats(np.arange(3)).tolist() == [[0, 3, 0], [1, 1, 1], [2, 2, 2], [3, 0, 3]]
    assert rotation.rows_of(np.array([[3], [1]]), np.array([1])).tolist() == [[[0]], [[1]]]
    envs.close()


def test_a_restored_environment_goes_on_alike():
    one, two = (rotating(TOE, {}, 2) for _ in range(2))
    step = one.reset(3)
    for _ in range(7):
        step = one.step((step.legal[0].argmax(-1),))  # type: ignore[union-attr]
    other, restarted = two.restore(one.state())
    assert not restarted and (one.seats == two.seats).all()
    for _ in range(9):
        assert all((step.arrays()[key] == other.arrays()[key]).all() for key in ("obs/0", "turn/0", "legal/0"))
        step, other = one.step((step.legal[0].argmax(-1),)), two.step((other.legal[0].argmax(-1),))  # type: ignore[union-attr]
