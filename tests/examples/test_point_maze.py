"""The maze: its walls, goals and distances; and what TRL learns in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from examples import point_maze
from examples.point_maze import MAZES, PointMaze
from tests.tiers import LONG


@pytest.fixture
def still(monkeypatch):
    """Moves without noise."""
    monkeypatch.setattr(point_maze, "NOISE", 0.0)


def walked(start, actions, goal=(4.5, 5.5)):
    env = PointMaze()
    env.reset(seed=0, options={"start": start, "goal": goal})
    for action in actions:
        env.step(action)
    return env.place.round(4).tolist()


def test_walls_stop_the_part_of_a_move_that_meets_them(still):
    """Action 0 is down a row, 2 along it; the small maze has walls in row 1 from column 1 on."""
    assert walked((0.5, 0.5), [0, 0, 0]) == [3.5, 0.5]
    assert walked((0.5, 0.5), [4]) == walked((0.5, 0.5), [6]) == [0.5, 0.5]  # out of the maze
    assert walked((0.5, 2.5), [1]) == [0.5, 3.2071]  # down and to the right: to the right only
    assert walked((1.5, 5.5), [3, 2]) == [0.7929, 5.5]


def test_an_episode_ends_at_its_goal_or_by_its_limit(still):
    env = PointMaze(limit=2)
    for actions, ends in (([0, 0], [(-1.0, False, False), (0.0, True, True)]), ([4, 4], [(-1, 0, 0), (-1, 0, 1)])):
        seen, _ = env.reset(options={"start": (0.5, 0.5), "goal": (2.4, 0.2)})
        np.testing.assert_allclose(seen["desired_goal"], [(2.4 - 2.5) / 3, (0.2 - 3) / 3], atol=1e-6)
        for action, expected in zip(actions, ends, strict=True):
            seen, *outcome, _ = env.step(action)
            assert tuple(outcome) == expected
        assert (seen["achieved_goal"] == seen["observation"]).all()


def test_rewards_of_arrays():
    env, unit = PointMaze(), 3
    achieved = np.array([[0.0, 0.0], [0.0, 0.51 / unit], [0.3 / unit, 0.3 / unit]], np.float32)
    assert env.compute_reward(achieved, np.zeros((3, 2), np.float32), {}).tolist() == [0, -1, 0]


def test_distances_by_hand():
    expected = [[0, 1, 2, 3, 4, 5], [1, -1, -1, -1, -1, 6], [2, -1, 8, 9, 8, 7], [3, -1, 7, -1, -1, 8],
                [4, 5, 6, -1, 10, 9]]  # fmt: skip
    assert PointMaze().distances((0.2, 0.9)).tolist() == expected


@pytest.mark.parametrize("maze", MAZES)
def test_it_is_a_valid_environment_whose_places_are_connected(maze):
    mt.check_env(PointMaze, env_args={"maze": maze})
    env = PointMaze(maze)
    assert (env.distances(env.cells[0]) >= 0).sum() == len(env.cells)


def trained(steps, folder: Any = False, resume: Any = None, **settings: Any) -> Any:
    own: dict[str, Any] = {"network": mt.MLP((8,)), "learning_starts": 60, "batch_size": 16, **settings}
    agents = mt.make_agents("trl", PointMaze, seed=0, **own)
    trainer = mt.DecentralizedTrainer(
        PointMaze, num_train_envs=4, steps_per_train=steps, seed=0, progress=False, run_dir=folder, test_freq=10**6,
        update_freq=8, episodes_per_test=2, callbacks=[mt.Checkpoint(every_steps=100)] if folder else (),
    )  # fmt: skip
    trainer.train(agents, [1], plot=False, **({} if resume is None else {"resume": resume}))
    return agents, trainer


def weights(agents):
    return agents[0].state().arrays


@pytest.mark.parametrize("extraction", ["policy", *LONG * ["greedy"]])
def test_a_resumed_run_is_exact(extraction, tmp_path):
    """With priorities and a window; the ring has been overwritten when the run stops."""
    memory = mt.Replay(151, triplets=mt.Triplets(), prioritized=mt.Prioritized(), window=0.8)
    own = {"memory": memory, "extraction": extraction}
    whole, _ = trained(400, tmp_path / "whole", **own)
    trained(200, tmp_path / "parts", **own)
    resumed, _ = trained(400, tmp_path / "parts", tmp_path / "parts", **own)
    assert all((weights(whole)[name] == array).all() for name, array in weights(resumed).items())


if LONG:  # trains for half a minute

    def test_it_reaches_goals_in_the_small_maze():
        agents, trainer = trained(
            12_000, network=mt.MLP((64, 64)), batch_size=128, learning_rate=1e-3, gamma=0.98, tau=0.01,
            learning_starts=1_000, epsilon=mt.linear(1.0, 0.1, 6_000),
        )  # fmt: skip
        reached = trainer.test(agents, episodes=100).returns > -PointMaze().limit
        assert reached.mean() >= 0.7
