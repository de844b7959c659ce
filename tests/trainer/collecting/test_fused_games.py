"""Fused batch steps of native games whose players change seats, or that are divided among matches, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest

import marltrain as mt
from marltrain.trainer.collecting.fused import FusedCollector
from marltrain.trainer.collecting.rollout import SyncCollector
from marltrain.trainer.saving.checkpoint import Checkpoint
from tests.trainer.collecting.test_fused import ADVERSARY, SETTINGS, Looking, assert_same, hold, train
from tests.trainer.collecting.test_fused_turns import MANY, TICTACTOE
from tests.trainer.running import dqn, ppo, tables, trainer, weights


@pytest.mark.parametrize(
    ("env", "make"),
    [
        pytest.param(TICTACTOE, lambda: ppo(TICTACTOE, {}), id="ppo"),
        pytest.param(TICTACTOE, lambda: dqn(TICTACTOE, {}, capacity=90), id="dqn"),
        pytest.param(ADVERSARY, lambda: dqn(ADVERSARY, {}), id="two groups"),
    ],
)
def test_fused_run_with_changing_seats_equals_single_steps(env, make):
    hold(env, make, at_once=3, rotate=True, **MANY)


def league(agents, **settings):
    """A league of three learners that play against versions, and against the main agent as it is."""
    return mt.League(agents[0], present=0.3, every_steps=60, longest=150, size=4, **settings)


def run_league(make, callbacks=(), *, rotate=True, **settings):
    """Train a league in 6 environments, 2 in each match; return the trainer and all that is left."""
    made = league(make())
    given = {**SETTINGS, **MANY, "num_train_envs": 6, "callbacks": callbacks, "run_dir": None, **settings}
    output: Any = trainer(TICTACTOE, {}, **given)
    result = output.train(made, plot=False, rotate=rotate)
    agents = [learner.agent for learner in made.learners]
    return output, (weights(agents), tables(result), made.table().to_csv(), made.pool.state().info)


@pytest.mark.parametrize("rotate", [False, True])
def test_fused_run_of_a_league_equals_single_steps(rotate):
    def make():
        return ppo(TICTACTOE, {})

    fused, found = run_league(make, rotate=rotate)
    single, expected = run_league(make, [Looking()], rotate=rotate)
    assert isinstance(fused.run.collector, FusedCollector)
    assert isinstance(single.run.collector, SyncCollector)
    assert_same(found, expected)


def test_resume_in_the_middle_of_an_episode():
    """A checkpoint every 83 env steps, where a fused call ends."""
    train(TICTACTOE, dqn(TICTACTOE, {}), rotate=True, callbacks=[Checkpoint(every_steps=83, keep=9)], **MANY)
    agents, again = dqn(TICTACTOE, {}), dqn(TICTACTOE, {})
    output: Any = trainer(TICTACTOE, {}, **{**SETTINGS, **MANY, "run_dir": None})
    result = output.train(again, [1, 1], plot=False, rotate=True, resume="run/checkpoints/170")
    assert isinstance(output.run.collector, FusedCollector)
    _, whole = train(TICTACTOE, agents, run_dir="whole", rotate=True, **MANY)
    assert_same((weights(again), tables(result)), (weights(agents), whole[2]))
