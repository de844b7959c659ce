"""COMA: targets, baseline and gradients by hand, joint actions in games, and a known answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError, SpecError
from marltrain.policies.batches.batch import Rollout
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.memory.needs import StateNeed
from tests.policies.agents.tianshou import making
from tests.policies.some_batches import IMAGE, VECTOR, of_agent, some_rollout, with_states
from tests.tiers import rounds
from tests.toys import Crowd, Relay
from tests.trainer.running import SMALL, noted_batches, trainer, weights

ON, CHOICES = np.ones(1, bool), spaces.Discrete(2)
FEW: dict[str, Any] = {"network": SMALL, "critic_network": SMALL, "seed": 0}
HAND: dict[str, Any] = {
    "network": mt.MLP(()), "critic_network": mt.MLP(()), "critic_input": "own", "joint_action_size": 4, "gamma": 0.5,
    "optimizer": "sgd", "epsilon": 0.2, "max_grad_norm": None, "target_sync": 2, "seed": 0,
}  # fmt: skip
CRITIC = {"weight": [[1, -1], [0, 0], [0, 0], [2, 0], [0, 3]], "bias": [0.5, 0]}
"""Values of an own action a: o, -o, and with the other player's action 0: +2, 0; with 1: 0, +3; and 0.5 for a = 0."""
TARGET = {"weight": [[2, 1], [0, 0], [0, 0], [1, 0], [0, 4]], "bias": [0, 0]}
ACTOR = {"weight": [[0, np.log(3)]], "bias": [0, 0]}


def by_hand(**settings):
    """An agent with the networks above: logits 0 and o log 3."""
    agent: Any = mt.COMA(spaces.Box(-9, 9, (1,)), CHOICES, **{**HAND, **settings})
    state = agent.learner_.export(0)
    for net, arrays in (("critic", CRITIC), ("target_critic", TARGET), ("actor", ACTOR)):
        for name, values in arrays.items():
            state.arrays[f"net/{net}/head0.{name}"][...] = np.array(values, np.float32)
    agent.learner_.load(0, state)
    return agent


def two_steps(**changes):
    """Player 0 of two players: (o 1, action 0, the other 1, reward 1), then (o 0, action 1, reward 3, terminated).

    The other player has died after the first step.
    """
    columns: dict[str, Any] = {
        "obs": np.array([[[1], [0]]], np.float32), "legal": None, "action": np.array([[0, 1]]),
        "reward": np.array([[1, 3]], np.float32), "discount": np.array([[0.5, 0]], np.float32),
        "weight": np.ones((1, 2), np.float32), "extras": {}, "cut": np.array([[False, True]]),
        "truncated": np.zeros((1, 2), bool), "boot": np.array([[-1, 0]]), "boot_obs": np.zeros((1, 1, 1), np.float32),
        "boot_legal": None, "others": np.array([[[0, 0, 0, 1], [0, 0, 0, 0]]], np.float32),
    }  # fmt: skip
    return Rollout(**{**columns, **changes})


def prepared(agent, batch):
    """The columns of the losses with the advantages, as arrays."""
    learner = agent.learner_
    nets, ops, backend = learner.weights.nets, learner.backend.ops, learner.backend
    columns = learner._prepared(nets, batch)
    agent.algorithm._advantages(ops, nets, columns, learner.hyper.tensors())
    return {name: backend.numpy(getattr(columns, name)) for name in ("target", "critic_weight", "advantage")}


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_targets_and_the_baseline_by_hand(backend):
    """Target values of the taken actions: 2 and 0. So y_1 = 3 and y_0 = 1 + 0.5 (0.2 * 0 + 0.8 * 3) = 2.2.

    Values at step 0: 1 + 0.5 = 1.5 and -1 + 3 = 2; pi = 0.8 (1/4, 3/4) + 0.1 = (0.3, 0.7), baseline 1.85.
    Values at step 1: 0.5 and 0; pi = (1/2, 1/2), baseline 0.25.
    """
    result = prepared(by_hand(backend=backend), two_steps())
    np.testing.assert_allclose(result["target"], [[2.2, 3]], rtol=1e-6)
    np.testing.assert_allclose(result["advantage"], [[1.5 - 1.85, 0 - 0.25]], rtol=1e-5)
    np.testing.assert_allclose(result["critic_weight"], [[1, 1]])


