"""The real games: each through the adapters, against PettingZoo's own loops."""

import importlib.util

import numpy as np
import pytest

from marltrain.envs import DummyVectorEnv, check_env, list_environments, resolve
from marltrain.envs.check import random_actions
from marltrain.random import child_seed

NEEDS = {"chess_v6": "chess", "hanabi_v5": "pyspiel", "leduc": "rlcard", "texas": "rlcard"}


def installed(name: str) -> bool:
    return all(importlib.util.find_spec(package) for game, package in NEEDS.items() if game in name)


TURN_BASED = [
    name
    for name in list_environments()
    if name.startswith("pettingzoo/classic/") and "rps" not in name and installed(name)
]
PARTICLES = [name for name in list_environments() if name.startswith("mpe2/")]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # the games' own


def test_there_are_games():
    assert len(TURN_BASED) >= 4 and len(PARTICLES) >= 9


@pytest.mark.parametrize("name", TURN_BASED)
def test_turn_based_rewards_are_those_of_the_plain_loop(name):
    """Two random episodes; from one turn to the next, rewards add up to what last() reports."""
    vector = DummyVectorEnv(name, 1)
    spec = vector.spec
    env = resolve(name).make()
    for episode in range(2):
        seed = child_seed(0, "episode", "train", 0, episode)
        if episode == 0:
            step = vector.reset(0)
        env.reset(seed=seed)
        gathered = dict.fromkeys(spec.names, 0.0)
        rng = np.random.default_rng(episode)
        for agent in env.agent_iter():
            observation, reward, terminated, truncated, _ = env.last()
            p = spec.names.index(agent)
            assert gathered[agent] == pytest.approx(reward)
            gathered[agent] = 0.0
            if terminated or truncated:
                env.step(None)
                continue
            g, row = spec.place[p]
            seen, legal = step.obs[g], step.legal[g]
            assert step.turn[g][row, 0] and isinstance(seen, np.ndarray) and legal is not None
            if not step.ended[0]:
                assert np.array_equal(seen[row, 0], np.ravel(observation["observation"]).astype(np.float32))
            assert np.array_equal(legal[row, 0], observation["action_mask"].astype(bool))
            actions = random_actions(spec, step, rng)
            env.step(int(actions[g][row, 0]))
            step = vector.step(actions)
            for q, other in enumerate(spec.names):
                gathered[other] += float(step.reward[q, 0])
        assert step.ended[0] and step.episode[0] == episode + 1
        assert (step.terminated | step.truncated).all()


@pytest.mark.parametrize("name", PARTICLES)
def test_particle_games_give_the_numbers_of_the_plain_loop(name):
    vector = DummyVectorEnv(resolve(name, {"max_cycles": 5}), 1)
    spec, step = vector.spec, vector.reset(0)
    env = resolve(name, {"max_cycles": 5}).make()
    rng = np.random.default_rng(0)
    for episode in range(2):
        observations, _ = env.reset(seed=child_seed(0, "episode", "train", 0, episode))
        while env.agents:
            for agent, observation in observations.items():
                g, row = spec.place[spec.names.index(agent)]
                seen = step.obs[g]
                assert isinstance(seen, np.ndarray) and np.array_equal(seen[row, 0], observation)
            actions = random_actions(spec, step, rng)
            chosen = {}
            for p, agent in enumerate(spec.names):
                g, row = spec.place[p]
                chosen[agent] = int(actions[g][row, 0])
            observations, rewards, _, _, _ = env.step(chosen)
            step = vector.step(actions)
            assert step.reward[:, 0].tolist() == [np.float32(rewards[agent]) for agent in spec.names]
        assert step.ended[0] and step.truncated.all() and not step.terminated.any()


@pytest.mark.parametrize("name", [*PARTICLES, "pettingzoo/classic/tictactoe_v3", "pettingzoo/classic/rps_v2"])
def test_real_games_keep_the_contract(name):
    report = check_env(name, episodes=2)
    assert report.pure and report.deterministic


def test_knights_archers_zombies_is_rebuilt_for_every_episode():
    (name,) = [name for name in list_environments() if "knights_archers_zombies" in name]
    assert resolve(name).rebuild
    assert check_env(name, episodes=1).deterministic
