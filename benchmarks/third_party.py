"""Rate of stepping environments of other packages: marltrain's vector environment compared with the bare environment.

    python -m benchmarks.third_party [NAME ...] [--steps 1000] [--rounds 5]

Both step one environment with random legal actions, which are drawn outside of the measured time. The bare environment
is stepped by its own interface, and reset at the end of its episodes. marltrain checks every value, seeds and counts
every episode, and writes the values into arrays. A rate is env steps per second of processor time of this process, so
that other work on the machine matters little. The two alternate; the table holds medians. Environments whose package is
not installed are named; `make third-party` installs all of them into `.venv-third-party`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MUJOCO_GL", "egl")

import gymnasium
import numpy as np

from marltrain.core.seeds import generator
from marltrain.envs import DummyVectorEnv
from marltrain.envs.python.check_env import random_actions


def registered(module: str, name: str, **arguments: Any) -> Callable[[], Any]:
    """Return a function that builds an environment which a module registers with Gymnasium."""

    def build() -> Any:
        __import__(module)
        return gymnasium.make(name, disable_env_checker=True, **arguments)

    return build


def minigrid() -> Any:
    """Return a grid of Minigrid, observed as a picture of codes."""
    import minigrid.wrappers

    return minigrid.wrappers.ImgObsWrapper(gymnasium.make("MiniGrid-Empty-5x5-v0", disable_env_checker=True))


def ant() -> Any:
    """Return MuJoCo's ant, whose legs are moved by two players."""
    from gymnasium_robotics import mamujoco_v1

    return mamujoco_v1.parallel_env("Ant", "2x4")


def battle() -> Any:
    """Return a small battle of MAgent2, with twelve players."""
    from magent2.environments import battle_v4

    return battle_v4.parallel_env(map_size=16)


def leduc() -> Any:
    """Return OpenSpiel's Leduc poker, converted by shimmy."""
    import pyspiel
    from shimmy.openspiel_compatibility import OpenSpielCompatibilityV0

    return OpenSpielCompatibilityV0(pyspiel.load_game("leduc_poker"))


def supersuit() -> Any:
    """Return simple_spread in two wrappers of SuperSuit."""
    import supersuit as ss
    from mpe2 import simple_spread_v3

    return ss.frame_stack_v1(ss.pad_observations_v0(simple_spread_v3.parallel_env()), 3)


def pong() -> Any:
    """Return Atari's Pong for two players, in full pictures; the ROM is that of ale-py."""
    import ale_py
    from pettingzoo.atari import pong_v3

    return pong_v3.parallel_env(auto_rom_install_path=os.path.dirname(ale_py.__file__))


def tictactoe() -> Any:
    """Return PettingZoo's tic-tac-toe."""
    from pettingzoo.classic import tictactoe_v3

    return tictactoe_v3.env()


def balance() -> Any:
    """Return a task of VMAS with four players, by its own wrapper for Gymnasium."""
    import vmas

    return vmas.make_env(
        "balance", num_envs=1, wrapper="gymnasium", terminated_truncated=True, max_steps=100, continuous_actions=False
    )


ENVIRONMENTS: dict[str, Callable[[], Any]] = {
    "rware-tiny-2ag-v2": registered("rware", "rware-tiny-2ag-v2"),
    "Foraging-8x8-2p-1f-v3": registered("lbforaging", "Foraging-8x8-2p-1f-v3"),
    "intersection-multi-agent-v2": registered("highway_env", "intersection-multi-agent-v2"),
    "MAMuJoCo Ant 2x4": ant,
    "MiniGrid-Empty-5x5-v0": minigrid,
    "MAgent2 battle_v4": battle,
    "OpenSpiel leduc_poker": leduc,
    "SuperSuit simple_spread_v3": supersuit,
    "Atari pong_v3": pong,
    "tictactoe_v3": tictactoe,
    "VMAS balance": balance,
}


