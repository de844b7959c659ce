"""All steps over a rollout in one call are those made one by one: with random numbers in losses, and of teams."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from marltrain.policies.algorithms.gail import Discriminator
from marltrain.policies.algorithms.vdac import VDACAlgorithm
from marltrain.policies.interface.algorithm import in_random_order
from tests.policies.learner.programs.pairs import state_of, update
from tests.policies.tape.test_recording import learners_of, rows_of

LEARN = [(True, True, True), (True, False, True), (False, True, True)]
"""Which of three agents learn."""


def members_of(learner: Any) -> Any:
    return getattr(learner, "members", [learner])


def one_by_one(learner: Any, monkeypatch: Any) -> None:
    for name in ("programs", "programs_of_team"):
        monkeypatch.setattr(learner.steps.over_rollouts, name, lambda *_, **__: None)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
@pytest.mark.parametrize(("name", "minibatches"), [("gail", 3), ("vdac", 1)])
def test_steps_in_one_call_are_those_made_one_by_one(name, minibatches, backend, monkeypatch):
    """Weights, moments, counts, metrics and generators are equal to the last bit, if a minibatch is one block."""
    settings = {"minibatches": minibatches} if name == "gail" else {}
    learners, actions = learners_of(name, 2, backend=backend, jit_compile=True, **settings)
    at_once, apart = learners
    one_by_one(apart, monkeypatch)
    for learner in learners:
        for member in members_of(learner):
            member.update_schedule = replace(member.update_schedule, epochs=2)
    for seed, learn in enumerate(LEARN):
        batch = rows_of(name, at_once, actions, 24, seed)
        np.testing.assert_equal(update(at_once, batch, learn), update(apart, batch, learn))
        np.testing.assert_array_equal(at_once.gradient_steps, apart.gradient_steps)
    assert at_once.gradient_steps.tolist() == [2 * 2 * minibatches, 2 * 2 * minibatches, 3 * 2 * minibatches]
    np.testing.assert_equal(state_of(at_once), state_of(apart))
    states = [[rng.bit_generator.state for rng in learner.rngs("update")] for learner in learners]
    assert states[0] == states[1]


@pytest.mark.parametrize("compared", [True, False])
@pytest.mark.parametrize("turns", [None, in_random_order])
@pytest.mark.parametrize("minibatches", [1, 3, 5])
def test_minibatches_and_turns_of_a_team(minibatches, turns, compared, monkeypatch):
    """24 batch steps: 3 minibatches have equal numbers of them, and 5 do not; these are made one by one.

    After each turn, the advantages of the team change.
    """

    def after_turn(self: Any, ops: Any, team: Any, learned: Any) -> Any:
        return {"advantage": team.rows.advantage + 0.25 * learned[0][:1, None]}

    monkeypatch.setattr(VDACAlgorithm, "after_turn", after_turn)
    learners, actions = learners_of("vdac", 2, jit_compile=True)
    at_once, apart = learners
    one_by_one(apart, monkeypatch)
    for learner in learners:
        for member in learner.members:
            member.update_schedule = replace(member.update_schedule, epochs=2, minibatches=minibatches)
        for step in learner.steps.steps:
            step.phase, step.compared = replace(step.phase, turns=turns), compared
    for seed, learn in enumerate(LEARN):
        batch = rows_of("vdac", at_once, actions, 24, seed)
        np.testing.assert_equal(update(at_once, batch, learn), update(apart, batch, learn))
        np.testing.assert_array_equal(at_once.gradient_steps, apart.gradient_steps)
    np.testing.assert_equal(state_of(at_once), state_of(apart))
    assert all(step.compared for step in at_once.steps)
    assert (len(at_once.steps.over_rollouts._programs) > 0) == (minibatches != 5)
    states = [[rng.bit_generator.state for rng in learner.rngs("update")] for learner in learners]
    assert states[0] == states[1]


@pytest.mark.parametrize("compared", [True, False])
def test_a_phase_with_random_numbers_that_is_not_due_in_the_first_rollout(compared, monkeypatch):
    """Passes 2 and 3, then 4 and 5 of an agent, of which the discriminator is trained in pass 5.

    Only then are its gradients compared with those of the framework, as those of a user's algorithm are.
    """
    phases = Discriminator.phases

    def every_fifth(model: Any, algorithm: Any) -> Any:
        return tuple(replace(phase, every=5) for phase in phases(model, algorithm))

    monkeypatch.setattr(Discriminator, "phases", every_fifth)
    (at_once, apart), actions = learners_of("gail", 2, jit_compile=True, minibatches=2)
    one_by_one(apart, monkeypatch)
    discriminator = at_once.steps.steps[0]
    discriminator.compared = compared
    for learner in (at_once, apart):
        learner.gradient_steps[...] = 2
    for seed, known in enumerate([compared, True]):
        batch = rows_of("gail", at_once, actions, 24, seed)
        found, expected = update(at_once, batch), update(apart, batch)
        assert discriminator.compared == known
        np.testing.assert_equal({name: found[name] for name in expected}, expected)
    np.testing.assert_equal(state_of(at_once), state_of(apart))
