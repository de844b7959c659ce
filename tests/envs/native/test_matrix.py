"""Matrix games, by hand, and the tables of those that OpenSpiel has, too."""

import numpy as np
import pyspiel
import pytest
from gymnasium import spaces

from marltrain.core.errors import ConfigError
from marltrain.envs import make_vector
from marltrain.envs.native import parallel_env
from marltrain.envs.native.catalog import find
from marltrain.envs.native.vector import NativeVectorEnv
from tests.envs.driving import act, column


def table(name, **arguments):
    """Both players' payoffs, [2, A1, A2], as they are received."""
    vector = make_vector(f"marltrain/{name}", {"num_rounds": 1000, **arguments}, 1)
    vector.reset(0)
    rows, columns = find(name)(**arguments).rules["actions"][0]
    found = np.zeros((2, rows, columns))
    for row in range(rows):
        for chosen in range(columns):
            found[:, row, chosen] = vector.step(act(vector.spec, 1, player_0=row, player_1=chosen)).reward[:, 0]
    return found


@pytest.mark.parametrize(
    ("name", "arguments", "rows"),
    [
        ("prisoners_dilemma_v1", {}, [[3, 0], [5, 1]]),
        ("stag_hunt_v1", {}, [[2, 0], [1, 1]]),
        ("rock_paper_scissors_v1", {}, [[0, -1, 1], [1, 0, -1], [-1, 1, 0]]),
        ("climbing_v1", {}, [[11, -30, 0], [-30, 7, 6], [0, 0, 5]]),
        ("penalty_v1", {}, [[10, 0, -100], [0, 2, 0], [-100, 0, 10]]),
        ("penalty_v1", {"k": -25}, [[10, 0, -25], [0, 2, 0], [-25, 0, 10]]),
        ("matrix_game_v1", {}, [[1, -1], [-1, 1]]),
    ],
)
def test_tables(name, arguments, rows):
    first, second = table(name, **arguments)
    assert np.array_equal(first, rows)
    if name in ("climbing_v1", "penalty_v1"):
        assert np.array_equal(second, first)
    elif name in ("rock_paper_scissors_v1", "matrix_game_v1"):
        assert np.array_equal(second, -first)
    else:
        assert np.array_equal(second, first.T)


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("stag_hunt_v1", "matrix_sh"), ("rock_paper_scissors_v1", "matrix_rps"), ("matrix_game_v1", "matrix_mp")],
)
def test_tables_are_those_of_openspiel(name, theirs):
    game = pyspiel.load_matrix_game(theirs)
    assert np.array_equal(table(name), [game.row_utilities(), game.col_utilities()])


PAYOFFS = np.arange(2 * 3 * 4 * 3).reshape(2, 3, 4, 3)


def test_three_players_with_different_numbers_of_actions():
    vector = make_vector("marltrain/matrix_game_v1", {"payoffs": PAYOFFS, "num_rounds": 2}, 1, with_state=True)
    spec, step = vector.spec, vector.reset(0)
    assert [player.action_space for player in spec.players] == [spaces.Discrete(n) for n in (2, 3, 4)]
    assert column(spec, step)["obs"] == {f"player_{p}": [0.0] * 9 for p in range(3)}
    step = vector.step(act(spec, 1, player_0=1, player_1=2, player_2=0))
    assert step.reward[:, 0].tolist() == PAYOFFS[1, 2, 0].tolist() and not step.terminated.any()
    one, two, three = [0, 1], [0, 0, 1], [1, 0, 0, 0]
    assert column(spec, step)["obs"] == {
        "player_0": [*one, *two, *three],
        "player_1": [*two, *three, *one],
        "player_2": [*three, *one, *two],
    }
    assert step.state is not None and step.state[0].tolist() == [*one, *two, *three]
    step = vector.step(act(spec, 1, player_0=0, player_1=0, player_2=3))
    assert step.reward[:, 0].tolist() == PAYOFFS[0, 0, 3].tolist()
    assert step.terminated.all() and step.ended[0] and not step.truncated.any()
    assert column(spec, step)["final_obs"]["player_2"] == [0, 0, 0, 1, 1, 0, 1, 0, 0]
    assert column(spec, step)["obs"]["player_2"] == [0.0] * 9


