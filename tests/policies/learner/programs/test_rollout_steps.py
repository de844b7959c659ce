"""Steps over a rollout in one call move agents as the framework does, by any threads, and go on once loaded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.algorithms.ppo import PPOAlgorithm
from marltrain.policies.backends import make_backend
from marltrain.policies.interface.algorithm import weighted_mean
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.programs.rollout_steps import rollout_steps
from marltrain.policies.learner.programs.row_blocks import IN_ROWS
from marltrain.policies.networks.specs import MLP
from marltrain.policies.optimizers import OPTIMIZERS
from tests.policies.learner.programs.pairs import (
    assert_equal_metrics,
    assert_equal_states,
    by_programs,
    update as pairs_update,
)
from tests.policies.learner.programs.test_program_steps import assert_close, assert_metrics_close
from tests.policies.learner.test_learner import moved, stacked
from tests.policies.some_batches import VECTOR, of_agent, some_rollout, with_states
from tests.policies.tape.test_recording import CASES as ALL_CASES, learners_of, rows_of

BLOCK, REST = IN_ROWS
FIVE = spaces.Discrete(5)
LEARN = [(1, 1, 1), (1, 0, 1), (1, 1, 1), (0, 0, 0), (0, 1, 1)]
"""Which of three agents learn."""
COUNTS = [[23, 17, 9], [31, 0, 8], [1, 40, 23], [12, 13, 14], [5, 2, 29]]
"""Rows of theirs: the sizes of rollouts come round otherwise, and none can be divided by all numbers of minibatches."""


def learner_of(*, compiled: bool = True, own: dict[str, tuple[Any, ...]] | None = None, **settings: Any) -> Any:
    """Three equal agents' learner, of compiled passes or of torch's; own: numbers that differ between the agents."""
    backend: Any = make_backend("torch", "cpu", jit_compile=compiled)
    kind = mt.MAPPO if "critic_input" in settings else mt.PPO
    agent: Any = kind(VECTOR, settings.pop("actions", FIVE), seed=0, device="cpu", **settings)
    learner = AlgorithmLearner(agent.algorithm, backend, [0, 1, 2], draw=True)
    assert (learner.steps.over_rollouts is not None) == compiled
    for name, values in (own or {}).items():
        for row, value in enumerate(values):
            learner.set_hyper(row, name, value)
    return learner


def rollout_of(rng: np.random.Generator, counts: list[int], *, masked: bool = False, actions: Any = FIVE) -> Any:
    """Rows of which those behind an agent's own are rubbish; its weights are not all the same."""
    rollout: Any = some_rollout(rng, VECTOR, actions, counts, masked=masked)
    weight = rollout.weight * rng.uniform(0.5, 2, rollout.weight.shape).astype(np.float32)
    rollout.obs[:, 1:][weight[:, 1:] == 0] = 1e3
    return replace(rollout, weight=weight)


def update(rollout: Any, *learners: Any, learn: Any = None, batch_size: int = 64) -> list[dict[str, Any]]:
    """Have learners learn from the same rollout; return what each measured."""
    who = np.ones(len(rollout.weight), bool) if learn is None else np.array(learn, bool)
    return [learner.update(rollout, learn=who, batch_size=batch_size) for learner in learners]


def learn_on(updates: int, *learners: Any, seed: int = 9, counts: tuple[int, ...] = (23, 17, 9)) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(updates):
        update(rollout_of(rng, list(counts[: learners[0].num_agents])), *learners)


# As the framework -----------------------------------------------------------------------------------------------------

