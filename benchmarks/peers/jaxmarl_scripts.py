"""JaxMARL's own scripts, as they are: the returns of training, a line of JSON for each update.

    PYTHON -m benchmarks.peers.jaxmarl_scripts FOLDER mappo_rnn --seed 0
    PYTHON -m benchmarks.peers.jaxmarl_scripts FOLDER ippo_ff_overcooked --game cramped_room
    PYTHON -m benchmarks.peers.jaxmarl_scripts FOLDER ippo_rnn_smax --game 3m --steps 1000000

FOLDER: `baselines` of JaxMARL's repository, which its package does not contain. The settings are those of its files,
with their number of env steps unless --steps is given. A script reports to wandb, which is replaced here by a function
that prints. Agents sample. A line has the mean of the last six updates:

- simple_spread: the last episode of each of 16 environments (ippo_ff: all that ended in an update, about 80). JaxMARL's
  log multiplies returns by the number of players ("as per on-policy codebase"); here, they are divided again, so that a
  return is the mean over the players.
- Overcooked: the return of a cook without shaped rewards, of the last episode of each of 16 environments.
- SMAX: the share of won episodes among all that ended in an update, and the return of a unit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import runpy
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ["WANDB_MODE"] = "disabled"

import jax
import wandb
import yaml
from jaxmarl.environments.overcooked import overcooked_layouts

UPDATES = 6


class Script(NamedTuple):
    """A script of `baselines`.

    file, settings: paths.  figures: name in a line -> name in the script's log; returns are there `players` times those
    of a player.  game: where its settings hold the layout or the scenario; () if there is none to choose.
    """

    file: str
    settings: str
    figures: Mapping[str, str]
    players: int = 1
    game: tuple[str, ...] = ()


LAST, ALL = {"sampled": "returned_episode_returns"}, {"sampled": "returns"}
SCRIPTS = {
    "mappo_rnn": Script("MAPPO/mappo_rnn_mpe.py", "MAPPO/config/mappo_homogenous_rnn_mpe.yaml", ALL, 3),
    "ippo_rnn": Script("IPPO/ippo_rnn_mpe.py", "IPPO/config/ippo_rnn_mpe.yaml", ALL, 3),
    "ippo_ff": Script("IPPO/ippo_ff_mpe.py", "IPPO/config/ippo_ff_mpe.yaml", LAST, 3),
    "ippo_ff_overcooked": Script(
        "IPPO/ippo_ff_overcooked.py", "IPPO/config/ippo_ff_overcooked.yaml", LAST, 1, ("ENV_KWARGS", "layout")
    ),
    "ippo_rnn_smax": Script(
        "IPPO/ippo_rnn_smax.py", "IPPO/config/ippo_rnn_smax.yaml", {**ALL, "won": "win_rate"}, 1, ("MAP_NAME",)
    ),
}  # fmt: skip
"""Algorithm, and the game but for simple_spread -> script."""


def settings_of(path: Path) -> dict[str, Any]:
    """Return the settings of a file; numbers such as 1e7, which YAML reads as text, as numbers."""
    settings = yaml.safe_load(path.read_text())
    for name, value in settings.items():
        if isinstance(value, str) and value.replace(".", "").replace("e", "").replace("-", "").isdigit():
            settings[name] = float(value)
    return dict(settings)


def choose(settings: dict[str, Any], place: Sequence[str], game: str | None) -> None:
    """Write the layout or the scenario into the settings, as the script's own `main` does; None: that of its file."""
    if not place:
        if game is not None:
            raise SystemExit(f"--game {game}: this script has one game")
        return
    *groups, name = place
    for group in groups:
        settings = settings[group]
    chosen = settings[name] if game is None else game
    settings[name] = overcooked_layouts[chosen] if name == "layout" else chosen


def main() -> None:
    """Train, and print the mean return of the sampled episodes of the last updates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("algorithm", choices=SCRIPTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--game", help="layout or scenario")
    parser.add_argument("--steps", type=float, help="env steps; shaped rewards end after the first half")
    args = parser.parse_args()
    script = SCRIPTS[args.algorithm]
    settings = settings_of(args.folder / script.settings)
    choose(settings, script.game, args.game)
    if args.steps is not None:
        settings["TOTAL_TIMESTEPS"] = args.steps
        if "REW_SHAPING_HORIZON" in settings:
            settings["REW_SHAPING_HORIZON"] = args.steps / 2
    rows, updates = int(settings["NUM_ENVS"] * settings["NUM_STEPS"]), itertools.count(1)
    figures: deque[Mapping[str, float]] = deque(maxlen=UPDATES)

    def log(metric: dict[str, Any], **_: Any) -> None:
        found = {name: float(metric[key]) for name, key in script.figures.items()}
        figures.append({**found, "sampled": found["sampled"] / script.players})
        done, seconds = next(updates), round(time.process_time(), 2)
        if done > UPDATES:  # the first update begins without ended episodes
            means = {name: round(sum(each[name] for each in figures) / UPDATES, 3) for name in script.figures}
            print(json.dumps({"processor": seconds, "env_steps": done * rows, **means}), flush=True)

    wandb.log = log
    module = runpy.run_path(str(args.folder / script.file), run_name="script")
    jax.block_until_ready(jax.jit(module["make_train"](settings))(jax.random.PRNGKey(args.seed)))


if __name__ == "__main__":
    main()
