"""NativeVectorEnv: the rules of a Step, held against the same games driven as single objects, and by hand."""

import numpy as np
import pytest

from marltrain.core.errors import ConfigError, EnvError
from marltrain.envs import DummyVectorEnv, make_vector, resolve
from marltrain.envs.native.catalog import GAMES
from marltrain.envs.native.vector import NativeVectorEnv
from marltrain.envs.python.check_env import random_actions
from tests.envs.driving import act, column, random_run, same, snapshot
from tests.tiers import LONG

NAMES = [f"marltrain/{name}" for name in GAMES]


def told(spec, step):
    return [column(spec, step, e) for e in range(len(step.ended))]


@pytest.mark.parametrize("name", NAMES)
def test_equals_single_objects_behind_python_adapters_bit_for_bit(name):
    """Two implementations of every rule of a Step: the kernel, and adapter, chunk and guard around the objects."""
    ours = make_vector(name, None, 3, with_state=True)
    assert isinstance(ours, NativeVectorEnv)
    theirs = DummyVectorEnv(resolve(name), 3, with_state=True)
    rng = np.random.default_rng(0)
    one, other = ours.reset(5), theirs.reset(5)
    ended = 0
    for number in range(1100):
        assert told(ours.spec, one) == told(ours.spec, other), number
        for label in ("ended", "episode"):
            assert np.array_equal(getattr(one, label), getattr(other, label))
        if one.state is not None:
            assert np.array_equal(np.asarray(one.state), np.asarray(other.state))
            finals = np.asarray(one.final_state), np.asarray(other.final_state)
            assert np.array_equal(finals[0][one.ended], finals[1][one.ended])
        ended += one.ended.sum()
        if not LONG and ended >= 30:
            break
        actions = random_actions(ours.spec, one, rng)
        one, other = ours.step(actions), theirs.step(actions)
    assert ended > 3


@pytest.mark.parametrize("name", NAMES if LONG else ("marltrain/foraging_v3", "marltrain/leduc_poker_v1"))
def test_results_depend_neither_on_how_many_there_are_nor_on_threads_nor_on_workers(name):
    """Environment 1 of 2 plays as environment 1 of 5, alone, on three threads and in two workers."""
    few, many = (make_vector(name, None, e) for e in (2, 5))
    threaded = NativeVectorEnv(name, 5, threads=3)
    with make_vector(name, None, 5, vector="subproc", num_workers=2) as spread:
        steps = [vector.reset(7) for vector in (few, many, threaded, spread)]
        rng = np.random.default_rng(1)
        for _ in range(150):
            actions = random_actions(many.spec, steps[1], rng)
            first = tuple(chosen[:, :2] for chosen in actions)
            vectors = zip((few, many, threaded, spread), (first, actions, actions, actions), strict=True)
            steps = [vector.step(chosen) for vector, chosen in vectors]
            whole = [told(many.spec, step) for step in steps]
            assert whole[0] == whole[1][:2]
            assert whole[1] == whole[2] == whole[3]
    threaded.close()


def test_a_wrong_action_is_named_before_anything_moves():
    vector = make_vector("marltrain/tictactoe_v3", None, 3)
    vector.reset(0)
    step = vector.step(act(vector.spec, 3, player_1=4))
    before = snapshot(step)
    wrong = act(vector.spec, 3, player_2=5)
    wrong[0][1, 2] = 4
    where = r"environment 2 \(marltrain/tictactoe_v3\), episode 0 \(seed \d+\), step 1"
    said = r"player 'player_2': action 4 is not legal; expected one of \[0, 1, 2, 3, 5, 6, 7, 8\]"
    with pytest.raises(EnvError, match=f"{where}: {said}"):
        vector.step(wrong)
    assert same(before, snapshot(step))


