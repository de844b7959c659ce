"""When learners learn and from how much: their own pace or the trainer's."""

from __future__ import annotations

import numpy as np
import pytest

import marltrain as mt
from marltrain.envs import probe, resolve
from marltrain.errors import AgentError, ConfigError
from marltrain.policies.learner import AlgorithmLearner
from marltrain.trainer.checkpoint import newest
from marltrain.trainer.course import Defaults, check_pace, pace_of, plans_for
from marltrain.trainer.hooks import Callback
from marltrain.trainer.roster import Roster
from tests.envs.driving import run_seed
from tests.toys import Crowd, Identity, Relay
from tests.trainer.running import Student, changed, dqn, ppo, trainer, weights

BACKENDS = ("torch", "tensorflow")
DEFAULTS = Defaults(batch_size=64, update_freq=100, shared_memory=False)


def units(agents, env=Identity):
    return Roster(probe(resolve(env, {})), agents, 0, stack=True).units


def test_a_learners_own_pace_wins():
    (unit,) = units(ppo(batch_size=7, update_freq=30, minibatches=None))
    assert (pace_of(unit, DEFAULTS).batch_size, pace_of(unit, DEFAULTS).update_freq) == (7, 30)
    (unit,) = units(ppo())
    assert (pace_of(unit, DEFAULTS).batch_size, pace_of(unit, DEFAULTS).update_freq) == (64, 100)


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
def test_a_batch_larger_than_a_rollout_of_fixed_size_is_an_error_before_training(settings, words):
    calls: list = []
    with pytest.raises(ConfigError) as caught:
        trainer(test_fn=lambda e, s: calls.append(e)).train(ppo(**settings), [1, 1], plot=False)
    assert words in str(caught.value)
    assert not calls


@pytest.mark.parametrize("settings", [{"minibatches": None, "batch_size": 12}, {"minibatches": 12}])
def test_a_batch_of_the_whole_rollout_is_fine(settings):
    result = trainer(steps_per_train=12).train(ppo(**settings), [1, 1], plot=False)
    assert result["num_gradient_steps"] == 2 * (12 if settings["minibatches"] else 1)


def test_a_shared_agents_rollout_holds_all_its_seats():
    agents = ppo(share=True, minibatches=None, batch_size=24)
    assert trainer(steps_per_train=12).train(agents, [1, 1], plot=False)["num_gradient_steps"] == 1
    with pytest.raises(ConfigError, match="environments x 2 seats = 24 rows"):
        trainer().train(ppo(share=True, minibatches=None, batch_size=25), [1, 1], plot=False)


def test_rollouts_of_turn_based_games_have_no_fixed_size():
    spec = probe(resolve(Relay, {}))
    (unit,) = Roster(spec, ppo(Relay, minibatches=None, batch_size=500), 0, stack=True).units
    check_pace(unit, spec, 3, DEFAULTS)


def test_a_batch_is_no_concern_of_agents_of_ones_own():
    student = Student(lambda row: 0)
    trainer(steps_per_train=12).train([student, mt.RandomAgent()], [1, 0], plot=False)
    assert [len(batch.reward) for batch in student.seen] == [12]


def test_the_streams_keep_the_most_that_anyone_needs():
    spec = probe(resolve(Crowd, {}))
    blue = mt.make_agents("ppo", Crowd, seed=0, update_freq=50)[1]
    reds = [mt.make_agents("dqn", Crowd, capacity=c)[0] for c in (100, 3001)]
    plans = plans_for(Roster(spec, [reds[0], blue, reds[1]], 0, stack=True).units, spec, 3, DEFAULTS)
    assert plans[0].rows == 1001 + 1  # ceil(3001 / 3), and the row that begins
    assert plans[1].rows == 17 + 1
    assert dict(plans[0].columns) == {}
    assert set(plans[1].columns) == {"log_prob"}
    assert plans_for(Roster(spec, [mt.RandomAgent() for _ in range(3)], 0, stack=True).units, spec, 3, DEFAULTS) == {}


def test_learners_with_paces_of_their_own_update_at_their_own_steps():
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


def test_a_decision_without_a_successor_waits_for_the_next_rollout():
    """Relay: after moves 0 to 3 (ann, bob, cat, ann) it is bob's turn: ann's and bob's first decisions are whole."""
    student = Student(lambda row: 0)
    run = trainer(Relay, num_train_envs=1, update_freq=4, steps_per_train=8, seed=run_seed([0]))
    run.train([student, student, student], [1, 1, 1], plot=False)
    assert [batch.observation[:, 0].tolist() for batch in student.seen] == [[0, 1], [3, 6, 4, 2, 5, 7]]


def spoiled(monkeypatch, at_update, what):
    """From the given update on, one agent's rewards hold `what`; notes the weights before that update."""
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
def test_the_error_tells_the_agent_the_loss_and_the_update(monkeypatch, backend, what):
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


def test_a_rollout_that_is_not_finite_moves_no_weight_in_any_pass(monkeypatch):
    before = spoiled(monkeypatch, 2, np.nan)
    agents = ppo(minibatches=1, epochs=3)
    with pytest.raises(AgentError, match="player_1: loss/"):
        trainer(steps_per_train=120).train(agents, [1, 1], plot=False)
    after = weights(agents)[1]
    assert all((before[0][1][n] == after[n]).all() for n in after if n.startswith("net/"))


def test_the_last_checkpoint_is_left_as_it_was(monkeypatch, tmp_path):
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
