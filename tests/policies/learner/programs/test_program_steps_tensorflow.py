"""Gradient steps of TensorFlow by programs: on arrays, which variables follow when TensorFlow reads them."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import marltrain as mt
from marltrain.policies.learner.programs.program_steps import ProgramSteps
from tests.policies.learner.programs.pairs import (
    assert_equal_metrics,
    assert_equal_states,
    batches,
    by_programs,
    state_of,
    told_by,
    update,
)
from tests.policies.learner.programs.test_program_step import learners_with, rows
from tests.policies.some_batches import VECTOR
from tests.policies.tape.test_recording import learners_of
from tests.tiers import LONG

CASES = [
    "dqn prioritized", "td3", "ppo popart", "ppo gru", "trpo", "qmix", "vdac",
    *LONG * ["dqn", "dqn images", "dqn lstm", "c51", "sac", "coma", "gail", "vdn", "maddpg"],
]  # fmt: skip
TENSORFLOW: dict[str, Any] = {"backend": "tensorflow"}
PROGRAMS: dict[str, Any] = {**TENSORFLOW, "jit_compile": True}


def pair(name: str) -> tuple[Any, Any, Any]:
    """Return a learner of a case, its equal by programs, and the action space."""
    ((plain,), actions), ((other,), _) = learners_of(name, **TENSORFLOW), learners_of(name, **PROGRAMS)
    assert isinstance(other.steps, ProgramSteps)
    return plain, other, actions


@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_tensorflow(name):
    """With target networks, rescaled values, natural gradients between programs, turns of agents, and teams."""
    plain, other, actions = pair(name)

    def updates():
        for batch in batches(name, plain, actions, 3):
            expected, found = update(plain, batch), update(other, batch)
            assert_equal_metrics(found, expected)

    before = state_of(plain)
    assert told_by(updates) == []
    assert_equal_states(other, plain)
    after = state_of(plain)
    assert all((after[n] != before[n]).any() for step in plain.steps for n in step.trains)


def test_thirty_updates_change_the_variables_only_where_tensorflow_reads_them():
    """Moments of the programs' networks stay in arrays; an export reads them."""
    plain, other, actions = pair("sac")
    for batch in batches("sac", plain, actions, 30):
        update(plain, batch)
        update(other, batch)
    untouched = other.weights.optimizers["critic"].slots["first"].numpy()
    np.testing.assert_array_equal(untouched, 0)
    for row in range(other.num_agents):
        expected, found = plain.export(row).arrays, other.export(row).arrays
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=0, atol=3e-5 * max(np.abs(array).max(), 1e-8))
    assert (other.weights.optimizers["critic"].slots["first"].numpy() != untouched).any()


@pytest.mark.parametrize("name", ["dqn without double", *LONG * ["sac"]])
def test_gradient_noise_is_that_of_tensorflow(name):
    plain, other, actions = pair(name)
    for on, batch in zip((False, True, False), batches(name, plain, actions, 3), strict=True):
        for learner in (plain, other):
            learner.steps.measure_noise(on=on)
        assert_equal_metrics(update(other, batch), update(plain, batch))
    assert_equal_states(other, plain)


def test_tensorflow_computes_a_phase_beside_a_program():
    plain, other = learners_with(lambda ops, loss, batch: tf.exp(loss), **TENSORFLOW)
    by_programs(other)
    told = told_by(lambda: [update(learner, rows(plain, seed)) for seed in range(3) for learner in (plain, other)])
    assert len(told) == 1 and "phase 'critic' is computed by tensorflow, because it cannot be recorded" in told[0]
    assert_equal_states(other, plain)


def test_an_algorithm_of_the_user_is_compared():
    plain, other = learners_with(lambda ops, loss, batch: ops.exp(0.1 * loss) - 1.0, **TENSORFLOW)
    by_programs(other)
    for seed in range(2):
        assert_equal_metrics(update(other, rows(plain, seed)), update(plain, rows(plain, seed)))
    assert_equal_states(other, plain)
    calls = iter(range(1, 100))
    (wrong,) = learners_with(lambda ops, loss, batch: loss * float(next(calls)), 1, **TENSORFLOW)
    with pytest.raises(mt.ConfigError, match=r"phase 'critic'.*by tensorflow"):
        update(by_programs(wrong), rows(wrong))


@pytest.mark.parametrize("name", ["ppo", "qmix", *LONG * ["sac"]])
def test_resumption_is_exact(name):
    """Three updates; and one update, whose agents are exported and loaded, and two more: equal bits."""
    (whole, first, second), actions = learners_of(name, 3, **PROGRAMS)
    given = batches(name, whole, actions, 3)
    for batch in given:
        update(whole, batch)
    update(first, given[0])
    update(second, given[2])  # what is loaded replaces it
    saved, loading = (learner.members[0] if name == "qmix" else learner for learner in (first, second))
    for row in range(saved.num_agents):
        loading.load(row, saved.export(row))
    for batch in given[1:]:
        update(second, batch)
    expected = state_of(whole)
    for array, numbers in state_of(second).items():
        np.testing.assert_array_equal(numbers, expected[array], array)


def test_acting_reads_what_programs_changed():
    """By numpy: the outputs are those of a graph over the variables."""
    plain, other, actions = pair("dqn")
    obs = np.random.default_rng(0).standard_normal((plain.num_agents, 50, VECTOR.shape[0]), np.float32)
    net = other.weights.online["q"]
    for batch in batches("dqn", plain, actions, 3):
        before = net.in_numpy()(obs)[0]
        update(other, batch)
        after = net.in_numpy()(obs)[0]
        assert (after != before).any()
        np.testing.assert_allclose(after, net(tf.constant(obs))[0], rtol=1e-4, atol=1e-5)
