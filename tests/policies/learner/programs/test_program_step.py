"""What cannot be recorded is computed by the framework, and told; a user's own algorithm is compared."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.core.layout import map_tree
from marltrain.policies.algorithms.ddpg import DDPGAlgorithm
from marltrain.policies.learner.programs import program_step
from marltrain.policies.learner.programs.program_step import ProgramStep
from tests.policies.learner.programs.pairs import (
    assert_equal_metrics,
    assert_equal_states,
    batches,
    by_programs,
    pair,
    state_of,
    told_by,
    update,
)
from tests.policies.learner.test_learner import stacked
from tests.policies.some_batches import VECTOR, some_transitions

BOX, ROWS = spaces.Box(-2, 3, (2,), np.float32), 7


class Altered(DDPGAlgorithm):
    """DDPG whose losses go through a function: (ops, loss, batch) -> loss."""

    change: Any

    @property
    def phases(self) -> Any:
        return tuple(map(self._changed, super().phases))

    def _changed(self, phase: Any) -> Any:
        def loss(ops, nets, batch, hyper):
            value, metrics = phase.loss(ops, nets, batch, hyper)
            return type(self).change(ops, value, batch) if phase.name == "critic" else value, metrics

        return replace(phase, loss=loss)


def learners_with(change: Any, count: int = 2, **settings: Any) -> list[Any]:
    """Return equal learners of two agents with a changed loss."""
    kind = type("Mine", (Altered,), {"change": staticmethod(change)})
    agent_class = type("MineAgent", (mt.DDPG,), {"algorithm_class": kind})
    agents = [agent_class(VECTOR, BOX, seed=k, network=mt.MLP((9,)), device="cpu", **settings) for k in range(2)]
    return [stacked(agents) for _ in range(count)]


def rows(learner: Any, seed: int = 0) -> Any:
    return some_transitions(np.random.default_rng(seed), learner.algorithm.layout, BOX, learner.num_agents, ROWS)


def assert_computed_by_the_framework(plain: Any, other: Any, given: list[Any], phase: str, reason: str) -> None:
    """The results are equal, and one notice names the phase and the reason."""
    by_programs(other)
    told = told_by(lambda: [update(learner, batch) for batch in given for learner in (plain, other)])
    assert [f"phase {phase!r}" in line and reason in line for line in told] == [True], told
    assert_equal_states(other, plain)


def test_a_model_of_the_user():
    model = torch.nn.Sequential(torch.nn.Linear(VECTOR.shape[0], 6), torch.nn.Tanh(), torch.nn.Linear(6, 3))
    agent = mt.DQN(VECTOR, spaces.Discrete(3), seed=0, device="cpu", network=model)
    plain, other = stacked([agent]), stacked([agent])
    batch = some_transitions(np.random.default_rng(0), VECTOR, 3, 1, ROWS)
    assert_computed_by_the_framework(plain, other, [batch, batch], "q", "a model of your own")


def test_a_function_of_torch_in_a_loss():
    plain, other = learners_with(lambda ops, loss, batch: torch.exp(loss))
    given = [rows(plain, seed) for seed in range(2)]
    assert_computed_by_the_framework(plain, other, given, "critic", "exp")


def test_over_rows_that_cannot_be_recorded():
    """Both phases are computed by the framework."""
    plain, other = learners_with(lambda ops, loss, batch: loss)
    for learner in (plain, other):
        learner.algorithm.over_rows = lambda ops, batch: setattr(batch, "reward", batch.reward.double().float())
    by_programs(other)
    told = told_by(lambda: [update(learner, rows(learner)) for _ in range(2) for learner in (plain, other)])
    assert ["double" in line and line.split("'")[1] for line in told] == ["critic", "actor"]
    assert_equal_states(other, plain)


def test_only_the_phase_that_cannot_be_recorded_is_computed_by_the_framework():
    (other,) = learners_with(lambda ops, loss, batch: torch.exp(loss), 1)
    by_programs(other)
    assert [line.split("'")[1] for line in told_by(lambda: update(other, rows(other)))] == ["critic"]


def test_an_algorithm_of_the_user_is_recorded():
    plain, other = learners_with(lambda ops, loss, batch: ops.exp(0.1 * loss) - 1.0)
    by_programs(other)

    def updates():
        for seed in range(3):
            assert_equal_metrics(update(other, rows(plain, seed)), update(plain, rows(plain, seed)))

    assert told_by(updates) == []
    assert_equal_states(other, plain)


def test_a_loss_that_depends_on_more_than_its_arguments_is_refused():
    """It is 1, 2, 3, ... times the loss; a recording holds the number of one call."""
    calls = iter(range(1, 100))
    (learner,) = learners_with(lambda ops, loss, batch: loss * float(next(calls)), 1)
    by_programs(learner)
    before = state_of(learner)
    with pytest.raises(ConfigError, match=r"phase 'critic'.*leave jit_compile out"):
        update(learner, rows(learner))
    for name, array in state_of(learner).items():
        np.testing.assert_array_equal(array, before[name], name)


def test_a_loss_that_is_no_sum_over_rows_is_refused(monkeypatch):
    monkeypatch.setattr(program_step, "LARGEST_ARENA", 1)
    monkeypatch.setattr(program_step, "LEAST_ROWS", 3)
    (learner,) = learners_with(lambda ops, loss, batch: ops.square(1.0 + loss), 1)
    by_programs(learner)
    with pytest.raises(ConfigError, match="sum over rows"):
        update(learner, rows(learner))


class OfSpreadColumns(ProgramStep):
    """Gets columns with gaps between the numbers of a row."""

    def __call__(self, columns: Any, numbers: Any, due: Any) -> Any:
        return super().__call__(map_tree(lambda x: x.repeat_interleave(2, -1)[..., ::2], columns), numbers, due)


@pytest.mark.parametrize("name", ["dqn", "qmix"])
def test_columns_with_gaps(name):
    plain, other, actions = pair(name)
    other.steps.steps = [OfSpreadColumns(step.number, step.team) for step in other.steps]
    for batch in batches(name, plain, actions, 3):
        assert_equal_metrics(update(other, batch), update(plain, batch))
    assert_equal_states(other, plain)
