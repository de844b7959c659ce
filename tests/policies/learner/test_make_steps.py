"""The choice of gradient steps by the backend, with and without `jit_compile`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.jit.notices import listening
from marltrain.policies.backends import make_backend
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.gradient_step import GradientStep
from marltrain.policies.learner.programs import program_step
from marltrain.policies.learner.programs.program_step import ProgramStep
from marltrain.policies.tape.symbols import RecordError
from tests.policies.some_batches import VECTOR, some_transitions

BOX = spaces.Box(-2, 3, (2,), np.float32)


def learner_of(
    kind: Any, space: Any = VECTOR, backend: str = "torch", jit_compile: bool = True, **settings: Any
) -> Any:
    """Two agents of a kind, in one stack."""
    actions = BOX if kind is mt.SAC else spaces.Discrete(3)
    agent = kind(space, actions, seed=0, device="cpu", **settings)
    return AlgorithmLearner(agent.algorithm, make_backend(backend, "cpu", jit_compile=jit_compile), [0, 1], draw=True)


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        (mt.SAC, {"jit_compile": False}, GradientStep),
        (mt.SAC, {"backend": "tensorflow"}, ProgramStep),
        (mt.PPO, {"backend": "tensorflow"}, ProgramStep),
        (mt.SAC, {}, ProgramStep),
        (mt.PPO, {}, ProgramStep),
        (mt.PPO, {"network": mt.MLP((256, 256))}, ProgramStep),
        (mt.PPO, {"network": mt.GRU((6,), "tanh", 5, 4)}, ProgramStep),
        (mt.DQN, {"dueling": True}, ProgramStep),
    ],
)
def test_kinds_of_steps(kind, options, expected):
    steps = learner_of(kind, **options).steps
    assert {type(step) for step in steps} == {expected}
    assert steps.whole is None or expected is GradientStep


def test_a_phase_that_cannot_be_recorded_is_told_once(monkeypatch):
    """Torch compiles the step, which takes half a minute and is left out here."""
    learner, compiled = learner_of(mt.DQN, dueling=True), list[Any]()

    def function(step: Any) -> Any:
        compiled.append(step)
        return step

    def step_table(*_: Any, **__: Any) -> Any:
        raise RecordError("no rule")

    monkeypatch.setattr(learner.backend, "function", function)
    monkeypatch.setattr(program_step, "step_table", step_table)
    lines: list[str] = []
    with listening(lines.append):
        for seed in range(2):
            batch = some_transitions(np.random.default_rng(seed), VECTOR, 3, 2, 5)
            learner.update(batch, learn=np.ones(2, bool), batch_size=5)
    told = [line for line in lines if "cannot be recorded" in line]
    assert len(told) == 1 and "dqn: phase 'q' is computed by torch" in told[0] and "no rule" in told[0]
    assert len(compiled) == 1
