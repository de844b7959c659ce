"""Gradient steps of Q-learning by programs are those of the framework, and go on exactly once loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.backends import make_backend
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.gradient_steps import GradientSteps
from marltrain.policies.learner.programs.program_steps import ProgramSteps
from marltrain.policies.networks.specs import MLP
from marltrain.policies.optimizers import OPTIMIZERS
from tests.policies.learner.test_learner import everyone, moved, stacked
from tests.policies.some_batches import VECTOR, of_agent, some_transitions
from tests.tiers import LONG

PLAIN, COMPILED = make_backend("torch", "cpu"), make_backend("torch", "cpu", jit_compile=True)
CLOSE = 1e-6
"""Sums of float32 in another order: weights differ by 2e-7, moments by 1e-7, metrics by 7e-7 of 1 + their size.

What rounding decides is kept out: RMSprop makes whole steps even of slopes that are as small as their rounding, of
which layers of 64 by 64 have some; relu's slope jumps at 0, so that its networks are narrow and learn for less long.
"""
MOMENTS = 5e-7
SIZES, UPDATES, OF_RELU = (7, 64, 3), 90, 30
LEARN = [(1, 1, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1), (0, 0, 0), (1, 1, 0), (1, 1, 1)]
"""Which of three agents learn; the sizes of batches come round otherwise."""


def learners(choices: int = 4, own: dict[str, tuple[Any, ...]] | None = None, **settings: Any) -> Any:
    """Two learners of three equal agents each: one of programs and one of torch's.

    own: numbers that differ between the agents.
    """
    result = []
    for backend in (COMPILED, PLAIN):
        agent = mt.DQN(VECTOR, spaces.Discrete(choices), seed=0, device="cpu", **settings)
        learner = scattered(AlgorithmLearner(agent.algorithm, backend, [0, 1, 2], draw=True))
        for name, values in (own or {}).items():
            for row, value in enumerate(values):
                learner.set_hyper(row, name, value)
        result.append(learner)
    assert [type(learner.steps) for learner in result] == [ProgramSteps, GradientSteps]
    return result


def scattered(learner: AlgorithmLearner) -> AlgorithmLearner:
    """Move the targets so far away that they think otherwise of the best action."""
    noise = np.random.default_rng(0).normal(scale=0.3, size=learner.weights.target["q"].flat.shape).astype(np.float32)
    learner.weights.target["q"].flat.add_(learner.backend.tensor(noise))
    return learner


def batch_of(rng: np.random.Generator, choices: int, rows: int, *, masked: bool = False, agents: int = 3) -> Any:
    """Rows of which a third is padding, full of rubbish, and for one agent in ten batches all are."""
    batch = some_transitions(rng, VECTOR, choices, agents, rows, masked=masked)
    batch.weight[:, 1:] = rng.random((agents, rows - 1)) < 0.67
    if rng.random() < 0.1:
        batch.weight[rng.integers(agents)] = 0
    batch.reward[batch.weight == 0] = 1e6
    return batch


def assert_close(mine: Any, theirs: Any) -> None:
    """All agents of two learners are the same but for rounding."""
    for row in range(mine.num_agents):
        result, expected = mine.export(row), theirs.export(row)
        assert result.info == expected.info
        assert result.arrays.keys() == expected.arrays.keys()
        for name, array in result.arrays.items():
            close = CLOSE if name.startswith("net/") else MOMENTS
            np.testing.assert_allclose(
                array, expected.arrays[name], rtol=CLOSE, atol=close, err_msg=f"agent {row}: {name}"
            )


def assert_metrics_close(mine: Any, theirs: Any) -> None:
    """The same names in the same order, and the same numbers but for rounding.

    The explained variance divides by a small variance, so its rounding errors are several times those of the values.
    """
    assert list(mine) == list(theirs)
    for name, values in mine.items():
        assert values.dtype == theirs[name].dtype
        np.testing.assert_allclose(values, theirs[name], rtol=10 * CLOSE, atol=2 * CLOSE, err_msg=name)


# As the framework -----------------------------------------------------------------------------------------------------

RATES, LIMITS = (1e-3, 3e-3, 2e-4), (10.0, 0.05, 1.0)
CASES: dict[str, dict[str, Any]] = {
    "double, adam, tanh, masked": {
        "masked": True, "network": MLP((5, 64)), "target_sync": 40,
        "own": {"learning_rate": RATES, "max_grad_norm": LIMITS},
    },
    "adam, relu, tau": {
        "double": False, "network": MLP((5, 9), "relu"), "tau": 0.1,
        "own": {"tau": (0.1, 1.0, 0.005), "learning_rate": RATES},
    },
    "double, rmsprop, relu, masked, tau, not clipped": {
        "masked": True, "choices": 7, "network": MLP((5, 9), "relu"), "tau": 0.3, "optimizer": "rmsprop",
        "max_grad_norm": None, "own": {"learning_rate": RATES},
    },
    "rmsprop, tanh, one layer, clipped": {
        "double": False, "network": MLP((3,)), "target_sync": 30, "optimizer": "rmsprop", "max_grad_norm": 0.01,
        "learning_rate": mt.linear(3e-3, 1e-4, UPDATES),
    },
    "sgd, no hidden layer, masked": {
        "double": False, "masked": True, "choices": 5, "network": MLP(()), "target_sync": 20, "optimizer": "sgd",
        "own": {"learning_rate": (0.1, 0.03, 0.01), "max_grad_norm": LIMITS},
    },
    "double, sgd, relu, eight layers, not clipped": {
        "network": MLP((9, 5, 7, 6, 8, 5, 9, 3), "relu"), "target_sync": 12, "optimizer": "sgd",
        "max_grad_norm": None, "learning_rate": 0.05,
    },
    "double, adam, tanh, eight layers": {"network": MLP((3,) * 8), "target_sync": 25, "learning_rate": 2e-3},
    "adamw": {
        "network": MLP((5,)), "tau": 0.1, "optimizer": "adamw",
        "own": {"weight_decay": (0.0, 1.0, mt.linear(3.0, 0.0, UPDATES)), "learning_rate": RATES},
    },
    "sgd with momentum, L2": {
        "network": MLP((5,)), "target_sync": 9, "optimizer": "sgd", "learning_rate": 0.03,
        "own": {"weight_decay": (0.1, 0.0, 0.02), "momentum": (0.5, 0.9, 0.0)},
    },
    "one choice": {"choices": 1, "network": MLP((3,)), "target_sync": 4, "learning_rate": 2e-3},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_updates_are_those_of_torch(case):
    """Ragged batches whose rows change in number, agents that do not always learn, errors on both sides of 1."""
    settings = dict(case)
    masked, choices = settings.pop("masked", False), settings.pop("choices", 4)
    native, plain = learners(choices, **settings)
    start, rng = plain.export(0), np.random.default_rng(3)
    for i in range(OF_RELU if settings["network"].activation == "relu" else UPDATES):
        batch = batch_of(rng, choices, SIZES[i % len(SIZES)], masked=masked)
        measured = []
        for learner in (native, plain):
            learner.apply_schedules(i)
            measured.append(learner.update(batch, learn=np.array(LEARN[i % len(LEARN)], bool), batch_size=64))
        assert_metrics_close(*measured)
    assert_close(native, plain)
    after = native.export(0)
    assert all(abs(after.arrays[name] - array).max() > 1e-3 for name, array in start.arrays.items() if "net" in name)


@pytest.mark.parametrize("targets", [{"tau": 0.5}, {"target_sync": 1}])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_agent_that_does_not_learn_is_unchanged_to_the_bit(optimizer, targets):
    """Its weights, target, moments and counts, whichever the others are that do."""
    native, _ = learners(network=MLP((5,)), optimizer=optimizer, **targets)
    rng = np.random.default_rng(1)
    for learn in [(1, 1, 1), *LEARN]:
        before = [native.export(row) for row in range(3)]
        metrics = native.update(some_transitions(rng, VECTOR, 4, 3, 7), learn=np.array(learn, bool), batch_size=64)
        after = [native.export(row) for row in range(3)]
        assert [moved(b, a) for b, a in zip(before, after, strict=True)] == [bool(one) for one in learn]
        steps = [after[row].info["gradient_steps"] - before[row].info["gradient_steps"] for row in range(3)]
        assert steps == list(learn)
        if any(learn):
            assert np.isnan(metrics["loss/total"]).tolist() == [not one for one in learn]


@pytest.mark.parametrize("targets", [{"tau": 1.0}, {"target_sync": 3}])
def test_a_target_that_is_copied_is_the_same_to_the_last_bit(targets):
    """After every update, or every third one of an agent's own."""
    native, _ = learners(network=MLP((5, 64)), **targets)
    rng = np.random.default_rng(1)
    for learn in [(1, 1, 1), *LEARN, *LEARN]:
        native.update(some_transitions(rng, VECTOR, 4, 3, 7), learn=np.array(learn, bool), batch_size=64)
        same = (native.weights.online["q"].flat == native.weights.target["q"].flat).all(1).numpy()
        due = native.updates % targets.get("target_sync", 1) == 0
        assert same.tolist() == (due & (native.updates > 0)).tolist()


