"""Studies: variants of a training beside each other, each with several seeds.

    python -m benchmarks.learn.studies NAME [--seeds 5] [--steps N] [--only VARIANT ...]

`cases.py` holds the studies. Prints a table: for each variant and measure the numbers of the seeds, their mean with its
95 % bootstrap interval, and the mean difference from the first variant of its group, seed by seed, with its interval.
"seconds": processor time of a training. One thread.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Mapping, Sequence

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import marltrain as mt
from benchmarks.learn.cases import STUDIES, Case
from marltrain.core.layout import Array
from marltrain.tools.text_table import interval, number
from marltrain.trainer.evaluating.evaluation import bootstrap

HEADER = ("variant", "measure", "seeds", "mean", "95 % interval", "difference", "seconds")
SECONDS = "seconds"


def trained(case: Case, seed: int) -> dict[str, float]:
    """Train a variant with a seed; return its measures, and the seconds of processor time."""
    agents = mt.make_agents(case.algo, case.env, env_args=case.env_args, seed=seed, **case.agents)
    trainer = mt.DecentralizedTrainer(
        case.env, case.env_args, seed=seed, run_dir=False, progress=False, callbacks=case.callbacks(), **case.trainer
    )
    start = time.process_time()
    result = trainer.train(agents, [1] * len(agents), plot=False)
    seconds = time.process_time() - start
    return {**case.measure(trainer, agents, result), SECONDS: seconds}


def lines_of(case: Case, seeds: Sequence[Mapping[str, float]], first: Sequence[Mapping[str, float]]) -> list[str]:
    """Return a line for each measure of a variant.

    seeds, first: what `trained` returned for each seed, of the variant and of the first one of its group.
    """
    lines, seconds = [], f"{np.mean([values[SECONDS] for values in seeds]):.0f}"
    for name in (name for name in seeds[0] if name != SECONDS):
        own, others = (np.array([values[name] for values in found]) for found in (seeds, first))
        difference = "" if seeds is first else f"{number((own - others).mean())} ({_interval(own - others)})"
        cells = (case.title, name, " ".join(map(number, own)), number(own.mean()), _interval(own), difference, seconds)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _interval(values: Array) -> str:
    return interval(*bootstrap(values))


def main() -> None:
    """Print the table of a study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=STUDIES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="env steps of a training")
    parser.add_argument("--only", nargs="+", help="variants, as the table names them")
    args = parser.parse_args()
    study = STUDIES[args.name]
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    firsts: dict[str, list[dict[str, float]]] = {}
    for case in study.cases(args.steps or study.steps):
        if args.only is None or case.title in args.only:
            seeds = [trained(case, seed) for seed in range(args.seeds)]
            print(*lines_of(case, seeds, firsts.setdefault(case.group, seeds)), sep="\n", flush=True)


if __name__ == "__main__":
    main()
