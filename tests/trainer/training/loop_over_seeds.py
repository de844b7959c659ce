"""A loop over seeds that ends when it is interrupted: `python -m tests.trainer.training.loop_over_seeds ON_INTERRUPT`.

It writes into the working folder: begun-<seed>, once an update of the run was made, and saved, a line for each call of
`save_last_fn`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import marltrain as mt
from tests.trainer.running import At, ppo, trainer


def main() -> None:
    """Train for each seed; no run ends by itself."""
    on_interrupt = sys.argv[1]
    for seed in (0, 1):
        begun = At(9, lambda moment, seed=seed: Path(f"begun-{seed}").write_text(""))
        run = trainer(
            seed=seed, run_dir=f"seed-{seed}", steps_per_train=10**9, save_last_fn=lambda seed=seed: note(seed),
            callbacks=[mt.Checkpoint(every_steps=10**9), begun],
        )  # fmt: skip
        result = run.train(ppo(seed=seed), [1, 1], plot=False, on_interrupt=on_interrupt)
        print(seed, result["stop_reason"])


def note(seed: int) -> None:
    """Add a line to the file `saved`."""
    with Path("saved").open("a") as file:
        file.write(f"{seed}\n")


if __name__ == "__main__":
    main()
