"""Update frequencies and batch sizes of learners: their own values or the trainer's."""

from __future__ import annotations

from typing import Any

import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.envs import probe, resolve
from marltrain.policies.algorithms.ppo import PPOAlgorithm
from marltrain.trainer.seats.seats import Seating
from marltrain.trainer.updating.update_schedule import (
    Defaults,
    check_schedule,
    drops_all_earlier,
    schedule_of,
    storage_for,
)
from tests.toys import Crowd, Identity, Relay
from tests.trainer.running import Student, ppo, trainer

DEFAULTS = Defaults(batch_size=64, update_freq=100, shared_memory=False)


def learners(agents, env=Identity):
    return Seating(probe(resolve(env, {})), agents, 0, stack=True).learners


class LargeBatches(PPOAlgorithm):
    """PPO with a default batch size of its own."""

    batch_size = 32


class LargeBatchesAgent(mt.PPO):
    algorithm_class = LargeBatches


LEVELS: list[tuple[Any, dict[str, Any], dict[str, Any], tuple[int, int]]] = [
    ("ppo", {"update_freq": 30, "batch_size": 7}, {"update_freq": 50, "batch_size": 9}, (30, 7)),
    ("ppo", {}, {"update_freq": 50, "batch_size": 9}, (50, 9)),
    ("ppo", {}, {"update_freq": 100, "batch_size": 64}, (100, 64)),  # given, though equal to the defaults
    ("ppo", {}, {}, (2048, 64)),
    ("a2c", {}, {}, (80, 64)),
    (LargeBatchesAgent, {}, {}, (2048, 32)),
    (LargeBatchesAgent, {}, {"batch_size": 64}, (2048, 64)),
    ("dqn", {}, {"update_freq": 50}, (50, 64)),
    ("dqn", {}, {}, (100, 64)),
]


@pytest.mark.parametrize(("make", "own", "given", "expected"), LEVELS)
def test_agent_then_trainer_then_algorithm_then_default(make, own, given, expected):
    settings = mt.DecentralizedTrainer(Identity, progress=False, **given).settings
    defaults = Defaults(settings.batch_size, settings.update_freq, False, settings.given)
    (seated,) = learners(mt.make_agents(make, Identity, seed=0, **own))
    schedule = schedule_of(seated, defaults)
    assert (schedule.update_freq, schedule.batch_size) == expected


def test_default_of_the_algorithm_sets_when_updates_are_made():
    few: dict[str, Any] = {
        "num_train_envs": 2,
        "num_test_envs": 2,
        "episodes_per_test": 2,
        "seed": 0,
        "progress": False,
    }
    trainer = mt.DecentralizedTrainer(Identity, test_freq=None, steps_per_train=200, run_dir=False, **few)
    agents = [mt.make_agents("a2c", Identity, seed=0)[0], mt.RandomAgent()]
    assert trainer.train(agents, [1, 0], plot=False)["num_updates"] == 2


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"minibatches": None, "batch_size": 64},
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


def test_default_batch_size_is_at_most_a_rollout():
    """Rollouts of 12 rows, fewer than the default of 64: one batch for each of two agents."""
    result = trainer(steps_per_train=12).train(ppo(minibatches=None, epochs=1), [1, 1], plot=False)
    assert result["num_gradient_steps"] == 2
    with pytest.raises(ConfigError, match="batch_size=64 exceeds"):
        trainer(steps_per_train=12, batch_size=64).train(ppo(minibatches=None), [1, 1], plot=False)


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
    check_schedule(seated, spec, 3, DEFAULTS)


def test_batch_size_is_not_checked_for_custom_agents():
    student = Student(lambda row: 0)
    trainer(steps_per_train=12).train([student, mt.RandomAgent()], [1, 0], plot=False)
    assert [len(batch.reward) for batch in student.seen] == [12]


def test_streams_keep_the_largest_capacity_of_all_learners():
    spec = probe(resolve(Crowd, {}))
    blue = mt.make_agents("ppo", Crowd, seed=0, update_freq=50)[1]
    reds = [mt.make_agents("dqn", Crowd, capacity=c)[0] for c in (100, 3001)]
    storage = storage_for(Seating(spec, [reds[0], blue, reds[1]], 0, stack=True).learners, spec, 3, DEFAULTS)
    assert storage[0].rows == 1001  # ceil(3001 / 3); the ring adds the row that begins
    assert storage[1].rows == 17 + 1
    assert dict(storage[0].columns) == {}
    assert set(storage[1].columns) == {"log_prob"}
    assert (
        storage_for(Seating(spec, [mt.RandomAgent() for _ in range(3)], 0, stack=True).learners, spec, 3, DEFAULTS)
        == {}
    )


@pytest.mark.parametrize(
    ("env", "capacity", "least", "most"),
    [("gymnasium/CartPole-v1", 20, 20, 20), ("gymnasium/CartPole-v1", 21, 24, 24), (Relay, 20, 20, 28)],
)
def test_capacity_is_the_number_of_env_steps_that_can_be_drawn(env, capacity, least, most):
    """In whole batch steps of four environments.

    In a turn-based game of three players, the rows of the two that wait stay besides; some of them are already closed.
    """
    seen: list[int] = []

    def look(now: Any) -> None:
        ring = now.trainer.run.context.streams.rings[0]
        slots = ring.held()
        seen.append(int((ring.next[:, slots] != -1).sum()))

    agents = mt.make_agents(
        "dqn", env, seed=0, capacity=capacity, learning_starts=8, batch_size=4, update_per_step=0.25
    )
    run = mt.DecentralizedTrainer(
        env, num_train_envs=4, update_freq=4, steps_per_train=80, seed=0, progress=False, run_dir=False, test_freq=None,
        callbacks=[mt.LambdaCallback(on_update_end=look)],
    )  # fmt: skip
    run.train(agents, [1] * len(agents), plot=False)
    assert least <= seen[-1] <= max(seen) <= most


def test_clearing_that_leaves_nothing_to_replay():
    """Against counting: at the update after batch step n, earlier rows are those from the last clearing to n - R."""
    for rollout in range(1, 8):
        for clear in range(1, 30):
            updates = range(rollout, 2 * rollout * clear + 1, rollout)
            nothing = all(n // clear * clear >= n - rollout for n in updates)
            assert drops_all_earlier(clear, rollout) == nothing, (rollout, clear)
