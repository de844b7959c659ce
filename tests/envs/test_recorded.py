from typing import Any

import numpy as np
import pytest

from marltrain.core.errors import ConfigError
from marltrain.envs import make_vector
from marltrain.envs.recorded import values_of
from tests.toys import Relay

STEPS = 20


class Counting(Relay):
    """A relay of a length that its seed gives, 4 to 6 moves; `clock`, `winner` and `scores` tell of its end."""

    def reset(self, seed=None, options=None):
        super().reset(seed, options)
        self.length = 4 + (seed or 0) % 3
        self.winner, self.clock, self.scores = None, np.int64(0), {"ann": 0.0}

    def step(self, action):
        super().step(action)
        self.clock, self.winner = np.int64(self.t), "ann" if self.t % 2 else None
        self.scores = {"ann": 0.5 * self.t}


def ends(env, steps, **kind):
    """Return (environment, values) of all episodes that end, and the Steps' `ended` and `obs`."""
    with make_vector(env, num_envs=3, role="test", **kind) as envs:
        rng = np.random.default_rng(0)
        found: list[Any] = []
        seen: list[Any] = []
        step = envs.reset(3)
        for _ in range(steps):
            actions = tuple(np.zeros(turn.shape, np.int64) for turn in step.turn)
            if step.legal[0] is not None:
                draws = rng.random(step.legal[0].shape) * step.legal[0]
                actions = (draws.argmax(-1),)
            step = envs.step(actions)
            found += envs.recorded
            shown = np.where(step.turn[0][..., None], np.asarray(step.obs[0]), 0)  # others are of no meaning
            seen.append((step.ended.copy(), shown, step.reward.copy(), step.episode.copy()))
    return found, seen


@pytest.mark.parametrize("kind", [{}, {"vector": "subproc", "num_workers": 2}], ids=["dummy", "subproc"])
def test_values_at_the_end_of_episodes(kind):
    found, seen = ends(Counting, STEPS, record=["clock", "winner", "scores"], **kind)
    length = np.zeros(3, int)
    by_hand = []
    for ended, *_ in seen:
        length += 1
        for e in np.flatnonzero(ended).tolist():
            winner = "ann" if length[e] % 2 else None
            by_hand.append((e, {"clock": length[e], "winner": winner, "scores/ann": 0.5 * length[e]}))
            length[e] = 0
    assert found == by_hand
    assert {values["clock"] for _, values in found} == {4, 5, 6}


def test_fields_of_a_native_game_in_workers():
    """Recording changes neither episodes nor their seeds."""
    record = ["steps", "squares"]
    found, seen = ends("marltrain/tictactoe_v3", STEPS, record=record, vector="subproc", num_workers=2)
    plain = ends("marltrain/tictactoe_v3", STEPS)[1]
    for mine, expected in zip(seen, plain, strict=True):
        for one, other in zip(mine, expected, strict=True):
            assert np.array_equal(one, other)
    assert len(found) == sum(ended.sum() for ended, *_ in seen) >= 6
    assert all(5 <= values["steps"] <= 9 for _, values in found)
    for _, values in found:  # a finished board, not that of the next episode
        stones = [values[f"squares/{i}"] for i in range(9)]
        assert sum(stone != 0 for stone in stones) == values["steps"]


def test_random_starts_of_a_native_game_are_those_without_recording():
    recorded, plain = (ends("marltrain/CartPole-v1", 60, record=names)[1] for names in (["steps"], []))
    assert any(ended.any() for ended, *_ in plain)
    assert all(
        np.array_equal(a, b)
        for one, other in zip(recorded, plain, strict=True)
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize(
    ("env", "record", "words"),
    [
        (Counting, ["clok"], r"Counting has no attribute 'clok'. Did you mean 'clock'"),
        (Counting, ["observe"], "attribute 'observe' is a method"),
        (Counting, ["agent_selection", 3], "must be a list of names"),
        (Counting, "clock", "must be a list of names"),
        ("marltrain/tictactoe_v3", ["square"], r"has no field 'square'. Did you mean 'squares'"),
    ],
)
def test_wrong_names(env, record, words):
    with pytest.raises(ConfigError, match=words):
        make_vector(env, num_envs=2, record=record)


def test_attributes_inside_of_wrappers():
    class Wrapper:
        def __init__(self, env):
            self.env = env

    env = Counting()
    env.reset(seed=4)
    assert values_of(Wrapper(Wrapper(env)), ["clock", "length"]) == {"clock": 0, "length": 5}
