"""Folders of runs with given curves, without training."""

import json

import numpy as np

from marltrain.trainer.reporting.history import History

EVERY = 100
"""Env steps between tests."""


def write_run(folder, values, *, seed=0, env="marltrain/CartPole-v1", players=("player_0",), every=EVERY, **config):
    """Write a run with tests whose metrics are `values`; return its folder."""
    folder.mkdir(parents=True)
    history = History(players, folder)
    judged, interval = config.pop("judged", list(players)), config.pop("interval", 1.0)
    for i, value in enumerate(values):
        history.add_test(
            episodes=i, env_steps=every * i, updates=i, gradient_steps=i, seconds=float(i), metric=value,
            interval=(value - interval, value + interval), returns=np.full(len(players), 2 * value), judged=judged,
            best=True, num_unfinished=0,
        )  # fmt: skip
    history.write(now=True)
    content = {"env": env, "env_args": {}, "algo": "ppo", "seed": seed, **config}
    (folder / "config.json").write_text(json.dumps(content))
    return folder
