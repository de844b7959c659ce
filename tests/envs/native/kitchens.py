"""Overcooked's env steps as JaxMARL makes them: recorded in `kitchens.npz`, by `python -m tests.envs.native.kitchens`.

JaxMARL is installed by `make third-party` only. The file holds the state before each env step, its actions, rewards and
shaped rewards, and checksums of both observations after it.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.core.spec import EnvSpec, Step

FILE = Path(__file__).with_suffix(".npz")
HELD = {1: 0, 3: 1, 5: 2, 9: 3}
"""JaxMARL's number of a thing -> the native game's."""
POT = 8
PADDING = 4
EPISODES, STEPS, MAX_STEPS = 150, 3, 60


def fields_of(env: Any) -> dict[str, Array]:
    """Return the fields of the native game with the values of JaxMARL's environment."""
    now, height, width = env.now, env.original.height, env.original.width
    places = np.asarray(now.maze_map)[PADDING : PADDING + height, PADDING : PADDING + width].astype(int)
    kinds = places[..., 0]
    return {
        "place": np.asarray(now.agent_pos)[:, ::-1].astype(int),
        "heading": np.asarray(now.agent_dir_idx).astype(int),
        "held": np.array([HELD[int(thing)] for thing in now.agent_inv]),
        "thing": np.vectorize(lambda kind: HELD.get(int(kind), 0))(kinds),
        "pot": np.where(kinds == POT, places[..., 2], 0),
        "steps": np.array(int(now.step)),
    }


def checksum(observation: Array) -> int:
    """Return a checksum of an observation, whose numbers are whole."""
    return zlib.crc32(np.asarray(observation).astype(np.uint8).tobytes())


class Busy:
    """Cooks who mostly interact.  earned: the sum of all rewards."""

    def __init__(self) -> None:
        self.earned = 0.0

    def __call__(self, spec: EnvSpec, step: Step, rng: np.random.Generator) -> tuple[Array, ...]:
        self.earned += float(step.reward.sum())
        return (rng.choice(6, (2, 1), p=[0.13] * 4 + [0.03, 0.45]),)


def record() -> None:
    """Play in every layout, from random states, and write the file."""
    from marltrain.envs.jaxmarl import jaxmarl_env
    from marltrain.envs.native.kitchen.layouts import LAYOUTS

    kept: dict[str, Array] = {}
    for layout in LAYOUTS:
        env = jaxmarl_env("overcooked", layout=layout, random_reset=True, max_steps=MAX_STEPS)
        shaped = jaxmarl_env("overcooked", layout=layout, random_reset=True, max_steps=MAX_STEPS, shaping=1.0)
        rng, rows = np.random.default_rng(0), []
        for seed in range(EPISODES):
            for one in (env, shaped):
                one.reset(seed=seed)
                one.now = one.now.replace(step=seed % (MAX_STEPS - STEPS))
            for _ in range(STEPS):
                before = fields_of(env)
                actions = dict(zip(env.agents, rng.choice(6, 2, p=[0.1] * 4 + [0.05, 0.55]).tolist(), strict=True))
                obs, reward, *_ = env.step(actions)
                both = shaped.step(actions)[1]
                rows.append({
                    **before, "action": list(actions.values()), "reward": list(reward.values()),
                    "shaped": [both[name] - reward[name] for name in reward],
                    "seen": [checksum(obs[name]) for name in reward],
                })  # fmt: skip
        for name in rows[0]:
            kept[f"{layout}/{name}"] = np.array([row[name] for row in rows]).astype(
                np.uint32 if name == "seen" else np.uint8
            )
    np.savez_compressed(FILE, **kept)  # type: ignore[arg-type]


if __name__ == "__main__":
    record()
