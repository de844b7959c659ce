"""Behavior cloning: its loss by hand, both frameworks, stacked and alone, learning, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from tests.policies.algorithms.demonstrated import ACTIONS, demonstrated, moved_alike, updated
from tests.policies.backends.both import BOTH
from tests.policies.some_batches import VECTOR
from tests.toys import Identity

SETTINGS: dict[str, Any] = {"network": mt.MLP((6,)), "learning_rate": 1e-2}


@pytest.mark.parametrize("kind", ACTIONS)
def test_frameworks_agree_and_stacked_agents_learn_as_each_would_alone(kind):
    moved_alike(mt.BC, kind, **SETTINGS)


@pytest.mark.parametrize("backend", BOTH)
def test_the_loss_is_the_negative_log_probability_of_the_drawn_decisions(backend):
    expert = demonstrated("discrete")
    agent: Any = mt.BC(VECTOR, ACTIONS["discrete"], backend=backend, seed=3, demonstrations=expert, entropy_coef=0.0,
                       **SETTINGS)  # fmt: skip
    twin = mt.BC(VECTOR, ACTIONS["discrete"], seed=3, demonstrations=expert, **SETTINGS)
    learner: Any = twin.learner()
    index = learner.rngs("update")[0].integers(len(expert), size=9)
    obs = np.asarray(expert.obs)[index]
    logits = learner.weights.nets["actor"].in_numpy()(obs[None])[0][0]
    chosen = logits[np.arange(9), expert.action[index]] - np.log(np.exp(logits).sum(-1))
    metrics = updated(agent.learner(), 1)
    np.testing.assert_allclose(metrics["loss/total"], -chosen.mean(), rtol=1e-4)


def test_illegal_actions_have_no_share():
    """The only other action is never legal: the log-probability of the demonstrated one is 0 from the start."""
    space, rows = spaces.Discrete(2), 6
    legal = np.tile([True, False], (rows, 1))
    expert = mt.Demonstrations.from_arrays(VECTOR, space, np.ones((rows, 5), np.float32), np.zeros(rows, np.int64),
                                           legal=legal)  # fmt: skip
    learner: Any = mt.BC(VECTOR, space, seed=0, demonstrations=expert).learner()
    np.testing.assert_allclose(updated(learner, 1)["log_prob"], 0.0, atol=1e-6)


def test_an_expert_is_imitated_without_rewards(tmp_path):
    expert = mt.demonstrations(Identity, [mt.FunctionAgent(lambda obs: obs)] * 2, episodes=8, player="player_0")
    expert.save(tmp_path / "expert")
    agents = mt.make_agents(
        "bc", Identity, seed=0, demonstrations=str(tmp_path / "expert"), learning_rate=0.02, batch_size=32
    )
    trainer = mt.DecentralizedTrainer(
        Identity,
        num_train_envs=2,
        update_freq=2,
        steps_per_train=400,
        test_freq=None,
        seed=0,
        run_dir=False,
        progress=False,
    )
    trainer.train(agents, [1, 1], plot=False)
    assert trainer.test(agents, episodes=8).mean == 10.0  # every symbol of 10 steps


def test_a_loaded_agent_acts_and_learns_with_its_demonstrations_given(tmp_path):
    expert = demonstrated("discrete")
    agent = mt.BC(VECTOR, ACTIONS["discrete"], seed=0, demonstrations=expert)
    mt.save(tmp_path / "bc", agent)
    (alone,) = mt.load(tmp_path / "bc")
    obs = np.linspace(-1, 1, 5, dtype=np.float32)
    assert alone.act(obs) == agent.act(obs)
    with pytest.raises(AgentError, match="custom_objects="):
        updated(alone.learner(), 1)
    (supplied,) = mt.load(tmp_path / "bc", custom_objects={"demonstrations": expert})
    assert np.isfinite(updated(supplied.learner(), 1)["loss/total"]).all()


@pytest.mark.parametrize("agent", [mt.BC, mt.GAIL])
def test_wrong_demonstrations_are_refused(agent):
    expert = demonstrated("discrete")
    with pytest.raises(ConfigError, match=r"must be marltrain\.Demonstrations"):
        agent(VECTOR, ACTIONS["discrete"])
    with pytest.raises(AgentError, match="observation space"):
        agent(spaces.Box(-1, 1, (2,), np.float32), ACTIONS["discrete"], demonstrations=expert)
    with pytest.raises(AgentError, match="action space"):
        agent(VECTOR, spaces.Discrete(7), demonstrations=expert)
    with pytest.raises(ConfigError, match="normalize_observations"):
        agent(VECTOR, ACTIONS["discrete"], demonstrations=expert, normalize_observations=True)
