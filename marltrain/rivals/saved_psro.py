"""The state of a call of `psro` in a folder: the same call goes on with it after Ctrl-C or the end of the process.

    <folder>/
      psro.json                  the arguments, and the results of all iterations that have ended, with a checksum
      policies/<player>-<i>/     the policy that iteration i added for a player
      responses/<player>-<i>/    checkpoints of the training of a policy, while the iteration is under way
      run.lock                   while the call is under way

psro.json is replaced atomically when the policies of an iteration are written, and a checkpoint is complete or absent.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError, SaveError
from marltrain.core.layout import Array
from marltrain.core.remedies import written
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.files import read_agents
from marltrain.policies.agents.saving import save
from marltrain.storage.files import made_folder, path_of, writing
from marltrain.storage.json_files import to_json
from marltrain.storage.manifest import Manifest
from marltrain.storage.state import State
from marltrain.trainer.preparing.resume import difference_of
from marltrain.trainer.saving.checkpoint import newest
from marltrain.trainer.saving.run_folder import LOCK, existing_folder
from marltrain.trainer.training.interrupted import print_how

LOGGER = logging.getLogger("marltrain")
FILE = "psro.json"
FILES = Manifest(
    "marltrain-psro", 1, "a call of psro", FILE, (), ". Go on with marltrain {version}, or name another folder"
)
POLICIES, RESPONSES = "policies", "responses"


class SavedPSRO:
    """A folder that is locked for a call of `psro`; see the module docstring.

    about: the arguments of the call that began it, as JSON values; {} for a new one.
    """

    def __init__(self, path: Path) -> None:
        """Read psro.json, if there is one.

        Raises ConfigError for a folder of other things, and SaveError for a damaged file.
        """
        self.path, self._file = path, path / FILE
        self.about, self._results = dict[str, Any](), State()
        if self._file.exists():
            found = State(FILES.read(path, {"about", "results"}), {}, str(self._file))
            self.about, self._results = found.value("about", dict), found.part("results")
            return
        others = sorted({entry.name for entry in path.iterdir()} - {LOCK, POLICIES, RESPONSES})
        if [name for name in others if not name.startswith(f".{self._file.stem}.")]:
            raise ConfigError(f"{path} is not the folder of a call of psro: it holds {others[0]!r}, and no {FILE}")

    def check(self, about: Mapping[str, Any]) -> None:
        """Write the arguments of the call; raises ConfigError for other ones than those that began it."""
        now = to_json(dict(about))
        if self.about and (difference := difference_of(self.about, now, "")):
            raise ConfigError(
                f"{self.path} cannot be resumed by this call of psro: {difference}. Repeat the arguments (iterations "
                "may differ), or name another folder: resume=..."
            )
        if not self.about:
            self.about = now
            self._write({})

    def read(self) -> tuple[int, dict[str, Any]]:
        """Return the number of iterations that have ended, and their results; raises SaveError for damaged ones.

        Results: "payoffs" [2, N, N], "strategies" [2, N], "gains", a pair for each iteration, and "exploitability".
        """
        if not self._results.info:
            return 0, {}
        gains = self._results.values("gains", list)
        done = len(gains)
        numbers = {
            "payoffs": (2, done + 1, done + 1), "strategies": (2, done + 1), "gains": (done, 2),
            "exploitability": (len(self._results.value("exploitability", list)),),
        }  # fmt: skip
        found = {name: _numbers(self._results, name, shape) for name, shape in numbers.items()}
        if len(found["exploitability"]) not in (0, done):
            raise SaveError(f"{self._results.place('exploitability')} must have {done} numbers or none")
        LOGGER.warning("%s: psro goes on after %d iterations", self.path, done)
        return done, found

    def restore(self, agent: Agent, player: int, i: int) -> None:
        """Give an agent the state of the policy of an iteration; raises SaveError for damaged files."""
        agent.restore(read_agents(self._policy(player, i)).states[0])

    def training(self, player: int, i: int) -> Path:
        """Return the folder of the training of a policy; what a run without a checkpoint has left is removed."""
        folder = self.path / RESPONSES / f"{player}-{i}"
        if newest(folder) is None:
            _remove(folder)
        return folder

    def write(self, agents: tuple[Agent, Agent], results: Mapping[str, Any]) -> None:
        """Save the new policies of an iteration, and all results so far; remove the checkpoints of the iteration."""
        for player, agent in enumerate(agents):
            save(self._policy(player, len(results["gains"])), agent)
        self._write(results)
        _remove(self.path / RESPONSES)

    def _write(self, results: Mapping[str, Any]) -> None:
        FILES.write(self.path, {"about": self.about, "results": to_json(dict(results))})

    def _policy(self, player: int, i: int) -> Path:
        return self.path / POLICIES / f"{player}-{i}"


@contextmanager
def psro_in(resume: str | Path | None) -> Iterator[SavedPSRO | None]:
    """Lock a folder and open it; None: nothing is saved. After an interrupt, print how to go on."""
    if resume is None:
        yield None
        return
    name = written("resume", "")
    folder = existing_folder(made_folder(path_of(resume, name, ConfigError), name))
    try:
        yield SavedPSRO(folder.path)
    except KeyboardInterrupt:
        print_how(f"interrupted; the same call goes on with the populations: resume={str(folder.path)!r}")
        raise
    finally:
        folder.release()


def _numbers(state: State, name: str, shape: tuple[int, ...]) -> Array:
    """Return numbers of this shape; raises SaveError for others."""
    values = state.value(name, list)
    try:
        found = np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        raise SaveError(f"{state.place(name)} must be numbers of shape {shape}") from error
    if found.size == 0 == np.prod(shape):
        found = found.reshape(shape)
    if found.shape != shape or not np.isfinite(found).all():
        raise SaveError(f"{state.place(name)} must be finite numbers of shape {shape}, got the shape {found.shape}")
    return found


def _remove(folder: Path) -> None:
    with writing(folder):
        if folder.exists():
            shutil.rmtree(folder)
