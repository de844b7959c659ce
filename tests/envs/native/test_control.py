"""Classic control against Gymnasium's."""

import math

import numpy as np
import pytest

from marltrain.envs.native.control.cartpole import SMALL, STEEPEST, cos_sin
from marltrain.jit.compiling import compiled
from tests.envs.native.originals import assert_same_starts, hold
from tests.tiers import rounds


@pytest.mark.parametrize("name", ["CartPole-v1", "Acrobot-v1", "Pendulum-v1", "MountainCar-v0"])
def test_starts(name):
    assert_same_starts(f"gymnasium/{name}", f"marltrain/{name}")


def named(*names):
    """Copy the original's state, one number a field."""
    return lambda env: dict(zip(names, env.state, strict=True))


@pytest.mark.parametrize(("arguments", "episodes"), [({}, rounds(40, 200)), ({"sutton_barto_reward": True}, 20)])
def test_cartpole(arguments, episodes):
    copy = named("x", "x_dot", "theta", "theta_dot")
    hold("gymnasium/CartPole-v1", "marltrain/CartPole-v1", copy, arguments, episodes=episodes)


@pytest.mark.parametrize(("arguments", "episodes"), [({"max_episode_steps": 50}, rounds(40, 200)), ({"g": 9.81}, 10)])
def test_pendulum(arguments, episodes):
    hold("gymnasium/Pendulum-v1", "marltrain/Pendulum-v1", named("theta", "theta_dot"), arguments, episodes=episodes)


@pytest.mark.parametrize(
    ("arguments", "episodes"), [({"max_episode_steps": 50}, rounds(40, 200)), ({"goal_velocity": 0.02}, 10)]
)
def test_mountain_car(arguments, episodes):
    copy = named("position", "velocity")
    hold("gymnasium/MountainCar-v0", "marltrain/MountainCar-v0", copy, arguments, episodes=episodes)


@pytest.mark.parametrize(("arguments", "episodes"), [({"max_episode_steps": 50}, rounds(40, 200)), ({}, 10)])
def test_acrobot(arguments, episodes):
    hold("gymnasium/Acrobot-v1", "marltrain/Acrobot-v1", lambda env: {"now": env.state}, arguments, episodes=episodes)


def swing(entry, others):
    """Push the way an entry of the observation goes, so that the goal is reached."""

    def choose(spec, step, rng):
        return (np.where(step.obs[0][..., entry] > 0, others[1], others[0]),)

    return choose


def test_mountain_car_at_its_goal():
    copy, by_velocity = named("position", "velocity"), swing(1, (0, 2))
    for arguments in ({}, {"goal_velocity": 0.03}):
        assert hold("gymnasium/MountainCar-v0", "marltrain/MountainCar-v0", copy, arguments,
                    episodes=20, choose=by_velocity) > 10  # fmt: skip


def test_acrobot_at_its_goal():
    assert hold("gymnasium/Acrobot-v1", "marltrain/Acrobot-v1", lambda env: {"now": env.state},
                episodes=10, choose=swing(5, (0, 2))) > 5  # fmt: skip


@compiled
def turned(angles, made):
    for i in range(len(angles)):
        made[i] = cos_sin(angles[i])


def test_cosine_and_sine_of_a_standing_and_of_a_fallen_pole():
    """To the last bit but one, on both sides of the angle up to which they are series."""
    angles = np.concatenate([np.linspace(-2 * SMALL, 2 * SMALL, 4001), [0.0, 1e-9, SMALL, np.nextafter(SMALL, 1), 1e5]])
    result = np.zeros((len(angles), 2))
    turned(angles, result)
    exact = np.array([(math.cos(angle), math.sin(angle)) for angle in angles])
    assert abs(result - exact)[:, 0].max() <= 2**-53
    assert (abs(result - exact)[:, 1] <= 2**-52 * abs(exact[:, 1])).all()
    assert SMALL > STEEPEST