def test_two_hundred_episodes_against_the_table():
    """Random payoffs and actions; what is seen and received is looked up in numpy."""
    rng = np.random.default_rng(0)
    payoffs = rng.normal(size=PAYOFFS.shape)
    vector = NativeVectorEnv("marltrain/matrix_game_v1", 50, {"payoffs": payoffs, "num_rounds": 7})
    step, first = vector.reset(0), True
    for number in range(7 * 4):
        chosen = [rng.integers(n, size=50) for n in PAYOFFS.shape[:3]]
        seen = np.concatenate([np.asarray(obs)[0] for obs in step.obs], -1)
        assert seen.any() != first
        step = vector.step(tuple(choice[None] for choice in chosen))
        assert np.array_equal(step.reward.T, payoffs[tuple(chosen)].astype(np.float32))
        first = number % 7 == 6
        assert (step.ended == first).all()
        last = np.concatenate([np.eye(n)[choice] for n, choice in zip(PAYOFFS.shape, chosen, strict=False)], -1)
        shown = step.final_obs if first else step.obs
        assert np.array_equal(np.asarray(shown[0])[0], last)


def test_a_game_without_memory_shows_a_constant():
    arguments = {"payoffs": [[1, 0], [0, 2]], "observe_last_actions": False, "num_rounds": 1}
    vector = make_vector("marltrain/matrix_game_v1", arguments, 1, with_state=True)
    step = vector.reset(0)
    assert column(vector.spec, step)["obs"] == {"player_0": [1.0], "player_1": [1.0]}
    step = vector.step(act(vector.spec, 1, player_0=1, player_1=1))
    assert step.reward[:, 0].tolist() == [2.0, 2.0] and step.terminated.all()
    assert step.state is not None and step.state.tolist() == [[1.0]]


def test_named_games_are_matrix_games():
    assert issubclass(find("climbing_v1"), find("matrix_game_v1"))
    assert parallel_env("penalty_v1", k=-1).possible_agents == ["player_0", "player_1"]


@pytest.mark.parametrize(
    ("payoffs", "said"),
    [
        ([1, 2], r"must have the shape .* got \(2,\)"),
        (np.zeros((2, 2, 3)), r"must have the shape .* got \(2, 2, 3\)"),
        (np.zeros((2, 0, 2)), r"must have the shape .* got \(2, 0, 2\)"),
        ([[1, np.nan], [0, 0]], "payoffs must be finite"),
        ([["a", "b"]], "must be an array of numbers"),
    ],
)
def test_payoffs_of_another_shape_are_refused(payoffs, said):
    with pytest.raises(ConfigError, match=said):
        make_vector("marltrain/matrix_game_v1", {"payoffs": payoffs}, 1)


def test_a_penalty_is_none_above_zero():
    with pytest.raises(ConfigError, match="k must be a number from -inf to 0"):
        make_vector("marltrain/penalty_v1", {"k": 1.0}, 1)


def test_levers_pay_the_number_of_different_ones():
    env = parallel_env("levers_v1")
    env.reset(seed=0)
    assert env.step({"player_0": 0, "player_1": 1, "player_2": 1, "player_3": 3})[1] == {
        f"player_{p}": 0.75 for p in range(4)
    }
    assert make_vector("marltrain/levers_v1", {"num_players": 3}, 1).spec.players[2].action_space == spaces.Discrete(3)
    with pytest.raises(ConfigError, match="num_players must be a whole number from 2 to 6, got 7"):
        make_vector("marltrain/levers_v1", {"num_players": 7}, 1)
