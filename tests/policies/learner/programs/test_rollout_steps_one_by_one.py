"""All steps over a rollout in one call are those made one by one: with random numbers in losses, and of teams."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.policies.learner.programs.pairs import state_of, update
from tests.policies.tape.test_recording import learners_of, rows_of

LEARN = [(True, True, True), (True, False, True), (False, True, True)]
"""Which of three agents learn."""


def members_of(learner: Any) -> Any:
    return getattr(learner, "members", [learner])


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
@pytest.mark.parametrize(("name", "minibatches"), [("gail", 3), ("vdac", 1)])
def test_steps_in_one_call_are_those_made_one_by_one(name, minibatches, backend, monkeypatch):
    """Weights, moments, counts, metrics and generators are equal to the last bit, if a minibatch is one block."""
    settings = {"minibatches": minibatches} if name == "gail" else {}
    learners, actions = learners_of(name, 2, backend=backend, jit_compile=True, **settings)
    at_once, apart = learners
    monkeypatch.setattr(apart.steps.over_rollouts, "programs", lambda *_: None)
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
