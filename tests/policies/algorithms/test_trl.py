"""TRL: its targets, losses and errors worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError, SpecError
from marltrain.policies.backends import numpy_ops
from marltrain.policies.batches.tensor_batch import TensorBatch
from tests.policies.backends.both import BOTH
from tests.policies.learner.test_learner import assert_rows_equal, everyone, stacked
from tests.policies.own import with_torch
from tests.policies.some_batches import GOALS, VECTOR, of_agent, some_triplets

THREE = spaces.Discrete(3)
GAMMA, KAPPA = 0.9, 0.7
CRITICS = np.array([[0.6, 0.5, 0.3], [0.2, 0.7, 0.4]])
TARGETS = np.array([[0.8, 0.4, 0.5], [0.1, 0.3, 0.6]])
POLICY = np.array([0.5, 0.3, 0.2])
OFFSETS = [(0, 1), (1, 2), (1, 5), (3, 4), (2, 7)]
"""Offsets of rows k and j: none between, both parts known, the first or the second known, none known."""
ACTIONS, FAR_ACTIONS = [0, 2, 1, 1, 2], [0, 1, 2, 0, 1]


def constant_agent(backend: str = "torch", **settings: Any) -> Any:
    """An agent whose networks give these values of the three actions, for every observation and goal."""
    agent = mt.TRL(GOALS, THREE, seed=0, learning_rate=0.0, gamma=GAMMA, backend=backend, **settings)
    state = agent.learner_.export(0)
    given = {"critic": np.log(CRITICS / (1 - CRITICS)), "target_critic": np.log(TARGETS / (1 - TARGETS)),
             "actor": np.log(POLICY)}  # fmt: skip
    for name, bias in given.items():
        if f"net/{name}/head0.bias" in state.arrays:
            state.arrays[f"net/{name}/head0.weight"][...] = 0.0
            state.arrays[f"net/{name}/head0.bias"][...] = bias
    agent.learner_.load(0, state)
    return agent


def batch_by_hand() -> Any:
    batch = some_triplets(np.random.default_rng(0), GOALS, 3, 1, len(OFFSETS))
    batch.near_offset[0], batch.offset[0] = np.transpose(OFFSETS)
    batch.action[0], batch.far_action[0] = ACTIONS, FAR_ACTIONS
    return batch


def targets_by_hand() -> np.ndarray:
    """The targets [critic, row]."""
    return np.array([[GAMMA, GAMMA**2, GAMMA * q[2], q[1] * GAMMA, q[2] * q[1]] for q in TARGETS])


def updated(agent: mt.TRL, batch: Any) -> dict[str, Any]:
    return agent.learner_.update(batch, learn=np.ones(1, bool), batch_size=batch.weight.shape[1])


@pytest.mark.parametrize("backend", BOTH)
@pytest.mark.parametrize("power", [0.0, 2.0])
def test_the_critics_loss_by_hand(backend, power):
    metrics = updated(constant_agent(backend, distance_power=power), batch_by_hand())
    target, q = targets_by_hand(), CRITICS[:, ACTIONS]
    cross = -target * np.log(q) - (1 - target) * np.log(1 - q)
    near = (1 + np.log(target) / np.log(GAMMA)) ** -power
    assert (np.log(target[:, :2]) / np.log(GAMMA)).round(5).tolist() == [[1, 2]] * 2
    loss = (np.where(target >= q, KAPPA, 1 - KAPPA) * near * cross).mean(1).sum()
    assert metrics["loss/critic"][0] == pytest.approx(loss, rel=1e-5)
    assert metrics["q_mean"][0] == pytest.approx(q.mean(), rel=1e-5)


@pytest.mark.parametrize("backend", BOTH)
def test_the_actors_loss_by_hand(backend):
    metrics = updated(constant_agent(backend, extraction="policy", bc_coef=0.25), batch_by_hand())
    worth = POLICY @ np.log(CRITICS / (1 - CRITICS)).mean(0)
    cloning = np.log(POLICY)[ACTIONS].mean()
    assert metrics["loss/actor"][0] == pytest.approx(-worth - 0.25 * cloning, rel=1e-5)
    assert metrics["entropy"][0] == pytest.approx(-(POLICY * np.log(POLICY)).sum(), rel=1e-5)


def test_the_actor_learns_for_both_kinds_of_goals():
    """Networks that give parts of their observations: logits of actions, and those of two critics."""
    algorithm: Any = constant_agent(extraction="policy").algorithm
    batch = batch_by_hand()
    nets = {"actor": lambda obs: [obs[..., :3]], "critic": lambda obs: [np.stack([obs[..., 3:6], obs[..., 6:9]], 1)]}
    columns = {name: getattr(batch, name) for name in ("obs", "goal_obs", "action", "legal")}
    given = TensorBatch(**columns, weight=np.full((1, 5), 0.2, np.float32))
    hyper = {"own_goals": np.array([[0.25]]), "bc_coef": np.array([[0.5]])}
    loss, _ = algorithm._actor_loss(numpy_ops, nets, given, hyper)
    expected = 0.0
    for share, obs in ((0.75, batch.goal_obs[0]), (0.25, batch.obs[0])):
        probs = np.exp(obs[:, :3]) / np.exp(obs[:, :3]).sum(1, keepdims=True)
        worth = (probs * (obs[:, 3:6] + obs[:, 6:9]) / 2).sum(1)
        expected += share * (-worth - 0.5 * np.log(probs[np.arange(5), ACTIONS])).mean()
    assert loss[0] == pytest.approx(expected, rel=1e-5)


def test_illegal_actions_have_no_part_in_the_actors_loss():
    batch = batch_by_hand()
    batch.legal = np.ones((1, len(OFFSETS), 3), bool)
    batch.legal[..., 0] = np.array(ACTIONS) == 0
    metrics = updated(constant_agent(extraction="policy", bc_coef=0.25), batch)
    logits, expected = np.log(CRITICS / (1 - CRITICS)).mean(0), []
    for action in ACTIONS:
        legal = POLICY * ([1, 1, 1] if action == 0 else [0, 1, 1])
        legal /= legal.sum()
        expected.append(-legal @ logits - 0.25 * np.log(legal[action]))
    assert metrics["loss/actor"][0] == pytest.approx(np.mean(expected), rel=1e-5)


def test_errors_for_priorities_by_hand():
    agent = constant_agent(memory=mt.Replay(prioritized=mt.Prioritized()))
    batch = batch_by_hand()
    batch.rows = batch.cells
    updated(agent, batch)
    np.testing.assert_allclose(batch.errors[0], np.abs(CRITICS[:, ACTIONS] - targets_by_hand()).mean(0), rtol=1e-5)


def test_it_acts_by_the_actor_or_by_the_mean_of_the_critics_logits():
    obs = {name: np.zeros((4000, *part.shape), np.float32) for name, part in GOALS.spaces.items() if part.shape}
    few = {name: value[:9] for name, value in obs.items()}
    agent, greedy = constant_agent(extraction="policy"), constant_agent(epsilon=0.3)
    assert (agent.act(obs) == 0).all() and (greedy.act(obs) == 1).all()  # mean logits: -0.49, 0.42, -0.63
    assert (agent.act(few, np.array([[False, True, True]] * 9)) == 1).all()
    explored: Any = [np.bincount(one.act(obs, explore=True), minlength=3) / 4000 for one in (agent, greedy)]
    np.testing.assert_allclose(explored, np.array([POLICY, [0.1, 0.8, 0.1]]), atol=0.03)
    assert "net/actor/head0.bias" not in greedy.learner_.export(0).arrays


@pytest.mark.parametrize("extraction", ["policy", "greedy"])
def test_stacked_equals_looped(extraction):
    own: Any = {"network": mt.MLP((7,)), "tau": 0.1, "learning_rate": 1e-2, "extraction": extraction}
    agents = [mt.TRL(GOALS, THREE, seed=k, **own) for k in range(3)]
    learner, rng = stacked(agents), np.random.default_rng(2)
    for _ in range(5):
        batch = some_triplets(rng, GOALS, 3, 3, 11, masked=True)
        learner.update(batch, learn=everyone(learner), batch_size=11)
        for k, agent in enumerate(agents):
            agent.learner_.update(of_agent(batch, k), learn=np.ones(1, bool), batch_size=11)
    assert_rows_equal(learner, [agent.learner_ for agent in agents])


def test_its_memory():
    agent = mt.TRL(GOALS, THREE, seed=0, capacity=300)
    assert agent.memory.triplets == mt.Triplets() and agent.memory.capacity == 300 and agent.memory.n_step == 1
    own = mt.Replay(500, triplets=mt.Triplets("uniform"), prioritized=mt.Prioritized(alpha=0.5), window=0.5)
    agent = mt.TRL(GOALS, THREE, seed=0, memory=own)
    assert agent.memory.offsets == "uniform" and agent.memory.alpha == 0.5 and agent.memory.window == 0.5


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"memory": mt.Replay(hindsight=mt.Hindsight())}, "trl: memory has hindsight=.* leave hindsight= out"),
        ({"memory": mt.Replay(n_step=3)}, "trl: memory has n_step=3, .* leave n_step= out"),
        ({"memory": mt.Rollouts()}, "memory"),
        ({"reward_model": lambda observation, action, reward: reward}, "trl: reward_model has no effect"),
        (
            {"network": with_torch.Twins(9, 3), "extraction": "policy"},
            "network=Twins is a model of your own and only the actor",
        ),
        ({"gamma": 1.0}, "gamma must be at most 0.999999"),
        ({"expectile": 1.5}, "expectile"),
        ({"extraction": "awr"}, "extraction must be one of greedy, policy"),
        ({"bc_coef": 0.1}, "bc_coef"),
        ({"n_step": 3}, "n_step"),
    ],
)
def test_wrong_settings_are_refused(settings, told):
    with pytest.raises(ConfigError, match=told):
        mt.TRL(GOALS, THREE, **settings)


def test_wrong_spaces_are_refused():
    with pytest.raises(SpecError, match="TRL needs a Discrete action space, got Box"):
        mt.TRL(GOALS, spaces.Box(-1, 1, (2,)))
    with pytest.raises(ConfigError, match="trl: triplets needs observations that are a Dict of observation, achieved"):
        mt.TRL(VECTOR, THREE)
