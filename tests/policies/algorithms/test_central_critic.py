"""Central critics: the inputs of critics, the limits of MAPPO and MAA2C, and known values of states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError, EnvError
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.memory.needs import StateNeed
from tests.gymnasium_toys import Film
from tests.policies.agents.tianshou import making
from tests.policies.some_batches import IMAGE, VECTOR, of_agent, some_rollout, with_states
from tests.toys import Crowd, Relay
from tests.trainer.running import SMALL, noted_batches, trainer

ON, SPACE = np.ones(1, bool), spaces.Discrete(3)
PLAIN: dict[str, Any] = {"network": mt.MLP((6,)), "seed": 0}
FEW: dict[str, Any] = {"network": SMALL, "seed": 0, "minibatches": 2, "epochs": 1}


def rollout(seed=0, size=4):
    """A rollout of nine rows with states."""
    rng = np.random.default_rng(seed)
    batch = some_rollout(rng, VECTOR, SPACE, [9])
    state, boot = (rng.uniform(-1, 1, (*like.shape, size)).astype(np.float32) for like in (batch.weight, batch.boot))
    return replace(batch, state=state, boot_state=boot)


def advantages(agent, batch):
    """The advantages of a rollout, which the critic's values make."""
    learner = agent.learner_
    tensors = learner._prepared(learner.weights.nets, batch)
    return np.asarray(learner.backend.numpy(tensors.advantage))


@pytest.mark.parametrize(
    ("critic_input", "state", "obs"), [("state", True, False), ("joint", True, False), ("agent_specific", True, True),
                                       ("own", False, True)],
)  # fmt: skip
def test_a_critic_reads_what_it_is_told_to(critic_input, state, obs):
    agent = mt.MAPPO(VECTOR, SPACE, critic_input=critic_input, state_size=4, normalize_values=None, **PLAIN)
    batch, other = rollout(0), rollout(1)
    usual = advantages(agent, batch)
    of_state = replace(batch, state=other.state, boot_state=other.boot_state)
    of_obs = replace(batch, obs=other.obs, boot_obs=other.boot_obs)
    assert (advantages(agent, of_state) != usual).any() == state
    assert (advantages(agent, of_obs) != usual).any() == obs
    kinds = {"state": "state", "joint": "observations", "agent_specific": "state", "own": None}
    need = agent.learner_.needs.state
    assert need == (None if kinds[critic_input] is None else StateNeed(str(kinds[critic_input]), 4))


@pytest.mark.parametrize(("central", "independent"), [(mt.MAPPO, mt.PPO), (mt.MAA2C, mt.A2C)])
def test_with_its_own_input_it_is_the_independent_algorithm(central, independent):
    """Every bit of the weights after three updates; and with another input it is another one."""
    settings = {**PLAIN, "normalize_values": "popart"}
    agents = [
        central(VECTOR, SPACE, critic_input="own", **settings), independent(VECTOR, SPACE, **settings),
        central(VECTOR, SPACE, state_size=4, **settings),
    ]  # fmt: skip
    for agent in agents:
        for seed in range(3):
            agent.learner_.update(rollout(seed), learn=ON, batch_size=64)
    ours, plain, other = (agent.learner_.export(0).arrays for agent in agents)
    assert ours.keys() == plain.keys()
    assert all((ours[name] == plain[name]).all() for name in ours)
    assert any(ours[name].shape != other[name].shape for name in ours)


def test_the_actor_reads_its_observation_alone():
    nets = mt.MAPPO(VECTOR, SPACE, state_size=4, **PLAIN).algorithm.networks()
    assert nets["actor"].layout is not None and nets["actor"].vectors == ()
    assert nets["critic"].layout is None and nets["critic"].vectors == (4,)


def test_states_are_normalized_with_the_observations():
    agent = mt.MAPPO(VECTOR, SPACE, state_size=4, normalize_observations=True, **PLAIN)
    batch = rollout()
    batch.state[...] = 100 + 7 * batch.state
    agent.learner_.update(batch, learn=ON, batch_size=64)
    statistics = agent.learner_.weights.statistics
    np.testing.assert_allclose(statistics["state"].mean[0], batch.state[0].mean(0), rtol=1e-5)
    np.testing.assert_allclose(statistics["observation"].mean[0], batch.obs[0].mean(0), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, r"mappo: the critic reads a global state, .* make_agents\('mappo', env\) gives it, or state_size="),
        ({"state_size": 4, "shared_trunk": True}, "shared_trunk=True .* critic_input='state' another one"),
        ({"state_size": 0}, "state_size"),
        ({"critic_input": "everything"}, "critic_input"),
    ],
)
def test_wrong_settings(settings, told):
    with pytest.raises(ConfigError, match=told):
        mt.MAPPO(VECTOR, SPACE, **settings)


