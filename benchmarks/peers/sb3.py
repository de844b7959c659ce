"""Stable-Baselines3 with SuperSuit, with which all players share one set of weights (W1, W4, W2), and alone (W3).

    .venv-peers/sb3/bin/python -m benchmarks.peers.sb3 W1 [--seconds 30] [--seed 0]

A gradient step uses the rows of all players: one minibatch of 1,536 rows replaces three of 512. Its DQN is not double,
which is less work than W2 requires.
"""

from __future__ import annotations

import supersuit
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import set_random_seed
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from benchmarks.peers import common
from benchmarks.peers.common import CARTPOLE, WATCH, Task
from benchmarks.peers.games import cartpole, spread

FOREVER = 10**9


class Laps(BaseCallback):
    """Records the end of every update, at the start of the next rollout."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task, self.over = task, False

    def _on_rollout_start(self) -> None:
        if self.model._n_updates:
            self.over = WATCH.lap(self.task.seconds)

    def _on_step(self) -> bool:
        return not (WATCH.spent() if self.task.work == "W3" else self.over)


def players_as_envs(task: Task) -> VecEnv:
    """Return the vector environment with a row for each player of each environment, in this process."""
    rows = supersuit.pettingzoo_env_to_vec_env_v1(spread(task.players))
    return supersuit.concat_vec_envs_v1(rows, task.envs, num_cpus=0, base_class="stable_baselines3")


def ppo(task: Task) -> BaseAlgorithm:
    """Return PPO for W1 and W4."""
    return PPO(
        "MlpPolicy", players_as_envs(task), n_steps=common.STEPS, n_epochs=common.EPOCHS,
        batch_size=task.players * task.envs * common.STEPS // common.MINIBATCHES, learning_rate=common.PPO_RATE,
        gamma=common.GAMMA, gae_lambda=common.LAMBDA, clip_range=common.CLIP, ent_coef=common.ENTROPY,
        vf_coef=common.VALUE, max_grad_norm=common.MAX_NORM, device="cpu",
        policy_kwargs={"net_arch": {"pi": [common.WIDTH] * 2, "vf": [common.WIDTH] * 2}},
    )  # fmt: skip


def dqn(task: Task) -> BaseAlgorithm:
    """Return DQN for W2, as close as possible: its steps count all players together."""
    rows = task.players
    return DQN(
        "MlpPolicy", players_as_envs(task), learning_rate=common.DQN_RATE, gamma=common.GAMMA,
        buffer_size=common.REPLAY * rows, batch_size=common.ROWS * rows, train_freq=common.EVERY, gradient_steps=1,
        learning_starts=common.LEARNING_STARTS * rows, target_update_interval=common.TARGET_EVERY * rows,
        exploration_fraction=common.EPSILON_STEPS * rows / FOREVER, exploration_final_eps=common.EPSILON,
        policy_kwargs={"net_arch": [common.WIDTH] * 2}, device="cpu",
    )  # fmt: skip


def cartpole_ppo(task: Task) -> BaseAlgorithm:
    """Return PPO on cart-pole with RL Zoo's settings."""

    def left(remaining: float) -> float:
        return max(0.0, 1.0 - (1.0 - remaining) * common.CARTPOLE_STEPS / CARTPOLE["decay_steps"])

    return PPO(
        "MlpPolicy", DummyVecEnv([cartpole] * task.envs), n_steps=int(CARTPOLE["steps"]),
        batch_size=int(CARTPOLE["rows"]), n_epochs=int(CARTPOLE["epochs"]), gamma=CARTPOLE["gamma"],
        gae_lambda=CARTPOLE["gae_lambda"], ent_coef=CARTPOLE["entropy"],
        learning_rate=lambda remaining: CARTPOLE["learning_rate"] * left(remaining),
        clip_range=lambda remaining: CARTPOLE["clip"] * left(remaining), device="cpu",
    )  # fmt: skip


def main() -> None:
    """Build the model, and train until the time is over."""
    task = common.task_of(__doc__, "W1", "W4", "W2", "W3")
    set_random_seed(task.seed)  # not by seed=, which SuperSuit's environments do not accept
    model = {"W1": ppo, "W4": ppo, "W2": dqn, "W3": cartpole_ppo}[task.work](task)
    if task.work == "W3":
        WATCH.start()
    model.learn(common.CARTPOLE_STEPS if task.work == "W3" else FOREVER, callback=Laps(task))
    more = {"networks": "shared" if task.players > 1 else "separate"} | ({"double": False} if task.work == "W2" else {})
    common.report("sb3", task, ("stable-baselines3", "supersuit", "torch", "mpe2"), **more)


if __name__ == "__main__":
    main()
