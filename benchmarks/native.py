"""Speed of native games on one core, compared with the original environments and with required rates.

    python benchmarks/native.py [--seconds 1] [--rounds 3] [--games CartPole-v1 ...]
    python benchmarks/native.py --compile [--rounds 3] [--games ...]

Random legal actions are drawn beforehand. A native game is measured by calls of `step` on a whole batch, including the
time in Python. The original is a single environment, stepped by its own interface. Both run in turn over several
rounds, so that ratios compare runs that are adjacent in time. Rates are env steps per second of processor time.

If JaxMARL is installed, games that it has, too, are compared with it: batches of its environment, with `vmap` and
random actions, RECORDED steps in one compiled function that restarts episodes.

`--compile`: time from `make_vector` to the end of the first step, including the import of Numba, in a process with an
empty compilation cache and in the next process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import numpy as np

from marltrain.core.extras import is_installed
from marltrain.core.spaces import split_mask
from marltrain.envs import make_vector, resolve
from marltrain.envs.jaxmarl import GAMES as JAXMARL_GAMES, jaxmarl_env
from marltrain.envs.native.catalog import GAMES
from marltrain.envs.python.check_env import random_actions
from marltrain.envs.python.players import PlayersEnv
from marltrain.envs.registry import api_of, list_environments

RECORDED = 128
"""Batch steps whose actions are drawn beforehand; the game is reset after them, so that the actions stay legal."""
SIZES = {"CartPole-v1": (1, 8, 16, 1024, 4096)}
USUAL = (1, 16, 128, 1024)
WANTED = {("CartPole-v1", 8): 2e6, ("CartPole-v1", 1024): 30e6, ("connect_four_v3", 1024): 2e6}
WANTED |= {("simple_spread_v3", size): 1e6 for size in (16, 128, 1024)}
REGISTERED = {
    "foraging_v3": ("lbforaging", "Foraging-8x8-2p-2f-v3"),
    "rware_v2": ("rware", "rware-tiny-2ag-v2"),
}
"""Native game -> module and name of an environment with its default arguments, where the names differ."""
JAXMARL = {
    "overcooked_v1": "overcooked", "simple_spread_v3": "MPE_simple_spread_v3", "smax_v2": "smax",
}  # fmt: skip
"""Native game -> name in JaxMARL."""
COMPILED = ("simple_spread_v3", "connect_four_v3", "CartPole-v1", "simple_world_comm_v3", "foraging_v3")
"""Games whose compilation is measured; the last two take the longest."""
ALLOWED = (10.0, 1.0)
"""Required limits in seconds for the first and the next process."""
STARTING = """
import sys, time
import numpy as np
from marltrain.envs import make_vector
from marltrain.envs.python.check_env import random_actions
start, used = time.perf_counter(), time.process_time()
vector = make_vector("marltrain/" + sys.argv[1], None, 16)
vector.step(random_actions(vector.spec, vector.reset(0), np.random.default_rng(0)))
print(time.perf_counter() - start, time.process_time() - used)
"""


def starts(name: str) -> list[list[float]]:
    """Return [seconds, processor seconds] until the end of a game's first step, in a first and in a next process."""
    with tempfile.TemporaryDirectory() as folder:
        variables = {**os.environ, "NUMBA_CACHE_DIR": folder}
        command = [sys.executable, "-c", STARTING, name]
        ends = [subprocess.run(command, env=variables, check=True, capture_output=True, text=True) for _ in range(2)]
    return [[float(word) for word in end.stdout.split()] for end in ends]


def compare_starts(names: list[str], rounds: int) -> None:
    """Print the median, lowest and highest times over all rounds."""
    for name in names:
        measured = np.array([starts(name) for _ in range(rounds)])  # [rounds, first or next, wall or processor]
        data = [
            f"{what} {np.median(wall):.2f} s ({wall.min():.2f} to {wall.max():.2f}; processor {np.median(used):.2f}); "
            f"asked for: {allowed:.0f}"
            for what, (wall, used), allowed in zip(
                ("compiled in", "then starts in"), measured.transpose(1, 2, 0), ALLOWED, strict=True
            )
        ]
        print(f"{name:22s} {', '.join(data)}", flush=True)


def rate(play: Callable[[], int], seconds: float) -> float:
    """Return environment steps per processor second of a function that makes some steps and returns their number."""
    play()
    steps, start = 0, time.process_time()
    while (passed := time.process_time() - start) < seconds:
        steps += play()
    return steps / passed


def native(name: str, num_envs: int, seconds: float, arguments: Any = None) -> float:
    """Return environment steps per processor second of a native game; the time excludes resets."""
    vector = make_vector(f"marltrain/{name}", arguments, num_envs)
    rng, step, recorded = np.random.default_rng(0), vector.reset(0), []
    for _ in range(RECORDED):
        recorded.append(random_actions(vector.spec, step, rng))
        step = vector.step(recorded[-1])
    passed, played = 0.0, 0
    while passed < seconds:
        vector.reset(0)
        start = time.process_time()
        for actions in recorded:
            vector.step(actions)
        passed, played = passed + time.process_time() - start, played + RECORDED
    return played * num_envs / passed


