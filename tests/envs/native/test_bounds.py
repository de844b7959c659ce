"""What a native game takes back from outside: all that its episodes lead to, and nothing that harms compiled code."""

import os
import subprocess
import sys

import numpy as np
import pytest
from gymnasium import spaces

from marltrain.core.errors import ConfigError
from marltrain.envs.native.game import Game
from marltrain.envs.native.records import check
from marltrain.envs.native.vector import NativeVectorEnv
from marltrain.envs.python.check_env import random_actions
from tests.envs.native.forging import CASES
from tests.tiers import rounds

ROUNDS = int(os.environ.get("FORGING_ROUNDS", "1"))
FREE = {"random", "branch", "stir", "stage"}
"""Whole numbers that may be any: a generator's, and a curriculum's stage, which the rules cut to size."""


def playing(case: str, steps: int, num_envs: int = 4) -> NativeVectorEnv:
    name, arguments = CASES[case]
    vector, rng = NativeVectorEnv(name, num_envs, arguments), np.random.default_rng(0)
    step = vector.reset(0)
    for _ in range(steps):
        step = vector.step(random_actions(vector.spec, step, rng))
    return vector


@pytest.mark.parametrize("case", CASES)
def test_whatever_episodes_lead_to_is_taken_back(case):
    vector, rng = playing(case, 0, 16), np.random.default_rng(1)
    batch, step = vector.batch, vector._step
    for _ in range(rounds(60, 200)):
        check(batch.game, batch.records, batch.game.bounds, 0, may_be_over=False)
        step = vector.step(random_actions(vector.spec, step, rng))
    assert batch.restore(batch.snapshot()) == []


@pytest.mark.parametrize("case", CASES)
def test_whole_numbers_just_outside_are_refused_by_name(case):
    batch = playing(case, 2).batch
    for name, values in batch.snapshot().items():
        if values.dtype.kind == "f" or name in FREE:
            continue
        low, high = batch.game.bounds[name]
        for at in np.ndindex(low.shape):
            for wrong in (int(low[at]) - 1, int(high[at]) + 1):
                before, saved = batch.records.copy(), batch.snapshot()
                saved[name][(2, *at)] = wrong
                entry = f", entry {list(at)}," if at else ""
                said = (
                    f"environment 2, field '{name}'{entry} must be a number from {low[at]} to {high[at]}, got {wrong}"
                )
                with pytest.raises(ConfigError) as data:
                    batch.restore(saved)
                assert said in str(data.value) and batch.game.name in str(data.value)
                with pytest.raises(ConfigError, match=f"environment 2, field '{name}'"):
                    batch.set_state(2, {name: saved[name][2]})
                assert (batch.records == before).all()


UNSOUND = {
    "the turn of nobody": ("tictactoe_v3", 0, {"turn": [0, 0]}),
    "the other's turn": ("connect_four_v3", 1, {"turn": [1, 0]}),
    "a player who has left": ("tictactoe_v3", 0, {"present": [1, 0]}),
    "a mark that nobody set": ("tictactoe_v3", 0, {"squares": [0, 0, 0, 0, 2, 0, 0, 0, 0]}),
    "a full board": ("tictactoe_v3", 0, {"squares": [1, 1, 2, 2, 2, 1, 1, 1, 2], "marks": 9, "turn": [0, 1]}),
    "a piece that hangs": ("connect_four_v3", 0, {"board": [1, *[0] * 41], "pieces": 1, "turn": [0, 1]}),
    "a card twice": ("kuhn_poker_v1", 0, {"card": [1, 1]}),
    "a bet that nobody made": ("kuhn_poker_v1", 0, {"opener": 0}),
    "everybody decided": ("kuhn_poker_v1", 0, {"made": 2, "moves": [0, 0, 0]}),
    "all have folded": ("leduc_poker_v1", 0, {"folded": [1, 1]}),
    "all have folded, and are counted": ("leduc_poker_v1", 0, {"folded": [1, 1], "left": 0}),
    "whoever is to move has folded": ("leduc of three", 0, {"folded": [1, 0, 0], "left": 2}),
    "more calls than players": ("leduc_poker_v1", 0, {"calls": 2}),
    "no room for the rest of a round": ("leduc_poker_v1", 0, {"made": [1, 0]}),
    "no room in the second round": ("leduc_poker_v1", 0, {"made": [0, 4]}),
    "two cooks at a place": ("overcooked_v1", 0, {"place": [[1, 1], [1, 1]]}),
    "two robots at a place": ("rware_v2", 0, {"place": [[0, 0], [0, 0]]}),
    "a shelf twice": ("rware_v2", 0, {"shelf": np.ones((11, 10), int)}),
    "a load that is elsewhere": ("rware_v2", 0, {"place": [[0, 0], [0, 1]], "load": [1, 0]}),
    "all shelves requested": ("rware_v2", 0, {"requested": [1] * 32}),
    "more foods than are seen": ("foraging_v3", 0, {"food": np.eye(8, dtype=int), "spawned": 8}),
}


