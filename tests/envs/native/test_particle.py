"""Particle worlds against MPE2's."""

import numpy as np
import pytest

from marltrain.core.errors import ConfigError
from marltrain.core.spec import empty_actions
from marltrain.envs import make_vector
from tests.envs.native.forging import CASES
from tests.envs.native.originals import assert_same_starts, hold
from tests.tiers import LONG, rounds


def world(env):
    agents, entities = env.world.agents, env.world.entities
    return {"pos": np.stack([e.state.p_pos for e in entities]), "vel": np.stack([a.state.p_vel for a in agents])}


# Every number of players or things, and continuous actions, is a program that is compiled for some 4 s. The short tier
# holds each game in its own sizes, one in another (`neighbors`) and one with continuous actions that move and speak.

TWO = {"N": 2, "num_agent_neighbors": 3, "num_landmark_neighbors": 4}
FIVE = {"N": 5, "local_ratio": 1.0, "num_agent_neighbors": 2, "num_landmark_neighbors": 3}


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"curriculum": True},
        {"N": 1, "max_cycles": 9, "local_ratio": 0.0},
        *([{"continuous_actions": True}, {**TWO, "curriculum": True}, FIVE] if LONG else []),
    ],
)
def test_simple_spread(arguments):
    episodes = rounds(5, 20) if "N" in arguments else rounds(30, 200)
    hold("mpe2/simple_spread_v3", "marltrain/simple_spread_v3", world, arguments, episodes=episodes)


def towards(entry):
    """Left, right, down or up, towards what the observation tells from an entry on."""

    def choose(spec, step, rng):
        x, y = step.obs[0][..., entry], step.obs[0][..., entry + 1]
        return (np.where(abs(x) > abs(y), np.where(x > 0, 2, 1), np.where(y > 0, 4, 3)),)

    return choose


def test_simple_spread_ends_with_success():
    arguments = {"N": 1, "max_cycles": 40, "terminate_on_success": True}
    ends = hold("mpe2/simple_spread_v3", "marltrain/simple_spread_v3", world, arguments,
                episodes=30, choose=towards(4))  # fmt: skip
    assert ends > 10


@pytest.mark.parametrize(
    ("sizes", "first_other", "stage", "worst"),
    [({}, 10, 0, 0.0), ({}, 10, 1, -2.0), *([(TWO, 12, 0, 0.0), (TWO, 12, 1, -1.0)] if LONG else [])],
)
def test_bumping_costs_nothing_in_the_first_stage_of_a_curriculum(sizes, first_other, stage, worst):
    """Rewards are bumps alone, and all run into each other.

    The second stage is held against the game without a curriculum: mpe2 1.1 never leaves the first one.
    """
    data = []

    def choose(spec, step, rng):
        data.append(step.reward.min())
        return towards(first_other)(spec, step, rng)

    both = {**sizes, "local_ratio": 1.0}
    hold("mpe2/simple_spread_v3", "marltrain/simple_spread_v3", lambda env: {**world(env), "stage": stage},
         {**both, "curriculum": stage == 0}, {**both, "curriculum": True}, episodes=20, choose=choose)  # fmt: skip
    assert min(data) == worst


def with_goal(env):
    return {**world(env), "goal": env.world.entities.index(env.world.agents[0].goal_a)}


def with_landmarks_to_name(env):
    return {**world(env), "goal": [env.world.landmarks.index(agent.goal_b) for agent in env.world.agents]}


def with_landmark_to_name(env):
    return {**world(env), "goal": env.world.landmarks.index(env.world.agents[0].goal_b)}


def secret_and_key(env):
    eve, _, alice = env.world.agents
    return {"secret": env.world.landmarks.index(eve.goal_a), "key": alice.key.argmax()}


COPIES = {
    "simple_v3": world,
    "simple_adversary_v3": with_goal,
    "simple_crypto_v3": secret_and_key,
    "simple_push_v3": with_goal,
    "simple_reference_v3": with_landmarks_to_name,
    "simple_speaker_listener_v4": with_landmark_to_name,
    "simple_tag_v3": world,
    "simple_world_comm_v3": world,
}


def same(game, arguments=None, **more):
    return hold(f"mpe2/{game}", f"marltrain/{game}", COPIES[game], arguments, **more)


