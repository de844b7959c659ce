"""Environments of other packages, with returns counted inside of them; see `test_third_party`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np
from pettingzoo.utils import BaseParallelWrapper, BaseWrapper

Episode = tuple[int, ...]
"""Length of an episode and the returns of its players, in thousandths."""


@dataclass
class Counted:
    """The finished episodes of all environments that were counted, and the running one of each."""

    episodes: list[Episode] = field(default_factory=list)

    def clear(self) -> None:
        """Forget all episodes."""
        self.episodes.clear()


COUNTED = Counted()


def thousandths(length: int, returns: Any) -> Episode:
    """Return an episode as whole numbers, which can be compared although sums of float32 are rounded."""
    return int(length), *(round(1000 * float(value)) for value in returns)


class CountsOne(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Counts what a Gymnasium environment pays: one number for a player or a team, or one for each player."""

    def reset(self, **more: Any) -> Any:
        """Begin to count."""
        self.length, self.total = 0, np.zeros(players_of(self.env.action_space))
        self.over = np.zeros(len(self.total), bool)
        return self.env.reset(**more)

    def step(self, action: Any) -> Any:
        """Count the rewards of the players whose part has not ended before."""
        seen, reward, terminated, truncated, info = self.env.step(action)
        self.length += 1
        self.total += np.where(self.over, 0.0, np.float32(listed(reward)))
        self.over |= np.bool_(listed(terminated)) | np.bool_(listed(truncated))
        if self.over.all():
            COUNTED.episodes.append(thousandths(self.length, self.total))
        return seen, reward, terminated, truncated, info


def players_of(space: Any) -> int:
    """Return the number of players of a space: of the entries of a Tuple or a Dict, else 1."""
    return len(space.spaces) if isinstance(space, gymnasium.spaces.Tuple | gymnasium.spaces.Dict) else 1


def listed(values: Any) -> Any:
    """Return a value of each player as a list; one value stays one."""
    return list(values.values()) if isinstance(values, dict) else values


class CountsParallel(BaseParallelWrapper):
    """Counts what a parallel environment of PettingZoo pays to its players."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        """Begin to count."""
        self.length, self.total = 0, dict.fromkeys(self.possible_agents, 0.0)
        return self.env.reset(seed=seed, options=options)

    def step(self, actions: Any) -> Any:
        """Count the rewards of the players that were in the episode."""
        living = list(self.env.agents)
        seen, rewards, terminated, truncated, infos = self.env.step(actions)
        self.length += 1
        for name in living:
            self.total[name] += float(np.float32(rewards.get(name, 0.0)))
        if all(terminated.get(name) or truncated.get(name) or name not in self.env.agents for name in living):
            COUNTED.episodes.append(thousandths(self.length, self.total.values()))
        return seen, rewards, terminated, truncated, infos


class CountsTurns(BaseWrapper):
    """Counts what a game by turns pays to its players after each move."""

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        """Begin to count."""
        super().reset(seed=seed, options=options)
        self.length, self.total = 0, dict.fromkeys(self.possible_agents, 0.0)

    def step(self, action: Any) -> None:
        """Count the rewards of a move; a dead step pays nothing."""
        super().step(action)
        if action is None:
            return
        self.length += 1
        for name, reward in self.env.rewards.items():
            self.total[name] += float(reward)
        if all(self.env.terminations.values()) or all(self.env.truncations.values()):
            COUNTED.episodes.append(thousandths(self.length, self.total.values()))


def registered(module: str, name: str, *, pure: bool = True, **arguments: Any) -> Callable[..., Any]:
    """Return a function that builds a counted environment which a module registers with Gymnasium."""

    def build(render_mode: str | None = None) -> Any:
        __import__(module)
        env = CountsOne(gymnasium.make(name, render_mode=render_mode, disable_env_checker=True, **arguments))
        env.metadata = {**env.metadata, "pure_reset": pure}
        return env

    return build


def minigrid(render_mode: str | None = None) -> Any:
    """Return a grid of Minigrid, observed as a picture of codes; its text is left out."""
    import minigrid.wrappers

    env = gymnasium.make("MiniGrid-Empty-5x5-v0", render_mode=render_mode, disable_env_checker=True)
    return CountsOne(minigrid.wrappers.ImgObsWrapper(env))


class Pictures(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Shows each player its picture of codes only: MultiGrid's missions are not in their space."""

    def __init__(self, env: Any) -> None:
        """Keep the spaces of the pictures."""
        super().__init__(env)
        pictures = {player: space["image"] for player, space in env.observation_space.items()}
        self.observation_space = gymnasium.spaces.Dict(pictures)

    def observation(self, observation: Any) -> Any:
        """Return the pictures."""
        return {player: seen["image"] for player, seen in observation.items()}


