"""Passes of a team over a rollout: epochs, minibatches of batch steps, and agents in turns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.learner.joint_learner import JointLearner
from tests.policies.some_batches import VECTOR, some_team

ROWS, RATE = 11, 0.125


@dataclass(frozen=True, kw_only=True)
class LineSettings(mt.TeamSettings, mt.Settings):
    epochs: int = mt.setting(1, doc="passes", low=1)
    minibatches: int = mt.setting(1, doc="minibatches", low=1)


class Line(mt.JointAlgorithm):
    """A constant w of each agent, with the loss -w M; M is 1, and doubled after each turn."""

    name, Settings, on_policy = "line", LineSettings, True
    seen: ClassVar[list[Any]] = []

    def networks(self):
        return {"w": mt.NetworkDefinition(None, [mt.Head(0, free=1)], layout=None)}

    def needs(self):
        return mt.Needs(on_policy=True)

    @property
    def phases(self):
        return (mt.Phase("w", ("w",), self.loss, apart=True, turns=self.turns),)

    turns: Any = None

    def prepare_team(self, ops, team, batch, to_numpy):
        return {"step": np.arange(ROWS, dtype=np.float32)[None], "factor": np.ones((1, ROWS), np.float32)}, {}

    def after_turn(self, ops, team, learned):
        return {"factor": 2.0 * team.rows.factor}

    def loss(self, ops, team):
        type(self).seen.append((team.rows, [member.rows for member in team.members]))
        gain = mt.weighted_mean(ops, team.rows.factor, team.rows.weight)
        losses = [-member.nets["w"]()[0][:, 0, 0] * gain for member in team.members]
        return losses, {"loss/total": losses}


class InOrder(Line):
    turns = staticmethod(mt.in_random_order)


class SecondOnly(Line):
    turns = staticmethod(lambda rng, agents: np.arange(agents)[None] == 1)


def team(algorithm: Any, count: int = 3, seats: int = 1, **settings: Any) -> JointLearner:
    kind = type("Agent", (mt.LearningAgent,), {"algorithm_class": algorithm})
    plain: dict[str, Any] = {"optimizer": "sgd", "learning_rate": RATE, "max_grad_norm": None}
    agents = [
        kind(VECTOR, spaces.Discrete(3), seed=i, team_size=count * seats, **plain, **settings) for i in range(count)
    ]
    algorithm.seen = []
    return JointLearner([agent.learner_ for agent in agents], [seats] * count, range(count * seats))


def rollout(learner: JointLearner, seats: int = 1) -> Any:
    batch = some_team(np.random.default_rng(0), learner.members, [seats] * len(learner.members), ROWS)
    batch.members = [replace(member, weight=np.ones_like(member.weight)) for member in batch.members]
    return batch


def updated(learner: JointLearner, batch: Any, learn: Any = None) -> list[float]:
    """Return how far w of each agent moves in an update."""
    before = constants(learner)
    learner.update(batch, learn=np.ones(learner.num_agents, bool) if learn is None else learn, batch_size=1)
    return [after - w for after, w in zip(constants(learner), before, strict=True)]


def constants(learner: JointLearner) -> list[float]:
    return [float(next(iter(member.weights.nets["w"].arrays(0).values())).item()) for member in learner.members]


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_agents_learn_in_turns_with_the_columns_that_the_turns_before_left(backend):
    learner, orders = team(InOrder, epochs=2, minibatches=3, backend=backend), set()
    for _ in range(8):
        moved = updated(learner, rollout(learner))
        assert sorted(moved) == pytest.approx([6 * RATE, 12 * RATE, 24 * RATE])
        orders.add(tuple(np.argsort(moved).tolist()))
    assert len(orders) > 1
    assert learner.gradient_steps.tolist() == [48] * 3


def test_a_phase_chooses_agents_among_those_that_learn():
    learner = team(SecondOnly)
    assert updated(learner, rollout(learner)) == pytest.approx([0, RATE, 0])
    assert updated(learner, rollout(learner), np.array([True, False, True])) == [0, 0, 0]


def test_all_agents_learn_at_once_without_turns():
    learner = team(Line, epochs=3)
    assert updated(learner, rollout(learner)) == pytest.approx([3 * RATE] * 3)


def test_an_epoch_has_each_batch_step_once_with_the_rows_of_all_seats():
    """A batch step without weight is in none; the weights of a minibatch sum to 1."""
    learner = team(Line, count=1, seats=2, epochs=2, minibatches=3)
    batch = rollout(learner, 2)
    batch.weight[0, 4] = 0
    batch.members[0].reward[...] = np.tile(np.arange(ROWS), 2)
    updated(learner, batch)
    assert len(Line.seen) == 6
    for epoch in (Line.seen[:3], Line.seen[3:]):
        steps = np.concatenate([rows.step.numpy()[0] for rows, _ in epoch]).astype(int).tolist()
        assert sorted(steps) == [step for step in range(ROWS) if step != 4]
        assert steps != sorted(steps)
        for rows, (own,) in epoch:
            assert own.reward.numpy().tolist() == [np.tile(rows.step.numpy()[0], 2).tolist()]
            assert rows.weight.numpy().sum() == pytest.approx(1)
            assert own.weight.numpy().sum() == pytest.approx(1)