def with_inf(batch: Any) -> None:
    batch.reward[1, 4] = np.inf


def with_inf_in_padding(batch: Any) -> None:
    batch.reward[1, 4], batch.weight[1, 4] = np.inf, 0


def with_nan(batch: Any) -> None:
    batch.obs[1, 0, 2] = np.nan


def too_large(batch: Any) -> None:
    batch.obs[1, 3, 0] = 1e25  # its values and loss are finite, the squares of its slopes are not


def next_too_large(batch: Any) -> None:
    batch.next_obs[1, 3], batch.discount[1, 3] = 3e38, 0.5


@pytest.mark.parametrize("fault", [with_inf, with_inf_in_padding, with_nan, too_large, next_too_large])
@pytest.mark.parametrize("optimizer", OPTIMIZERS if LONG else ["adam", "sgd"])
def test_a_loss_that_is_not_finite_moves_no_weight_of_its_agent(optimizer, fault):
    """The others learn on. Its moments fade, a step is counted, metrics tell, as with torch; then it recovers."""
    native, plain = learners(network=MLP((5, 9), "relu"), optimizer=optimizer, tau=0.1, learning_rate=1e-3)
    rng = np.random.default_rng(2)

    def update(batch: Any) -> Any:
        measured = [learner.update(batch, learn=everyone(learner), batch_size=64) for learner in (native, plain)]
        assert_metrics_close(*measured)
        assert_close(native, plain)
        return measured[0]

    for _ in range(3):
        update(some_transitions(rng, VECTOR, 4, 3, 7))
    batch = some_transitions(rng, VECTOR, 4, 3, 7)
    fault(batch)
    before = [native.export(row).arrays for row in range(3)]
    metrics = update(batch)
    after = [native.export(row).arrays for row in range(3)]
    assert np.isnan(metrics["grad_norm/q"]).tolist() == [False, True, False]
    for name, array in before[1].items():
        if name.startswith("net/q"):
            np.testing.assert_array_equal(after[1][name], array, err_msg=name)
            assert all((after[row][name] != before[row][name]).any() for row in (0, 2))
        elif name.startswith("optimizer/") and not name.endswith("count"):
            first, second = 1.0 if optimizer == "sgd" else 0.9, 0.99 if optimizer == "rmsprop" else 0.999
            fade = {"first": first, "second": second, "largest": second}[name.split("/")[-1]]
            least = 1e-8 if name.endswith("largest") else -np.inf
            np.testing.assert_allclose(after[1][name], np.maximum(fade * array, least), rtol=1e-5, err_msg=name)
    assert after[1]["optimizer/q/count"] == before[1]["optimizer/q/count"] + 1
    for _ in range(3):
        update(some_transitions(rng, VECTOR, 4, 3, 7))


