"""MMD: its loss by hand, its fixed point in a game of one move, actions that it refuses, Kuhn poker."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import SpecError
from marltrain.policies.backends import make_backend
from marltrain.policies.batches.tensor_batch import TensorBatch
from marltrain.policies.distributions.categorical import ILLEGAL
from tests.policies.some_batches import VECTOR
from tests.tiers import LONG, rounds

TEMPERATURE, PAYS = 0.5, np.array([0.4, 0.1, -0.2])


class OneMove(gym.Env):
    """One state and three moves, which pay the numbers of PAYS."""

    observation_space, action_space = spaces.Box(0, 1, (1,), np.float32), spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.ones(1, np.float32), float(PAYS[action]), True, False, {}


def softmax(logits: np.ndarray) -> np.ndarray:
    result: np.ndarray = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return result


def test_the_loss_by_hand():
    """Two rows of three actions with probabilities p, q before the update, and one illegal action."""
    agent = mt.MMD(VECTOR, spaces.Discrete(3), seed=0, temperature=0.25, step_size=0.2, value_coef=3.0)
    backend: Any = make_backend("torch", "cpu")
    new, old = np.array([[[1.0, 0.0, -1.0], [0.5, 0.5, 9.0]]]), np.array([[[0.0, 0.0, 0.0], [1.0, 0.0, 9.0]]])
    legal = np.array([[[True, True, True], [True, True, False]]])
    p, q = (softmax(np.where(legal, logits, ILLEGAL))[0] for logits in (new, old))
    given = {
        "obs": np.zeros((1, 2, 5)), "state": None, "legal": legal, "action": np.array([[2, 0]]), "old": old,
        "log_prob": np.log(q[[0, 1], [2, 0]])[None], "advantage": np.array([[2.0, -1.0]]),
        "target": np.array([[1.0, 2.0]]), "weight": np.array([[0.25, 0.75]]),
    }  # fmt: skip
    tensors = backend.tensor(
        {n: v.astype(np.float32) if v is not None and v.dtype == float else v for n, v in given.items()}
    )
    nets: Any = {
        "actor": lambda obs: [backend.tensor(new.astype(np.float32))],
        "critic": lambda obs: [backend.tensor(np.zeros((1, 2, 1), np.float32))],
    }
    hyper = {n: backend.tensor(np.full((1, 1), getattr(agent.settings, n), np.float32))
             for n in ("temperature", "step_size", "value_coef")}  # fmt: skip
    algorithm: Any = agent.algorithm
    loss, metrics = algorithm._loss(backend.ops, nets, TensorBatch(**tensors), hyper)
    weight, some = np.array([0.25, 0.75]), p > 0.0
    logs = [np.log(np.where(some, each, 1.0)) for each in (p, q)]
    kl, entropy = (p * (logs[0] - logs[1])).sum(-1) @ weight, -(p * logs[0]).sum(-1) @ weight
    actor = -(np.array([p[0, 2] / q[0, 2] * 2.0, -p[1, 0] / q[1, 0]]) @ weight)
    critic = 0.5 * (np.array([1.0, 4.0]) @ weight)
    assert metrics["kl"].item() == pytest.approx(kl, rel=1e-5)
    assert metrics["entropy"].item() == pytest.approx(entropy, rel=1e-5)
    assert loss.item() == pytest.approx(actor - 0.25 * entropy + 5.0 * kl + 3.0 * critic, rel=1e-5)


def test_the_policy_of_one_move_is_the_softmax_of_its_pay_over_the_temperature():
    (agent,) = mt.make_agents(
        "mmd", OneMove, seed=0, temperature=TEMPERATURE, step_size=1.0, learning_rate=0.03, gamma=0.0,
        network=mt.MLP(()), minibatches=1,
    )  # fmt: skip
    trainer = mt.DecentralizedTrainer(
        OneMove, num_train_envs=16, update_freq=256, steps_per_train=256 * 60, test_freq=None, seed=0, run_dir=False,
        progress=False,
    )  # fmt: skip
    trainer.train([agent], [1], plot=False)
    found = agent.probabilities(np.ones(1, np.float32))
    assert found == pytest.approx(softmax(PAYS / TEMPERATURE), abs=0.03)


def test_a_central_critic_reads_the_hands_of_both_players_and_the_actor_its_own():
    """In Kuhn poker, for each player an observation of 11 numbers and whether it decides."""
    settings: list[dict[str, Any]] = [{}, {"critic_input": "joint"}]
    made: list[Any] = [mt.make_agents("mmd", "marltrain/kuhn_poker_v1", seed=0, **given)[0] for given in settings]
    own, joint = (agent.algorithm.networks() for agent in made)
    assert own["critic"].layout is not None and own["critic"].vectors == ()
    assert joint["critic"].layout is None and joint["critic"].vectors == (2 * 12,)
    assert joint["actor"].layout is not None and joint["actor"].vectors == ()


def test_continuous_actions_are_refused():
    with pytest.raises(SpecError, match=r"MMD needs a Discrete or MultiDiscrete action space, got Box.*PPO and SAC"):
        mt.MMD(VECTOR, spaces.Box(-1, 1, (2,), np.float32))


def test_both_players_of_kuhn_poker_come_near_to_the_equilibrium():
    """From 0.458 of the uniform policy; in the long tier, three seeds gave 0.15, 0.11, 0.07, and PPO at least 0.24."""
    env = "marltrain/kuhn_poker_v1"
    agents = mt.make_agents(
        "mmd", env, seed=0, gamma=1.0, gae_lambda=1.0, learning_rate=1e-3, max_grad_norm=None, temperature=0.2,
        step_size=1.0, minibatches=4,
    )  # fmt: skip
    trainer = mt.DecentralizedTrainer(
        env, num_train_envs=128, update_freq=4096, steps_per_train=rounds(16, 32) * 4096, test_freq=None, seed=0,
        run_dir=False, progress=False,
    )  # fmt: skip
    trainer.train(agents, [1, 1], plot=False)
    assert mt.exploitability(agents, env) < (0.2 if LONG else 0.3)