def of_jaxmarl(name: str, num_envs: int, arguments: Any) -> Callable[[], int]:
    """Return a function that makes RECORDED batch steps of an environment of JaxMARL."""
    import jax
    import jaxmarl

    found = JAXMARL[name]
    env = jaxmarl_env(found, **arguments).original if found in JAXMARL_GAMES else jaxmarl.make(found)

    def step(carry: Any, _: Any) -> Any:
        """Return the carry after a step: what it gives is a part of it, so that it is computed, and not stored."""
        key, state, _, _ = carry
        key, acting, stepping = jax.random.split(key, 3)
        keys = jax.random.split(acting, len(env.agents))
        actions = {
            agent: jax.random.randint(own, (num_envs,), 0, env.action_space(agent).n)
            for agent, own in zip(env.agents, keys, strict=True)
        }
        obs, state, rewards, *_ = jax.vmap(env.step)(jax.random.split(stepping, num_envs), state, actions)
        return (key, state, obs, rewards), None

    steps: Callable[[Any], Any] = jax.jit(lambda carry: jax.lax.scan(step, carry, None, RECORDED)[0])
    key = jax.random.PRNGKey(0)
    obs, state = jax.vmap(env.reset)(jax.random.split(key, num_envs))
    rewards = {agent: jax.numpy.zeros(num_envs) for agent in env.agents}
    carry = key, state, obs, rewards

    def play() -> int:
        nonlocal carry
        carry = jax.block_until_ready(steps(carry))
        return RECORDED * num_envs

    play()  # the next call may compile again: what a step returns may have other types than the start
    return play


def compare_with_jaxmarl(name: str, rounds: int, seconds: float, arguments: Any) -> None:
    """Print the rates of JaxMARL's environment, and the native game's ratios to them."""
    for size in SIZES.get(name, USUAL):
        play, ratios, theirs = of_jaxmarl(name, size, arguments), [], []
        for _ in range(rounds):
            theirs.append(rate(play, seconds))
            ratios.append(native(name, size, seconds, arguments) / theirs[-1])
        ratio = f"{statistics.median(ratios):.1f} times that ({min(ratios):.1f} to {max(ratios):.1f})"
        print(f"  {size:5d} envs: JaxMARL {spread(theirs):>30} env steps/s, the native game {ratio}", flush=True)


def original_of(name: str) -> str | None:
    """Return the name of a native game's original environment; None if it is not installed."""
    if name in REGISTERED:
        module, registered = REGISTERED[name]
        return f"gymnasium/{module}:{registered}" if is_installed(module) else None
    found = [known for known in list_environments() if known.endswith(f"/{name}") and known != f"marltrain/{name}"]
    return found[0] if found else None


def original(name: str) -> Callable[[], int]:
    """Return a function that plays an episode of an environment with random legal actions."""
    env = resolve(name).make()
    env = env.unwrapped if isinstance(env, PlayersEnv) else env  # several players in Gymnasium's own interface
    play: Callable[[Any], int] = {"parallel": _parallel, "turns": _turns, "gymnasium": _lone}[api_of(env)]
    return lambda: play(env)


def _lone(env: Any) -> int:
    env.reset()
    steps, over = 0, False
    while not over:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        steps, over = steps + 1, terminated or truncated
    return steps


def _parallel(env: Any) -> int:
    env.reset()
    steps = 0
    while env.agents:
        env.step({agent: env.action_space(agent).sample() for agent in env.agents})
        steps += 1
    return steps


def _turns(env: Any) -> int:
    env.reset()
    steps = 0
    for agent in env.agent_iter():
        observation, _, terminated, truncated, _ = env.last()
        over = terminated or truncated
        env.step(None if over else env.action_space(agent).sample(split_mask(observation)[1]))
        steps += not over
    return steps


def spread(values: list[float]) -> str:
    """Return a text with the median, the lowest and the highest value."""
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def compare_rates(names: list[str], rounds: int, seconds: float, arguments: Any) -> None:
    """Print rates, and their ratios to the original's rate in the same round."""
    for name in names:
        other = original_of(name)
        sizes = SIZES.get(name, USUAL)
        found: dict[int, list[float]] = {size: [] for size in sizes}
        theirs: list[float] = []
        for _ in range(rounds):
            if other:
                theirs.append(rate(original(other), seconds))
            for size in sizes:
                found[size].append(native(name, size, seconds, arguments))
        print(f"{name}; {other} makes {spread(theirs)} env steps/s" if other else f"{name}; no original here")
        for size, rates in found.items():
            text = f"  {size:5d} envs: {spread(rates):>38} env steps/s"
            if theirs:
                ratios = [mine / its for mine, its in zip(rates, theirs, strict=True)]
                text += (
                    f", {statistics.median(ratios):,.0f} times the original ({min(ratios):,.0f} to {max(ratios):,.0f})"
                )
            if wanted := WANTED.get((name, size)):
                text += f"; asked for: {wanted:,.0f}"
            print(text, flush=True)


def main() -> None:
    """Run the chosen comparison; print results and required values."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--games", nargs="+", choices=list(GAMES))
    parser.add_argument(
        "--env-args", type=json.loads, default={}, help='of native games and of JaxMARL, such as {"scenario": "25m"}'
    )
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    if args.compile:
        compare_starts(args.games or list(COMPILED), args.rounds)
    else:
        compare_rates(args.games or list(GAMES), args.rounds, args.seconds, args.env_args)
        if is_installed("jaxmarl"):
            for name in [name for name in args.games or GAMES if name in JAXMARL]:
                print(f"{name} and JaxMARL's {JAXMARL[name]}")
                compare_with_jaxmarl(name, args.rounds, args.seconds, args.env_args)


if __name__ == "__main__":
    main()
