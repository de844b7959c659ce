"""The games of the gallery: train agents on native games, and film them on the originals (`make gallery`).

    python examples/gallery.py [--only tag] [--out docs/images/gallery]

Each game trains for less than a minute of processor time with seed 0. A film is a GIF of a few episodes, reduced to a
width of 240 pixels and 64 colors.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image, ImageSequence

import marltrain as mt

WIDTH, COLORS = 240, 64


@dataclass(frozen=True)
class Game:
    """What is trained, on which environment, and how it is filmed.

    env, original: the native game, and the game that draws.
    against_random: one agent plays both sides in training, and a random player in tests and in the film.
    episodes, fps, every: of the film; every: of how many frames one is kept.
    """

    env: str
    original: str
    algo: str
    steps: int
    agents: dict[str, Any]
    trainer: dict[str, Any] = field(default_factory=dict)
    against_random: bool = False
    episodes: int = 3
    fps: int = 10
    every: int = 1


def actor_critic(steps: int, **settings: Any) -> dict[str, Any]:
    """Return settings of PPO and MAPPO for small games."""
    return {
        "learning_rate": mt.linear(1e-3, 1e-4, steps), "gamma": 0.95, "epochs": 8, "minibatches": 2,
        "update_freq": 2048, "jit_compile": True, **settings,
    }  # fmt: skip


GAMES = {
    "spread": Game(
        "marltrain/simple_spread_v3", "mpe2/simple_spread_v3", "mappo", 300_000, actor_critic(300_000),
        {"num_train_envs": 32, "team_reward": "mean"},
    ),
    "tag": Game(
        "marltrain/simple_tag_v3", "mpe2/simple_tag_v3", "ppo", 500_000, actor_critic(500_000), {"num_train_envs": 32},
    ),
    "connect_four": Game(
        "marltrain/connect_four_v3", "pettingzoo/classic/connect_four_v3", "ppo", 500_000,
        {"share": True, **actor_critic(500_000, gamma=0.99, epochs=4, minibatches=4, update_freq=4096)},
        {"num_train_envs": 64}, against_random=True, episodes=2, fps=2,
    ),
    "cartpole": Game(
        "marltrain/CartPole-v1", "gymnasium/CartPole-v1", "ppo", 100_000,
        {**mt.tuned("ppo", "gymnasium/CartPole-v1")["agents"], "update_freq": 256, "jit_compile": True},
        {"num_train_envs": 8}, episodes=1, fps=12, every=5,
    ),
}  # fmt: skip


def trained(name: str, game: Game) -> list[mt.Agent]:
    """Train a game, print its result, and return its agents."""
    agents = mt.make_agents(game.algo, game.env, seed=0, **game.agents)
    trainer = mt.DecentralizedTrainer(
        game.env, steps_per_train=game.steps, test_freq_steps=game.steps // 5, episodes_per_test=100, seed=0,
        run_dir=f"runs/gallery/{name}", progress=False, **game.trainer,
    )  # fmt: skip
    line_up = [agents[0], mt.RandomAgent()] if game.against_random else agents
    trainer.train(agents, [1] * len(agents), test_agents=line_up)
    random = trainer.test([mt.RandomAgent()] * len(agents), episodes=200).returns.mean(0)
    returns = trainer.test(line_up, episodes=200).returns.mean(0)
    print(f"{name}: returns of the players {returns.round(1)}, random play {random.round(1)}", flush=True)
    return line_up


def reduce(film: Path, every: int) -> None:
    """Write a film again, smaller: fewer pixels, colors and frames."""
    with Image.open(film) as whole:
        size = WIDTH, round(whole.height * WIDTH / whole.width)
        frames = [(frame.convert("RGB"), frame.info["duration"]) for frame in ImageSequence.Iterator(whole)][::every]
    small = [frame.resize(size).quantize(COLORS) for frame, _ in frames]
    times = [duration for _, duration in frames]
    small[0].save(film, save_all=True, append_images=small[1:], duration=times, loop=0, optimize=True)
    print(f"{film}: {len(small)} frames, {film.stat().st_size // 1000} kB", flush=True)


def main() -> None:
    """Train and film the games."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(GAMES))
    parser.add_argument("--out", default="docs/images/gallery", type=Path)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name, game in GAMES.items():
        if args.only in (None, name):
            film = args.out / f"{name}.gif"
            mt.play(game.original, trained(name, game), out=film, episodes=game.episodes, fps=game.fps, seed=0)
            reduce(film, game.every)


if __name__ == "__main__":
    main()
