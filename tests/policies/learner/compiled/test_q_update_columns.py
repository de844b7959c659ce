"""Columns that compiled passes of Q-values read, and those that they refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.algorithms.dqn import DQNAlgorithm
from marltrain.policies.interface.algorithm import CompiledForm
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.compiled.q_update import QStep
from marltrain.policies.learner.minibatches import shares_of
from marltrain.policies.learner.trained_team import ALONE
from marltrain.policies.networks.specs import MLP
from tests.policies.compiled.wrong_columns import WRONG_COLUMNS
from tests.policies.learner.compiled.test_q_update import CLOSE, COMPILED, PLAIN, learners
from tests.policies.learner.test_learner import everyone, moved
from tests.policies.some_batches import VECTOR, some_transitions


def columns_of(rng: np.random.Generator, *, masked: bool = True) -> dict[str, Any]:
    """What a pass is given."""
    batch = some_transitions(rng, VECTOR, 4, 3, 7, masked=masked)
    rows = {n: COMPILED.tensor(value) for n, value in vars(batch).items() if n not in ("weight", "cells", "extras")}
    return {**rows, "weight": COMPILED.tensor(shares_of(batch.weight))}


OF = dict.fromkeys(("obs", "reward", "discount", "weight", "next_obs"), "float32") | {
    "action": "int64", "next_legal": "bool",
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_COLUMNS)
@pytest.mark.parametrize("name", OF)
def test_columns_that_compiled_code_would_not_read_aright(name, wrong):
    native, _ = learners(network=MLP((5,)))
    result, before = native.steps.steps[0], native.export(0)
    columns = columns_of(np.random.default_rng(0))
    columns[name] = WRONG_COLUMNS[wrong](columns[name])
    if (name, wrong) == ("next_legal", "nothing"):
        result({ALONE: columns}, {ALONE: native.hyper.stacked()}, everyone(native))
        assert moved(before, native.export(0))
        return
    rows_of_all = name == "reward" and wrong == r"\(3, 6"  # then all others have one row too many
    text = "column 'obs'" if rows_of_all else rf"column '{name}' must be {OF[name]} \(3, \d.*\) in one piece; .*{wrong}"
    with pytest.raises(TypeError, match=text):
        result({ALONE: columns}, {ALONE: native.hyper.stacked()}, everyone(native))
    assert not moved(before, native.export(0))


@pytest.mark.parametrize("name", ["obs", "next_obs", "next_legal"])
def test_columns_of_another_width(name):
    native, _ = learners(network=MLP((5,)))
    columns = columns_of(np.random.default_rng(0))
    columns[name] = columns[name][..., :3].contiguous()
    with pytest.raises(
        TypeError, match=rf"column '{name}' must be \w+ \(3, 7, [45]\) in one piece; it is .*\(3, 7, 3\)"
    ):
        native.steps.steps[0]({ALONE: columns}, {ALONE: native.hyper.stacked()}, everyone(native))


@pytest.mark.parametrize("action", [-1, 4])
def test_actions_that_there_are_not(action):
    native, _ = learners(network=MLP((5,)))
    before, columns = native.export(0), columns_of(np.random.default_rng(0))
    columns["action"][2, 6] = action
    with pytest.raises(TypeError, match=r"actions must lie in \[0, 4\); they are"):
        native.steps.steps[0]({ALONE: columns}, {ALONE: native.hyper.stacked()}, everyone(native))
    assert not moved(before, native.export(0))


def test_metrics_are_not_overwritten_by_the_next_pass():
    native, _ = learners(network=MLP((5,)))
    rng = np.random.default_rng(0)
    result = native.steps.steps[0]
    first = result({ALONE: columns_of(rng)}, {ALONE: native.hyper.stacked()}, everyone(native))
    kept = first.clone()
    second = result({ALONE: columns_of(rng)}, {ALONE: native.hyper.stacked()}, everyone(native))
    assert torch.equal(first, kept)
    assert not torch.equal(first, second)


def algorithm_of(kind: Any = DQNAlgorithm, **settings: Any) -> Any:
    """The algorithm of an agent of this class."""
    return type("Agent", (mt.DQN,), {"algorithm_class": kind})(VECTOR, spaces.Discrete(4), seed=0, **settings).algorithm


class Named(DQNAlgorithm):
    """DQN whose network has another name."""

    def networks(self):
        return {"value": super().networks()["q"]}

    def targets(self):
        return ("value",)

    def compiled_form(self):
        return CompiledForm("value", "epsilon_greedy", "double_q")

    @property
    def phases(self):
        (phase,) = super().phases

        def under_its_name(function):
            return lambda ops, nets, *given: function(
                ops, {"q": nets["value"], "target_q": nets["target_value"]}, *given
            )

        loss, targets = under_its_name(phase.loss), under_its_name(phase.targets)
        return (replace(phase, trains=("value",), loss=loss, targets=targets),)

    def act(self, ops, nets, *given):
        return super().act(ops, {"q": nets["value"]}, *given)


def test_metrics_have_the_networks_name():
    data = []
    for backend in (COMPILED, PLAIN):
        learner = AlgorithmLearner(algorithm_of(Named), backend, [0], draw=True)
        assert learner.steps.plannable == (backend is COMPILED)
        batch = some_transitions(np.random.default_rng(0), VECTOR, 4, 1, 7)
        data.append(sorted(learner.update(batch, learn=np.ones(1, bool), batch_size=7)))
    assert data[0] == data[1]
    assert "grad_norm/value" in data[0]


def test_the_same_columns_are_taken_as_they_should_be():
    native, plain = learners(network=MLP((5,)))
    assert isinstance(native.steps.steps[0], QStep)
    for masked in (False, True):
        columns = columns_of(np.random.default_rng(0), masked=masked)
        measured = [
            learner.steps.steps[0](
                {ALONE: columns}, {ALONE: learner.hyper.stacked()}, np.array([True, False, True])
            ).numpy()[:, [0, 2]]
            for learner in (native, plain)
        ]
        np.testing.assert_allclose(measured[0], measured[1], rtol=2 * CLOSE, atol=2 * CLOSE)
        assert native.steps.steps[0].metrics == plain.steps.steps[0].metrics
    for name, array in native.weights.trained().items():
        np.testing.assert_allclose(array, plain.weights.trained()[name], rtol=0, atol=CLOSE, err_msg=name)
