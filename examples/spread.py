"""The demo: three independent PPO agents learn to cover three landmarks without colliding (`make demo`).

    python examples/spread.py [--steps 2000000] [--seed 0] [--run-dir runs/spread]

The game is marltrain's own compiled one, equal to MPE2's step by step; agents that learned in it play MPE2's.
Leaves in the run's folder: the picture metrics.png, the tables history.parquet and episodes.parquet, TensorBoard files,
and the best and the last agents.
"""

from __future__ import annotations

import argparse

import marltrain as mt

ENV = "marltrain/simple_spread_v3"


def main() -> None:
    """Train, and say what the tests before and after gave."""
    tuned = mt.tuned("ppo", ENV)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=tuned["trainer"]["steps_per_train"], help="env steps to train for")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--run-dir", default=None)
    args = parser.parse_args()

    fast = {"device": "cpu", "jit_compile": True}  # a whole update is one compiled call there
    agents = mt.make_agents("ppo", ENV, seed=args.seed, **fast, **tuned["agents"])
    settings = {**tuned["trainer"], "steps_per_train": args.steps}
    trainer = mt.DecentralizedTrainer(ENV, seed=args.seed, run_dir=args.run_dir, **settings)
    random_play = trainer.test(mt.make_agents("random", ENV, seed=args.seed), episodes=200).mean
    result = trainer.train(agents)

    tests, minutes = result["reward_metric_stats"], result["training_time"] / 60
    print(f"mean return of a player and episode: {random_play:.1f} random play, {tests[0]:.1f} untrained, "
          f"{tests[-1]:.1f} trained (best {max(tests):.1f}), in {minutes:.1f} minutes")  # fmt: skip
    print(f"picture, tables and agents are in {result['run_dir']}")
    print(f"watch them:  marltrain play {result['run_dir']} --env mpe2/simple_spread_v3 --out spread.gif")


if __name__ == "__main__":
    main()
