"""Gradient steps by programs are those of the framework, for every algorithm and setting."""

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.policies.learner.programs import program_step, step_program
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
from tests.policies.tape.test_recording import CASES, learners_of, rows_of

ODD = 13
"""Rows that are no multiple of a block of three."""
OPTIMIZERS = [{"optimizer": "adam"}, {"optimizer": "adamw"}, {"optimizer": "adamax"}, {"optimizer": "rmsprop"},
              {"optimizer": "sgd"}, {"optimizer": "sgd", "momentum": 0.9}]  # fmt: skip


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of three rows, or of one sequence."""
    monkeypatch.setattr(program_step, "LARGEST_ARENA", 1)
    monkeypatch.setattr(program_step, "LEAST_ROWS", 3)


@pytest.mark.parametrize("name", CASES)
def test_every_algorithm_in_blocks_of_rows(name, small_blocks):
    plain, other, actions = pair(name)
    before = state_of(plain)

    def updates():
        for batch in batches(name, plain, actions, 2):
            expected, found = update(plain, batch), update(other, batch)
            assert_equal_metrics(found, expected)

    assert told_by(updates) == []
    assert_equal_states(other, plain)
    after = state_of(plain)
    assert all((after[n] != before[n]).any() for step in plain.steps for n in step.trains)


@pytest.mark.parametrize("name", ["dqn", "sac", "ppo", "ppo gru", "c51", "qmix", "coma"])
def test_fifty_updates(name):
    plain, other, actions = pair(name)
    for batch in batches(name, plain, actions, 50):
        update(plain, batch)
        update(other, batch)
    assert_equal_states(other, plain, 3e-5)


@pytest.mark.parametrize("name", ["dqn masked", "ppo", "dqn prioritized", "td3"])
def test_rows_that_remain_behind_the_blocks(name, small_blocks):
    plain, other, actions = pair(name)
    batch = rows_of(name, plain, actions, ODD)
    assert_equal_metrics(update(other, batch), update(plain, batch))
    assert_equal_states(other, plain)


@pytest.mark.parametrize("name", ["sac", "dqn prioritized", "td3"])
@pytest.mark.parametrize("agents", [1, 3])
def test_large_programs_in_threads_make_the_same_bits(name, agents, small_blocks, monkeypatch):
    """Agents and groups of blocks; agents that do not learn, too."""
    monkeypatch.setattr(step_program, "LEAST_FOR_THREADS", 0)
    learners, actions = learners_of(name, 2, agents)
    one, several = map(by_programs, learners)
    monkeypatch.setattr(several.backend, "threads", lambda: 3)
    for seed in range(3):
        batch = rows_of(name, one, actions, ODD, seed)
        learn = [k != seed for k in range(agents)]
        np.testing.assert_equal(update(several, batch, learn), update(one, batch, learn))
    for array, numbers in state_of(one).items():
        np.testing.assert_array_equal(state_of(several)[array], numbers, array)
    assert [each.steps.team.threads.started > 0 for each in (one, several)] == [False, True]
    several.close()


def test_threads_are_for_large_steps():
    (learner,), actions = learners_of("sac", 1, 3, network=mt.MLP((64, 64)))
    by_programs(learner)
    found = {}
    for rows in (10, 200):
        update(learner, rows_of("sac", learner, actions, rows))
        program = list(learner.steps.steps[0]._programs.values())[-1]
        found[rows] = program._in_threads is not None
        least = 3 * rows * 2 * 64 * 64 * 4  # forward passes of two critics and their targets, layers of 64 units
        assert program.execution.multiply_adds > least
    assert found == {10: False, 200: True}


@pytest.mark.parametrize("agents", [1, 2, 5])
@pytest.mark.parametrize("settings", OPTIMIZERS, ids=str)
def test_agents_with_numbers_of_their_own(agents, settings):
    """Learning rates, limits of the norm and decay differ; a decay is set after the first update."""
    plain, other, actions = pair("sac", agents, max_grad_norm=1.0, **settings)
    for learner in (plain, other):
        for k in range(agents):
            learner.set_hyper(k, "learning_rate", 0.001 * (k + 1))
            learner.set_hyper(k, "max_grad_norm", [0.01, 0.5, 2.0, 10.0, 1e-4][k])
    for number, batch in enumerate(batches("sac", plain, actions, 3)):
        assert_equal_metrics(update(other, batch), update(plain, batch))
        for learner in (plain, other):
            learner.set_hyper(agents - 1, "weight_decay", 0.1 * number)
    assert_equal_states(other, plain)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("vdac", {}),
        ("qmix", {}),
        ("qmix", {"optimizer": "rmsprop"}),
        ("maddpg", {"optimizer": "adamw", "weight_decay": 0.2}),
    ],
)
def test_agents_of_a_team_with_numbers_of_their_own(name, settings):
    plain, other, actions = pair(name, max_grad_norm=1.0, **settings)
    for learner in (plain, other):
        for k, limit in enumerate((0.01, 0.3, 10.0)):
            learner.members[0].set_hyper(k, "learning_rate", 0.001 * (k + 1))
            learner.members[0].set_hyper(k, "max_grad_norm", limit)
    for batch in batches(name, plain, actions, 3):
        assert_equal_metrics(update(other, batch), update(plain, batch))
    assert_equal_states(other, plain)


@pytest.mark.parametrize("name", ["dqn", "td3", "ppo", "qmix", "vdac", "maddpg", "dqn prioritized"])
def test_agents_that_do_not_learn_stay_as_they_are(name):
    plain, other, actions = pair(name)
    first, second = batches(name, plain, actions, 2)
    for learner in (plain, other):
        update(learner, first)
    before = state_of(other)
    expected, found = (update(learner, second, [True, False, True]) for learner in (plain, other))
    for metric, values in expected.items():
        np.testing.assert_allclose(found[metric], values, rtol=1e-4, atol=1e-5, err_msg=metric)
    assert_equal_states(other, plain)
    trained = [name for step in other.steps for name in step.trains if not name.startswith("team/")]
    for array, numbers in state_of(other).items():
        if array.rpartition(" of ")[2] in trained:
            np.testing.assert_array_equal(numbers[1], before[array][1], array)


@pytest.mark.parametrize("name", ["dqn", "ppo gru", "maddpg", "qmix"])
def test_a_loss_that_is_not_finite_moves_no_weight_of_its_agent(name):
    """The reward of the first agent, or that of a team with one loss, is not a number."""
    plain, other, actions = pair(name)
    first, second = batches(name, plain, actions, 2)
    rows = second.members[0] if name == "maddpg" else second
    rows.reward[0, 1] = np.nan
    for learner in (plain, other):
        update(learner, first)
    before = state_of(other)
    expected, found = update(plain, second), update(other, second)
    assert_equal_states(other, plain)
    network = next(iter(other.steps)).trains[0]
    np.testing.assert_array_equal(state_of(other)[network][0], before[network][0])
    assert (state_of(other)[network][1] != before[network][1]).any() == (name != "qmix")
    norm = f"grad_norm/{network.split('/')[1]}"
    np.testing.assert_array_equal(np.isnan(found[norm]), [True, name == "qmix", name == "qmix"])
    np.testing.assert_allclose(found[norm], expected[norm], rtol=1e-4)


def test_updates_that_end_early():
    """The second agent ends at once, the third between the first and the last minibatch."""
    settings: dict[str, Any] = {"epochs": 6, "minibatches": 2, "learning_rate": 0.05, "target_kl": 100.0}
    plain, other, actions = pair("ppo target_kl", **settings)
    batch = rows_of("ppo target_kl", plain, actions, ODD)
    for learner in (plain, other):
        learner.set_hyper(1, "target_kl", 1e-5)
        learner.set_hyper(2, "target_kl", 0.1)
        update(learner, batch)
    assert_equal_states(other, plain)
    first, second, third = state_of(other)["count of 0/actor"][:, 0]
    assert (first, second) == (12, 0) and 0 < third < 12


@pytest.mark.parametrize("name", ["sac", "ppo", "qmix"])
def test_resumption_is_exact(name):
    """Three updates; and one update, whose agents are exported and loaded, and two more: equal bits."""
    (whole, first, second), actions = learners_of(name, 3)
    for learner in (whole, first, second):
        by_programs(learner)
    given = batches(name, whole, actions, 3)
    for batch in given:
        update(whole, batch)
    update(first, given[0])
    saved, loading = (learner.members[0] if name == "qmix" else learner for learner in (first, second))
    for row in range(saved.num_agents):
        loading.load(row, saved.export(row))
    for batch in given[1:]:
        update(second, batch)
    expected = state_of(whole)
    for array, numbers in state_of(second).items():
        np.testing.assert_array_equal(numbers, expected[array], array)


def test_two_learners_in_one_process():
    (alone, first, second), actions = learners_of("sac", 3)
    for learner in (alone, first, second):
        by_programs(learner)
    given = batches("sac", alone, actions, 3)
    for batch in given:
        update(alone, batch)
        update(first, batch)
        update(second, given[0])
    expected = state_of(alone)
    for array, numbers in state_of(first).items():
        np.testing.assert_array_equal(numbers, expected[array], array)


def test_columns_of_many_shapes(monkeypatch):
    monkeypatch.setattr(program_step, "MOST_PROGRAMS", 2)
    plain, other, actions = pair("dqn")
    for rows in (3, 4, 5, 3, 5):
        batch = rows_of("dqn", plain, actions, rows)
        assert_equal_metrics(update(other, batch), update(plain, batch))
    assert_equal_states(other, plain)
    assert len(next(iter(other.steps))._programs) == 2


@pytest.mark.parametrize("name", ["sac", "dqn prioritized", "dqn images", "ppo shared", "a2c"])
def test_gradient_noise_is_measured_by_programs(name, small_blocks, monkeypatch):
    """In blocks of four rows, which are even, and one row behind them."""
    monkeypatch.setattr(program_step.ProgramStep, "compute", None)  # that of the framework
    plain, other, actions = pair(name)
    for on, batch in zip((False, True, True, False), batches(name, plain, actions, 4, ODD), strict=True):
        for learner in (plain, other):
            learner.steps.measure_noise(on=on)
        expected, found = update(plain, batch), update(other, batch)
        assert any(metric.startswith("gradient_noise/") for metric in found) == on
        assert_equal_metrics(found, expected)
    assert_equal_states(other, plain)
