"""Whose passes compiled code makes: by settings, backend, networks, and what an algorithm says of itself."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import marltrain as mt
from marltrain.core.layout import Layout
from marltrain.policies.algorithms.dqn import DQNAlgorithm
from marltrain.policies.interface.algorithm import CompiledForm
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.compiled.gradient_steps import LARGEST, LOSSES, can_learn, compiled_steps
from marltrain.policies.learner.compiled.q_update import QStep, QSteps
from marltrain.policies.learner.gradient_steps import GradientSteps
from marltrain.policies.networks.specs import CNN, MLP, Head, NetworkDefinition, Plan
from tests.policies.learner.compiled.test_q_update import CLOSE, COMPILED, PLAIN, assert_close, learn_on, scattered
from tests.policies.some_batches import IMAGE, PICTURE_AND_VECTOR, VECTOR

THREE = spaces.Discrete(3)


def made_for(agent: Any) -> bool:
    """Whether compiled code makes an agent's passes; then they are those of its loss."""
    passes = agent.learner_.steps
    if type(passes) is GradientSteps:
        return False
    assert type(passes) is QSteps
    assert [type(one) for one in passes] == [QStep]
    return True


# Settings -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"network": MLP((3,) * 8, "relu"), "optimizer": "sgd", "max_grad_norm": None}, True),
        ({"network": MLP((), "tanh"), "optimizer": "rmsprop", "weight_decay": 0.1}, True),
        ({"optimizer": "adamw"}, True),
        ({"optimizer": "adamax"}, False),
        ({"space": spaces.Dict({"a": THREE, "b": VECTOR})}, True),
        ({"jit_compile": False}, False),
        ({"network": MLP((4,), "elu")}, False),
        ({"network": MLP((4,) * 9)}, False),
        ({"network": MLP((180, 180))}, False),  # more than 2^15 weights
        ({"space": IMAGE}, False),
        ({"space": IMAGE, "network": MLP((4,))}, False),
        ({"space": PICTURE_AND_VECTOR, "network": CNN((4,), filters=((4, 3, 2),))}, False),
        ({"backend": "tensorflow"}, False),
    ],
    ids=str,
)
def test_which_agents(settings, expected):
    given = {"space": VECTOR, "jit_compile": True, **settings}
    assert made_for(mt.DQN(given.pop("space"), THREE, seed=0, device="cpu", **given)) is expected


@pytest.mark.parametrize(
    ("settings", "expected"), [({"double": False, "tau": 0.1, "n_step": 3}, True), ({"dueling": True}, False)]
)
def test_which_agents_by_settings_of_dqn(settings, expected):
    assert made_for(mt.DQN(VECTOR, THREE, seed=0, device="cpu", jit_compile=True, **settings)) is expected


def test_compiled_code_makes_no_steps_of_ppo():
    agent: Any = mt.PPO(VECTOR, THREE, seed=0, device="cpu", jit_compile=True)
    assert type(agent.learner_.steps) is GradientSteps


# Backends and networks ------------------------------------------------------------------------------------------------


def algorithm_of(kind: Any = DQNAlgorithm, **settings: Any) -> Any:
    """The algorithm of an agent of this class, or of one that is."""
    return type("Agent", (mt.DQN,), {"algorithm_class": kind})(VECTOR, spaces.Discrete(4), seed=0, **settings).algorithm


def net(spec: Any, inputs: int = 5, choices: int = 3, heads: int = 1) -> Any:
    """What is asked of a learner's network: a plan."""
    layout = Layout(spaces.Box(-1, 1, (inputs,), np.float32))
    return SimpleNamespace(plan=Plan(NetworkDefinition(spec, [Head(choices)] * heads, layout)))


SMALL = net(MLP((4,)))


def learns(algorithm: Any, backend: Any = COMPILED, **nets: Any) -> bool:
    """Whether compiled code can learn for it; networks that are not named are small."""
    small = dict.fromkeys(algorithm.networks(), SMALL)
    team: Any = SimpleNamespace(algorithm=algorithm, backend=backend)
    result = can_learn(algorithm.compiled_form(), team, {**small, **nets})
    assert isinstance(result, bool)
    return result


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        ({}, True),
        ({"jit_compile": False}, False),
        ({"shares_memory": False}, False),  # of another framework, or a GPU
        ({"strategy": mt.DataParallel()}, False),
    ],
    ids=str,
)
def test_which_backends(backend, expected):
    given = SimpleNamespace(**{"jit_compile": True, "shares_memory": True, "strategy": None, **backend})
    assert learns(algorithm_of(), given) is expected