def test_own_observations_may_be_images_and_joined_ones_may_not():
    agent = mt.MAPPO(IMAGE, SPACE, critic_input="agent_specific", state_size=2)
    assert agent.learner_.needs.state == StateNeed("state", 2)
    with pytest.raises(ConfigError, match="hold an image"):
        mt.make_agents("mappo", Film, critic_input="joint")


# With environments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "size"), [("state", 2), ("joint", 3 + 3 + 4), ("agent_specific", 2)])
def test_make_agents_gives_the_size_of_the_state(kind, size):
    agents: list[Any] = mt.make_agents("mappo", Crowd, critic_input=kind, **FEW)
    assert [agent.settings.state_size for agent in agents] == [size] * 3
    relay: Any = mt.make_agents("mappo", Relay, **FEW)[0]
    assert relay.settings.state_size == 3 * 4  # it has no state


class Clock(ParallelEnv):
    """Two players that see nothing get 1 in each of three steps; the state is the number of steps."""

    metadata: ClassVar[dict[str, Any]] = {"name": "clock"}
    possible_agents: ClassVar[list[str]] = ["a", "b"]

    def observation_space(self, agent):
        return spaces.Box(0, 1, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.t = list(self.possible_agents), 0
        return dict.fromkeys(self.agents, np.zeros(1, np.float32)), {name: {} for name in self.agents}

    def step(self, actions):
        self.t += 1
        everyone = list(self.agents)
        self.agents = [] if self.t == 3 else everyone
        return (
            dict.fromkeys(everyone, np.zeros(1, np.float32)), dict.fromkeys(everyone, 1.0),
            dict.fromkeys(everyone, self.t == 3), dict.fromkeys(everyone, False), {name: {} for name in everyone},
        )  # fmt: skip

    def state(self):
        return np.array([self.t], np.float32)


def test_the_values_of_states_are_learned():
    """With gamma 0.5: 1.75, 1.5 and 1. The observations do not tell them apart."""
    settings = {**FEW, "network": mt.MLP((8,)), "gamma": 0.5, "learning_rate": 0.02, "normalize_values": None}
    agents: list[Any] = mt.make_agents("mappo", Clock, **{**settings, "epochs": 10})
    trainer(Clock, {}, num_train_envs=8, update_freq=96, steps_per_train=1_920).train(agents, [1, 1], plot=False)
    learner = agents[0].learner_
    state = np.tile(np.arange(3, dtype=np.float32)[:, None], (learner.num_agents, 1, 1))
    values = learner.backend.numpy(learner.weights.nets["critic"](learner.backend.tensor(state))[0])[..., 0]
    np.testing.assert_allclose(values, np.tile([1.75, 1.5, 1.0], (2, 1)), atol=0.1)


@pytest.mark.parametrize("critic_input", ["state", "joint"])
def test_workers_give_the_same_states(critic_input):
    """Deaths, absences and players of two kinds; a frozen, a random and a learning player stand in one game."""
    weights = []
    for vector in ("dummy", "subproc"):
        agents = mt.make_agents("mappo", Crowd, critic_input=critic_input, **FEW)
        line_up = [agents[0], mt.FrozenAgent(agents[1]), mt.RandomAgent(seed=0)]
        trainer(Crowd, {}, vector=vector, steps_per_train=100).train(line_up, [1, 0, 0], plot=False)
        weights.append(agents[0].state().arrays)
    assert all((array == weights[1][name]).all() for name, array in weights[0].items())


@pytest.mark.parametrize("wrong", [["state"], None, 3])
def test_a_critic_input_of_another_type_is_refused(wrong):
    with pytest.raises(ConfigError, match="critic_input"):
        mt.make_agents("mappo", Crowd, critic_input=wrong)


def test_agents_of_another_environment_are_refused():
    agents: list[Any] = mt.make_agents("mappo", Crowd, **FEW, critic_input="joint")
    wrong = [mt.MAPPO(agent.observation_space, agent.action_space, state_size=5, **FEW) for agent in agents]
    with pytest.raises(AgentError, match=r"state of 5 values \(state_size\), and that of .* has 2: .* state_size=2"):
        trainer(Crowd, {}).train(wrong, [1, 1, 1], plot=False)


def test_a_state_of_changing_size_is_an_error_of_the_environment():
    class Growing(Crowd):
        def state(self):
            return np.zeros(2 + (self.t > 1), np.float32)

    agents = mt.make_agents("mappo", Growing, **FEW)
    with pytest.raises(EnvError, match=r"step 2: .*env\.state\(\)\) has 3 values, and had 2 at the start"):
        trainer(Growing, {}, steps_per_train=24).train(agents, [1, 1, 1], plot=False)
    joint = mt.make_agents("mappo", Growing, critic_input="joint", **FEW)
    trainer(Growing, {}, steps_per_train=24).train(joint, [1, 1, 1], plot=False)  # which does not read it


def test_earlier_rows_are_replayed_with_their_states(monkeypatch):
    """The first number of Crowd's state and of every observation is the step of the episode."""
    seen = noted_batches(monkeypatch)
    memory = mt.Replay(60, prioritized=mt.Prioritized())
    agents = mt.make_agents("mappo", Crowd, memory=memory, sequence_length=2, **FEW)
    trainer(Crowd, {}, steps_per_train=60).train(agents, [1, 1, 1], plot=False)
    for batch in seen:
        there = batch.weight > 0
        assert (batch.state[there][:, 0] == batch.obs[there][:, 0]).all()
    assert sum(((batch.weight > 0) & ~batch.fresh).sum() for batch in seen) > 10


@pytest.mark.parametrize("kind", [mt.MAPPO, mt.MAA2C])
def test_stacked_agents_learn_as_single_ones(kind):
    """Ragged rollouts of two agents in one learner, and each in its own."""
    agent, rng = kind(VECTOR, SPACE, state_size=4, critic_input="agent_specific", **PLAIN), np.random.default_rng(4)
    both = AlgorithmLearner(agent.algorithm, agent.backend, [3, 4], draw=True)
    alone = [AlgorithmLearner(agent.algorithm, agent.backend, [seed], draw=True) for seed in (3, 4)]
    for _ in range(3):
        batch = with_states(rng, some_rollout(rng, VECTOR, SPACE, [9, 5]), both)
        both.update(batch, learn=np.ones(2, bool), batch_size=4)
        for k, one in enumerate(alone):
            one.update(of_agent(batch, k, (9, 5)[k]), learn=ON, batch_size=4)
    for k, one in enumerate(alone):
        mine, theirs = both.export(k).arrays, one.export(0).arrays
        for name, array in theirs.items():
            np.testing.assert_allclose(mine[name], array, atol=1e-5, err_msg=name)


def test_learners_beside_frozen_foreign_and_scripted_players():
    """Two MAPPO agents, an agent of tianshou that learns, a frozen and a scripted player in one game."""
    env, args = "marltrain/simple_spread_v3", {"N": 5}  # a size that other tests compile, too
    learners: list[Any] = mt.make_agents("mappo", env, env_args=args, **FEW)
    seen, choices = int(np.prod(learners[0].observation_space.shape)), 5
    foreign = mt.OffPolicyAgent(making.dqn(seen, choices), memory=mt.Replay(300), update_per_step=0.1)
    scripted = mt.FunctionAgent(lambda observation: np.ones(len(observation), int) if observation.ndim > 1 else 1)
    line_up = [*learners[:2], mt.FrozenAgent(learners[2]), foreign, scripted]
    before = [agent.state().arrays for agent in learners]
    result = trainer(env, args, steps_per_train=240, update_freq=48).train(line_up, [1, 1, 0, 1, 0], plot=False)
    moved = [any((was[name] != array).any() for name, array in agent.state().arrays.items() if name.startswith("net/"))
             for was, agent in zip(before, learners, strict=True)]  # fmt: skip
    assert moved == [True, True, False, False, False]
    assert result["num_updates"] >= 5


def test_a_saved_agent_acts_alone_and_learns_on(tmp_path):
    agents = mt.make_agents("mappo", Crowd, **FEW)
    trainer(Crowd, {}, steps_per_train=40).train(agents, [1, 1, 1], plot=False)
    mt.save(tmp_path / "agents", agents)
    again = mt.load(tmp_path / "agents")
    seen = np.array([2, 1], np.float32)
    assert again[2].act(seen) == agents[2].act(seen)
    trainer(Crowd, {}, steps_per_train=40, run_dir="on").train(again, [1, 1, 1], plot=False)
