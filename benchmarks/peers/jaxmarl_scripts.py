"""JaxMARL's own scripts on simple_spread, as they are: the returns of training, a line of JSON for each update.

    PYTHON -m benchmarks.peers.jaxmarl_scripts FOLDER mappo_rnn --seed 0

FOLDER: `baselines` of JaxMARL's repository, which its package does not contain. The settings are those of its files for
this game, 10M env steps. A script reports to wandb, which is replaced here by a function that prints. JaxMARL's log
multiplies returns by the number of players ("as per on-policy codebase"); here, they are divided again, so that a
return is the mean over the players. A script reports the last episode of each of 16 environments (ippo_ff: all that
ended in an update, about 80); a line has the mean of the last six updates.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import runpy
import time
from collections import deque
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
os.environ["WANDB_MODE"] = "disabled"

import jax
import wandb
import yaml

PLAYERS, UPDATES = 3, 6
SCRIPTS = {
    "mappo_rnn": ("MAPPO/mappo_rnn_mpe.py", "MAPPO/config/mappo_homogenous_rnn_mpe.yaml"),
    "ippo_rnn": ("IPPO/ippo_rnn_mpe.py", "IPPO/config/ippo_rnn_mpe.yaml"),
    "ippo_ff": ("IPPO/ippo_ff_mpe.py", "IPPO/config/ippo_ff_mpe.yaml"),
}
"""Algorithm -> script, its settings."""


def settings_of(path: Path) -> dict[str, Any]:
    """Return the settings of a file; numbers such as 1e7, which YAML reads as text, as numbers."""
    settings = yaml.safe_load(path.read_text())
    for name, value in settings.items():
        if isinstance(value, str) and value.replace(".", "").replace("e", "").replace("-", "").isdigit():
            settings[name] = float(value)
    return dict(settings)


def main() -> None:
    """Train, and print the mean return of the sampled episodes of the last updates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("algorithm", choices=SCRIPTS)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    script, file = SCRIPTS[args.algorithm]
    settings = settings_of(args.folder / file)
    rows, updates = int(settings["NUM_ENVS"] * settings["NUM_STEPS"]), itertools.count(1)
    returns: deque[float] = deque(maxlen=UPDATES)

    def log(metric: dict[str, Any], **_: Any) -> None:
        returns.append(float(metric["returns" if "returns" in metric else "returned_episode_returns"]) / PLAYERS)
        done, seconds = next(updates), round(time.process_time(), 2)
        if done > UPDATES:  # the first update begins without ended episodes
            line = {"processor": seconds, "env_steps": done * rows, "sampled": round(sum(returns) / UPDATES, 3)}
            print(json.dumps(line), flush=True)

    wandb.log = log
    module = runpy.run_path(str(args.folder / script), run_name="script")
    jax.block_until_ready(jax.jit(module["make_train"](settings))(jax.random.PRNGKey(args.seed)))


if __name__ == "__main__":
    main()
