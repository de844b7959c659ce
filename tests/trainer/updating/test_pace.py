"""Update frequencies and batch sizes of learners: their own values or the trainer's."""

from __future__ import annotations

import pytest

import marltrain as mt
from marltrain.envs import probe, resolve
from marltrain.errors import ConfigError
from marltrain.trainer.seats import Seating
from marltrain.trainer.updating.pace import Defaults, check_pace, pace_of, storage_for
from tests.toys import Crowd, Identity, Relay
from tests.trainer.running import Student, ppo, trainer

DEFAULTS = Defaults(batch_size=64, update_freq=100, shared_memory=False)


def learners(agents, env=Identity):
    return Seating(probe(resolve(env, {})), agents, 0, stack=True).learners


def test_own_update_frequency_takes_precedence():
    (seated,) = learners(ppo(batch_size=7, update_freq=30, minibatches=None))
    assert (pace_of(seated, DEFAULTS).batch_size, pace_of(seated, DEFAULTS).update_freq) == (7, 30)
    (seated,) = learners(ppo())
    assert (pace_of(seated, DEFAULTS).batch_size, pace_of(seated, DEFAULTS).update_freq) == (64, 100)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"minibatches": None},
            "batch_size=64 exceeds one rollout of the agent of player_0 and player_1: 4 batch steps x 3 environments = "
            "12 rows. Raise update_freq (now 10 env steps) or lower batch_size",
        ),
        ({"minibatches": None, "batch_size": 13}, "batch_size=13 exceeds"),
        ({"minibatches": 13}, "minibatches=13 exceeds"),
    ],
)
def test_batch_larger_than_a_rollout_is_an_error(settings, words):
    calls: list = []
    with pytest.raises(ConfigError) as caught:
        trainer(test_fn=lambda e, s: calls.append(e)).train(ppo(**settings), [1, 1], plot=False)
    assert words in str(caught.value)
    assert not calls


@pytest.mark.parametrize("settings", [{"minibatches": None, "batch_size": 12}, {"minibatches": 12}])
def test_batch_of_one_rollout_is_accepted(settings):
    result = trainer(steps_per_train=12).train(ppo(**settings), [1, 1], plot=False)
    assert result["num_gradient_steps"] == 2 * (12 if settings["minibatches"] else 1)


def test_rollout_of_a_shared_agent_holds_all_its_seats():
    agents = ppo(share=True, minibatches=None, batch_size=24)
    assert trainer(steps_per_train=12).train(agents, [1, 1], plot=False)["num_gradient_steps"] == 1
    with pytest.raises(ConfigError, match="environments x 2 seats = 24 rows"):
        trainer().train(ppo(share=True, minibatches=None, batch_size=25), [1, 1], plot=False)


def test_rollout_size_is_not_fixed_in_turn_based_games():
    spec = probe(resolve(Relay, {}))
    (seated,) = Seating(spec, ppo(Relay, minibatches=None, batch_size=500), 0, stack=True).learners
    check_pace(seated, spec, 3, DEFAULTS)


def test_batch_size_is_not_checked_for_custom_agents():
    student = Student(lambda row: 0)
    trainer(steps_per_train=12).train([student, mt.RandomAgent()], [1, 0], plot=False)
    assert [len(batch.reward) for batch in student.seen] == [12]


def test_streams_keep_the_largest_capacity_of_all_learners():
    spec = probe(resolve(Crowd, {}))
    blue = mt.make_agents("ppo", Crowd, seed=0, update_freq=50)[1]
    reds = [mt.make_agents("dqn", Crowd, capacity=c)[0] for c in (100, 3001)]
    storage = storage_for(Seating(spec, [reds[0], blue, reds[1]], 0, stack=True).learners, spec, 3, DEFAULTS)
    assert storage[0].rows == 1001 + 1  # ceil(3001 / 3), and the row that begins
    assert storage[1].rows == 17 + 1
    assert dict(storage[0].columns) == {}
    assert set(storage[1].columns) == {"log_prob"}
    assert (
        storage_for(Seating(spec, [mt.RandomAgent() for _ in range(3)], 0, stack=True).learners, spec, 3, DEFAULTS)
        == {}
    )
