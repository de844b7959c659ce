"""Fused batch steps with a set of policies in a seat equal single batch steps: complete runs, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest

import marltrain as mt
from marltrain.trainer.collecting.fused import FusedCollector
from marltrain.trainer.collecting.rollout import SyncCollector
from marltrain.trainer.saving.checkpoint import Checkpoint
from tests.trainer.collecting.test_fused import SETTINGS, Counting, Looking, assert_same
from tests.trainer.collecting.test_fused_turns import KUHN, MANY, TICTACTOE
from tests.trainer.collecting.test_fused_updates import learners
from tests.trainer.running import dqn, ppo, tables, trainer, weights

SCISSORS = "marltrain/rock_paper_scissors_v1"


def against_a_pool(env, **settings):
    """An agent whose opponents are its own versions; it explores, they sample."""
    agent = ppo(env, {})[0]
    return [agent, mt.OpponentPool(agent, every_steps=60, size=3, **settings)]


def against_frozen(env):
    """A set of two frozen copies of one kind: one samples, the other plays the mode."""
    agent, other = ppo(env, {})
    return [agent, mt.MixedAgent([other, mt.FrozenAgent(ppo(env, {}, seed=5)[0])], [1, 2])]


def dqn_against_dqn(env):
    """An agent whose updates are made in compiled calls, against its own versions, and itself as it is at present."""
    agent = learners(env, update_freq=5)[0]
    return [agent, mt.OpponentPool(agent, every_steps=60, size=3, present=0.4)]


def against_two_kinds(env):
    """A set of agents that sample, one of which is greedy, and of agents that explore."""
    first, second = dqn(env, {}, epsilon=0.9), ppo(env, {}, seed=5)
    return [ppo(env, {})[0], mt.MixedAgent([*first, *second, mt.FrozenAgent(first[0]), mt.FrozenAgent(second[1])])]


def against_a_random_player(env):
    """A set with a member for which compiled code does not act: its steps are single ones."""
    return [ppo(env, {})[0], mt.MixedAgent([*ppo(env, {}, seed=5), mt.RandomAgent()], [1, 1, 0.1])]


def learner_of_replay(env):
    """An agent whose updates are made in compiled calls, against a pool of given policies."""
    return [learners(env, update_freq=5)[0], mt.OpponentPool((), members=ppo(env, {}))]


@pytest.mark.parametrize(
    ("env", "make"),
    [
        pytest.param(TICTACTOE, against_a_pool, id="pool"),
        pytest.param(TICTACTOE, lambda env: against_a_pool(env, present=0.4), id="pool and the agent at present"),
        pytest.param(TICTACTOE, dqn_against_dqn, id="pool of dqn and the agent at present"),
        pytest.param(KUHN, against_two_kinds, id="set of two kinds"),
        pytest.param(KUHN, against_frozen, id="set"),
        pytest.param(KUHN, against_a_random_player, id="set with a random player"),
        pytest.param(SCISSORS, against_a_pool, id="pool in a simultaneous game"),
        pytest.param(SCISSORS, learner_of_replay, id="results of a pool at updates within calls"),
    ],
)
def test_fused_run_with_a_set_of_policies_equals_single_steps(env, make, monkeypatch):
    dealt, deal = [], FusedCollector._dealt

    def noted(collector: FusedCollector) -> bool:
        dealt.append(deal(collector))
        return dealt[-1]

    monkeypatch.setattr(FusedCollector, "_dealt", noted)
    found, counting = [], Counting()
    for callback in (counting, Looking()):
        output, left = run(make(env), env, callbacks=[callback])
        found.append(left)
        assert isinstance(output.run.collector, FusedCollector if callback is counting else SyncCollector)
    assert_same(*found)
    assert max(counting.steps) > 1 and any(dealt)
    assert all(dealt) == (make is not against_a_random_player)


def run(agents, env, resume=None, **settings):
    """Train the first agent; return the trainer and all that is left."""
    output: Any = trainer(env, {}, **{**SETTINGS, **MANY, "run_dir": None, **settings})
    result, mixed = output.train(agents, [1, 0], plot=False, resume=resume), agents[1]
    table = mixed.table().to_csv() if isinstance(mixed, mt.OpponentPool) else ""
    states = [seated.learner.loop_state().info for seated in output.run.context.seating.learners]
    return output, (weights(agents[:1]), tables(result), table, mixed.state().info, states)


def test_resume_with_the_agent_at_present_in_the_middle_of_an_episode(tmp_path):
    """A checkpoint every 83 env steps, where a fused call ends."""
    whole, again = dqn_against_dqn(TICTACTOE), dqn_against_dqn(TICTACTOE)
    _, expected = run(whole, TICTACTOE, callbacks=[Checkpoint(every_steps=83, keep=9)], run_dir="run")
    output, found = run(again, TICTACTOE, resume="run/checkpoints/170")
    assert isinstance(output.run.collector, FusedCollector)
    assert_same(found, expected)