class Bare:
    """An environment that is stepped by its own interface."""

    def __init__(self, build: Callable[[], Any]) -> None:
        """Build and reset the environment."""
        self.env = build()
        self.turns, self.parallel = hasattr(self.env, "agent_iter"), hasattr(self.env, "possible_agents")
        self.env.reset(seed=0)
        self.drawn: list[Any] = []

    def draw(self, steps: int) -> None:
        """Draw actions for the next steps, without the time of it; legal moves of a game by turns are drawn in it."""
        if self.parallel:
            players = self.env.possible_agents
            spaces = {name: self.env.action_space(name) for name in players}
            self.drawn = [{name: space.sample() for name, space in spaces.items()} for _ in range(steps)]
        else:
            self.drawn = [self.env.action_space.sample() for _ in range(steps)]

    def step(self, steps: int) -> None:
        """Step the environment, and reset it at the end of its episodes."""
        one = self._turn if self.turns else self._together if self.parallel else self._alone
        for t in range(steps):
            one(t)

    def _alone(self, t: int) -> None:
        *_, terminated, truncated, _ = self.env.step(self.drawn[t])
        if np.all(_values(terminated)) or np.all(_values(truncated)):
            self.env.reset()

    def _together(self, t: int) -> None:
        drawn = self.drawn[t]
        self.env.step({name: drawn[name] for name in self.env.agents})
        if not self.env.agents:
            self.env.reset()

    def _turn(self, t: int) -> None:
        """Make a move, and the dead steps after it."""
        env, drawn = self.env, self.drawn[t]
        seen, *_, info = env.last()
        mask = seen.get("action_mask") if isinstance(seen, dict) else info.get("action_mask")
        legal = None if mask is None else np.flatnonzero(mask)
        name = env.agent_selection
        env.step(drawn[name] if legal is None else int(legal[drawn[name] % len(legal)]))
        while env.agents and (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
            env.last()
            env.step(None)
        if not env.agents:
            env.reset()


class Ours:
    """The same environment in marltrain's vector environment."""

    def __init__(self, build: Callable[[], Any]) -> None:
        """Build and reset the environment."""
        self.envs = DummyVectorEnv(build, 1)
        self.now = self.envs.reset(0)
        self.rng = generator(0, "benchmark")

    def draw(self, steps: int) -> None:
        """Draw no actions: the legal ones depend on the step; `step` leaves the time of it out."""

    def step(self, steps: int) -> float:
        """Step the environment; return the seconds of processor time that the random actions took."""
        spent = 0.0
        for _ in range(steps):
            start = time.process_time()
            actions = random_actions(self.envs.spec, self.now, self.rng)
            spent += time.process_time() - start
            self.now = self.envs.step(actions)
        return spent


def _values(flags: Any) -> Any:
    return list(flags.values()) if isinstance(flags, dict) else flags


def rate(stepped: Bare | Ours, steps: int) -> float:
    """Return env steps per second of processor time."""
    stepped.draw(steps)
    start = time.process_time()
    spent = stepped.step(steps) or 0.0
    return steps / (time.process_time() - start - spent)


def compare(name: str, steps: int, rounds: int) -> None:
    """Print the row of an environment."""
    try:
        pair = Bare(ENVIRONMENTS[name]), Ours(ENVIRONMENTS[name])
    except ImportError as error:
        print(f"{name}: not installed: {error}")
        return
    for one in pair:
        rate(one, max(20, steps // 10))
    rates = [(rate(pair[0], steps), rate(pair[1], steps)) for _ in range(rounds)]
    bare, ours = (statistics.median(side) for side in zip(*rates, strict=True))
    ratio = statistics.median(mine / theirs for theirs, mine in rates)
    print(f"| {name} | {len(pair[1].envs.spec.names)} | {bare:,.0f} | {ours:,.0f} | {ratio:.2f} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(ENVIRONMENTS))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| environment | players | bare | marltrain | ratio |\n|---|---|---|---|---|")
    for name in args.names or ENVIRONMENTS:
        compare(name, args.steps, args.rounds)


if __name__ == "__main__":
    main()
