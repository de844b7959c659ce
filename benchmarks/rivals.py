"""Agents that train against each other in games whose perfect play is known, with seeds and intervals.

    python benchmarks/rivals.py [kuhn-mmd] [kuhn-nfsp] [leduc-mmd] [tictactoe-mmd] [connect-four-mmd] [--seeds 5]

Poker: the exploitability of the last agents, in chips, by `mt.exploitability`. Tic-tac-toe: lost games among all games
that opponents can play, from both seats, by `mt.tictactoe_games`. Connect four: the share of moves that give away the
result of 100 positions with 8 to 12 stones, by `mt.connect_four_blunders`, of a network that reads the board and its
mirror image. Further lines have this share for the network without the image, for minimax and for positions with more
stones, and the games lost to random play. The output has a line for each seed, then the interquartile mean and its
95 % bootstrap interval. Seconds are those of one core; no task uses more than one thread.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

import marltrain as mt
from benchmarks.strength import BOARD, FOUR, STONES, Mirrored, given_away, lost_of_all, lost_to_random
from marltrain.tools.statistics import estimate

KUHN, LEDUC = "marltrain/kuhn_poker_v1", "marltrain/leduc_poker_v1"


def mmd(
    env: str, steps: int, seed: int, *, update_freq: int, envs: int, share: bool = False, env_args: Any = None,
    **settings: Any,
) -> Any:  # fmt: skip
    """Return agents that trained against each other by MMD."""
    common: dict[str, Any] = {"gamma": 1.0, "max_grad_norm": None, "minibatches": 4, "jit_compile": True}
    agents = mt.make_agents("mmd", env, env_args=env_args, seed=seed, share=share, **{**common, **settings})
    trainer = mt.DecentralizedTrainer(
        env, env_args, num_train_envs=envs, update_freq=update_freq, steps_per_train=steps, test_freq=None, seed=seed,
        run_dir=False, progress=False,
    )  # fmt: skip
    trainer.train(agents, [1, 1], plot=False)
    return agents


def kuhn_mmd(seed: int) -> float:
    """Kuhn poker by MMD, 72M env steps: the exploitability; wanted: at most 0.01."""
    steps = 72_000_000
    agents = mmd(
        KUHN, steps, seed, update_freq=65_536, envs=4096, gae_lambda=1.0, epochs=1, minibatches=16,
        network=mt.MLP((32,)), learning_rate=mt.exponential(5e-3, 3e-5, steps),
        temperature=mt.exponential(0.3, 0.012, steps), step_size=mt.exponential(1.0, 0.015, steps),
    )  # fmt: skip
    return mt.exploitability(agents, KUHN)


def kuhn_nfsp(seed: int) -> float:
    """Kuhn poker by NFSP, 400,000 env steps; its average policies."""
    steps = 400_000
    agents = mt.make_agents(
        "nfsp", KUHN, seed=seed, gamma=1.0, eta=0.1, epsilon=mt.linear(0.06, 0.01, steps), capacity=8_000,
        update_per_step=1 / 16, target_sync=100, learning_rate=mt.exponential(3e-3, 1e-4, steps), batch_size=128,
        network=mt.MLP((64,)), jit_compile=True,
    )  # fmt: skip
    trainer = mt.DecentralizedTrainer(
        KUHN, num_train_envs=64, update_freq=64, steps_per_train=steps, test_freq=None, seed=seed, run_dir=False,
        progress=False,
    )  # fmt: skip
    trainer.train(agents, [1, 1], plot=False)
    return mt.exploitability(agents, KUHN)


def leduc_mmd(seed: int) -> float:
    """Leduc poker by MMD, cards of equal rank identical, 197M env steps: the exploitability; wanted: at most 0.1."""
    steps, env_args = 800 * 245_760, {"suit_isomorphism": True}
    agents = mmd(
        LEDUC, steps, seed, env_args=env_args, update_freq=245_760, envs=2048, gae_lambda=1.0, epochs=1, minibatches=20,
        critic_input="joint", network=mt.MLP((128,), "relu"), critic_network=mt.MLP((64,), "relu"),
        learning_rate=mt.exponential(1e-2, 1e-4, steps), temperature=mt.exponential(1.0, 0.1, steps),
        step_size=mt.exponential(0.1, 0.01, steps),
    )  # fmt: skip
    return mt.exploitability(agents, LEDUC, env_args)


def tictactoe_mmd(seed: int) -> float:
    """Tic-tac-toe by MMD, one agent in both seats, 1M moves: lost games of all, from both seats; wanted: none."""
    steps = 1_000_000
    agents = mmd(
        BOARD, steps, seed, update_freq=8_192, envs=512, share=True, epochs=2, network=mt.MLP((128, 128), "relu"),
        learning_rate=mt.exponential(3e-3, 3e-4, steps), temperature=mt.exponential(0.5, 0.1, steps),
        step_size=mt.exponential(2.0, 0.3, steps),
    )  # fmt: skip
    return lost_of_all(agents[0])


def connect_four_mmd(seed: int) -> float:
    """Connect four by MMD, one agent in both seats, 24M moves; wanted: less than minimax of depth 5, no game lost."""
    steps = 24_000_000
    agent = mmd(
        FOUR, steps, seed, update_freq=8_192, envs=512, share=True, env_args={"random_moves": 16}, gamma=0.98,
        gae_lambda=0.9, epochs=1, minibatches=16, network=mt.MLP((512, 128), "relu"), shared_trunk=True,
        learning_rate=mt.exponential(2e-3, 1e-4, steps), temperature=mt.exponential(0.3, 0.04, steps),
        step_size=mt.exponential(2.0, 0.5, steps),
    )[0]  # fmt: skip
    players = {
        "agent": agent, "agent, mirrored": Mirrored(agent), "minimax of depth 5": mt.ConnectFourMinimax(5),
        "random play": mt.RandomAgent(),
    }  # fmt: skip
    for name, player in players.items():
        shares = ", ".join(f"{stage} {given_away(player, stage):.3f}" for stage in STONES)
        print(f"    {name} gives away: {shares}", flush=True)
    for name in ("agent", "agent, mirrored"):
        first, second = lost_to_random(FOUR, players[name], 10_000)
        print(f"    {name} loses to random play: {first} of 10,000 games as first, {second} as second", flush=True)
    return given_away(players["agent, mirrored"], "beginning")


TASKS: dict[str, Callable[[int], float]] = {
    "kuhn-mmd": kuhn_mmd, "kuhn-nfsp": kuhn_nfsp, "leduc-mmd": leduc_mmd, "tictactoe-mmd": tictactoe_mmd,
    "connect-four-mmd": connect_four_mmd,
}  # fmt: skip


def main() -> None:
    """Train and measure; print a line for each seed, and the interquartile mean of each task."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tasks", nargs="*", choices=[[], *TASKS], help="all, if none is named")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="number of seeds, from 0 on")
    given = parser.parse_args()
    for name in given.tasks or TASKS:
        print(f"{name}: {TASKS[name].__doc__}", flush=True)
        found = []
        for seed in range(given.seeds):
            start = time.process_time()
            found.append(TASKS[name](seed))
            print(f"  seed {seed}: {found[-1]:.4f} ({time.process_time() - start:.0f} s)", flush=True)
        all_seeds = estimate(np.array(found)[:, None, None])
        print(f"  interquartile mean {all_seeds.value[0]:.4f} [{all_seeds.low[0]:.4f}, {all_seeds.high[0]:.4f}]")


if __name__ == "__main__":
    main()