@pytest.mark.parametrize(("case", "steps", "forged"), UNSOUND.values(), ids=UNSOUND)
def test_numbers_that_do_not_fit_together_are_refused(case, steps, forged):
    batch = playing(case, steps).batch
    before = batch.records.copy()
    with pytest.raises(
        ConfigError, match=rf"{batch.game.name}, environment 1(, field 'left' must|: fields that do not)"
    ):
        batch.set_state(1, forged)
    assert (batch.records == before).all()


@pytest.mark.parametrize("wrong", [np.inf, np.nan, 1e300, 3.2])
def test_an_angle_that_is_never_wrapped_is_refused(wrong):
    with pytest.raises(ConfigError, match=r"field 'now', entry \[1\], must be a number from -3.14\d* to 3.14"):
        playing("Acrobot-v1", 1).batch.set_state(0, {"now": [0, wrong, 0, 0]})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [(256, "type int8, got 256"), (0.5, "got 0.5"), (np.nan, "got nan"), ("1", "expected numbers"), (None, "expected")],
)
def test_what_a_field_cannot_hold_is_refused(wrong, said):
    with pytest.raises(ConfigError, match=f"tictactoe_v3.*field 'turn'.*{said}"):
        playing("tictactoe_v3", 0).batch.set_state(0, {"turn": [1, wrong]})


def test_who_may_do_what_is_not_taken_from_a_saved_step():
    """With a full column said to be legal, a piece would fall through the board."""
    vector = playing("connect_four_v3", 0)
    board = np.zeros((6, 7), int)
    board[:, 0] = [2, 1, 2, 1, 2, 1]
    vector.batch.set_state(0, {"board": board.reshape(-1), "pieces": 6, "turn": [1, 0]})
    saved = vector.state()
    right = {name: array.copy() for name, array in saved.items() if name.startswith("step/")}
    for name in right:
        if name.split("/")[1] in ("turn", "alive", "legal"):
            saved[name] = ~saved[name]
    step, _ = vector.restore(saved)
    arrays = step.arrays()
    for name in [name for name in right if "legal" not in name]:
        np.testing.assert_array_equal(arrays[name.removeprefix("step/")], right[name])
    assert np.asarray(step.legal[0])[0, 0].tolist() == [False] + [True] * 6


def test_a_state_after_the_end_may_be_set_where_nothing_restarts():
    from marltrain.envs.native import aec_env

    env = aec_env("leduc_poker_v1", action_mapping=True)
    env.reset(seed=0)
    for move in (2, 0):
        env.step(move)
    ended = env.get_state()
    assert not ended["present"].any()
    env.reset(seed=1)
    env.set_state(ended)
    assert env.agents == []


SEES, CHOOSES = spaces.Box(0, 1, (2,)), spaces.Discrete(2)


@pytest.mark.parametrize("given", [(0,), 5, (0, "much"), (3, 2), (0, [1, 2, 3]), ([0, 2], [1, 1])])
def test_bounds_that_are_none_are_refused(given):
    with pytest.raises(ConfigError, match=r"field 'x': .*bound"):
        Game({"a": (SEES, CHOOSES)}, {"x": (int, 2, given)})


def test_truth_values_are_bounded_by_themselves_and_others_only_on_demand():
    game = Game({"a": (SEES, spaces.Discrete(3))}, {"yes": (bool, 2), "x": float, "n": (int, 2, (0, [4, 5]))})
    said = {name: (low.tolist(), high.tolist()) for name, (low, high) in game.bounds.items()}
    assert said["yes"] == ([0, 0], [1, 1]) and said["n"] == ([0, 0], [4, 5]) and said["action"] == ([0], [2])
    assert "x" not in said


def test_nothing_that_is_accepted_crashes_or_hangs():
    """More by FORGING_ROUNDS=100."""
    command = [sys.executable, "-m", "tests.envs.native.forging", str(ROUNDS), "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600 + 20 * ROUNDS, check=False)
    assert done.returncode == 0, f"{done.stdout[-500:]}\n{done.stderr[-2000:]}"
    assert len(done.stdout.splitlines()) == len(CASES)
    for line in done.stdout.splitlines():
        accepted, refused = (int(count) for count in line.split()[-2:])
        assert accepted and refused, line
