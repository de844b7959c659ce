"""Hindsight in runs: rewards by the environment, with workers, and what it is for."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit, TransformReward

import marltrain as mt
from tests.gymnasium_toys import BitFlipping
from tests.tiers import LONG
from tests.toys import Identity

HINDSIGHT = mt.Hindsight()


def trained(steps, bits=4, memory=None, seed=0, vector="dummy", **settings):
    own = {"network": mt.MLP((32,)), "learning_starts": 100, "batch_size": 32, **settings}
    agents = mt.make_agents("dqn", BitFlipping, env_args={"bits": bits}, seed=seed, memory=memory, **own)
    trainer = mt.DecentralizedTrainer(
        BitFlipping, env_args={"bits": bits}, num_train_envs=8, steps_per_train=steps, seed=seed, progress=False,
        run_dir=False, test_freq=10**6, update_freq=16, episodes_per_test=20, vector=vector,
    )  # fmt: skip
    trainer.train(agents, [1], plot=False)
    return agents, trainer


def weights(agents):
    return agents[0].state().arrays


def test_rewards_by_the_environment_with_and_without_workers():
    """The environment's compute_reward and the same function of the user's give the same run, composed with others."""

    def own(achieved, desired, info):
        return -np.any(achieved != desired, -1).astype(np.float32)

    def memory(reward_fn=None):
        return mt.Replay(500, 3, mt.Prioritized(), mt.Hindsight(reward_fn=reward_fn))

    found = [
        weights(trained(240, memory=memory(reward_fn), vector=vector)[0])
        for reward_fn, vector in ((None, "dummy"), (None, "subproc"), (own, "dummy"))
    ]
    assert all((found[0][name] == other[name]).all() for other in found[1:] for name in found[0])


def test_a_resumed_run_is_exact(tmp_path):
    """With priorities, 3-step returns and a window; the ring has been overwritten when the run stops."""

    def train(folder, steps, **resume):
        memory = mt.Replay(151, 3, mt.Prioritized(beta=mt.linear(0.4, 1.0, 500)), mt.Hindsight(), window=0.8)
        own: dict[str, Any] = {"network": mt.MLP((8,)), "learning_starts": 60, "batch_size": 16}
        agents = mt.make_agents("dqn", BitFlipping, seed=0, memory=memory, **own)
        trainer = mt.DecentralizedTrainer(
            BitFlipping, num_train_envs=4, steps_per_train=steps, seed=0, progress=False, run_dir=tmp_path / folder,
            test_freq=10**6, update_freq=8, episodes_per_test=2, callbacks=[mt.Checkpoint(every_steps=100)],
        )  # fmt: skip
        trainer.train(agents, [1], plot=False, **resume)
        return weights(agents)

    whole = train("whole", 600)
    train("parts", 300)
    resumed = train("parts", 600, resume=tmp_path / "parts")
    assert all((whole[name] == resumed[name]).all() for name in whole)


def test_without_goals_or_rewards_a_run_does_not_begin():
    class Silent(BitFlipping):
        compute_reward: Any = None

    replay = mt.Replay(hindsight=HINDSIGHT)
    with pytest.raises(mt.ConfigError, match="hindsight needs observations that are a Dict"):
        mt.make_agents("dqn", Identity, memory=replay)
    agents = mt.make_agents("dqn", BitFlipping, memory=replay, seed=0)
    silent = mt.DecentralizedTrainer(Silent, steps_per_train=100, progress=False, run_dir=False)
    with pytest.raises(mt.ConfigError, match="Silent has no compute_reward"):
        silent.train(agents, [1], plot=False)


class Line(gymnasium.Env):
    """Places 0, 1, 2, 3 are walked through. The reward is -|place - 50|, where 50 is the goal."""

    def __init__(self):
        place = spaces.Box(-99, 99, (1,), np.float32)
        self.observation_space = spaces.Dict(dict.fromkeys(("achieved_goal", "desired_goal", "observation"), place))
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.x = 0
        return self._seen(), {}

    def step(self, action):
        self.x += 1
        return self._seen(), -abs(self.x - 50.0), False, self.x == 3, {}

    def compute_reward(self, achieved, desired, info):
        return -np.abs(achieved - desired)[..., 0]

    def _seen(self):
        here, goal = np.array([self.x], np.float32), np.array([50], np.float32)
        return {"achieved_goal": here, "desired_goal": goal, "observation": here}


class TenTimes(gymnasium.Wrapper):
    def compute_reward(self, *arguments):
        return 10 * self.get_wrapper_attr("env").get_wrapper_attr("compute_reward")(*arguments)

    def step(self, action):
        seen, reward, *rest = self.env.step(action)
        return seen, 10 * float(reward), *rest


def rewards_of(env, share):
    """The rewards that a custom agent learns from: (place, goal) -> reward."""
    found: dict[tuple[float, float], float] = {}

    def loss(model, batch):
        rows = zip(batch.obs.tolist(), batch.reward.tolist(), strict=True)
        found.update({(place, goal): reward for (_, goal, place), reward in rows})
        return (model.weight * 0).sum() + (model.bias * 0).sum()

    memory, model = mt.Replay(500, hindsight=mt.Hindsight("final", share=share)), torch.nn.Linear(3, 2)
    agent = mt.CustomAgent(model, loss, torch.optim.SGD(model.parameters(), 0.1), memory=memory, batch_size=16)
    trainer = mt.DecentralizedTrainer(
        env, num_train_envs=1, update_freq=9, steps_per_train=45, test_freq=None, seed=0, progress=False, run_dir=False
    )
    trainer.train([agent], [1])
    return found


@pytest.mark.parametrize("env", [lambda: TenTimes(Line()), lambda: TimeLimit(TenTimes(TimeLimit(Line(), 9)), 9)])
def test_rewards_of_other_goals_are_those_of_a_wrapper_by_hand(env):
    assert rewards_of(env, 0.0) == {(0, 50): -490, (1, 50): -480, (2, 50): -470}
    assert rewards_of(env, 1.0) == {(0, 3): -20, (1, 3): -10, (2, 3): 0}


def test_a_wrapper_that_changes_only_the_rewards_of_steps_is_told():
    said = (
        r"a step gave the reward -(490|480|470), but compute_reward gives -(49|48|47) for its goals achieved "
        r"\[[123].\] and desired \[50.\].* must change compute_reward, too"
    )
    with pytest.warns(UserWarning, match=said) as data:
        rewards_of(lambda: TransformReward(Line(), lambda reward: 10 * float(reward)), 1.0)
    assert len([one for one in data if "compute_reward" in str(one.message)]) == 1


def test_a_loaded_agent_acts_and_does_not_learn_without_the_function(tmp_path):
    memory = mt.Replay(hindsight=mt.Hindsight(reward_fn=lambda achieved, desired, info: achieved[:, 0]))
    agents = mt.make_agents("dqn", BitFlipping, memory=memory, seed=0)
    mt.save(tmp_path / "saved", agents)
    loaded = mt.load(tmp_path / "saved")
    env = BitFlipping()
    assert loaded[0].act(env.reset(seed=0)[0]) == agents[0].act(env.reset(seed=0)[0])
    trainer = mt.DecentralizedTrainer(BitFlipping, steps_per_train=2_000, progress=False, run_dir=False)
    with pytest.raises(mt.AgentError, match="the function '<lambda>', which is not saved with it"):
        trainer.train(loaded, [1], plot=False)


if LONG:  # trains for half a minute

    @pytest.mark.parametrize("seed", range(2))
    def test_eight_bits_are_solved_with_hindsight_only(seed):
        settings = {
            "network": mt.MLP((256,)), "learning_rate": 1e-3, "gamma": 0.98, "epsilon": mt.linear(1.0, 0.05, 6_000),
            "batch_size": 128, "learning_starts": 1_000, "tau": 0.01,
        }  # fmt: skip
        for memory, least, most in ((mt.Replay(100_000, hindsight=HINDSIGHT), 0.9, 1.0), (None, 0.0, 0.3)):
            agents, trainer = trained(12_000, 8, memory, seed, **settings)
            solved = (trainer.test(agents, episodes=200).returns > -8).mean()
            assert least <= solved <= most
