"""Bit-flipping with and without hindsight: the share of goals that DQN reaches (Andrychowicz et al. 2017, figure 1).

    python benchmarks/hindsight.py [--bits 15] [--steps 30000] [--seeds 5] [--only future]

The weights at the end play 200 episodes greedily. Prints a table for docs/memory.md, with the 95 % bootstrap interval
of the mean over seeds. One thread.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import gymnasium
import numpy as np
from gymnasium import spaces

import marltrain as mt
from marltrain.trainer.evaluating.evaluation import bootstrap

MEMORIES: dict[str, mt.Hindsight | None] = {
    "none": None,
    "future": mt.Hindsight("future", share=0.8),
    "final": mt.Hindsight("final", share=0.8),
}


class BitFlipping(gymnasium.Env[dict[str, Any], int]):
    """An action flips a bit of n; the reward is 0 in the goal's state, where the episode ends, and -1 elsewhere.

    An episode has at most n steps.
    """

    def __init__(self, bits: int = 15) -> None:
        """Make a game of n bits."""
        self.bits = bits
        names = "observation", "achieved_goal", "desired_goal"
        self.observation_space = spaces.Dict(dict.fromkeys(names, spaces.Box(0, 1, (bits,), np.float32)))
        self.action_space = spaces.Discrete(bits)  # type: ignore[assignment]

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Draw a state and a goal."""
        super().reset(seed=seed)
        self.state, self.goal = (self.np_random.integers(2, size=self.bits).astype(np.float32) for _ in range(2))
        self.steps = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Flip a bit."""
        self.state[action] = 1 - self.state[action]
        self.steps += 1
        reward = float(self.compute_reward(self.state, self.goal, {}))
        return self._seen(), reward, reward == 0, self.steps >= self.bits, {}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        """Return 0 where the goal is achieved, else -1."""
        return -np.any(achieved != desired, -1).astype(np.float32)

    def _seen(self) -> dict[str, Any]:
        return {"observation": self.state.copy(), "achieved_goal": self.state.copy(), "desired_goal": self.goal.copy()}


def solved(bits: int, steps: int, seed: int, hindsight: mt.Hindsight | None) -> float:
    """Return the share of 200 goals that an agent reaches after `steps` env steps of training."""
    agents = mt.make_agents(
        "dqn", BitFlipping, env_args={"bits": bits}, seed=seed, network=mt.MLP((256,)), learning_rate=1e-3, gamma=0.98,
        epsilon=mt.linear(1.0, 0.05, steps // 2), batch_size=128, learning_starts=2_000, tau=0.01,
        update_per_step=0.25, memory=mt.Replay(steps, hindsight=hindsight),
    )  # fmt: skip
    trainer = mt.DecentralizedTrainer(
        BitFlipping, env_args={"bits": bits}, num_train_envs=16, steps_per_train=steps, update_freq=16, test_freq=None,
        seed=seed, run_dir=False, progress=False,
    )  # fmt: skip
    trainer.train(agents, [1], plot=False)
    reached = trainer.test(agents, episodes=200).returns > -bits  # an episode without the goal has -1 in every step
    return float(reached.mean())


def main() -> None:
    """Print a line for each kind of hindsight."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bits", type=int, default=15)
    parser.add_argument("--steps", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", choices=MEMORIES)
    given = parser.parse_args()
    print("| hindsight | goals reached, seeds | mean | 95 % interval | seconds a seed |")
    print("|---|---|---|---|---|")
    for name, hindsight in MEMORIES.items():
        if given.only not in (None, name):
            continue
        start = time.process_time()
        shares = [solved(given.bits, given.steps, seed, hindsight) for seed in range(given.seeds)]
        seconds = (time.process_time() - start) / given.seeds
        low, high = bootstrap(np.array(shares))
        each = " ".join(f"{share:.2f}" for share in shares)
        print(f"| {name} | {each} | {np.mean(shares):.2f} | {low:.2f} to {high:.2f} | {seconds:.0f} |", flush=True)


if __name__ == "__main__":
    main()