# One among others -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"network": MLP((5, 64)), "target_sync": 2},
        {"network": MLP((3,), "relu"), "tau": 0.3, "double": False, "optimizer": "rmsprop"},
        {"network": MLP(()), "tau": 0.3, "optimizer": "sgd", "max_grad_norm": None, "learning_rate": 0.1},
    ],
    ids=["adam", "rmsprop", "sgd"],
)
@pytest.mark.parametrize("masked", [False, True])
def test_an_agent_learns_alone_as_it_does_among_others(settings, masked):
    """To the last bit, and without the padding that others' rows make: 5, 7 and 3 of 7 rows."""
    agents = [mt.DQN(VECTOR, spaces.Discrete(4), seed=k, device="cpu", jit_compile=True, **settings) for k in range(3)]
    together, rng, counts = stacked(agents), np.random.default_rng(4), (5, 7, 3)
    assert isinstance(together.steps, ProgramSteps)
    for _ in range(12):
        batch = some_transitions(rng, VECTOR, 4, 3, 7, masked=masked)
        batch.weight = (np.arange(7) < np.array(counts)[:, None]).astype(np.float32)
        metrics = together.update(batch, learn=everyone(together), batch_size=64)
        for k, agent in enumerate(agents):
            alone = agent.learner_.update(of_agent(batch, k, counts[k]), learn=np.ones(1, bool), batch_size=64)
            assert {name: values[k] for name, values in metrics.items()} == {n: v[0] for n, v in alone.items()}
    for k, agent in enumerate(agents):
        assert together.export(k).info == agent.learner_.export(0).info
        assert not moved(together.export(k), agent.learner_.export(0))