def test_illegal_actions_are_not_in_the_baseline():
    """At step 0 only action 0 is legal: its probability is 1, and its advantage is 0."""
    result = prepared(by_hand(), two_steps(legal=np.array([[[True, False], [True, True]]])))
    np.testing.assert_allclose(result["advantage"], [[0, -0.25]], atol=1e-6)


@pytest.mark.parametrize("truncated", [True, False])
def test_a_row_without_a_known_successor_trains_the_policy_alone(truncated):
    """A truncation, and the last row of a rollout: y_0 = 1 + 0.5 * 0, the target network's value of step 1."""
    batch = two_steps(discount=np.full((1, 2), 0.5, np.float32), truncated=np.array([[False, truncated]]))
    result = prepared(by_hand(), batch)
    np.testing.assert_allclose(result["target"], [[1, 0]])
    np.testing.assert_allclose(result["critic_weight"], [[2, 0]])  # the mean over both rows is that of the first one
    np.testing.assert_allclose(result["advantage"], [[-0.35, -0.25]], rtol=1e-5)


def test_gradients_by_hand():
    """One step of plain gradient descent with rate 1, for the critic, and for the actor with the critic after it.

    Critic: half the mean of (1.5 - 2.2)^2 and (0 - 3)^2. With respect to the values: -0.35 (step 0, a 0) and -1.5
    (step 1, a 1). So its biases become 0.5 + 0.35 and 1.5, and the weight of o for a 0 becomes 1 + 0.35; that of the
    other player's action 1 for a 0 becomes 0 + 0.35.
    Then the values are 1.35 + 0.85 + 0.35 = 2.55 and -1 + 3 + 1.5 = 3.5 at step 0, and 0.85 and 1.5 at step 1:
    advantages 2.55 - 0.3 * 2.55 - 0.7 * 3.5 = -0.665, and 1.5 - 1.175 = 0.325.
    d log pi(u) / d logit_j = 0.8 p_u (1[u = j] - p_j) / pi(u), for the softmax p: with u 0 at step 0,
    0.8 * 0.25 / 0.3 * (0.75, -0.75) = (0.5, -0.5); with u 1 at step 1, 0.8 * (-0.25, 0.25) / 0.5 = (-0.4, 0.4).
    """
    agent = by_hand(learning_rate=1.0)
    agent.learner_.update(two_steps(), learn=ON, batch_size=64)
    arrays = agent.learner_.export(0).arrays
    expected = np.array(CRITIC["weight"], np.float64)
    expected[0, 0], expected[4, 0] = 1.35, 0.35
    np.testing.assert_allclose(arrays["net/critic/head0.weight"], expected, atol=1e-6)
    np.testing.assert_allclose(arrays["net/critic/head0.bias"], [0.85, 1.5], rtol=1e-6)
    steps = np.array([-0.665 * 0.5, 0.325 * -0.4]) / 2
    np.testing.assert_allclose(arrays["net/actor/head0.bias"], [steps.sum(), -steps.sum()], rtol=1e-5)
    np.testing.assert_allclose(arrays["net/actor/head0.weight"][0], [steps[0], np.log(3) - steps[0]], rtol=1e-5)
    np.testing.assert_array_equal(arrays["net/target_critic/head0.bias"], TARGET["bias"])
    agent.learner_.update(two_steps(), learn=ON, batch_size=64)  # the second update copies the critic
    arrays = agent.learner_.export(0).arrays
    np.testing.assert_array_equal(arrays["net/target_critic/head0.bias"], arrays["net/critic/head0.bias"])


def test_acting_samples_from_the_policy_of_the_advantage():
    """With o 1, pi = (0.3, 0.7); the mode without exploration."""
    agent = by_hand()
    seen = np.ones((4_000, 1), np.float32)
    assert abs(agent.act(seen, explore=True).mean() - 0.7) < 0.03
    assert (agent.act(seen) == 1).all()
    agent.hyper.epsilon = 1.0
    assert abs(agent.act(seen, explore=True).mean() - 0.5) < 0.03


