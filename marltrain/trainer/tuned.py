"""Tuned settings by algorithm and environment."""

from __future__ import annotations

import copy
from typing import Any

from marltrain.core.errors import ConfigError, did_you_mean, shown
from marltrain.policies.networks import MLP
from marltrain.policies.schedules import linear

_TABLE: dict[tuple[str, str], dict[str, dict[str, Any]]] = {
    ("dqn", "pettingzoo/classic/tictactoe_v3"): {
        "trainer": {
            "num_train_envs": 32, "num_test_envs": 32, "update_freq": 32, "test_freq": 5_000, "episodes_per_test": 200,
            "steps_per_train": 400_000,
        },
        "agents": {
            "share": True, "learning_rate": linear(1e-3, 1e-4, 400_000), "gamma": 1.0,
            "epsilon": linear(1.0, 0.2, 200_000), "capacity": 100_000, "learning_starts": 5_000,
            "update_per_step": 1 / 32, "batch_size": 256, "target_sync": 200,
            "network": MLP(hidden=(128, 128), activation="relu"),
        },
    },
    ("dqn", "gymnasium/CartPole-v1"): {
        "trainer": {
            "num_train_envs": 8, "num_test_envs": 16, "update_freq": 256, "test_freq": 50, "episodes_per_test": 100,
            "steps_per_train": 50_000,
        },
        "agents": {
            "learning_rate": linear(1e-3, 1e-5, 50_000), "gamma": 0.99, "epsilon": linear(1.0, 0.04, 8_000),
            "capacity": 100_000, "learning_starts": 1_000, "update_per_step": 0.5, "n_step": 3, "batch_size": 64,
            "target_sync": 128, "network": MLP(hidden=(128, 128), activation="relu"),
        },
    },
    ("c51", "gymnasium/CartPole-v1"): {
        "trainer": {
            "num_train_envs": 8, "num_test_envs": 16, "update_freq": 32, "test_freq": 50, "episodes_per_test": 100,
            "steps_per_train": 50_000,
        },
        "agents": {
            "learning_rate": linear(1e-3, 1e-5, 50_000), "gamma": 0.99, "epsilon": linear(1.0, 0.04, 8_000),
            "capacity": 50_000, "learning_starts": 1_000, "update_per_step": 0.5, "n_step": 3, "double": True,
            "batch_size": 64, "target_sync": 100, "v_min": 0.0, "v_max": 100.0,
            "network": MLP(hidden=(128, 128), activation="relu"),
        },
    },
    ("ppo", "gymnasium/CartPole-v1"): {
        "trainer": {
            "num_train_envs": 8, "num_test_envs": 16, "update_freq": 256, "test_freq": 100, "episodes_per_test": 100,
            "steps_per_train": 100_000,
        },
        "agents": {
            "learning_rate": linear(1e-3, 0.0, 100_000), "gamma": 0.98, "gae_lambda": 0.8,
            "clip": linear(0.2, 0.01, 100_000), "entropy_coef": 0.0, "epochs": 10, "minibatches": 4,
        },
    },
    ("trpo", "gymnasium/CartPole-v1"): {
        "trainer": {
            "num_train_envs": 8, "num_test_envs": 16, "update_freq": 1_024, "test_freq": 100, "episodes_per_test": 100,
            "steps_per_train": 100_000,
        },
        "agents": {"learning_rate": 1e-3, "max_kl": 0.01, "batch_size": 128, "epochs": 10},
    },
    ("acer", "gymnasium/CartPole-v1"): {
        "trainer": {
            "num_train_envs": 8, "num_test_envs": 16, "update_freq": 64, "test_freq": 100, "episodes_per_test": 100,
            "steps_per_train": 100_000,
        },
        "agents": {"learning_rate": 1e-3, "replay_ratio": 4, "batch_size": 160, "sequence_length": 20},
    },
    ("dqn", "gymnasium/Acrobot-v1"): {
        "trainer": {"num_train_envs": 4, "update_freq": 16, "test_freq": 100, "steps_per_train": 100_000},
        "agents": {
            "learning_rate": linear(6.3e-4, 1e-5, 100_000), "gamma": 0.99, "epsilon": linear(1.0, 0.1, 12_000),
            "capacity": 50_000, "learning_starts": 1_000, "update_per_step": 0.5, "batch_size": 128, "target_sync": 250,
            "network": MLP(hidden=(128, 128), activation="relu"),
        },
    },
    ("ppo", "gymnasium/Pendulum-v1"): {
        "trainer": {"num_train_envs": 4, "update_freq": 4_096, "test_freq": 100, "steps_per_train": 100_000},
        "agents": {
            "learning_rate": 1e-3, "gamma": 0.9, "gae_lambda": 0.95, "clip": 0.2, "entropy_coef": 0.0, "epochs": 10,
            "minibatches": 64,
        },
    },
    ("ppo", "gymnasium/Acrobot-v1"): {
        "trainer": {"num_train_envs": 16, "update_freq": 4_096, "test_freq": 500, "steps_per_train": 1_000_000},
        "agents": {
            "learning_rate": linear(1e-3, 0.0, 1_000_000), "gamma": 0.99, "gae_lambda": 0.94, "clip": 0.2,
            "entropy_coef": 0.0, "epochs": 4, "minibatches": 16,
        },
    },
    ("ppo", "mpe2/simple_spread_v3"): {
        "trainer": {
            "num_train_envs": 16, "num_test_envs": 16, "update_freq": 2_048, "test_freq": 2_000,
            "episodes_per_test": 100, "steps_per_train": 400_000,
        },
        "agents": {
            "learning_rate": linear(1e-3, 1e-4, 400_000), "gamma": 0.95, "entropy_coef": 0.01, "epochs": 4,
            "minibatches": 4,
        },
    },
    ("ppo", "marltrain/simple_spread_v3"): {
        "trainer": {
            "num_train_envs": 16, "num_test_envs": 100, "update_freq": 2_048, "test_freq": 4_000,
            "episodes_per_test": 100, "steps_per_train": 2_000_000,
        },
        "agents": {
            "learning_rate": linear(1e-3, 1e-4, 2_000_000), "gamma": 0.95, "entropy_coef": 0.01, "epochs": 4,
            "minibatches": 4,
        },
    },
    ("ppo", "gymnasium/LunarLander-v3"): {
        "trainer": {"num_train_envs": 16, "update_freq": 16_384, "test_freq": 500, "steps_per_train": 1_000_000},
        "agents": {
            "learning_rate": 3e-4, "gamma": 0.999, "gae_lambda": 0.98, "clip": 0.2, "entropy_coef": 0.01, "epochs": 4,
            "minibatches": 256,
        },
    },
    ("td3", "gymnasium/Pendulum-v1"): {
        "trainer": {"num_train_envs": 4, "update_freq": 4, "test_freq": 250, "steps_per_train": 20_000},
        "agents": {
            "network": MLP(hidden=(64, 64), activation="relu"), "learning_rate": 1e-3, "gamma": 0.98, "batch_size": 128,
            "learning_starts": 1_000, "random_steps": 1_000, "update_per_step": 1.0, "capacity": 20_000,
        },
    },
    ("trpo", "gymnasium/Pendulum-v1"): {
        "trainer": {"num_train_envs": 4, "update_freq": 2_048, "test_freq": 1_250, "steps_per_train": 100_000},
        "agents": {
            "learning_rate": 1e-3, "gamma": 0.9, "gae_lambda": 0.95, "batch_size": 256, "epochs": 10, "max_kl": 0.02,
        },
    },
    ("sac", "gymnasium/Pendulum-v1"): {
        "trainer": {"num_train_envs": 4, "update_freq": 4, "test_freq": 250, "steps_per_train": 20_000},
        "agents": {
            "network": MLP(hidden=(64, 64), activation="relu"), "learning_rate": 1e-3, "gamma": 0.98, "batch_size": 128,
            "learning_starts": 1_000, "random_steps": 1_000, "update_per_step": 1.0, "capacity": 20_000,
        },
    },
    ("ddpg", "gymnasium/Pendulum-v1"): {
        "trainer": {"num_train_envs": 4, "update_freq": 4, "test_freq": 250, "steps_per_train": 20_000},
        "agents": {
            "network": MLP(hidden=(64, 64), activation="relu"), "learning_rate": 1e-3, "gamma": 0.98, "batch_size": 128,
            "learning_starts": 1_000, "random_steps": 1_000, "update_per_step": 1.0, "capacity": 20_000,
        },
    },
    ("a2c", "gymnasium/CartPole-v1"): {
        "trainer": {"num_train_envs": 8, "update_freq": 64, "test_freq": 3_125, "steps_per_train": 500_000},
        "agents": {"learning_rate": linear(1e-3, 0.0, 500_000), "gamma": 0.99, "entropy_coef": 0.0, "value_coef": 1.0},
    },
    ("ppo", "gymnasium/MountainCar-v0"): {
        "trainer": {"num_train_envs": 16, "update_freq": 256, "test_freq": 3_125, "steps_per_train": 1_000_000},
        "agents": {
            "learning_rate": linear(1e-3, 0.0, 1_000_000), "gamma": 0.99, "gae_lambda": 0.98, "clip": 0.2,
            "entropy_coef": 0.0, "epochs": 10, "minibatches": 4, "normalize_observations": True,
            "normalize_returns": True,
        },
    },
    ("sac", "gymnasium/MountainCarContinuous-v0"): {
        "trainer": {"num_train_envs": 8, "update_freq": 32, "test_freq": 50, "steps_per_train": 50_000},
        "agents": {
            "network": MLP(hidden=(64, 64), activation="relu"), "learning_rate": 1e-3, "gamma": 0.99, "tau": 0.01,
            "batch_size": 256, "temperature": 0.1, "learning_starts": 5_000, "update_per_step": 0.5, "capacity": 50_000,
            "exploration": "ornstein_uhlenbeck", "noise_std": 1.0, "noise_dt": 0.1, "normalize_observations": True,
        },
    },
    ("ddpg", "gymnasium/MountainCarContinuous-v0"): {
        "trainer": {"num_train_envs": 8, "update_freq": 32, "test_freq": 1_875, "steps_per_train": 300_000},
        "agents": {
            "network": MLP(hidden=(64, 64), activation="relu"), "learning_rate": 1e-3, "gamma": 0.99, "batch_size": 128,
            "learning_starts": 10_000, "random_steps": 0, "update_per_step": 0.125, "capacity": 300_000,
            "exploration": "ornstein_uhlenbeck", "noise_std": 0.5, "noise_dt": 0.1, "normalize_observations": True,
        },
    },
    ("a2c", "gymnasium/Acrobot-v1"): {
        "trainer": {"num_train_envs": 16, "update_freq": 256, "test_freq": 1_562, "steps_per_train": 500_000},
        "agents": {
            "learning_rate": linear(2e-3, 0.0, 500_000), "optimizer": "adam", "gamma": 0.99, "gae_lambda": 0.95,
            "entropy_coef": linear(0.01, 0.0, 500_000), "value_coef": 1.0, "normalize_advantage": True,
            "normalize_observations": True, "normalize_returns": True,
        },
    },
    ("a2c", "gymnasium/Pendulum-v1"): {
        "trainer": {"num_train_envs": 16, "update_freq": 128, "test_freq": 3_125, "steps_per_train": 1_000_000},
        "agents": {
            "learning_rate": linear(2e-3, 0.0, 1_000_000), "optimizer": "rmsprop", "gamma": 0.9, "gae_lambda": 0.9,
            "entropy_coef": 0.0, "value_coef": 0.8, "normalize_observations": True, "normalize_returns": True,
            "log_std": -0.5,
        },
    },
    ("a2c", "gymnasium/LunarLander-v3"): {
        "trainer": {"num_train_envs": 8, "update_freq": 40, "test_freq": 5_000, "steps_per_train": 200_000},
        "agents": {
            "learning_rate": linear(8.3e-4, 0.0, 200_000), "gamma": 0.995, "gae_lambda": 1.0, "entropy_coef": 1e-5,
            "value_coef": 0.5,
        },
    },
    ("dqn", "gymnasium/LunarLander-v3"): {
        "trainer": {"num_train_envs": 4, "update_freq": 16, "test_freq": 1_250, "steps_per_train": 100_000},
        "agents": {
            "learning_rate": linear(6.3e-4, 6e-5, 100_000), "gamma": 0.99, "epsilon": linear(1.0, 0.1, 12_000),
            "capacity": 50_000, "learning_starts": 1_000, "update_per_step": 1.0, "batch_size": 128, "target_sync": 250,
            "network": MLP(hidden=(128, 128), activation="relu"),
        },
    },
    ("dqn", "gymnasium/MountainCar-v0"): {
        "trainer": {"num_train_envs": 4, "update_freq": 16, "test_freq": 1_500, "steps_per_train": 120_000},
        "agents": {
            "learning_rate": linear(1e-3, 5e-5, 120_000), "gamma": 0.99, "epsilon": linear(1.0, 0.05, 6_000),
            "capacity": 100_000, "learning_starts": 1_000, "update_per_step": 1.0, "n_step": 3, "batch_size": 128,
            "target_sync": 500, "double": True, "normalize_observations": True,
            "network": MLP(hidden=(128, 128), activation="relu"),
        },
    },
    ("rainbow", "gymnasium/MountainCar-v0"): {
        "trainer": {"num_train_envs": 4, "update_freq": 16, "test_freq": 1_500, "steps_per_train": 120_000},
        "agents": {
            "learning_rate": linear(1e-3, 5e-5, 120_000), "gamma": 0.99, "capacity": 100_000,
            "learning_starts": 1_000, "update_per_step": 1.0, "n_step": 3, "batch_size": 128, "target_sync": 500,
            "v_min": -100.0, "v_max": 0.0, "noisy": 0.1, "exploration": "epsilon_greedy",
            "epsilon": linear(1.0, 0.05, 24_000), "normalize_observations": True,
            "network": MLP(hidden=(128, 128), activation="relu"),
        },
    },
    ("rainbow", "gymnasium/LunarLander-v3"): {
        "trainer": {"num_train_envs": 4, "update_freq": 16, "test_freq": 1_250, "steps_per_train": 100_000},
        "agents": {
            "learning_rate": linear(6.3e-4, 3e-5, 100_000), "gamma": 0.99, "capacity": 100_000,
            "learning_starts": 1_000, "update_per_step": 1.0, "batch_size": 64, "target_sync": 250, "v_min": -200.0,
            "v_max": 150.0, "atoms": 36, "exploration": "epsilon_greedy", "epsilon": linear(1.0, 0.1, 12_000),
            "network": MLP(hidden=(128, 128), activation="relu"),
        },
    },
    ("sac", "gymnasium/LunarLanderContinuous-v3"): {
        "trainer": {"num_train_envs": 4, "update_freq": 4, "test_freq": 500, "steps_per_train": 500_000},
        "agents": {
            "network": MLP(hidden=(64, 64), activation="relu"), "learning_rate": linear(1e-3, 1e-4, 500_000),
            "gamma": 0.99, "tau": 0.01, "batch_size": 128, "learning_starts": 10_000, "random_steps": 10_000,
            "update_per_step": 0.5, "capacity": 500_000,
        },
    },
    ("td3", "gymnasium/LunarLanderContinuous-v3"): {
        "trainer": {"num_train_envs": 4, "update_freq": 4, "test_freq": 500, "steps_per_train": 300_000},
        "agents": {
            "network": MLP(hidden=(64, 64), activation="relu"), "learning_rate": linear(1e-3, 1e-4, 300_000),
            "gamma": 0.99, "tau": 0.01, "batch_size": 128, "learning_starts": 10_000, "random_steps": 10_000,
            "update_per_step": 1.0, "capacity": 300_000,
        },
    },
    ("sac", "gymnasium/HalfCheetah-v5"): {
        "trainer": {"num_train_envs": 4, "update_freq": 4, "test_freq": 12_500, "steps_per_train": 1_000_000},
        "agents": {
            "network": MLP(hidden=(256, 256), activation="relu"), "learning_rate": linear(1e-3, 1e-4, 1_000_000),
            "gamma": 0.99, "batch_size": 128, "learning_starts": 10_000, "random_steps": 10_000,
            "update_per_step": 0.5, "capacity": 1_000_000,
        },
    },
    ("td3", "gymnasium/HalfCheetah-v5"): {
        "trainer": {"num_train_envs": 4, "update_freq": 4, "test_freq": 12_500, "steps_per_train": 1_000_000},
        "agents": {
            "network": MLP(hidden=(256, 256), activation="relu"), "learning_rate": linear(1e-3, 1e-4, 1_000_000),
            "gamma": 0.99, "batch_size": 128, "learning_starts": 10_000, "random_steps": 10_000,
            "update_per_step": 1.0, "capacity": 1_000_000,
        },
    },
    ("td3", "gymnasium/Hopper-v5"): {
        "trainer": {"num_train_envs": 4, "update_freq": 4, "test_freq": 12_500, "steps_per_train": 1_000_000},
        "agents": {
            "network": MLP(hidden=(256, 256), activation="relu"), "learning_rate": linear(1e-3, 1e-4, 1_000_000),
            "gamma": 0.99, "batch_size": 256, "learning_starts": 10_000, "random_steps": 10_000,
            "update_per_step": 0.5, "capacity": 1_000_000,
        },
    },
    ("ppo", "gymnasium/HalfCheetah-v5"): {
        "trainer": {"num_train_envs": 1, "update_freq": 512, "test_freq": 100_000, "steps_per_train": 1_000_000},
        "agents": {
            "network": MLP(hidden=(256, 256), activation="relu"), "learning_rate": 2.0633e-5, "gamma": 0.98,
            "gae_lambda": 0.92, "clip": 0.1, "entropy_coef": 4.01762e-4, "value_coef": 0.58096, "epochs": 20,
            "minibatches": 8, "max_grad_norm": 0.8, "log_std": -2.0, "normalize_observations": True,
            "normalize_returns": True,
        },
    },
}  # fmt: skip
"""(algorithm, environment) -> keyword arguments of DecentralizedTrainer ("trainer") and of make_agents ("agents")."""


def tuned(algo: str, env: str) -> dict[str, dict[str, Any]]:
    """Return a copy of the tuned settings: {"trainer": {...}, "agents": {...}}.

    "trainer" holds keyword arguments of `DecentralizedTrainer`, "agents" those of `make_agents`.
    Raises ConfigError for a pair without tuned settings.
    """
    if not (isinstance(algo, str) and isinstance(env, str)) or (algo, env) not in _TABLE:
        known = [f"{a} on {e}" for a, e in _TABLE]
        asked = f"{algo} on {env}" if isinstance(env, str) else f"{shown(algo)} on {shown(env)}"
        raise ConfigError(f"no tuned settings for {asked}.{did_you_mean(asked, known)} There are: {'; '.join(known)}")
    return copy.deepcopy(_TABLE[algo, env])