def multigrid(render_mode: str | None = None) -> Any:
    """Return a grid with two players, which see a picture of codes."""
    import multigrid.envs  # noqa: F401  registers them

    env = gymnasium.make("MultiGrid-Empty-5x5-v0", agents=2, render_mode=render_mode, disable_env_checker=True)
    return CountsOne(Pictures(env))


def ant(render_mode: str | None = None) -> Any:
    """Return MuJoCo's ant, whose legs are moved by two players."""
    from gymnasium_robotics import mamujoco_v1

    return CountsParallel(mamujoco_v1.parallel_env("Ant", "2x4", render_mode=render_mode, max_episode_steps=200))


def battle(render_mode: str | None = None) -> Any:
    """Return a small battle of MAgent2."""
    from magent2.environments import battle_v4

    return CountsParallel(battle_v4.parallel_env(map_size=16, max_cycles=100, render_mode=render_mode))


def leduc(render_mode: str | None = None) -> Any:
    """Return OpenSpiel's Leduc poker, converted by shimmy."""
    import pyspiel
    from shimmy.openspiel_compatibility import OpenSpielCompatibilityV0

    return CountsTurns(OpenSpielCompatibilityV0(pyspiel.load_game("leduc_poker"), render_mode=render_mode))


def supersuit(render_mode: str | None = None) -> Any:
    """Return simple_spread in four wrappers of SuperSuit."""
    import supersuit as ss
    from mpe2 import simple_spread_v3

    env = ss.clip_reward_v0(simple_spread_v3.parallel_env(render_mode=render_mode), -0.5, 0.5)
    return CountsParallel(ss.frame_stack_v1(ss.pad_action_space_v0(ss.pad_observations_v0(env)), 3))


def pong_of_two(render_mode: str | None = None) -> Any:
    """Return Atari's Pong for two players, in the usual small pictures; the ROM is that of ale-py."""
    import ale_py
    import supersuit as ss
    from pettingzoo.atari import pong_v3

    roms = os.path.dirname(ale_py.__file__)
    env = pong_v3.parallel_env(max_cycles=400, auto_rom_install_path=roms, render_mode=render_mode)
    small = ss.resize_v1(ss.color_reduction_v0(ss.frame_skip_v0(env, 4)), 42, 42)
    return CountsParallel(ss.frame_stack_v1(small, 2))


def pong(render_mode: str | None = None) -> Any:
    """Return Atari's Pong for one player, with Gymnasium's preprocessing."""
    import ale_py
    from gymnasium.wrappers import AtariPreprocessing, TimeLimit

    gymnasium.register_envs(ale_py)
    env = gymnasium.make("ALE/Pong-v5", frameskip=1, render_mode=render_mode, disable_env_checker=True)
    return CountsOne(TimeLimit(AtariPreprocessing(env, screen_size=42), 200))


def balance(render_mode: str | None = None) -> Any:
    """Return a task of VMAS, by its own wrapper for Gymnasium."""
    import vmas

    result = vmas.make_env(
        "balance", num_envs=1, wrapper="gymnasium", terminated_truncated=True, max_steps=100, continuous_actions=False
    )
    return CountsOne(result)


@dataclass(frozen=True)
class ThirdParty:
    """An environment of another package: the modules that it needs, how to build it, and how it is shown.

    filmed: whether it renders pictures on a machine without a display.
    """

    modules: tuple[str, ...]
    build: Callable[..., Any]
    filmed: bool = True


FEW_CARS = {"initial_vehicle_count": 2, "spawn_probability": 0.1, "simulation_frequency": 5}
"""A crossing with few other cars, which has 50 env steps per second in place of 15."""

ENVIRONMENTS = {
    "rware": ThirdParty(("rware",), registered("rware", "rware-tiny-2ag-v2", max_steps=100), filmed=False),
    "lbforaging": ThirdParty(
        ("lbforaging",), registered("lbforaging", "Foraging-8x8-2p-1f-v3", pure=False), filmed=False
    ),
    "highway-env": ThirdParty(
        ("highway_env",), registered("highway_env", "intersection-multi-agent-v2", config=FEW_CARS)
    ),
    "multigrid": ThirdParty(("multigrid", "aenum"), multigrid),
    "MAMuJoCo": ThirdParty(("gymnasium_robotics", "mujoco"), ant),
    "Minigrid": ThirdParty(("minigrid",), minigrid),
    "MAgent2": ThirdParty(("magent2",), battle),
    "OpenSpiel": ThirdParty(("shimmy", "pyspiel"), leduc, filmed=False),
    "SuperSuit": ThirdParty(("supersuit", "mpe2"), supersuit),
    "Atari, two players": ThirdParty(("multi_agent_ale_py", "ale_py", "supersuit", "tinyscaler"), pong_of_two),
    "Atari": ThirdParty(("ale_py", "cv2"), pong),
    "VMAS": ThirdParty(("vmas", "gym"), balance, filmed=False),
}
"""By name."""