@pytest.mark.parametrize(
    ("critic_input", "kind", "own"),
    [("state", "state", False), ("joint", "observations", False), ("agent_specific", "state", True), ("own", "", True)],
)
def test_a_critic_reads_what_it_is_told_to(critic_input, kind, own):
    agent: Any = mt.COMA(VECTOR, CHOICES, critic_input=critic_input, state_size=4, joint_action_size=6, **FEW)
    nets, needs = agent.algorithm.networks(), agent.learner_.needs
    assert needs.state == (StateNeed(kind, 4) if kind else None) and needs.joint_actions == 6
    assert nets["critic"].vectors == ((4, 6) if kind else (6,))
    assert (nets["critic"].layout is not None) == own
    assert nets["actor"].vectors == () and nets["actor"].layout is not None


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"state_size": 4}, r"coma: the critic reads the actions of all players, .* or joint_action_size= does"),
        ({"joint_action_size": 4}, r"coma: the critic reads a global state"),
        ({"joint_action_size": 0}, "joint_action_size must be at least 1"),
        ({"critic_input": "everything"}, "critic_input"),
    ],
)
def test_wrong_settings(settings, told):
    with pytest.raises(ConfigError, match=told):
        mt.COMA(VECTOR, CHOICES, **settings)


def test_actions_must_be_discrete():
    with pytest.raises(SpecError, match=r"COMA needs a Discrete action space, .*, got Box"):
        mt.COMA(VECTOR, VECTOR, state_size=4, joint_action_size=6)


def test_stacked_agents_learn_as_single_ones():
    """Ragged rollouts of two agents in one learner, and each in its own; images, which the critic reads too."""
    settings: dict[str, Any] = {"state_size": 4, "joint_action_size": 6, "minibatches": 2, "target_sync": 2}
    agent, rng = mt.COMA(IMAGE, CHOICES, **settings), np.random.default_rng(4)
    both = AlgorithmLearner(agent.algorithm, agent.backend, [3, 4], draw=True)
    alone = [AlgorithmLearner(agent.algorithm, agent.backend, [seed], draw=True) for seed in (3, 4)]
    for _ in range(3):
        batch = with_states(rng, some_rollout(rng, IMAGE, CHOICES, [9, 5]), both)
        both.update(batch, learn=np.ones(2, bool), batch_size=4)
        for k, one in enumerate(alone):
            one.update(of_agent(batch, k, (9, 5)[k]), learn=ON, batch_size=4)
    for k, one in enumerate(alone):
        mine, theirs = both.export(k).arrays, one.export(0).arrays
        for name, array in theirs.items():
            np.testing.assert_allclose(mine[name], array, atol=1e-5, err_msg=name)


def test_padding_weighs_nothing():
    agent: Any = mt.COMA(VECTOR, CHOICES, state_size=4, joint_action_size=6, **FEW)
    both = AlgorithmLearner(agent.algorithm, agent.backend, [3, 4], draw=True)
    rng, results = np.random.default_rng(4), []
    batch = with_states(rng, some_rollout(rng, VECTOR, CHOICES, [9, 5]), both)
    padding = batch.weight == 0
    for value in (0.0, 7.0):
        learner = AlgorithmLearner(agent.algorithm, agent.backend, [3, 4], draw=True)
        changed = [np.where(padding.reshape(2, 9, *[1] * (array.ndim - 2)), np.float32(value), array)
                   for array in (batch.obs, batch.state, batch.others, batch.reward)]  # fmt: skip
        result = replace(batch, **dict(zip(("obs", "state", "others", "reward"), changed, strict=True)))
        learner.update(result, learn=np.ones(2, bool), batch_size=64)
        results.append(learner.export(1).arrays)
    assert all((results[0][name] == array).all() for name, array in results[1].items())


# With environments ----------------------------------------------------------------------------------------------------


def test_joint_actions_of_deaths_and_absences(monkeypatch):
    """Crowd: red_1 acts in two steps, blue is absent in episodes of odd seeds and sees what the reds did before."""
    seen = noted_batches(monkeypatch)
    agents: list[Any] = mt.make_agents("coma", Crowd, **FEW)
    assert [agent.settings.joint_action_size for agent in agents] == [3 + 2 + 3] * 3
    line_up = [*agents[:2], mt.FunctionAgent(lambda observation: 2)]
    trainer(Crowd, {}, steps_per_train=90).train(line_up, [1, 1, 0], plot=False)
    reds = [batch for batch in seen if batch.obs.shape[-1] == 2]
    blues = [batch for batch in seen if batch.obs.shape[-1] == 3]
    blue_acts = set()
    for batch in reds:
        for row, others in zip(batch.obs[batch.weight > 0], batch.others[batch.weight > 0], strict=True):
            assert row[1] == 0 and not others[:3].any()  # red_0's own block
            assert others[5:].tolist() == ([0, 0, 1] if row[0] < 2 else [0, 0, 0])
            blue_acts.add(tuple(others[3:5]))
    assert blue_acts == {(0, 0), (0, 1), (1, 0)}
    checked = 0
    for batch in blues:
        assert not batch.others[..., 3:5].any()
        sums = batch.others[..., :3] @ np.arange(3) + batch.others[..., 5:] @ np.arange(3)
        for k, i in zip(*np.nonzero((batch.boot == -1) & (batch.weight > 0)), strict=True):
            assert sums[k, i] == batch.obs[k, i + 1, 2]
            checked += 1
    assert checked > 10


