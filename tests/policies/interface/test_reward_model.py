"""Rewards of a function and of a trained model in place of the environment's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.core.layout import Layout
from marltrain.policies.interface.algorithm import Phase, weighted_mean
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.policies.backends.both import BOTH
from tests.policies.some_batches import VECTOR, some_rollout, some_transitions

DISCRETE = spaces.Discrete(3, start=5)
GAIN = np.arange(5, dtype=np.float32)


def linear_reward(observation: np.ndarray, action: np.ndarray, reward: np.ndarray) -> np.ndarray:
    assert observation.shape == (len(action), 5)
    assert (action >= 5).all()  # in the environment's units
    return observation @ GAIN + action - reward


def too_many(observation: np.ndarray, action: np.ndarray, reward: np.ndarray) -> np.ndarray:
    return np.zeros((len(action), 2))


def batch_of(kind: Any) -> Any:
    rng = np.random.default_rng(7)
    if kind is mt.PPO:
        return some_rollout(rng, Layout(VECTOR), DISCRETE, [7, 9])
    return some_transitions(rng, Layout(VECTOR), 3, 2, 9)


def learner_of(kind: Any, backend: str = "torch", **settings: Any) -> AlgorithmLearner:
    agent = kind(VECTOR, DISCRETE, seed=0, backend=backend, **settings)
    return AlgorithmLearner(agent.algorithm, BOTH[backend], [0, 1], draw=True)


@pytest.mark.parametrize("backend", BOTH)
@pytest.mark.parametrize("kind", [mt.PPO, mt.DQN])
def test_a_function_replaces_the_rewards(kind, backend):
    batch = batch_of(kind)
    own, plain = learner_of(kind, backend, reward_model=linear_reward), learner_of(kind, backend)
    metrics = own.update(batch, learn=np.ones(2, bool), batch_size=64)
    rows = batch.weight > 0
    expected = np.where(rows, np.einsum("kbo,o->kb", batch.obs, GAIN) + batch.action + 5 - batch.reward, 0)
    batch.reward = expected.astype(np.float32)
    plain.update(batch, learn=np.ones(2, bool), batch_size=64)
    np.testing.assert_allclose(metrics["model_reward"], expected.sum(1) / rows.sum(1), rtol=1e-5)
    for k in range(2):
        for name, array in plain.export(k).arrays.items():
            np.testing.assert_allclose(own.export(k).arrays[name], array, atol=1e-6, err_msg=name)


class Learned(mt.RewardModel):
    """Rewards of a linear network that learns to give 1 everywhere."""

    def networks(self, algorithm: mt.Algorithm) -> dict[str, mt.NetworkDefinition]:
        return {"reward": mt.NetworkDefinition(mt.MLP(()), [mt.Head(1)], algorithm.layout)}

    def phases(self, algorithm: mt.Algorithm) -> tuple[mt.Phase, ...]:
        def loss(ops: Any, nets: Any, batch: Any, hyper: Any) -> Any:
            error = nets["reward"](batch.obs)[0][..., 0] - 1.0
            total = weighted_mean(ops, ops.square(error), batch.weight)
            return total, {"loss/reward": total}

        return (Phase("reward", ("reward",), loss),)

    def rewards(self, algorithm: Any, ops: Any, nets: Any, tensors: Any) -> np.ndarray:
        result: np.ndarray = tensors.to_numpy(nets["reward"](tensors.obs)[0][..., 0])
        return result


@pytest.mark.parametrize("kind", [mt.PPO, mt.DQN])
def test_a_reward_model_is_trained_and_saved_with_the_agent(kind, tmp_path):
    model = Learned()
    agent = kind(VECTOR, DISCRETE, seed=0, learning_rate=0.05, reward_model=model)
    batch = batch_of(kind)
    learner = agent.learner()
    two = AlgorithmLearner(agent.algorithm, agent.backend, [0, 1], draw=True)
    losses = [two.update(batch, learn=np.ones(2, bool), batch_size=64)["loss/reward"] for _ in range(30)]
    assert (losses[-1] < 0.5 * losses[0]).all()
    assert any(name.startswith("net/reward/") for name in learner.export(0).arrays)
    mt.save(tmp_path / "own", agent)
    (again,) = mt.load(tmp_path / "own", custom_objects={"Learned": Learned()})
    assert np.array_equal(again.act(np.zeros(5, np.float32)), agent.act(np.zeros(5, np.float32)))


@pytest.mark.parametrize(("kind", "policy"), [(mt.PPO, "actor"), (mt.A2C, "actor"), (mt.DQN, "q")])
def test_the_networks_of_a_model_are_trained_by_its_own_phases_only(kind, policy):
    """As many steps as the policy; the phase of a policy that trains all networks leaves those of the model out."""
    learner = learner_of(kind, reward_model=Learned())
    metrics = learner.update(batch_of(mt.DQN if kind is mt.DQN else mt.PPO), learn=np.ones(2, bool), batch_size=64)
    arrays = learner.export(0).arrays
    assert arrays["optimizer/reward/count"] == arrays[f"optimizer/{policy}/count"] == learner.gradient_steps[0] > 0
    assert (metrics["grad_norm/reward"] > 0).all()


def test_a_loaded_agent_acts_without_its_function_and_learns_only_with_it(tmp_path):
    mt.save(tmp_path / "own", mt.DQN(VECTOR, DISCRETE, seed=0, reward_model=linear_reward))
    (agent,) = mt.load(tmp_path / "own")
    assert agent.act(np.zeros(5, np.float32)) in DISCRETE
    one: Any = agent.learner()
    batch = some_transitions(np.random.default_rng(0), Layout(VECTOR), 3, 1, 4)
    with pytest.raises(AgentError, match=r"custom_objects=\{'linear_reward'"):
        one.update(batch, learn=np.ones(1, bool), batch_size=4)
    (supplied,) = mt.load(tmp_path / "own", custom_objects={"linear_reward": linear_reward})
    ready: Any = supplied.learner()
    ready.update(batch, learn=np.ones(1, bool), batch_size=4)


def test_wrong_models_are_refused():
    with pytest.raises(ConfigError, match="reward_model"):
        mt.PPO(VECTOR, DISCRETE, reward_model=lambda observation: observation)
    with pytest.raises(ConfigError, match="n_step must be 1"):
        mt.DQN(VECTOR, DISCRETE, reward_model=linear_reward, n_step=3)
    with pytest.raises(ConfigError, match="normalize_observations"):
        mt.PPO(VECTOR, DISCRETE, reward_model=linear_reward, normalize_observations=True)


class Fixed(mt.RewardModel):
    """The same rewards always, whatever is asked for."""

    def __init__(self, rewards: Any) -> None:
        self.given = rewards

    def rewards(self, algorithm: Any, ops: Any, nets: Any, tensors: Any) -> Any:
        return self.given


@pytest.mark.parametrize("kind", [mt.PPO, mt.DQN])
@pytest.mark.parametrize(
    ("model", "told"),
    [
        (
            too_many,
            r"reward_model must return one reward for each of the \d+ transitions, .* it returned shape \(\d, 2\)",
        ),
        (lambda obs, action, reward: 1.0, r"an array of shape \(\d,\); it returned shape \(\)"),
        (
            lambda obs, action, reward: ["much"] * len(reward),
            r"must return an array of numbers, it returned \['much', ",
        ),
        (lambda obs, action, reward: np.log(0 * reward - 1), r"reward_model returned nan for \d+ of \d+ transitions"),
        (Fixed(np.zeros(3)), r"reward_model Fixed must return rewards .* of shape \(2, 9\), it returned \(3,\)"),
        (Fixed("much"), "must return an array of numbers, it returned 'much'"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value encountered in log")
def test_wrong_rewards_are_refused(kind, model, told):
    learner = learner_of(kind, reward_model=model)
    with pytest.raises(AgentError, match=f"{learner.algorithm.name}: .*{told}"):
        learner.update(batch_of(kind), learn=np.ones(2, bool), batch_size=64)


def test_agents_with_the_same_function_form_one_learner_and_others_do_not():
    first, second = (mt.PPO(VECTOR, DISCRETE, reward_model=linear_reward, seed=k) for k in range(2))
    assert first.kind == second.kind
    assert first.kind != mt.PPO(VECTOR, DISCRETE, reward_model=too_many).kind
    assert first.kind != mt.PPO(VECTOR, DISCRETE).kind
