"""Gymnasium environments of several players in workers, resumed runs, saved agents, films and `check_env`."""

import gymnasium
import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError, EnvError
from marltrain.envs import DummyVectorEnv, SubprocVectorEnv, VectorEnv, probe, resolve
from tests.envs.driving import act, snapshot
from tests.envs.python.test_players import Odd
from tests.players_toys import Masked, Team, Various


def test_workers_see_the_same():
    source = resolve("tests.players_toys:Masked")
    frames = []
    vectors: list[VectorEnv] = [DummyVectorEnv(source, 3), SubprocVectorEnv(source, 3, num_workers=2)]
    for result in vectors:
        result.reset(5)
        frames.append([snapshot(result.step(act(result.spec, 3, player_0=(t + 1) % 3, player_1=(t + 2) % 3)))
                       for t in (0, 1, 2, 3)])  # fmt: skip
        result.close()
    for mine, yours in zip(*frames, strict=True):
        for name, value in mine.items():
            np.testing.assert_array_equal(value, yours[name])


def test_agents_train_are_saved_and_loaded(tmp_path):
    agents = mt.make_agents("ppo", Various, seed=0, network=mt.MLP((4,)))
    trainer = mt.DecentralizedTrainer(
        Various, num_train_envs=2, num_test_envs=1, update_freq=32, steps_per_train=64, test_freq=None, seed=0,
        progress=False, run_dir=False,
    )  # fmt: skip
    assert trainer.train(agents, [1, 1, 1])["num_collected_steps"] == 64
    mt.save(tmp_path / "agents", agents)
    before = trainer.test(agents, episodes=2).returns
    np.testing.assert_array_equal(trainer.test(mt.load(tmp_path / "agents"), episodes=2).returns, before)


def test_frames_and_flat_images_of_several_players():
    stacked = probe(mt.FrameStack(Team, 2))
    assert stacked.names == ("player_0", "player_1") and stacked.players[0].observation_space.shape == (2, 2)
    assert probe(mt.Flatten(Various)).players[0].observation_space.shape == (16,)


def test_check_env_reads_every_player():
    assert mt.check_env(Team, {"flags": "list", "leaves": 2}).ok
    report = mt.check_env(Odd, {"wrong": {"seen": (np.zeros(2, np.float32), np.full(2, 10, np.float32))}}, strict=False)
    assert "player 'player_1': observation leaves its space" in str(report)


def test_an_attribute_last_of_a_gymnasium_environment_is_no_method_of_turns(recwarn):
    class Remembering(Team):
        def last(self):
            return self.given[-1]

    probe(Remembering)
    assert not recwarn.list


def test_attributes_of_the_environment_inside_are_recorded():
    vector = DummyVectorEnv(resolve(Team), 1, record=("length",))
    vector.reset(0)
    for _ in range(4):
        vector.step(act(vector.spec))
    assert vector.recorded == [(0, {"length": 4})]
    vector.close()


def test_films(tmp_path):
    agents = mt.make_agents("random", Team)
    mt.play(Team, agents, out=tmp_path / "game.gif", episodes=1)
    assert (tmp_path / "game.gif").stat().st_size > 0


def test_vector_environments_are_still_refused():
    with pytest.raises((EnvError, ConfigError), match="vector environment"):
        probe(lambda: gymnasium.make_vec("CartPole-v1", num_envs=2))


def test_a_running_episode_is_played_again_to_the_same_step():
    vectors = [DummyVectorEnv(resolve(Masked, {"masks": "mapping"}), 2, recording=True) for _ in range(2)]
    spec = vectors[0].spec
    vectors[0].reset(3)
    for t in range(3):
        vectors[0].step(act(spec, 2, player_0=(t + 1) % 3, player_1=(t + 2) % 3))
    _, restarted = vectors[1].restore(vectors[0].state())
    assert not restarted
    chosen = act(spec, 2, player_0=1, player_1=2)
    one, other = (vector.step(chosen).arrays() for vector in vectors)
    for name, value in one.items():
        np.testing.assert_array_equal(other[name], value)
    assert one["ended"].all()
