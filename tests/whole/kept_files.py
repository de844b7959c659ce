"""Files that a version writes, kept in the repository so that later versions are tested with them.

`python -m tests.whole.kept_files` writes them into `tests/whole/files/<version>/`. They may be renewed until the
version is released. After that they stay as they are, and a version that writes other files gets its own folder.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import marltrain as mt
from marltrain.tools.run_files.plan import RunPlan
from marltrain.tools.run_files.writing import to_toml, write_settings

FOLDER = Path(__file__).parent / "files"
BOARD, CONTINUOUS, TEAM = "marltrain/tictactoe_v3", "marltrain/Pendulum-v1", "marltrain/simple_spread_v3"
SMALL = mt.MLP((8,))
AGENTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("ppo", BOARD, {}),
    "ppo_gru": ("ppo", TEAM, {"network": mt.GRU((8,), units=8), "share": True, "identify": True}),
    "dqn": ("dqn", BOARD, {"dueling": True, "epsilon": mt.linear(1, 0.05, 1000)}),
    "dqn_tensorflow": ("dqn", BOARD, {"backend": "tensorflow"}),
    "c51": ("c51", BOARD, {"atoms": 11}),
    "sac": ("sac", CONTINUOUS, {"normalize_observations": True}),
    "ppo_beta": ("ppo", CONTINUOUS, {"policy": "beta"}),
    "qmix": ("qmix", TEAM, {"mixing_units": 4, "hyper_units": 4}),
    "maddpg": ("maddpg", TEAM, {}),
}
"""Name of the folder -> algorithm, environment, settings."""
RUN: dict[str, Any] = {
    "num_train_envs": 2,
    "num_test_envs": 2,
    "episodes_per_test": 4,
    "test_freq": 20,
    "progress": False,
    "seed": 0,
}


def make(name: str) -> list[Any]:
    """Return untrained agents of an entry of `AGENTS`."""
    algo, env, settings = AGENTS[name]
    return mt.make_agents(algo, env, seed=0, **{"network": SMALL, **settings})


def observations(agent: Any, count: int = 5) -> np.ndarray[Any, Any]:
    """Return observations [count, *O] float32 of an agent's space, the same at each call."""
    inner = agent.observation_space
    space = inner["observation"] if "observation" in getattr(inner, "spaces", {}) else inner
    low, high = np.maximum(space.low, -1), np.minimum(space.high, 1)
    return np.random.default_rng(0).uniform(low, high, (count, *space.shape)).astype(space.dtype)


def greedy(agent: Any) -> Any:
    """Return the greedy actions for `observations`, as lists."""
    player = {"player": agent.identity[0]} if agent.identity else {}
    return np.asarray(agent.act(observations(agent), **player)).tolist()


def write_agents(folder: Path) -> None:
    """Save the agents of `AGENTS` and the weights of one, and the actions of all."""
    actions = {}
    for name in AGENTS:
        agents = make(name)
        mt.save(folder / "agents" / name, agents)
        actions[name] = [greedy(agent) for agent in agents]
    mt.save(folder / "weights", make("ppo"), weights_only=True)
    (folder / "actions.json").write_text(json.dumps(actions) + "\n", encoding="utf-8")


def write_run(folder: Path) -> None:
    """Train DQN with a replay memory for 300 env steps, with a checkpoint, and keep what is needed to continue."""
    agents = mt.make_agents("dqn", BOARD, seed=0, network=SMALL, capacity=200, learning_starts=50)
    trainer = mt.DecentralizedTrainer(
        BOARD, steps_per_train=300, run_dir=folder / "run", callbacks=[mt.Checkpoint(every_steps=100, keep=1)], **RUN
    )
    trainer.train(agents, learning_mask=[1, 1], plot=False)
    for file in (folder / "run").glob("events.*"):
        file.unlink()


def write_tools(folder: Path) -> None:
    """Write demonstrations, replays, an exported policy, the file of a run and a file of settings."""
    agents = make("ppo")
    mt.demonstrations(BOARD, agents, episodes=3, player="player_1").save(folder / "demonstrations")
    mt.evaluate(agents, env=BOARD, against=["random"], episodes=2, out=folder / "evaluation")
    for picture in (folder / "evaluation").glob("*.png"):
        picture.unlink()
    mt.export(agents[0], folder / "policy.onnx")
    plan = RunPlan(BOARD, algo="dqn", settings={"network": SMALL}, trainer={"steps_per_train": 100, "seed": 1})
    (folder / "run.toml").write_text(to_toml(plan), encoding="utf-8")
    write_settings(folder / "settings.toml", {"trainer": {"update_freq": 10}, "agents": {"learning_rate": 1e-3}})


WRITERS: tuple[Callable[[Path], None], ...] = (write_agents, write_run, write_tools)


def main() -> None:
    """Write the files of this version anew."""
    folder = FOLDER / mt.__version__
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for write in WRITERS:
        write(folder)
    print(folder, sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()), "bytes")


if __name__ == "__main__":
    main()
