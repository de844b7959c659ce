"""RLlib's crashing cart-pole: poles that are learned to balance although their environments crash and hang.

`python -m tests.whole.crashing_cartpole [PLAYERS ...]` trains in worker processes, says what befell the environments on
the way, and fails unless a test's mean return has been 450.
"""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium
import numpy as np
from pettingzoo import ParallelEnv

import marltrain as mt

ENOUGH = 450
"""Mean return of a test that is to be reached; 500 is the most there is."""
TIMEOUT = 1.0
WORKERS = 2


@dataclass(frozen=True)
class Mishaps:
    """How often a pole crashes at a step and at a reset, and how often it hangs at a step, and for how many seconds."""

    crash: float = 1e-4
    crash_at_reset: float = 1e-3
    stall: float = 5e-5
    seconds: tuple[float, float] = (2.0, 5.0)


class CrashError(Exception):
    """An environment's own."""


class CrashingCartPole(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gymnasium's cart-pole, which crashes and hangs by chance: the same mishaps for the same seed."""

    def __init__(self, mishaps: Mishaps = Mishaps()) -> None:
        super().__init__(gymnasium.make("CartPole-v1", disable_env_checker=True))
        self.mishaps = mishaps
        self.chance = np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        self.chance = np.random.default_rng(seed)
        if seed and self.chance.random() < self.mishaps.crash_at_reset:  # seed 0: looked at, to see what it is
            raise CrashError("crashed at a reset")
        return super().reset(seed=seed, options=options)

    def step(self, action):
        crash, stall, share = self.chance.random(3)
        if crash < self.mishaps.crash:
            raise CrashError("crashed at a step")
        if stall < self.mishaps.stall:
            low, high = self.mishaps.seconds
            time.sleep(low + share * (high - low))
        return super().step(action)


class CrashingCartPoles(ParallelEnv):
    """Several of them, each of a player of its own, who is out when its pole falls."""

    metadata: ClassVar[dict[str, Any]] = {"name": "crashing_cartpoles"}

    def __init__(self, players: int = 3, mishaps: Mishaps = Mishaps()) -> None:
        self.possible_agents = [f"pole_{i}" for i in range(players)]
        self.poles = {name: CrashingCartPole(mishaps) for name in self.possible_agents}

    def observation_space(self, agent):
        return self.poles[agent].observation_space

    def action_space(self, agent):
        return self.poles[agent].action_space

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        began = {name: pole.reset(seed=seed and seed + i) for i, (name, pole) in enumerate(self.poles.items())}
        return {name: obs for name, (obs, _) in began.items()}, {name: {} for name in began}

    def step(self, actions):
        taken = {name: self.poles[name].step(action) for name, action in actions.items()}
        obs, reward, terminated, truncated = ({name: each[i] for name, each in taken.items()} for i in range(4))
        self.agents = [name for name in taken if not terminated[name] and not truncated[name]]
        return obs, reward, terminated, truncated, {name: {} for name in taken}

    def close(self):
        for pole in self.poles.values():
            pole.close()


def trainer(players: int, mishaps: Mishaps, **settings: Any) -> mt.DecentralizedTrainer:
    """One of one pole, or of several, with worker processes in which nothing may take longer than `TIMEOUT` seconds."""
    env: Any = CrashingCartPole if players == 1 else CrashingCartPoles
    args = {"mishaps": mishaps} if players == 1 else {"players": players, "mishaps": mishaps}
    own = {"vector": "subproc", "num_workers": WORKERS, "env_timeout": TIMEOUT, "on_fault": "restart"}
    return mt.DecentralizedTrainer(env, args, progress=False, **{**own, **settings})


def agents(players: int, **settings: Any) -> list[mt.Agent]:
    """PPO for each pole, with the settings that are known to learn it."""
    own = {**mt.tuned("ppo", "gymnasium/CartPole-v1")["agents"], **settings}
    calm = Mishaps(0, 0, 0)
    if players == 1:
        return mt.make_agents("ppo", CrashingCartPole, env_args={"mishaps": calm}, seed=0, **own)
    return mt.make_agents("ppo", CrashingCartPoles, env_args={"players": players, "mishaps": calm}, seed=0, **own)


def learn(players: int) -> None:
    """Train for as long as the tuned settings say; tell what befell the environments."""
    known = {**mt.tuned("ppo", "gymnasium/CartPole-v1")["trainer"], "episodes_per_test": 50}
    run = trainer(players, Mishaps(), seed=0, run_dir=f"runs/crashing-{players}", **known)
    result = run.train(agents(players), [1] * players, plot=False)
    reached, data = max(result["reward_metric_stats"]), result["faults"]
    print(f"{players} player(s): {reached:.1f} reached after {result['num_collected_steps']:,} env steps, "
          f"{result['num_collected_episodes']:,} episodes and {result['training_time']:.0f} s; "
          f"{result['num_dropped_steps']:,} env steps dropped")  # fmt: skip
    for (role, kind), rows in data.groupby(["role", "kind"]):
        at_reset = int((rows["step"] == 0).sum())
        print(f"  {role:<5}  {kind:<9}  {len(rows):4} faults, {at_reset} of them at a reset")
    if reached < ENOUGH:
        raise SystemExit(f"{players} player(s): less than {ENOUGH}")


def main() -> None:
    """Learn with one player and with three, or with as many as are asked for."""
    logging.getLogger("marltrain").setLevel(logging.ERROR)  # hundreds of faults, which the table holds
    for players in [int(word) for word in sys.argv[1:]] or [1, 3]:
        learn(players)


if __name__ == "__main__":
    main()
