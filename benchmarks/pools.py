"""Pools and leagues compared: agents trained against themselves alone, against past versions, and in a league.

    python benchmarks/pools.py [tictactoe] [connect-four] [leduc] [--algo ppo] [--way pool] [--seeds 3] [--share 1.0]

Ways of training, with the same env steps: "alone", one agent in both seats; "pool", half of the games against past
versions, chosen by priorities, half against the agent itself; "random", the same with four past versions and a random
player, equally often; "league", a main agent, which has a third of the env steps, and its exploiters. By PPO, or by
MMD, whose policy stays random for longer.

A line for each seed and way: the share of 2,000 games from each seat that the final agent, without exploration, loses
to random play; its mistakes; and the earlier versions, one of each sixth of the run, to which it loses
(`RoundRobin.regressions`; in Leduc poker by returns, in 2,000 games a pair). Mistakes: in tic-tac-toe the games lost
of all that opponents can play, from both seats; in connect four the share of moves that give away the result of 200
positions with 13 to 24 stones and of 200 with 25 to 36; in Leduc poker the exploitability of the policy, with
exploration. The smallest score and the smallest margin, the difference of the mean returns, against an earlier
version are printed, too. Seconds are those of one core, for the training; the first include compilation.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parents[1]))

import marltrain as mt
from benchmarks.strength import BOARD, FOUR, LEDUC, given_away, lost_of_all, lost_to_random

VERSIONS, GAMES, PAIR_GAMES = 6, 2_000, 100
TASKS = {"tictactoe": (BOARD, 60 * 4_096), "connect-four": (FOUR, 120 * 4_096), "leduc": (LEDUC, 120 * 4_096)}
"""Games, and their env steps, in whole rollouts for each of the versions."""
WAYS: dict[str, dict[str, Any] | None] = {
    "alone": None, "pool": {"size": 16}, "random": {"size": 4, "choose": "uniform", "members": [mt.RandomAgent()]},
    "league": {"size": 24},
}  # fmt: skip
"""Arguments of the pool or league; None: no pool."""


def settings(algo: str, steps: int) -> dict[str, Any]:
    """Return the settings of PPO or MMD."""
    common = {"share": True, "update_freq": 4_096, "minibatches": 4, "jit_compile": True}
    if algo == "ppo":
        return {**common, "learning_rate": mt.linear(1e-3, 1e-4, steps)}
    return {
        **common, "gamma": 1.0, "max_grad_norm": None, "learning_rate": mt.exponential(3e-3, 3e-4, steps),
        "temperature": mt.exponential(0.5, 0.1, steps), "step_size": mt.exponential(2.0, 0.3, steps),
    }  # fmt: skip


def trained(env: str, steps: int, seed: int, algo: str, way: str) -> dict[str, Any]:
    """Return the versions of an agent after each sixth of a training, by name; the last is called "final"."""
    agent, _ = mt.make_agents(algo, env, seed=seed, **settings(algo, steps))
    trainer = mt.DecentralizedTrainer(
        env, num_train_envs=192 if way == "league" else 64, steps_per_train=steps // VERSIONS, test_freq=None,
        seed=seed, run_dir=False, progress=False,
    )  # fmt: skip
    line_up: Any = [agent, agent]
    if way == "league":
        line_up = mt.League(agent, every_steps=steps // 24, longest=steps // 6, **WAYS[way] or {})
    elif (pool := WAYS[way]) is not None:
        line_up = [agent, mt.OpponentPool(agent, every_steps=steps // 24, present=0.5, **pool)]
    mask = None if way in ("alone", "league") else [1, 0]
    versions: dict[str, Any] = {}
    for i in range(VERSIONS):
        trainer.train(line_up, mask, rotate=way != "alone", plot=False, go_on=i > 0)
        name = "final" if i == VERSIONS - 1 else f"after {(i + 1) * steps // VERSIONS:,}"
        versions[name] = agent.frozen_copy()
    return versions


def mistakes(env: str, agent: Any) -> str:
    """Return the mistakes of an agent, as text."""
    if env == BOARD:
        return f"{lost_of_all(agent):.0f} games"
    if env == LEDUC:
        return f"exploitability {mt.exploitability([agent, agent], LEDUC):.2f}"
    return " and ".join(f"{given_away(agent, stage):.1%}" for stage in ("middle", "end"))


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tasks", nargs="*", choices=[[], *TASKS], help="all, if none is named")
    parser.add_argument("--algo", choices=["ppo", "mmd"], default="ppo")
    parser.add_argument("--way", choices=list(WAYS), action="append", help="all, if none is named")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="number of seeds, from 0 on")
    parser.add_argument("--share", type=float, default=1.0, metavar="X", help="share of the env steps")
    given = parser.parse_args()
    for name in given.tasks or TASKS:
        env, steps = TASKS[name][0], int(TASKS[name][1] * given.share)
        print(f"{name}, {steps:,} env steps: lost to random play as first and second; mistakes; loses to", flush=True)
        for seed in range(given.seeds):
            for way in given.way or WAYS:
                start = time.process_time()
                versions = trained(env, steps, seed, given.algo, way)
                seconds = time.process_time() - start
                games, by = (1_000, "return") if env == LEDUC else (PAIR_GAMES, "score")
                table = mt.round_robin(versions, env, episodes=games, num_test_envs=64).regressions("final", by=by)
                lost = " and ".join(f"{count / GAMES:.1%}" for count in lost_to_random(env, versions["final"], GAMES))
                worse = ", ".join(table.index[table["regresses"]]) or "none"
                print(
                    f"  seed {seed}, {way}: {lost}; {mistakes(env, versions['final'])}; "
                    f"{worse} (least score {table['score'].min():.2f}, least margin {table['margin'].min():+.2f}); "
                    f"{seconds:.0f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