RATES, LIMITS = (1e-3, 3e-3, 2e-4), (10.0, 0.05, 1.0)
CASES: dict[str, dict[str, Any]] = {
    "as it comes": {},
    "masked, adam, tanh, three minibatches, values clipped": {
        "masked": True, "network": MLP((5, 24)), "minibatches": 3, "value_clip": 0.1,
        "own": {"learning_rate": RATES, "max_grad_norm": LIMITS, "value_clip": (0.1, 0.02, 0.5)},
    },
    "relu, batches of seven, a critic of its own": {
        "network": MLP((9,), "relu"), "batch_size": 7, "epochs": 2, "critic_network": MLP((4, 6, 5)),
        "critic_learning_rate": 3e-3, "own": {"critic_learning_rate": (3e-3, 1e-4, 1e-3), "learning_rate": RATES},
    },
    "masked, rmsprop, a relu critic, no clipping, advantages as they are": {
        "masked": True, "network": MLP((5, 9)), "critic_network": MLP((9,), "relu"), "optimizer": "rmsprop",
        "max_grad_norm": None, "normalize_advantage": False, "minibatches": 3, "epochs": 3,
        "own": {"clip": (0.2, 0.02, 0.4), "entropy_coef": (0.0, 0.1, 0.01), "value_coef": (0.5, 2.0, 0.0)},
    },
    "sgd, schedules": {
        "network": MLP((7,)), "minibatches": 4, "optimizer": "sgd", "learning_rate": mt.linear(0.1, 0.01, 5),
        "own": {"clip": (mt.linear(0.3, 0.01, 5), 0.2, mt.linear(0.1, 0.2, 3)), "gae_lambda": (0.9, 1.0, 0.0),
                "entropy_coef": (0.01, mt.linear(0.5, 0.0, 5), 0.0), "gamma": (0.9, 0.99, 0.5)},
    },
    "masked, sgd, no hidden layer, values clipped, advantages as they are": {
        "masked": True, "network": MLP(()), "minibatches": 1, "optimizer": "sgd", "learning_rate": 0.03,
        "value_clip": 0.3, "normalize_advantage": False, "max_grad_norm": 0.5,
    },
    "adamw": {
        "network": MLP((5,)), "minibatches": 3, "optimizer": "adamw", "critic_learning_rate": 3e-3,
        "own": {"weight_decay": (1.0, 0.0, mt.linear(3.0, 0.0, 5)), "learning_rate": RATES},
    },
    "sgd with momentum, L2": {
        "network": MLP((5,)), "minibatches": 3, "optimizer": "sgd", "learning_rate": 0.03,
        "own": {"weight_decay": (0.1, 0.0, 0.02), "momentum": (0.5, 0.9, 0.0)},
    },
    "normal distributions, tanh, three minibatches, values clipped": {
        "actions": spaces.Box(-2, 3, (3,), np.float32), "network": MLP((5, 24)), "minibatches": 3, "value_clip": 0.1,
        "own": {"learning_rate": RATES, "max_grad_norm": LIMITS, "entropy_coef": (0.0, 0.1, 0.01)},
    },
    "normal distributions of one number, batches of seven, advantages as they are": {
        "actions": spaces.Box(-np.inf, 3, (1,), np.float32), "network": MLP((9,), "relu"), "batch_size": 7, "epochs": 2,
        "log_std": -0.5, "normalize_advantage": False, "own": {"clip": (0.2, 0.02, 0.4)},
    },
    "a critic of the state, values normalized": {
        "critic_input": "state", "state_size": 7, "network": MLP((5, 8)), "minibatches": 3,
        "normalize_observations": True, "own": {"value_coef": (0.5, 2.0, 0.0)},
    },
    "a critic of the observation and the state, larger than the actor": {
        "critic_input": "agent_specific", "state_size": 3, "network": MLP((5,)), "critic_network": MLP((9, 6)),
        "batch_size": 7, "epochs": 2, "normalize_values": None, "value_clip": 0.1, "masked": True,
    },
    "one choice, eight layers": {"actions": spaces.Discrete(1), "network": MLP((3,) * 8), "minibatches": 2},
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_updates_are_those_of_torch(case):
    """Ragged rollouts, agents without rows, agents that do not always learn."""
    settings = dict(case)
    masked, actions = settings.pop("masked", False), settings.get("actions", FIVE)
    native, plain = (learner_of(compiled=compiled, **settings) for compiled in (True, False))
    start, rng = plain.export(0), np.random.default_rng(3)
    for i in range(2 * len(COUNTS)):
        rollout = rollout_of(rng, COUNTS[i % len(COUNTS)], masked=masked, actions=actions)
        for learner in (native, plain):
            learner.apply_schedules(i)
        rollout = with_states(rng, rollout, native)
        assert_metrics_close(*update(rollout, native, plain, learn=LEARN[i % len(LEARN)], batch_size=11))
        np.testing.assert_array_equal(native.gradient_steps, plain.gradient_steps)
    assert_close(native, plain)
    after = native.export(0)
    still = settings.get("actions") is not None  # one choice teaches the actor nothing
    assert all(
        abs(after.arrays[name] - array).max() > 1e-3
        for name, array in start.arrays.items()
        if name.startswith("net/critic" if still else "net")
    )


def test_rollouts_of_more_rows_than_a_block():
    """Minibatches of 2 blocks and a row at most, and of 3 rows at least; of whole blocks, and of fewer rows."""
    native, plain = (learner_of(compiled=c, network=MLP((9,)), minibatches=2, epochs=2) for c in (True, False))
    rng = np.random.default_rng(0)
    for counts in ([4 * BLOCK + 2, BLOCK + 9, 6], [2 * BLOCK, 2 * BLOCK + 2, 1], [4 * BLOCK, 3 * BLOCK - 30, 9]):
        assert_metrics_close(*update(rollout_of(rng, counts), native, plain))
    assert_close(native, plain)


def test_gradient_noise_is_that_of_torch():
    """Of ragged rollouts, with several blocks in a minibatch; measured, and then no longer."""
    native, plain = (learner_of(compiled=c, network=MLP((9,)), minibatches=3, epochs=2) for c in (True, False))
    rng = np.random.default_rng(0)
    for on, counts in ((True, [23, 17, 9]), (True, [6 * BLOCK + 7, 31, 2]), (False, [31, 0, 8])):
        for learner in (native, plain):
            learner.measured.measure(effective=False, noise=on)
        found, expected = update(rollout_of(rng, counts), native, plain)
        assert ("gradient_noise/actor" in found) == on
        assert_metrics_close(found, expected)
    assert_close(native, plain)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_agent_that_does_not_learn_is_unchanged_to_the_bit(optimizer):
    """Its weights, moments and counts, whichever the others are that do; nor one that has no rows."""
    native, rng = learner_of(network=MLP((5,)), optimizer=optimizer, minibatches=3), np.random.default_rng(1)
    for learn, counts in zip(LEARN, COUNTS, strict=True):
        before = [native.export(row) for row in range(3)]
        (metrics,) = update(rollout_of(rng, counts), native, learn=learn)
        after = [native.export(row) for row in range(3)]
        learned = [bool(one) and count > 0 for one, count in zip(learn, counts, strict=True)]
        assert [moved(b, a) for b, a in zip(before, after, strict=True)] == learned
        steps = [after[row].info["gradient_steps"] - before[row].info["gradient_steps"] for row in range(3)]
        assert steps == [4 * min(3, count) * one for count, one in zip(counts, learned, strict=True)]
        if any(learned):
            assert np.isnan(metrics["loss/total"]).tolist() == [not one for one in learned]


def with_inf(rollout: Any) -> None:
    rollout.reward[1, 4] = np.inf


def with_nan(rollout: Any) -> None:
    rollout.obs[1, 0, 2] = np.nan


def too_large(rollout: Any) -> None:
    rollout.reward[1, 3] = 1e25  # losses are finite in float64, the squares of its slopes are not


@pytest.mark.parametrize("fault", [with_inf, with_nan, too_large])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_loss_that_is_not_finite_moves_no_weight_of_its_agent(optimizer, fault):
    """The others learn on. Its moments fade, steps are counted, metrics tell, as with torch; then it recovers."""
    native, plain = (
        learner_of(compiled=compiled, network=MLP((5,)), optimizer=optimizer, minibatches=1, epochs=2)
        for compiled in (True, False)
    )
    rng = np.random.default_rng(2)
    learn_on(2, native, plain)
    rollout = rollout_of(rng, [7, 9, 8])
    fault(rollout)
    before = [native.export(row).arrays for row in range(3)]
    with np.errstate(invalid="ignore", over="ignore"):
        metrics = update(rollout, native, plain)[0]
    after = [native.export(row).arrays for row in range(3)]
    assert np.isnan(metrics["grad_norm/actor"]).tolist() == [False, True, False]
    assert np.isnan(metrics["grad_norm/critic"]).tolist() == [False, True, False]
    for name, array in before[1].items():
        if name.startswith("net/"):
            np.testing.assert_array_equal(after[1][name], array, err_msg=name)
            assert all((after[row][name] != before[row][name]).any() for row in (0, 2))
        elif name.endswith("count"):
            assert after[1][name] == array + 2
        else:
            first, second = 1.0 if optimizer == "sgd" else 0.9, 0.99 if optimizer == "rmsprop" else 0.999
            fade = {"first": first, "second": second, "largest": second}[name.split("/")[-1]]
            least = 1e-8 if name.endswith("largest") else -np.inf
            np.testing.assert_allclose(after[1][name], np.maximum(fade**2 * array, least), rtol=1e-5, err_msg=name)
    assert_close(native, plain)
    learn_on(2, native, plain, seed=4)
    assert_close(native, plain)
    assert moved(native.export(1), replace(native.export(1), arrays=after[1]))


ON_POLICY = [name for name in ALL_CASES if name.partition(" ")[0] in
             ("ppo", "mappo", "a2c", "maa2c", "acer", "coma", "seac", "mmd", "trpo", "gail")]  # fmt: skip


@pytest.mark.parametrize("name", ON_POLICY)
def test_updates_of_all_algorithms_are_those_of_torch(name):
    """Also with recurrent networks, and where updates end early."""
    more = {} if name.partition(" ")[0] in ("a2c", "maa2c", "acer", "coma", "seac") else {"epochs": 2, "minibatches": 2}
    (plain, other), actions = learners_of(name, 2, **(more if name != "trpo" else {}))
    other.steps.over_rollouts = steps = rollout_steps(by_programs(other).steps.steps)
    assert steps is not None
    for seed in range(3):
        batch = rows_of(name, other, actions, 24, seed)
        assert_equal_metrics(*(pairs_update(learner, batch) for learner in (other, plain)))
        np.testing.assert_array_equal(other.gradient_steps, plain.gradient_steps)
    assert len(steps._programs) > 0 and all(step.recordable for step in steps.steps)
    assert_equal_states(other, plain, 1e-4)


class Seldom(PPOAlgorithm):
    """PPO whose critic learns in a phase of its own, in every third pass."""

    @property
    def phases(self) -> Any:
        (phase,) = super().phases

        def critic(ops: Any, nets: Any, batch: Any, hyper: Any) -> Any:
            loss = weighted_mean(ops, ops.square(self.value(nets, batch) - batch.target), batch.weight)
            return loss, {"loss/alone": loss}

        return replace(phase, trains=("actor",)), replace(phase, name="alone", trains=("critic",), loss=critic, every=3)


class SeldomPPO(mt.PPO):
    algorithm_class = Seldom


def test_phases_that_are_not_in_every_pass():
    """Counts go on from update to update, and for each agent by itself."""
    agents = [SeldomPPO(VECTOR, FIVE, seed=k, device="cpu", network=MLP((5,)), epochs=2, minibatches=2)
              for k in range(3)]  # fmt: skip
    backends = [make_backend("torch", "cpu", jit_compile=compiled) for compiled in (True, False)]
    native, plain = (AlgorithmLearner(agents[0].algorithm, backend, [0, 1, 2], draw=True) for backend in backends)
    rng = np.random.default_rng(3)
    for learn in LEARN:
        assert_metrics_close(*update(rollout_of(rng, [12, 3, 1]), native, plain, learn=learn))
        np.testing.assert_array_equal(native.gradient_steps, plain.gradient_steps)
    counts = native.weights.optimizers["critic"].state()["count"]
    np.testing.assert_array_equal(counts, plain.weights.optimizers["critic"].state()["count"])
    assert 0 < counts.max() < native.gradient_steps.max() / 2
    assert_close(native, plain)


# One among others, by whichever threads -------------------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "adam": {"network": MLP((5, 24)), "minibatches": 3, "value_clip": 0.2},
    "rmsprop": {"network": MLP((3,), "relu"), "optimizer": "rmsprop", "batch_size": 6, "epochs": 2},
    "sgd": {"network": MLP(()), "optimizer": "sgd", "max_grad_norm": None, "learning_rate": 0.1, "minibatches": 2},
}


