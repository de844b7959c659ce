"""Checks of a run before it starts."""

from __future__ import annotations

import warnings

import pytest

import marltrain as mt
from marltrain.policies.learner.learner import UpdateSchedule
from marltrain.trainer.preparing.preflight import first_update
from tests.trainer.running import Student, dqn, ppo, trainer


@pytest.mark.parametrize(
    ("schedule", "num_envs", "on_policy", "env_step"),
    [
        (UpdateSchedule(update_freq=10), 3, True, 12),  # 4 batch steps of 3
        (UpdateSchedule(update_freq=10, learning_starts=500), 3, True, 12),  # which is for off-policy agents
        (UpdateSchedule(update_freq=10), 3, False, 12),
        (UpdateSchedule(update_freq=10, learning_starts=12), 3, False, 12),
        (UpdateSchedule(update_freq=10, learning_starts=13), 3, False, 24),
        (UpdateSchedule(update_freq=10, update_per_step=1 / 12), 3, False, 12),
        (UpdateSchedule(update_freq=10, update_per_step=0.05), 3, False, 24),  # 0.6 of an update, then 1.2
        (
            UpdateSchedule(update_freq=10, update_per_step=0.05, learning_starts=20),
            3,
            False,
            36,
        ),  # earlier steps do not count
    ],
)
def test_env_step_of_the_first_update(schedule, num_envs, on_policy, env_step):
    assert first_update(schedule, num_envs, on_policy=on_policy) == env_step


@pytest.mark.parametrize(
    ("make", "steps", "updates"),
    [
        (ppo, 9, 0), (ppo, 10, 1),
        (lambda: dqn(learning_starts=13), 21, 0), (lambda: dqn(learning_starts=13), 22, 1),
        (lambda: dqn(learning_starts=20, update_per_step=0.05), 33, 0),
        (lambda: dqn(learning_starts=20, update_per_step=0.05), 34, 1),
    ],
)  # fmt: skip
def test_warning_if_training_ends_before_the_first_update(make, steps, updates):
    output = trainer(steps_per_train=steps)
    with warnings.catch_warnings(record=True) as data:
        warnings.simplefilter("always")
        result = output.train(make(), [1, 1], plot=False)
    assert (result["num_updates"] > 0) == bool(updates)
    words = [str(one.message) for one in data]
    assert [f"steps_per_train={steps} ends training before its first update" in text for text in words] == [True] * (
        1 - updates
    )
    assert all("player_0 and player_1" in text and "update_freq=10" in text for text in words)
    assert all(one.filename == __file__ for one in data)


def test_no_warning_for_a_seat_that_does_not_learn():
    agents = [dqn()[0], dqn(learning_starts=1000, n_step=2)[1]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer(steps_per_train=30).train(agents, [1, 0], plot=False)
    with pytest.warns(UserWarning, match="nothing is learned by the agent of player_1: steps_per_train=30"):
        trainer(steps_per_train=30).train(agents, [1, 1], plot=False)


def test_budget_in_episodes_warns_at_the_end():
    with pytest.warns(UserWarning, match="nothing is learned: episodes_per_train ended training") as data:
        trainer(episodes_per_train=1).train(ppo(), [1, 1], plot=False)
    assert [one.filename for one in data] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trainer(episodes_per_train=1, update_freq=3).train(ppo(minibatches=1), [1, 1], plot=False)
        trainer(stop_fn=lambda metric, episode: True).train(ppo(), [1, 1], plot=False)


def test_line_up_without_a_trained_agent_is_refused():
    agents = ppo()
    for line_up in ([mt.RandomAgent(), mt.RandomAgent()], [mt.RandomAgent(), mt.FrozenAgent(agents[0])]):
        with pytest.raises(mt.AgentError, match="test_agents holds none of the agents that are trained"):
            trainer(steps_per_train=12).train(agents, [1, 1], plot=False, test_agents=line_up)
    for line_up in ([agents[0], mt.RandomAgent()], [Student(lambda row: 0), mt.RandomAgent()]):
        trainer(steps_per_train=12).train(agents, [1, 1], plot=False, test_agents=line_up)


def only_watching(moment):
    """A callback of updates."""


@pytest.mark.parametrize(
    ("settings", "callback", "reason"),
    [
        ({}, None, None),
        ({"memory": mt.Replay(prioritized=mt.Prioritized(beta=mt.linear(0, 1, 9)))}, None, None),
        ({"jit_compile": False}, mt.LambdaCallback(on_update_end=only_watching), None),
        ({"memory": mt.Replay(prioritized=mt.Prioritized(alpha=mt.linear(0, 1, 9)))}, None,
         "alpha of the memory follows a schedule"),
        ({"memory": mt.Replay(window=0.5)}, None, "the memory has window"),
        ({"memory": mt.Replay(half_life=500)}, None, "the memory has half_life"),
        ({"memory": mt.Replay(n_step=3)}, None, None),
        ({}, mt.LambdaCallback(on_update_end=only_watching), "LambdaCallback.on_update_end may change agents"),
        ({}, mt.Adapt("gamma", by="td_error", direction="up", low=0.9, high=0.999),
         "Adapt.on_update_end may change agents"),
        ({}, mt.Adapt("gamma", by="gradient_noise", low=0.9, high=0.999), "Adapt.on_update_end may change agents"),
    ],
)  # fmt: skip
def test_compiled_updates_that_are_made_one_at_a_time_are_told_once(settings, callback, reason, caplog):
    game = "marltrain/CartPole-v1"
    own = {"jit_compile": True, "network": mt.MLP((8,), "relu"), "batch_size": 4, **settings}
    callbacks = [] if callback is None else [callback]
    trainer(game, {}, callbacks=callbacks, steps_per_train=60, test_freq=None, run_dir=False).train(
        dqn(game, {}, **own), [1], plot=False
    )
    data = [record.message for record in caplog.records if "one at a time" in record.message]
    assert len(data) == (reason is not None)
    assert all(message.startswith("the compiled updates of the agent of player_0 ") for message in data)
    assert reason is None or f"which is slower: {reason}" in data[0]