# Saved ----------------------------------------------------------------------------------------------------------------


def trained(seed: int = 5, updates: int = 5, **settings: Any) -> Any:
    """An agent of programs that has learned a little."""
    agent = mt.DQN(VECTOR, spaces.Discrete(4), seed=seed, device="cpu", jit_compile=True, target_sync=3, **settings)
    assert isinstance(agent.learner_.steps, ProgramSteps)
    learn_on(updates, agent.learner_)
    return agent


def learn_on(updates: int, *of: Any) -> None:
    """Have the first row of learners learn from the same batches."""
    rng = np.random.default_rng(9)
    for _ in range(updates):
        batch = some_transitions(rng, VECTOR, 4, 1, 7)
        for learner in of:
            learner.update(batch, learn=np.ones(1, bool), batch_size=64)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_agent_goes_on_exactly_where_it_is_loaded(optimizer):
    """In a learner that has learned before: what it is told of weights and moments stays where it was."""
    home, away = (trained(seed, optimizer=optimizer).learner_ for seed in (5, 6))
    assert moved(home.export(0), away.export(0))
    away.load(0, home.export(0))
    learn_on(4, home, away)
    assert home.updates.tolist() == [9]
    assert home.export(0).info == away.export(0).info
    assert not moved(home.export(0), away.export(0))


def test_a_saved_agent_goes_on_exactly(tmp_path):
    """How its passes are made is chosen anew where it is read: here by an agent that takes its place, and by torch."""
    agent = trained()
    agent.save(tmp_path / "agent")
    plain: Any = mt.load(tmp_path / "agent")[0]
    assert isinstance(plain.learner_.steps, GradientSteps)
    assert not isinstance(plain.learner_.steps, ProgramSteps)
    assert not moved(agent.learner_.export(0), plain.learner_.export(0))
    again = trained(seed=6)
    again.restore(plain.state())
    learn_on(4, agent.learner_, again.learner_, plain.learner_)
    assert agent.learner_.export(0).info == again.learner_.export(0).info
    assert not moved(agent.learner_.export(0), again.learner_.export(0))
    assert_close(agent.learner_, plain.learner_)


def test_a_copy_learns_by_itself():
    agent = trained()
    copy = agent.frozen_copy()
    before = copy.learner_.export(0)
    assert isinstance(copy.learner_.steps, ProgramSteps)
    learn_on(4, agent.learner_)
    assert not moved(before, copy.learner_.export(0))
    learn_on(4, copy.learner_)
    assert not moved(agent.learner_.export(0), copy.learner_.export(0))