ROLLOUT_METRICS = ("explained_variance", "reward_mean", "value_mean", "return_mean", "return_change")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("masked", [False, True])
def test_an_agent_learns_alone_as_it_does_among_others(kind, masked):
    """To the last bit, and without the padding that others' rows make; means over a rollout up to rounding."""
    agents = [mt.PPO(VECTOR, FIVE, seed=k, device="cpu", jit_compile=True, **KINDS[kind]) for k in range(3)]
    together, rng = stacked(agents), np.random.default_rng(4)
    for counts in ([5, 17, 9], [31, 2, 8], [17, 17, 2 * BLOCK + 1]):
        rollout = rollout_of(rng, counts, masked=masked)
        (metrics,) = update(rollout, together)
        for k, agent in enumerate(agents):
            (alone,) = update(of_agent(rollout, k, counts[k]), agent.learner_)
            data, own = ({name: values[row] for name, values in m.items()} for m, row in ((metrics, k), (alone, 0)))
            for name in ROLLOUT_METRICS:
                assert data.pop(name) == pytest.approx(own.pop(name), rel=1e-6), name
            assert data == own
    for k, agent in enumerate(agents):
        assert together.export(k).info == agent.learner_.export(0).info
        assert not moved(together.export(k), agent.learner_.export(0))


