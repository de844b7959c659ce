"""The batch size may change in training; it is the same for all agents of a learner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.learner import UpdateSchedule
from tests.trainer.running import changed, dqn, ppo, trainer, weights


@pytest.fixture
def seen(monkeypatch):
    """The number of rows of each off-policy batch, and of the minibatches of each rollout."""
    rows: list[int] = []
    update = AlgorithmLearner.update

    def noting(self, batch, *, learn, batch_size):
        before = self.gradient_steps.copy()
        result = update(self, batch, learn=learn, batch_size=batch_size)
        passes = int((self.gradient_steps - before).max())
        rows.append(batch.weight.shape[1] // passes)
        return result

    monkeypatch.setattr(AlgorithmLearner, "update", noting)
    return rows


def setting(agents, value, at=3):
    """A callback that sets the batch size of one agent after a number of rounds of updates."""
    rounds = iter(range(1, 1000))

    def change(moment):
        if next(rounds) == at:
            agents[1].hyper.batch_size = value

    return mt.LambdaCallback(on_update_end=change)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_the_next_batch_has_the_new_size(seen, backend):
    agents = dqn(backend=backend, update_per_step=0.1)
    trainer(batch_size=5, steps_per_train=72, test_freq=None, callbacks=[setting(agents, 8)]).train(
        agents, [1, 1], plot=False
    )
    assert seen == [5, 5, 5, 8, 8, 8, 8]
    assert [agent.hyper.batch_size for agent in agents] == [8, 8]  # one learner


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_the_next_rollout_has_minibatches_of_the_new_size(seen, backend):
    agents = ppo(backend=backend, minibatches=None, batch_size=3)
    trainer(steps_per_train=60, test_freq=None, callbacks=[setting(agents, 6)]).train(agents, [1, 1], plot=False)
    assert seen == [3, 3, 3, 6, 6]  # rollouts of 12 rows


def test_a_changed_size_is_saved_with_the_agent_and_in_checkpoints():
    result = []
    for name, parts in (("whole", [72]), ("halves", [40, 72])):
        for i, steps in enumerate(parts):
            agents = dqn(update_per_step=0.1)
            callbacks = [mt.Checkpoint(every_steps=9), *([] if i else [setting(agents, 8, at=2)])]
            trainer(batch_size=5, steps_per_train=steps, callbacks=callbacks, run_dir=None if i else name).train(
                agents, [1, 1], plot=False, resume=name if i else None
            )
        result.append(agents)
    assert changed(weights(result[0]), weights(result[1])) == [False, False]
    mt.save("agents", result[1])
    loaded: list[Any] = list(mt.load("agents"))
    assert [agent.hyper.batch_size for agent in loaded] == [8, 8]
    assert loaded[0].settings.batch_size is None


def test_agents_of_different_sizes_do_not_share_a_learner():
    first, second = ppo(minibatches=None)
    assert first.kind == second.kind
    second.hyper.batch_size = 7
    assert first.kind != second.kind
    trainer(steps_per_train=12, batch_size=4).train([first, second], [1, 1], plot=False)
    assert (first.hyper.batch_size, second.hyper.batch_size) == (None, 7)


@pytest.mark.parametrize(
    ("settings", "value", "message"),
    [
        ({}, 4, "ppo: batch_size=4 has no effect with minibatches=2"),
        ({"minibatches": None}, 0, "ppo: batch_size must be at least 1, got 0"),
        ({"minibatches": None}, 2.5, "batch_size must be an integer"),
        ({"minibatches": None}, mt.linear(1, 9, 5), "batch_size must be an integer"),
    ],
)
def test_wrong_sizes_are_refused(settings, value, message):
    agent = ppo(**settings)[0]
    with pytest.raises(ConfigError, match=message):
        agent.hyper.batch_size = value
    assert agent.hyper.batch_size is None


def test_a_size_below_the_least_number_of_rows_is_refused():
    with pytest.raises(ConfigError, match=r"own: batch_size=1 is too small: .* takes 2 rows"):
        UpdateSchedule(least_rows=2).with_common({"batch_size": 1}, "own")


def test_numpy_numbers_become_integers():
    agent = dqn()[0]
    agent.hyper.batch_size = np.int64(32)
    assert type(agent.hyper.batch_size) is int
    agent.hyper.batch_size = 64.0
    assert agent.hyper.batch_size == 64
    assert type(agent.hyper.batch_size) is int
