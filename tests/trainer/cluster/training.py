"""Runs with and without runners, and their comparison."""

from typing import Any

import numpy as np

import marltrain as mt
from tests.toys import Relay

COMMON: dict[str, Any] = {
    "seed": 3, "num_train_envs": 5, "num_test_envs": 2, "episodes_per_test": 4, "test_freq": 9, "progress": False,
}  # fmt: skip
CASES: dict[str, tuple[Any, str, dict[str, Any], dict[str, Any]]] = {
    "ppo": ("marltrain/simple_spread_v3", "ppo", {}, {"update_freq": 150, "steps_per_train": 450}),
    "dqn": (
        "gymnasium/CartPole-v1", "dqn",
        {"learning_starts": 60, "batch_size": 16, "memory": mt.Replay(prioritized=mt.Prioritized())},
        {"update_freq": 35, "steps_per_train": 400},
    ),
    "error": (
        "gymnasium/CartPole-v1", "dqn",
        {
            "learning_starts": 60, "batch_size": 16, "network": mt.MLP(()),
            "memory": mt.Replay(n_step=3, prioritized=mt.Prioritized(initial="error")),
        },
        {"update_freq": 35, "steps_per_train": 385},
    ),
    "vdn": (
        "marltrain/simple_spread_v3", "vdn", {"learning_starts": 60, "batch_size": 16},
        {"update_freq": 40, "steps_per_train": 400, "team_reward": "mean"},
    ),
    "gru": (Relay, "ppo", {"network": mt.GRU((8,))}, {"update_freq": 150, "steps_per_train": 600}),
}  # fmt: skip
"""(environment, algorithm, settings of the agents, settings of the trainer): on- and off-policy, native and Python."""


def agents_of(case: str) -> list[Any]:
    env, algo, settings, _ = CASES[case]
    return mt.make_agents(algo, env, seed=0, **settings)


def trainer_of(case: str, **settings: Any) -> mt.DecentralizedTrainer:
    return mt.DecentralizedTrainer(CASES[case][0], **{"run_dir": False, **COMMON, **CASES[case][3], **settings})


def trained(case: str, **settings: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return the result of a run, and the states of its agents."""
    agents = agents_of(case)
    result = trainer_of(case, **settings).train(agents, [1] * len(agents), plot=False)
    return result, [agent.state() for agent in agents]


def assert_equal(expected: Any, found: Any, *, tolerance: float) -> None:
    """Runs are equal: counts, tests, episodes, generators, and weights up to `tolerance` (0: bit for bit)."""
    (one, states), (other, others) = expected, found
    counts = ("num_collected_steps", "num_collected_episodes", "num_updates", "num_gradient_steps", "stop_reason")
    assert [one[name] for name in counts] == [other[name] for name in counts]
    assert np.allclose(one["reward_metric_stats"], other["reward_metric_stats"], rtol=0, atol=tolerance)
    columns = [name for name in one["episodes"].columns if name != "seconds"]
    assert len(one["episodes"]) == len(other["episodes"])
    for name in columns:  # whole numbers exactly
        exact = tolerance == 0 or one["episodes"][name].dtype.kind != "f"
        a, b = one["episodes"][name], other["episodes"][name]
        assert a.equals(b) if exact else np.allclose(a, b, rtol=0, atol=tolerance), name
    for state, again in zip(states, others, strict=True):
        assert state.info["info"] == again.info["info"] if "info" in state.info else state.info == again.info
        for name, array in state.arrays.items():
            assert np.allclose(array, again.arrays[name], rtol=0, atol=tolerance), name
