"""Schedules of updates, and losses that are not finite."""

from __future__ import annotations

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.trainer.events.callbacks import Callback
from marltrain.trainer.saving.checkpoint import newest
from tests.envs.driving import run_seed
from tests.toys import Relay
from tests.trainer.running import Student, changed, dqn, ppo, trainer, weights

BACKENDS = ("torch", "tensorflow")


def test_learners_update_at_their_own_frequency():
    agents, steps = [ppo(update_freq=6)[0], dqn(update_freq=9, update_per_step=0.5)[1]], []

    class Watch(Callback):
        def on_update_end(self, moment):
            steps.append((moment.env_steps, sorted(moment.data["metrics"]), moment.updates))

    result = trainer(steps_per_train=18, callbacks=[Watch()]).train(agents, [1, 1], plot=False)
    both = ["player_0", "player_1"]
    # the busiest learner's updates: PPO 1; DQN 9 x 0.5 = 4 (half carried over), then 9
    assert steps == [(6, both[:1], 1), (9, both[1:], 4), (12, both[:1], 4), (18, both, 9)]
    assert result["num_updates"] == 9
    assert result["num_gradient_steps"] == 3 * 2 + 9


def test_open_decision_is_part_of_the_next_rollout():
    """Relay: after moves 0 to 3 (ann, bob, cat, ann) it is bob's turn: the first rows of ann and bob are complete."""
    student = Student(lambda row: 0)
    run = trainer(Relay, num_train_envs=1, update_freq=4, steps_per_train=8, seed=run_seed([0]))
    run.train([student, student, student], [1, 1, 1], plot=False)
    assert [batch.observation[:, 0].tolist() for batch in student.seen] == [[0, 1], [3, 6, 4, 2, 5, 7]]


def spoiled(monkeypatch, at_update, what):
    """From the given update on, one agent's rewards contain `what`; records the weights before that update."""
    before, count, update = [], [0], AlgorithmLearner.update

    def poisoned(self, batch, **arguments):
        count[0] += 1
        if count[0] >= at_update:
            batch.reward[1, 0] = what
            before.append([self.export(row).arrays for row in range(2)])
        return update(self, batch, **arguments)

    monkeypatch.setattr(AlgorithmLearner, "update", poisoned)
    return before


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("what", [np.nan, np.inf])
def test_error_names_agent_loss_and_update(monkeypatch, backend, what):
    before = spoiled(monkeypatch, 3, what)
    agents = dqn(backend=backend, update_per_step=0.1, update_freq=10)
    with pytest.raises(
        AgentError, match=r"the agent of player_1: \S+ became (nan|inf) in update 3 \(env step"
    ) as caught:
        trainer(steps_per_train=120).train(agents, [1, 1], plot=False)
    assert "No weight was moved by it" in str(caught.value)
    assert changed(before[0], weights(agents))[0]
    flat = [n for n in before[0][1] if n.startswith("net/")]
    assert all((before[0][1][n] == weights(agents)[1][n]).all() for n in flat)


def test_non_finite_rollout_changes_no_weight(monkeypatch):
    before = spoiled(monkeypatch, 2, np.nan)
    agents = ppo(minibatches=1, epochs=3)
    with pytest.raises(AgentError, match="player_1: loss/"):
        trainer(steps_per_train=120).train(agents, [1, 1], plot=False)
    after = weights(agents)[1]
    assert all((before[0][1][n] == after[n]).all() for n in after if n.startswith("net/"))


def test_non_finite_loss_keeps_the_last_checkpoint(monkeypatch, tmp_path):
    spoiled(monkeypatch, 4, np.nan)
    agents = ppo()
    folder = tmp_path / "run"
    with pytest.raises(AgentError):
        trainer(steps_per_train=120, callbacks=[mt.Checkpoint(every_steps=15)], run_dir=folder).train(
            agents, [1, 1], plot=False
        )
    kept = newest(folder)
    assert kept is not None
    monkeypatch.undo()
    result = trainer(steps_per_train=120, callbacks=[mt.Checkpoint(every_steps=15)], run_dir=folder).train(
        ppo(), [1, 1], plot=False, resume=folder
    )
    assert result["num_collected_steps"] == 120
