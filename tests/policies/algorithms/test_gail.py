"""GAIL: the discriminator's loss and rewards by hand, both frameworks, stacked and alone, learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from tests.policies.algorithms.demonstrated import ACTIONS, batch_of, demonstrated, moved_alike, updated
from tests.policies.some_batches import VECTOR
from tests.tiers import LONG, rounds
from tests.toys import Identity

SETTINGS: dict[str, Any] = {"network": mt.MLP((6,)), "learning_rate": 1e-2, "epochs": 1}


@pytest.mark.parametrize("kind", ACTIONS if LONG else ["box"])
def test_frameworks_agree_and_stacked_agents_learn_as_each_would_alone(kind):
    moved_alike(mt.GAIL, kind, **SETTINGS)


@pytest.mark.parametrize("reward", ["softplus", "logit"])
def test_rewards_and_the_discriminators_loss_by_hand(reward):
    expert = demonstrated("discrete")
    agent: Any = mt.GAIL(VECTOR, ACTIONS["discrete"], seed=3, demonstrations=expert, discriminator_reward=reward,
                         minibatches=1, **SETTINGS)  # fmt: skip
    learner, batch = agent.learner(), batch_of(agent.learner(), 1)
    net = learner.weights.nets["discriminator"].in_numpy()
    logits = net(batch.obs, np.eye(3, dtype=np.float32)[batch.action])[0][0, :, 0]
    expected = np.log1p(np.exp(logits)) if reward == "softplus" else logits
    twin: Any = mt.GAIL(VECTOR, ACTIONS["discrete"], seed=3, demonstrations=expert, **SETTINGS)
    rng = twin.learner().rngs("update")[0]
    rng.permutation(len(logits))  # the order of the minibatch is drawn first
    index = rng.integers(len(expert), size=len(logits))
    shown = net(np.asarray(expert.obs)[index][None], np.eye(3, dtype=np.float32)[expert.action[index]][None])[0][
        0, :, 0
    ]
    metrics = updated(learner, 1)
    np.testing.assert_allclose(metrics["model_reward"], expected.mean(), rtol=1e-5)
    loss = np.log1p(np.exp(logits)).mean() + np.log1p(np.exp(-shown)).mean()
    np.testing.assert_allclose(metrics["loss/discriminator"], loss, rtol=1e-5)


def test_an_expert_is_imitated_without_the_rewards_of_the_environment():
    expert = mt.demonstrations(Identity, [mt.FunctionAgent(lambda obs: obs)] * 2, episodes=16, player="player_0")
    agents = mt.make_agents("gail", Identity, seed=0, demonstrations=expert, learning_rate=0.01, minibatches=4,
                            gamma=0.0, discriminator_learning_rate=0.01, network=mt.MLP((32,)))  # fmt: skip
    trainer = mt.DecentralizedTrainer(
        Identity,
        num_train_envs=8,
        update_freq=160,
        steps_per_train=rounds(3_200, 6_400),
        test_freq=None,
        seed=0,
        run_dir=False,
        progress=False,
    )
    trainer.train(agents, [1, 1], plot=False)
    assert trainer.test(agents, episodes=16).mean > 9.5