@pytest.mark.parametrize(("value", "said"), [(np.nan, "nan"), (np.inf, "inf")])
def test_an_action_that_is_not_finite_is_named(value, said):
    vector = make_vector("marltrain/simple_reference_v3", {"continuous_actions": True}, 2)
    vector.reset(0)
    wrong = act(vector.spec, 2)
    wrong[0][1, 1, 3] = value
    with pytest.raises(EnvError, match=f"environment 1 .*player 'agent_1': action .*{said}.* is not legal"):
        vector.step(wrong)


def test_tictactoe_by_hand():
    """X takes the top row; O's last decision is closed with the game, and both rewards stand in the ending Step."""
    vector = make_vector("marltrain/tictactoe_v3", None, 1)
    spec, step = vector.spec, vector.reset(0)
    board = np.zeros((3, 3, 2))
    assert column(spec, step) == {
        "reward": {"player_1": 0.0, "player_2": 0.0},
        "turn": {"player_1": True},
        "alive": {"player_1": True, "player_2": True},
        "obs": {"player_1": board.reshape(-1).tolist()},
        "legal": {"player_1": list(range(9))},
    }
    for player, square in (("player_1", 0), ("player_2", 3), ("player_1", 1), ("player_2", 4)):
        step = vector.step(act(spec, 1, **{player: square}))
        assert not step.ended[0] and not step.reward.any()
        assert column(spec, step)["turn"] == {"player_1" if player == "player_2" else "player_2": True}
    step = vector.step(act(spec, 1, player_1=2))
    board[0, :, 0], board[1, :2, 1] = 1, 1
    said = column(spec, step)
    assert step.ended[0] and step.episode[0] == 1
    assert said["reward"] == {"player_1": 1.0, "player_2": -1.0}
    assert said["terminated"] == {"player_1": True, "player_2": True} and "truncated" not in said
    assert said["final_obs"] == {
        "player_1": board.reshape(-1).tolist(),
        "player_2": board[..., ::-1].reshape(-1).tolist(),
    }
    assert said["turn"] == {"player_1": True} and said["obs"]["player_1"] == [0.0] * 18


def test_a_limit_truncates_and_termination_wins():
    vector = NativeVectorEnv("marltrain/CartPole-v1", 2, {"max_episode_steps": 1})
    vector.reset(0)
    vector.batch.set_state(1, {"x": 2.39, "x_dot": 10.0, "theta": 0.0, "theta_dot": 0.0})
    step = vector.step(act(vector.spec, 2))
    assert step.ended.tolist() == [True, True]
    assert step.truncated.tolist() == [[True, False]] and step.terminated.tolist() == [[False, True]]
    assert np.asarray(step.final_obs[0])[0, 1, 0] == np.float32(2.39 + 0.02 * 10.0)


def test_train_and_test_never_share_an_episode():
    train, test = (make_vector("marltrain/CartPole-v1", None, 50, role=role).reset(0) for role in ("train", "test"))
    assert not np.isin(np.asarray(train.obs[0]), np.asarray(test.obs[0])).any()


def test_equal_seeds_give_equal_runs_and_others_do_not():
    runs = [random_run(make_vector("marltrain/simple_spread_v3", None, 2), 60, seed) for seed in (3, 3, 4)]
    assert all(same(a, b) for a, b in zip(runs[0], runs[1], strict=True))
    assert not same(runs[0][0], runs[2][0])


def test_what_is_no_native_game_is_refused():
    with pytest.raises(ConfigError, match="'gymnasium/CartPole-v1' is no native game"):
        NativeVectorEnv("gymnasium/CartPole-v1", 1)
    with pytest.raises(ConfigError, match="threads must be between 1 and num_envs"):
        NativeVectorEnv("marltrain/CartPole-v1", 2, threads=3)


def test_recv_needs_a_send():
    vector = NativeVectorEnv("marltrain/CartPole-v1", 2)
    vector.reset(0)
    vector.send(act(vector.spec, 2))
    vector.recv()
    with pytest.raises(RuntimeError, match="without a send"):
        vector.recv()