@pytest.mark.parametrize("kind", KINDS)
def test_threads_make_the_same_bits(kind, monkeypatch):
    """As many as there are, or as there are groups of blocks: they are kept, ended, and started anew."""
    one, rng = learner_of(**KINDS[kind]), np.random.default_rng(6)
    rollouts = [rollout_of(rng, counts, masked=True) for counts in ([6 * BLOCK + 5, 90, 2 * BLOCK], *COUNTS)]
    measured = [update(rollout, one)[0] for rollout in rollouts]
    assert one.steps.team.threads.started == 0
    for threads in (2, 3, 5, 64):
        many = learner_of(**KINDS[kind])
        monkeypatch.setattr(many.backend, "threads", lambda threads=threads: threads)
        for rollout, expected in zip(rollouts[:-1], measured, strict=False):
            np.testing.assert_equal(update(rollout, many)[0], expected)
        threads_of = many.steps.team.threads
        assert 0 < threads_of.started < threads
        many.close()
        assert threads_of.started == 0
        np.testing.assert_equal(update(rollouts[-1], many)[0], measured[-1])
        for row in range(3):
            assert not moved(one.export(row), many.export(row))
        many.close()


# Saved ----------------------------------------------------------------------------------------------------------------


def trained(seed: int = 5, **settings: Any) -> Any:
    """An agent of compiled passes that has learned a little."""
    agent = mt.PPO(VECTOR, FIVE, seed=seed, device="cpu", jit_compile=True, minibatches=3, **settings)
    learn_on(2, agent.learner_)
    return agent


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_agent_goes_on_exactly_where_it_is_loaded(optimizer):
    """In a learner that has learned before: what it is told of weights and moments stays where it was."""
    home, away = (trained(seed, optimizer=optimizer).learner_ for seed in (5, 6))
    assert moved(home.export(0), away.export(0))
    away.load(0, home.export(0))
    learn_on(3, home, away)
    assert home.updates.tolist() == [5]
    assert home.export(0).info == away.export(0).info
    assert not moved(home.export(0), away.export(0))


def test_a_saved_agent_goes_on_exactly(tmp_path):
    """How its passes are made is chosen anew where it is read: here by an agent that takes its place, and by torch."""
    agent = trained()
    agent.save(tmp_path / "agent")
    plain: Any = mt.load(tmp_path / "agent")[0]
    assert plain.learner_.steps.over_rollouts is None
    assert not moved(agent.learner_.export(0), plain.learner_.export(0))
    again = trained(seed=6)
    again.restore(plain.state())
    learn_on(3, agent.learner_, again.learner_, plain.learner_)
    assert agent.learner_.export(0).info == again.learner_.export(0).info
    assert not moved(agent.learner_.export(0), again.learner_.export(0))
    assert_close(agent.learner_, plain.learner_)


def test_a_copy_learns_by_itself():
    agent = trained()
    copy = agent.frozen_copy()
    before = copy.learner_.export(0)
    learn_on(2, agent.learner_)
    assert not moved(before, copy.learner_.export(0))
    learn_on(2, copy.learner_)
    assert not moved(agent.learner_.export(0), copy.learner_.export(0))
