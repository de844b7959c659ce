"""Limits on how far PPO's policy moves: `target_kl` ends updates, and a penalty on KL adapts; stacked and alone."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.policies.batches.tensor_batch import TensorBatch
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.policies.backends.both import BOTH
from tests.policies.some_batches import VECTOR, of_agent, some_rollout

ACTIONS = spaces.Discrete(2)


def stack(agents: int, **settings: Any) -> AlgorithmLearner:
    """Agents of different seeds in one learner, whose policies are uniform."""
    first = mt.PPO(VECTOR, ACTIONS, seed=0, network=mt.MLP((8,)), **settings)
    learner = AlgorithmLearner(first.algorithm, first.backend, list(range(agents)), draw=True)
    for row in range(agents):
        state = learner.export(row)
        for name, array in state.arrays.items():
            if name.startswith("net/actor/head0"):
                array[...] = 0.0
        learner.load(row, state)
    return learner


def uniform(seed: int, counts: list[int]) -> Any:
    """A rollout of policies that are uniform: in the first gradient pass, all ratios are 1."""
    batch = some_rollout(np.random.default_rng(seed), VECTOR, ACTIONS, counts)
    batch.extras["log_prob"][...] = np.log(0.5)
    return batch


def update(learner: AlgorithmLearner, batch: Any) -> dict[str, np.ndarray]:
    return learner.update(batch, learn=np.ones(learner.num_agents, bool), batch_size=64)


def test_an_update_ends_after_the_first_pass_that_went_too_far():
    """Of 4 passes: the first finds no divergence, the second finds what the first made. The other agent goes on."""
    learner = stack(2, target_kl=1e-6, epochs=4, minibatches=1, learning_rate=0.05)
    learner.set_hyper(1, "target_kl", 1e6)
    update(learner, uniform(0, [9, 7]))
    assert learner.gradient_steps.tolist() == [2, 4]
    update(learner, uniform(1, [9, 7]))  # the stored probabilities are not the policy's any more
    assert learner.gradient_steps.tolist() == [3, 8]


@pytest.mark.parametrize("backend", BOTH.values(), ids=BOTH)
def test_the_pass_that_went_too_far_makes_no_step(backend):
    """The second of 4 passes ends the first agent's update: its weights and moments are those after one pass.

    The other agent goes on, as one without a limit.
    """
    stopped, once, all_four = (
        AlgorithmLearner(stack(1, minibatches=1, learning_rate=0.05, **settings).algorithm, backend, [0, 1], draw=True)
        for settings in ({"target_kl": 1e-6, "epochs": 4}, {"epochs": 1}, {"epochs": 4})
    )
    stopped.set_hyper(1, "target_kl", 1e6)
    batch = some_rollout(np.random.default_rng(0), VECTOR, ACTIONS, [9, 7])
    algorithm: Any = stopped.algorithm
    out = algorithm.policy(stopped.weights.nets, TensorBatch(obs=backend.tensor(batch.obs)))
    log_prob, _ = algorithm.distribution.evaluate(backend.ops, out, None, backend.tensor(batch.action))
    batch.extras["log_prob"][...] = backend.numpy(log_prob)
    for learner in (stopped, once, all_four):
        update(learner, batch)
    assert stopped.gradient_steps.tolist() == [2, 4]
    for row, other in ((0, once), (1, all_four)):
        got, expected = stopped.export(row).arrays, other.export(row).arrays
        for name, array in expected.items():
            np.testing.assert_array_equal(got[name], array, err_msg=name)
        assert (once.export(row).arrays["net/actor/head0.bias"] != 0).all()


def test_only_a_divergence_above_one_and_a_half_times_the_target_ends_it():
    settings: dict[str, Any] = {"minibatches": 1, "learning_rate": 0.05}
    batch = uniform(0, [11])
    found = 2.0 * float(update(stack(1, epochs=2, **settings), batch)["approx_kl"][0])  # mean of 0 and the second pass
    for factor, passes in ((1.51, 2), (1.49, 3)):
        learner = stack(1, epochs=3, target_kl=found / factor, **settings)
        update(learner, batch)
        assert learner.gradient_steps.tolist() == [passes]


@pytest.mark.parametrize(
    "settings",
    [
        {"target_kl": 2e-3},
        {"kl_penalty": 0.5, "kl_penalty_target": 2e-3},
        {"normalize_values": "popart", "normalize_returns": True},
        {"shared_trunk": True, "normalize_values": "valuenorm", "target_kl": 0.02},
    ],
)
def test_stacked_equals_looped(settings):
    """Agents whose updates end after different numbers of passes draw the same minibatches as alone."""
    settings = {"epochs": 4, "batch_size": 5, "learning_rate": 0.02, **settings}
    learner, alone = stack(3, **settings), [stack(3, **settings) for _ in range(3)]
    singles = []
    for k, other in enumerate(alone):
        single = AlgorithmLearner(other.algorithm, other.backend, [k], draw=False)
        single.load(0, other.export(k))
        singles.append(single)
    for seed, counts in enumerate(([13, 6, 21], [8, 17, 4], [9, 9, 12])):
        batch = uniform(seed, counts)
        update(learner, batch)
        for k, single in enumerate(singles):
            update(single, of_agent(batch, k, counts[k]))
    for k, single in enumerate(singles):
        together, apart = learner.export(k), single.export(0)
        assert together.info == apart.info
        for name, array in apart.arrays.items():
            np.testing.assert_allclose(together.arrays[name], array, atol=1e-5, err_msg=name)
    if "target_kl" in settings:
        all_passes = sum(-(-np.array(counts) // 5) * 4 for counts in ([13, 6, 21], [8, 17, 4], [9, 9, 12]))
        assert (learner.gradient_steps < all_passes).any()
        assert len(set(learner.gradient_steps.tolist())) > 1


def test_penalty_is_halved_kept_and_doubled():
    """One agent does not move, one is told that its divergence is as wanted, one moves far; the fourth has no rows."""
    learner = stack(4, kl_penalty=0.5, kl_penalty_target=1e-4, epochs=2, minibatches=1, learning_rate=0.05)
    learner.set_hyper(0, "learning_rate", 0.0)
    batch = uniform(0, [9, 7, 8, 8])
    first = stack(4, kl_penalty=0.5, epochs=2, minibatches=1, learning_rate=0.05)
    update(first, batch)
    algorithm: Any = first.algorithm
    out = algorithm.policy(first.weights.nets, TensorBatch(obs=first.backend.tensor(batch.obs)))
    moved = algorithm.distribution.kl(first.backend.ops, 0.0 * out, out, None)
    kl = (first.backend.numpy(moved) * batch.weight).sum(1) / batch.weight.sum(1)
    learner.set_hyper(1, "kl_penalty_target", float(kl[1]) * 1.4)
    batch.weight[3] = 0.0
    metrics = update(learner, batch)
    assert metrics["kl_penalty"].tolist() == [0.5, 0.5, 0.5, 0.5]
    assert learner.hyper.values["kl_penalty"].tolist() == [0.25, 0.5, 1.0, 0.5]
    assert metrics["kl"][0] == 0.0
    again = AlgorithmLearner(learner.algorithm, learner.backend, [9], draw=True)
    again.load(0, learner.export(2))
    assert again.hyper.values["kl_penalty"].tolist() == [1.0]


def test_a_large_penalty_holds_the_policy():
    def moved(penalty: float) -> float:
        learner = stack(1, kl_penalty=penalty, clip=None, epochs=8, minibatches=1, learning_rate=0.02, optimizer="sgd")
        return float(update(learner, uniform(0, [40]))["kl"][0])

    assert 0 < moved(50.0) < 0.5 * moved(1e-6)


def test_wrong_settings():
    with pytest.raises(ConfigError, match="target_kl must be greater than 0"):
        mt.PPO(VECTOR, ACTIONS, target_kl=0)
    with pytest.raises(ConfigError, match="kl_penalty must be a number or None"):
        mt.PPO(VECTOR, ACTIONS, kl_penalty=cast(Any, mt.linear(1, 0, 10)))