def test_a_backend_of_torch_shares_memory_on_a_cpu():
    assert COMPILED.shares_memory
    tensor = COMPILED.tensor(np.zeros(3, np.float32))
    COMPILED.numpy(tensor)[1] = 5
    assert tensor.tolist() == [0, 5, 0]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (net(MLP(()), inputs=1, choices=LARGEST // 2), True),
        (net(MLP(()), inputs=1, choices=LARGEST // 2 + 1), False),
        (net(MLP((4,)), heads=2), False),
        (SimpleNamespace(), False),  # no plan: a model of one's own
    ],
    ids=["as many weights as may be", "more", "two heads", "no plan"],
)
def test_which_networks(given, expected):
    assert learns(algorithm_of(), q=given) is expected


def test_a_model_of_ones_own_learns_by_its_framework():
    learner: Any = mt.DQN(VECTOR, THREE, seed=0, network=torch.nn.Linear(5, 3), device="cpu").learner_
    team: Any = SimpleNamespace(algorithm=learner.algorithm, backend=COMPILED)
    assert can_learn(learner.algorithm.compiled_form(), team, learner.weights.nets) is False


# Algorithms -----------------------------------------------------------------------------------------------------------


class Bold(DQNAlgorithm):
    """Learns otherwise, and says nothing of it."""

    def _loss(self, ops, nets, batch, hyper):
        loss, metrics = super()._loss(ops, nets, batch, hyper)
        return 2 * loss, metrics


class Same(DQNAlgorithm):
    def compiled_form(self):
        return CompiledForm("q", "epsilon_greedy", "q")


class OnlyActs(DQNAlgorithm):
    def compiled_form(self):
        return CompiledForm("q", "epsilon_greedy")


class Silent(DQNAlgorithm):
    def compiled_form(self):
        return None


class Unknown(DQNAlgorithm):
    def compiled_form(self):
        return CompiledForm("q", "epsilon_greedy", "huber")


def with_phases(kind: Any, change: Any) -> Any:
    """An algorithm with other phases, that says nothing else than before."""

    class Changed(kind):
        def compiled_form(self):
            return super().compiled_form()

        @property
        def phases(self):
            return change(*super().phases)

    return Changed


def seldom(kind: Any) -> Any:
    return with_phases(kind, lambda phase: (replace(phase, every=2),))


def twice(kind: Any) -> Any:
    return with_phases(kind, lambda phase: (phase, phase))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (DQNAlgorithm, True), (Same, True), (Bold, False), (OnlyActs, False), (Silent, False),
        (seldom(DQNAlgorithm), False), (twice(DQNAlgorithm), False),
    ],
)  # fmt: skip
def test_an_algorithm_of_ones_own_learns_as_it_says(kind, expected):
    algorithm = algorithm_of(kind)
    learner, plain = (AlgorithmLearner(algorithm, backend, [0], draw=True) for backend in (COMPILED, PLAIN))
    assert type(learner.steps) is (QSteps if expected else GradientSteps)
    assert (compiled_steps(learner.steps.team) is None) is not expected
    assert compiled_steps(plain.steps.team) is None


def test_it_is_done_as_the_algorithm_says():
    """One that calls itself single is, whatever its settings are."""
    kinds = ((Same, True, COMPILED), (DQNAlgorithm, False, PLAIN), (DQNAlgorithm, True, PLAIN))
    result, plain, double = (
        scattered(AlgorithmLearner(algorithm_of(kind, double=double), backend, [0], draw=True))
        for kind, double, backend in kinds
    )
    learn_on(5, result, plain, double)
    assert_close(result, plain)
    assert abs(result.weights.online["q"].flat - double.weights.online["q"].flat).max() > 10 * CLOSE


def test_a_loss_that_is_not_known_is_told():
    assert LOSSES == ("q", "double_q")
    with pytest.raises(
        TypeError, match=r"CompiledForm\(loss=\.\.\.\): compiled code knows 'q', 'double_q'; not .*'huber'"
    ):
        algorithm_of(Unknown, jit_compile=True)
