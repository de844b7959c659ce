"""A batch: reaching into single environments, queued chance, saving and restoring, and players who come and go."""

import numpy as np
import pytest

from marltrain.core.errors import ConfigError
from marltrain.envs import DummyVectorEnv, check_env, resolve
from marltrain.envs.native.vector import NativeVectorEnv
from marltrain.envs.python.check_env import random_actions
from tests.envs.driving import act, column, same, snapshot
from tests.envs.native.toys import Crowd, Dice, Relay


def test_set_state_publishes_and_touches_no_other_environment():
    vector = NativeVectorEnv("marltrain/CartPole-v1", 3)
    step = vector.reset(0)
    before = snapshot(step)
    vector.batch.set_state(1, {"x": 1.5, "steps": 7})
    seen = np.asarray(step.obs[0])
    assert seen[0, 1, 0] == 1.5 and vector.batch.get_state(1)["steps"] == 7
    seen[0, 1, 0] = before["obs 0 0"][0, 1, 0]
    assert same(before, snapshot(step))


def test_set_state_says_what_does_not_fit():
    batch = NativeVectorEnv("marltrain/simple_spread_v3", 2).batch
    with pytest.raises(ConfigError, match=r"simple_spread_v3 has no field 'position'; it has .*pos, vel"):
        batch.set_state(0, {"position": 1})
    with pytest.raises(ConfigError, match=r"field 'pos': shape \(3, 2\), expected \(6, 2\)"):
        batch.set_state(0, {"pos": np.zeros((3, 2))})


def test_get_state_is_a_copy():
    batch = NativeVectorEnv("marltrain/simple_spread_v3", 1).batch
    batch.get_state(0)["pos"][...] = 9
    assert not batch.records["pos"].any()


def test_queued_outcomes_are_taken_in_order_then_chance_goes_on():
    vector, plain = NativeVectorEnv(Dice, 2), NativeVectorEnv(Dice, 2)
    seen, other = np.asarray(vector.reset(0).obs[0]), np.asarray(plain.reset(0).obs[0])
    vector.batch.set_chances(1, [4, 0.25, 2])
    nothing = act(vector.spec, 2)
    vector.step(nothing)
    plain.step(nothing)
    assert seen[0, 1].tolist() == [0.25, 4.0] and vector.batch.chances_left(1) == 1
    assert np.array_equal(seen[0, 0], other[0, 0])
    vector.step(nothing)
    assert seen[0, 1, 1] == 2.0 and vector.batch.chances_left(1) == 0
    rest = vector.batch.get_state(1)["random"]
    vector.step(nothing)
    assert vector.batch.get_state(1)["random"] != rest


@pytest.mark.parametrize("name", ["marltrain/tictactoe_v3", "marltrain/simple_spread_v3", Dice, Relay])
def test_a_restored_batch_continues_as_the_saved_one(name):
    first, second = NativeVectorEnv(name, 4), NativeVectorEnv(name, 4)
    step, rng = first.reset(0), np.random.default_rng(0)
    for _ in range(13):
        step = first.step(random_actions(first.spec, step, rng))
    saved = first.batch.snapshot()
    runs = []
    for vector in (first, second):
        again = np.random.default_rng(1)
        vector.batch.restore(saved)
        step, run = vector._step, []
        for _ in range(60):
            step = vector.step(random_actions(vector.spec, step, again))
            run.append([column(vector.spec, step, e) for e in range(4)])
        runs.append(run)
    assert runs[0] == runs[1]


def test_restore_says_what_does_not_fit():
    batch = NativeVectorEnv("marltrain/CartPole-v1", 3).batch
    saved = batch.snapshot()
    with pytest.raises(ConfigError, match=r"field 'x': shape \(3,\), expected \(2,\)"):
        NativeVectorEnv("marltrain/CartPole-v1", 2).batch.restore(saved)
    with pytest.raises(ConfigError, match="a saved batch has the fields"):
        NativeVectorEnv("marltrain/Pendulum-v1", 3).batch.restore(saved)


@pytest.mark.parametrize("game", [Crowd, Relay, Dice])
def test_a_game_of_ones_own_equals_its_objects_behind_python_adapters(game):
    ours = NativeVectorEnv(game, 3, with_state=True)
    theirs = DummyVectorEnv(resolve(game), 3, with_state=True)
    one, other = ours.reset(2), theirs.reset(2)
    rng = np.random.default_rng(0)
    for _ in range(60):
        assert [column(ours.spec, one, e) for e in range(3)] == [column(ours.spec, other, e) for e in range(3)]
        assert np.array_equal(one.ended, other.ended) and np.array_equal(one.episode, other.episode)
        actions = random_actions(ours.spec, one, rng)
        one, other = ours.step(actions), theirs.step(actions)
    assert check_env(game).ok


def test_players_who_die_arrive_and_are_absent_by_hand():
    vector = NativeVectorEnv(Crowd, 1, with_state=True)
    spec, step = vector.spec, vector.reset(0)
    for _ in range(2):
        said = column(spec, step)
        assert said["turn"] == said["alive"] == {"a": True, "b": True}
        assert said["obs"] == {"a": [0, 0], "b": [0, 1]}
        assert np.asarray(step.state).tolist() == [[0]]
        vector.step(act(spec, a=1, b=2, c=2))
        assert column(spec, step)["reward"] == {"a": 1, "b": 2, "c": 0}
        said = column(spec, vector.step(act(spec, a=1, b=2)))
        assert said["terminated"] == {"a": True} and said["final_obs"] == {"a": [2, 0]} and "truncated" not in said
        assert said["turn"] == said["alive"] == {"b": True} and not step.ended[0]
        said = column(spec, vector.step(act(spec, a=1, b=0, c=1)))
        assert said["reward"] == {"a": 0, "b": 0, "c": 0} and "terminated" not in said
        assert said["turn"] == {"b": True, "c": True} and said["obs"] == {"b": [3, 1], "c": [3, 2]}
        said = column(spec, vector.step(act(spec, b=1, c=2)))
        assert said["reward"] == {"a": 0, "b": 1, "c": 2} and step.ended[0]
        assert said["truncated"] == {"b": True, "c": True} and "terminated" not in said
        assert said["final_obs"] == {"b": [4, 1], "c": [4, 2]} and np.asarray(step.final_state).tolist() == [[4]]
    assert step.episode[0] == 2


def test_turns_deaths_and_waiting_rewards_by_hand():
    vector = NativeVectorEnv(Relay, 1)
    spec = vector.spec
    vector.reset(0)
    vector.batch.set_state(0, {"first": 1, "turn": [0, 1, 0]})
    move = act(spec, a=0.25, b=0.5, c=-1)
    said = [column(spec, vector.step(move)) for _ in range(6)]
    assert [list(s["turn"]) for s in said[:5]] == [["c"], ["a"], ["b"], ["c"], ["a"]]
    assert said[0]["reward"] == {"a": 0.5, "b": 0, "c": 0.5}
    assert said[1]["reward"] == {"a": -1, "b": -1, "c": 0}
    assert said[3]["reward"] == {"a": 0.5, "b": 0, "c": 0.5} and said[3]["truncated"] == {"b": True}
    assert said[3]["final_obs"] == {"b": [4, 0]} and said[3]["alive"] == {"a": True, "c": True}
    assert said[4]["reward"] == {"a": -1, "b": 0, "c": 0}
    assert said[5]["truncated"] == {"a": True} and vector._step.ended[0]
