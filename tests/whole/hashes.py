"""Fixed runs and a checksum of all that each leaves: two commits that print the same lines compute the same numbers.

`python -m tests.whole.hashes [CASE ...]` prints a line for each run: the checksum, then the name. To hold another
commit against this one, copy the file into its checkout: it uses the public interface and the cases of `resuming` only.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import marltrain as mt
from tests.toys import Identity, Relay
from tests.whole.resuming import CASES

Run = tuple[Any, str, dict[str, Any], dict[str, Any], list[int]]
"""An environment, an algorithm, its settings, the trainer's settings, the learning mask."""

SMALL = {"network": mt.MLP(hidden=(8,)), "epochs": 2, "minibatches": 2}
REPLAY = {"network": mt.MLP(hidden=(8,)), "learning_starts": 40, "update_per_step": 0.5}
SPREAD, CARTPOLE, TICTACTOE = "marltrain/simple_spread_v3", "marltrain/CartPole-v1", "marltrain/tictactoe_v3"
RUNS: dict[str, Run] = {
    "native PPO": (SPREAD, "ppo", SMALL, {}, [1, 1, 1]),
    "native PPO, masked": (SPREAD, "ppo", SMALL, {}, [1, 0, 1]),
    "native PPO, compiled": (SPREAD, "ppo", {**SMALL, "jit_compile": True}, {}, [1, 1, 1]),
    "native PPO, shared": (SPREAD, "ppo", {**SMALL, "share": True}, {}, [1, 1, 1]),
    "native DQN": (CARTPOLE, "dqn", REPLAY, {}, [1]),
    "native DQN, compiled": (CARTPOLE, "dqn", {**REPLAY, "jit_compile": True}, {}, [1]),
    "native DQN, compiled, dueling": (CARTPOLE, "dqn", {**REPLAY, "jit_compile": True, "dueling": True}, {}, [1]),
    "native DQN, n steps": (SPREAD, "dqn", {**REPLAY, "n_step": 3}, {"shared_memory": True}, [1, 1, 0]),
    "native turns, PPO": (TICTACTOE, "ppo", SMALL, {}, [1, 1]),
    "native turns, DQN": (TICTACTOE, "dqn", REPLAY, {}, [1, 1]),
    "native turns, DQN, compiled": (TICTACTOE, "dqn", {**REPLAY, "jit_compile": True}, {}, [1, 0]),
    "box, PPO": ("marltrain/Pendulum-v1", "ppo", SMALL, {}, [1]),
    "TensorFlow, PPO": (CARTPOLE, "ppo", {**SMALL, "backend": "tensorflow"}, {}, [1]),
    "TensorFlow, DQN": (CARTPOLE, "dqn", {**REPLAY, "backend": "tensorflow"}, {}, [1]),
    "overlap, PPO": (Identity, "ppo", SMALL, {"collect": "overlap"}, [1, 1]),
    "overlap, DQN": (Identity, "dqn", REPLAY, {"collect": "overlap"}, [1, 1]),
    "double buffer": (Identity, "ppo", SMALL, {"vector": "subproc", "num_workers": 2, "double_buffer": True}, [1, 1]),
    "workers": (Relay, "dqn", REPLAY, {"vector": "subproc", "num_workers": 2}, [1, 1, 1]),
    "mean of the team": (Relay, "ppo", SMALL, {"team_reward": "mean"}, [1, 1, 1]),
}


def main() -> None:
    """Print a line for each run that is named, or for all."""
    named = sys.argv[1:]
    for name, run in RUNS.items():
        if not named or name in named:
            print(trained(*run), name, flush=True)
    for name, case in CASES.items():
        if not named or name in named:
            print(resumed(case), name, "(interrupted and resumed)", flush=True)


def trained(env: Any, algo: str, settings: dict[str, Any], told: dict[str, Any], learning: list[int]) -> str:
    """Train for 1,200 env steps; return a checksum of agents, tables and counts."""
    agents = mt.make_agents(algo, env, seed=1, **settings)
    trainer = mt.DecentralizedTrainer(
        env, num_train_envs=6, num_test_envs=3, update_freq=120, test_freq=20, episodes_per_test=5, batch_size=16,
        steps_per_train=1200, seed=3, progress=False, run_dir=False, **told,
    )  # fmt: skip
    return checksum(agents, trainer.train(agents, learning, plot=False))


def resumed(case: Any) -> str:
    """Train a case of `resuming`, stop it in between, resume it; return a checksum of agents, tables and counts."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        case.train(run, case.at, callbacks=[mt.Checkpoint(every_steps=10_000, memory=True)])
        left = case.train(run, case.steps, resume=run, again=True)
    kept = {name: left[name] for name in ("agents", "carries", "counters", "episodes", "history", "memory", "metrics")}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:16]


def checksum(agents: list[Any], result: Any) -> str:
    """Return a checksum of everything that does not depend on the clock."""
    digest = hashlib.sha256()
    for agent in agents:
        for name, value in sorted(agent.state_dict().items()):
            data = value.tobytes() if isinstance(value, np.ndarray) else json.dumps(value, sort_keys=True).encode()
            digest.update(name.encode() + data)
    counts = [result[name] for name in ("num_collected_steps", "num_collected_episodes", "num_gradient_steps")]
    tables = [result[name].drop(columns="seconds").to_csv() for name in ("history", "episodes")]
    digest.update(repr((counts, tables, result["reward_metric_stats"])).encode())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    main()
