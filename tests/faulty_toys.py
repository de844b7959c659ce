"""Small environments that break their contract on purpose."""

import os
import signal
import time
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv


class Broken(ParallelEnv):
    """Two players, ten steps, one fault: it appears with step number `at` (0: with the reset).

    fault: "raise", "kill" (its process), "exit", "outside", "nan", "reward", "shape", "missing", "truncated",
    "stranger", "no moves", "no mask", "hang".
    Nothing is wrong in an episode before `episode`, counted in this object.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "broken"}

    def __init__(self, fault: str = "", at: int = 3, episode: int = 0) -> None:
        self.fault, self.at, self.episode = fault, at, episode
        self.possible_agents = ["left", "right"]
        box = spaces.Box(-1, 1, (2,), np.float32)
        masked = spaces.Dict({"observation": box, "action_mask": spaces.Box(0, 1, (2,), np.int8)})
        self._space = masked if fault in ("no moves", "no mask") else box
        self._acts = spaces.Discrete(2)
        self._resets = 0

    def observation_space(self, agent):
        return self._space

    def action_space(self, agent):
        return self._acts

    def reset(self, seed=None, options=None):
        self.agents, self.t = list(self.possible_agents), 0
        self._resets += 1
        return self._observations(), {name: {} for name in self.agents}

    def step(self, actions):
        self.t += 1
        names = self.agents
        rewards = {"left": 1.0, "right": float("inf") if self._now("reward") else 1.0}
        over = self.t == 10
        truncated = {name: over or (self._now("truncated") and name == "right") for name in names}
        self.agents = [name for name in names if not truncated[name]]
        if self._now("stranger"):
            self.agents = [*self.agents, "nobody"]
        return self._observations(), rewards, dict.fromkeys(names, False), truncated, {name: {} for name in names}

    def _now(self, fault):
        return self.fault == fault and self.t == self.at and self._resets > self.episode

    def _observations(self):
        if self._now("raise"):
            raise ZeroDivisionError("a fault of the environment's own")
        if self._now("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self._now("exit"):
            os._exit(7)
        if self._now("hang"):
            time.sleep(60)
        seen: dict[str, Any] = {name: np.full(2, self.t / 10, np.float32) for name in self.possible_agents}
        if self._now("outside"):
            seen["right"][1] = 1.5
        if self._now("nan"):
            seen["right"][1] = np.nan
        if self._now("shape"):
            seen["right"] = np.zeros(3, np.float32)
        if self._now("missing") or self._now("truncated"):
            del seen["right"]
        if isinstance(self._space, spaces.Dict):
            seen = {name: {"observation": o, "action_mask": np.ones(2, np.int8)} for name, o in seen.items()}
            if self._now("no moves"):
                seen["right"]["action_mask"][:] = 0
            if self._now("no mask"):
                del seen["right"]["action_mask"]
        return seen


class Flaky(Broken):
    """Broken in every episode whose seed `every` divides, and in no other: a new object is as broken."""

    metadata: ClassVar[dict[str, Any]] = {"name": "flaky"}

    def __init__(self, fault: str = "raise", at: int = 3, every: int = 3) -> None:
        super().__init__(fault, at)
        self.every, self.seed = every, 0

    def reset(self, seed=None, options=None):
        self.seed = seed or 0  # 0: somebody looks at what it is
        return super().reset()

    def _now(self, fault):
        return self.fault == fault and self.t == self.at and self.seed > 0 and self.seed % self.every == 0


class Forgetful(ParallelEnv):
    """Breaks what only comparing episodes shows. flaw: "impure" (counts episodes) or "random" (ignores seeds)."""

    metadata: ClassVar[dict[str, Any]] = {"name": "forgetful"}

    def __init__(self, flaw: str = "", declared: bool = False) -> None:
        self.flaw = flaw
        if declared:
            self.metadata = {  # type: ignore[misc]
                "name": "forgetful",
                "pure_reset": flaw != "impure",
                "reproducible": flaw != "random",
            }
        self.possible_agents = ["only"]
        self._space = spaces.Box(0, 1000, (1,), np.float32)
        self._acts = spaces.Discrete(2)
        self._resets = -1

    def observation_space(self, agent):
        return self._space

    def action_space(self, agent):
        return self._acts

    def reset(self, seed=None, options=None):
        self._resets += 1
        self.rng = np.random.default_rng(None if self.flaw == "random" else seed)
        self.agents, self.t = ["only"], 0
        return self._observations(), {"only": {}}

    def step(self, actions):
        self.t += 1
        over = self.t == 3
        self.agents = [] if over else ["only"]
        return self._observations(), {"only": 1.0}, {"only": over}, {"only": False}, {"only": {}}

    def _observations(self):
        shift = self._resets if self.flaw == "impure" and self.t == 2 else 0
        return {"only": np.array([self.rng.integers(100) + shift], np.float32)}
