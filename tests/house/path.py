"""The files executed by a training step: one update and the batch steps before it, on a Python environment.

`python -m tests.house.path ppo` (or another algorithm's name) prints the modules of marltrain that execute, and their
subjects, in the order of their first call. Modules that every line of code may use (errors, settings, spec, packages'
`__init__`) are left out.
"""

from __future__ import annotations

import ast
import sys
from dataclasses import fields
from pathlib import Path
from types import FrameType
from typing import Any

import marltrain as mt
from marltrain.policies.agents.registry import agent_class
from marltrain.policies.interface.joint import JointAlgorithm

PACKAGE = Path(mt.__file__).parent
EVERYWHERE = {"core/errors.py", "core/settings.py", "core/spec.py"}


class Trace(mt.Callback):
    """Records the files of marltrain that are executed between the second and the third update."""

    def __init__(self) -> None:
        self.updates, self.files = 0, dict[str, int]()

    def on_update_end(self, moment: mt.Moment) -> None:
        """Begin after the second update: the first compiles and allocates. End after the third."""
        self.updates += 1
        sys.setprofile(self._called if self.updates == 2 else None)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            name = path.relative_to(PACKAGE).as_posix()
            if name not in EVERYWHERE and path.name != "__init__.py":
                self.files.setdefault(name, frame.f_code.co_firstlineno)


def path_of(algo: str) -> list[str]:
    """Return the files executed by a batch step and an update of an algorithm, in the order of their first call."""
    env, trace = "mpe2/simple_spread_v3", Trace()  # 25 env steps an episode: none ends while the trace is taken
    settings = settings_of(algo, env)
    try:
        env_args = {"continuous_actions": False}
        agents = mt.make_agents(algo, env, env_args=env_args, seed=0, **settings)
    except mt.SpecError:
        env_args = {"continuous_actions": True}
        agents = mt.make_agents(algo, env, env_args=env_args, seed=0, **settings)
    together = issubclass(agent_class(algo).algorithm_class, JointAlgorithm)
    trainer = mt.DecentralizedTrainer(
        env, env_args=env_args, team_reward="mean" if together else None, num_train_envs=4, batch_size=16,
        update_freq=24, test_freq=None, steps_per_train=72, run_dir=False, progress=False, seed=0, callbacks=[trace],
    )  # fmt: skip
    trainer.train(agents, [1, 1, 1], plot=False)
    return list(trace.files)


def settings_of(algo: str, env: str) -> dict[str, Any]:
    """Return settings with which an algorithm learns from the start: no warm-up; random demonstrations."""
    names = {field.name for field in fields(agent_class(algo).algorithm_class.Settings)}
    settings: dict[str, Any] = {"learning_starts": 0} if "learning_starts" in names else {}
    if "demonstrations" in names:
        agents = [mt.RandomAgent() for _ in range(3)]
        settings["demonstrations"] = mt.demonstrations(env, agents, episodes=1, player="agent_0")
    return settings


def subject_of(path: Path) -> str:
    """Return the first line of a module's docstring."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[0]


def main() -> None:
    """Print the path with the subject of each file, and its length."""
    files = path_of(sys.argv[1] if len(sys.argv) > 1 else "ppo")
    for file in files:
        print(f"{file:46}{subject_of(PACKAGE / file)}")
    print(f"{len(files)} files, {sum(len((PACKAGE / file).read_text().splitlines()) for file in files):,} lines")


if __name__ == "__main__":
    main()