def short_and_long_episodes(game, continuous):
    same(game, {"max_cycles": 5, "continuous_actions": continuous}, episodes=rounds(20, 100))
    same(game, {"continuous_actions": continuous}, episodes=rounds(2, 5))


@pytest.mark.parametrize("game", COPIES)
def test_discrete_actions(game):
    short_and_long_episodes(game, continuous=False)


@pytest.mark.parametrize("game", list(COPIES) if LONG else ["simple_reference_v3"])
def test_continuous_actions(game):
    short_and_long_episodes(game, continuous=True)


SIZES = [("simple_reference_v3", {"local_ratio": 0.1}), ("simple_tag_v3", CASES["neighbors"][1])]
MORE_SIZES = [
    ("simple_adversary_v3", {"N": 4, "num_agent_neighbors": 2, "num_landmark_neighbors": 6}),
    ("simple_world_comm_v3", {"num_good": 3, "num_adversaries": 0, "num_obstacles": 0, "num_forests": 0}),
    ("simple_tag_v3", {"num_good": 2, "num_obstacles": 0, "num_agent_neighbors": 5}),
    ("simple_world_comm_v3", {"num_good": 1, "num_adversaries": 1, "num_food": 1, "num_forests": 3}),
]


@pytest.mark.parametrize(("game", "arguments"), [*SIZES, *MORE_SIZES] if LONG else SIZES)
def test_other_sizes(game, arguments):
    same(game, {**arguments, "max_cycles": 10}, episodes=rounds(5, 20))


def one_way(spec, step, rng):
    """All go left, right, down or up for a whole episode: as fast as they may, and far out."""
    return tuple(np.full_like(action, 1 + int(step.episode[0]) % 4) for action in empty_actions(spec, 1))


@pytest.mark.parametrize("game", ["simple_tag_v3", "simple_world_comm_v3"])
def test_speed_limits_and_far_out(game):
    """A good agent that leaves pays up to 10 (in the world: twice that) for each axis."""
    least = []

    def choose(spec, step, rng):
        least.append(step.reward.min())
        return one_way(spec, step, rng)

    same(game, episodes=8, choose=choose)
    assert min(least) <= -10.0


def test_simple_tag_in_the_stages_of_a_curriculum():
    """A stage counts from the next start on: the copy sets it for the episode after the one that it copies."""

    def copy(env):
        env.set_curriculum_stage((env.curriculum_stage + 1) % 3)
        return {**world(env), "stage": env.curriculum_stage}

    hold("mpe2/simple_tag_v3", "marltrain/simple_tag_v3", copy, {"curriculum": True}, episodes=12, choose=one_way)


def test_simple_tag_ends_when_all_are_caught():
    assert same("simple_tag_v3", {"terminate_on_success": True}, episodes=40) > 10


def beyond_the_bounds(spec, step, rng):
    """Such actions are clipped."""
    return tuple(rng.uniform(-1, 2, action.shape).astype(np.float32) for action in empty_actions(spec, 1))


def now_and_then_nothing(spec, step, rng):
    """Somebody who says nothing in crypto has guessed nothing."""
    return tuple((rng.random(action.shape) < 0.3).astype(np.float32) for action in empty_actions(spec, 1))


@pytest.mark.parametrize(
    ("game", "choose"),
    [
        ("simple_reference_v3", beyond_the_bounds),
        ("simple_reference_v3", now_and_then_nothing),
        *([("simple_crypto_v3", now_and_then_nothing)] if LONG else []),
    ],
)
def test_continuous_actions_that_are_rarely_drawn(game, choose):
    same(game, {"continuous_actions": True}, episodes=8, choose=choose)


@pytest.mark.parametrize("game", ["simple_spread_v3", *COPIES])
def test_starts(game):
    assert_same_starts(f"mpe2/{game}", f"marltrain/{game}", count=rounds(400, 2000))


@pytest.mark.parametrize(
    ("game", "arguments"),
    [
        ("simple_tag_v3", {"num_good": 0, "num_adversaries": 0}),
        ("simple_world_comm_v3", {"num_food": 0}),
        ("simple_adversary_v3", {"num_agent_neighbors": 0}),
        ("simple_reference_v3", {"local_ratio": 1.5}),
    ],
)
def test_what_an_original_cannot_play_is_refused(game, arguments):
    with pytest.raises(ConfigError, match=f"{next(iter(arguments))} must be"):
        make_vector(f"marltrain/{game}", arguments, 1)
