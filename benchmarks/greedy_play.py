"""Returns of saved agents in level-based foraging with greedy and with sampled actions, and episodes that stand still.

    python -m benchmarks.greedy_play runs/learn/foraging-10x10-mappo/*/last
    python -m benchmarks.learn foraging-10x10-mappo --seed 103 --trainer 'callbacks=[]' --save runs/sampled/103
    python -m benchmarks.greedy_play runs/sampled/*

The second command trains without greedy seats. Each row of the table belongs to a folder with agents of foraging
10x10-3p-3f. It holds the mean sum of the players' returns, which is 1 if all food is loaded, and in parentheses the
share of the episodes whose last two states are equal: all players repeat actions without effect. The last row holds the
means of the others.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import marltrain as mt
from benchmarks.learn.tasks import FORAGING_LARGE
from marltrain.core.layout import Array
from marltrain.envs.native import parallel_env
from marltrain.policies.agents.algorithm_agent import LearningAgent

SEED = 9_000_000
"""Of the first episode; no training uses it."""


def played(agents: Sequence[mt.Agent], explore: bool, episodes: int) -> Array:
    """Play episodes; return [episodes, 2]: the sum of the players' returns, and whether the last states are equal."""
    env = parallel_env("foraging_v3", **FORAGING_LARGE.env_args)
    seats = dict(zip(env.possible_agents, agents, strict=True))
    found = np.zeros((episodes, 2))
    for episode in range(episodes):
        observations, _ = env.reset(seed=SEED + episode)
        while env.agents:
            before = env.state()
            actions = {name: acted(agent, name, observations[name], explore) for name, agent in seats.items()}
            observations, rewards, *_ = env.step(actions)
            found[episode, 0] += sum(rewards.values())
        found[episode, 1] = np.array_equal(before, env.state())
    return found


def acted(agent: mt.Agent, player: str, observation: Array, explore: bool) -> int:
    """Return the action of an agent that may need to know which player it acts for."""
    if isinstance(agent, LearningAgent) and agent.identity:
        return int(agent.act(observation, explore=explore, player=player))
    return int(agent.act(observation, explore=explore))


def main() -> None:
    """Print the table of the agents in the given folders."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--episodes", type=int, default=500)
    given = parser.parse_args()
    print("| agents | greedy | sampled |\n| --- | --- | --- |")
    scores = []
    for folder in given.folders:
        agents = mt.load(folder)
        scores.append([played(agents, explore, given.episodes).mean(0) for explore in (False, True)])
        print(line(str(folder), np.array(scores[-1])), flush=True)
    print(line("mean", np.mean(scores, 0)))


def line(name: str, scores: Array) -> str:
    """Return a row of the table from scores, [2 kinds of actions, 2]."""
    return f"| {name} | " + " | ".join(f"{mean:.2f} ({still:.0%})" for mean, still in scores) + " |"


if __name__ == "__main__":
    main()