def test_in_turn_based_games_the_others_do_not_act(monkeypatch):
    seen = noted_batches(monkeypatch)
    agents = mt.make_agents("coma", Relay, **FEW)
    trainer(Relay, {}, steps_per_train=60).train(agents, [1, 1, 1], plot=False)
    assert seen and not any(batch.others.any() for batch in seen)


def test_learners_beside_frozen_foreign_and_scripted_players(monkeypatch):
    """In native simple_spread, with an agent of tianshou that learns. The scripted player's action is 1."""
    seen = noted_batches(monkeypatch)
    env, args = "marltrain/simple_spread_v3", {"N": 5}
    learners: list[Any] = mt.make_agents("coma", env, env_args=args, **FEW)
    width = int(np.prod(learners[0].observation_space.shape))
    foreign = mt.OffPolicyAgent(making.dqn(width, 5), memory=mt.Replay(300), update_per_step=0.1)
    scripted = mt.FunctionAgent(lambda observation: 1)
    line_up = [*learners[:2], mt.FrozenAgent(learners[2]), foreign, scripted]
    before = weights(learners)
    trainer(env, args, steps_per_train=100, update_freq=48).train(line_up, [1, 1, 0, 1, 0], plot=False)
    moved = [any((was[name] != array).any() for name, array in now.items())
             for was, now in zip(before, weights(learners), strict=True)]  # fmt: skip
    assert moved[:3] == [True, True, False]
    for batch in seen:
        joint = batch.others[batch.weight > 0].reshape(-1, 5, 5)
        assert (joint.sum((1, 2)) == 4).all()
        assert (joint[:, 4] == [0, 1, 0, 0, 0]).all()


def test_agents_of_another_environment_are_refused():
    agents: list[Any] = mt.make_agents("coma", Crowd, **FEW)
    wrong = [mt.COMA(agent.observation_space, agent.action_space, state_size=2, joint_action_size=9, **FEW)
             for agent in agents]  # fmt: skip
    with pytest.raises(AgentError, match=r"9 values \(joint_action_size\), and those of .* have 8: .*_size=8"):
        trainer(Crowd, {}).train(wrong, [1, 1, 1], plot=False)


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    """One learner is in a group of its own; the other group is recorded for its actions alone."""
    arrays = []
    for name, lengths in (("whole", (120,)), ("parts", (66, 120))):
        for steps in lengths:
            resumed = {"resume": tmp_path / name} if steps > lengths[0] else {}
            agents = mt.make_agents({"blue": "coma", "*": "random"}, Crowd, seed=0)
            agents[1] = mt.make_agents("coma", Crowd, **FEW)[1]
            trainer(
                Crowd, {}, steps_per_train=steps, callbacks=[mt.Checkpoint(every_steps=33)],
                run_dir=None if resumed else tmp_path / name,
            ).train(agents, [0, 1, 0], plot=False, **resumed)  # fmt: skip
        arrays.append(weights(agents[1:2]))
    for one, other in zip(*arrays, strict=True):
        assert all((one[name] == array).all() for name, array in other.items())


def test_four_players_find_different_levers():
    """The observation is constant: each player must choose another lever than the others."""
    env = "marltrain/levers_v1"
    settings: dict[str, Any] = {"network": mt.MLP((8,)), "critic_network": mt.MLP((32,)), "optimizer": "adam"}
    agents = mt.make_agents(
        "coma", env, seed=0, epsilon=mt.linear(0.5, 0.02, 3_000), target_sync=5, learning_rate=0.02, **settings
    )
    run = trainer(env, {}, num_train_envs=32, update_freq=64, steps_per_train=rounds(4_000, 6_000), test_freq=None)
    run.train(agents, [1, 1, 1, 1], plot=False)
    assert (run.test(agents, 2).returns == 1).all()
