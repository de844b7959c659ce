"""WandbLogger: runs in Weights & Biases."""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from marltrain.core.errors import ConfigError
from marltrain.core.extras import imported
from marltrain.core.settings import checked_arguments
from marltrain.storage.checks import counted, of_type
from marltrain.tools.loggers.run_logger import FINISHED, PICTURE, TABLES, RunLogger
from marltrain.trainer.events.callbacks import Moment
from marltrain.trainer.saving.places import PlaceInRun

MODES = ("online", "offline", "disabled")
STEPS = "env_steps"
RECENT = 60.0
"""Seconds of points that W&B may still buffer: its process writes its file every 15 s, and ends with this process."""
MOST_RECENT = 10_000
"""Maximum number of such points."""


class WandbLogger(RunLogger):
    """Logs runs to Weights & Biases (https://docs.wandb.ai): `pip install "marltrain[wandb]"`.

    project, entity, name, group, tags: as for `wandb.init`; name=None: the name of the run's folder.
    mode: "online", "offline" or "disabled"; None: the environment variable WANDB_MODE, else online.
    folder: where wandb writes its files; None: the run's folder.
    every: seconds between two points of training.  files: send tables, picture and best agents at the end.

    Scalars have the tags of TensorBoard, over the axis `env_steps`. The table of tests is `tests`, the picture
    `metrics`; all tables are the artifact "<name>-tables", the best agents "<name>-best". A resumed run continues under
    its id; points from a minute before its checkpoint to its interruption are sent twice, since W&B may have lost them.
    Raises ConfigError for a wrong argument, or if wandb is not installed.
    """

    described_by = ("project", "entity", "name", "group", "tags", "mode", "folder", "every", "files")

    @checked_arguments
    def __init__(
        self,
        project: str = "marltrain",
        *,
        entity: str | None = None,
        name: str | None = None,
        group: str | None = None,
        tags: Sequence[str] = (),
        mode: str | None = None,
        folder: str | Path | PlaceInRun | None = None,
        every: float = 1.0,
        files: bool = True,
    ) -> None:
        """Import wandb."""
        super().__init__(every=every, files=files)
        if mode not in (None, *MODES):
            raise ConfigError(f"WandbLogger: mode must be None or one of {', '.join(MODES)}, got {mode!r}")
        self.project, self.entity, self.group, self.mode = project, entity, group, mode
        self.tags = tuple(tags)
        self.name, self.folder = name, Path(folder) if isinstance(folder, str) else folder
        self._wandb = imported("wandb", "wandb", "WandbLogger")
        self._run: Any = None
        self._recent: deque[tuple[float, dict[str, float], int]] = deque(maxlen=MOST_RECENT)

    def begin(self, folder: Path, config: Mapping[str, Any], run_id: str | None) -> str:
        """Begin or continue a run."""
        run_id = run_id or secrets.token_hex(4)
        place = self.folder.within(folder) if isinstance(self.folder, PlaceInRun) else self.folder or folder
        if isinstance(self.folder, PlaceInRun):
            place.mkdir(parents=True, exist_ok=True)
        self._run = self._wandb.init(
            project=self.project, entity=self.entity, group=self.group, tags=list(self.tags) or None, mode=self.mode,
            id=run_id, name=self.name or folder.name, dir=str(place), resume="allow",
            reinit="create_new",
        )  # fmt: skip
        self._run.config.update(dict(config), allow_val_change=True)
        self._run.define_metric(STEPS, hidden=True)
        self._run.define_metric("*", step_metric=STEPS)
        for _, scalars, env_steps in self._recent:  # those before the checkpoint of a resumed run
            self._run.log({**scalars, STEPS: env_steps})
        return run_id

    def send(self, scalars: Mapping[str, float], env_steps: int) -> None:
        """Log scalars."""
        now = time.monotonic()
        self._recent.append((now, dict(scalars), env_steps))
        while self._recent[0][0] < now - RECENT:
            self._recent.popleft()
        self._run.log({**scalars, STEPS: env_steps})

    def send_picture(self, tag: str, picture: bytes, env_steps: int) -> None:
        """Log a picture."""
        from PIL import Image

        self._run.log({tag: self._wandb.Image(Image.open(BytesIO(picture))), STEPS: env_steps})

    def open(self, moment: Moment) -> None:
        """See `RunLogger`."""
        super().open(moment)
        self._recent.clear()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of a `RunLogger`, and the recent points."""
        now = time.monotonic()
        recent = [[env_steps, scalars] for sent, scalars, env_steps in self._recent if sent >= now - RECENT]
        return {**super().state_dict(), "recent": recent}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict({name: value for name, value in state.items() if name != "recent"})
        now = time.monotonic()
        self._recent.clear()
        for point in of_type("recent", state["recent"], list):
            steps, scalars = of_type("a point", point, list)
            numbers = {tag: of_type(tag, value, float, int) for tag, value in of_type("scalars", scalars, dict).items()}
            self._recent.append((now, numbers, counted("env steps", steps)))

    def send_files(self, files: list[Path], best: Path | None) -> None:
        """Log the table of tests and the picture, and the artifacts."""
        import pandas as pd

        name = self._run.name or self._run.id
        tables = self._wandb.Artifact(f"{name}-tables", type="tables")
        for file in files:
            tables.add_file(str(file))
            if file.name == TABLES[0]:
                self._run.log({"tests": self._wandb.Table(dataframe=pd.read_parquet(file))})
            if file.name == PICTURE:
                self._run.log({"metrics": self._wandb.Image(str(file))})
        self._run.log_artifact(tables)
        if best is not None:
            agents = self._wandb.Artifact(f"{name}-best", type="agents")
            agents.add_dir(str(best))
            self._run.log_artifact(agents)

    def end(self, outcome: str) -> None:
        """Finish the run."""
        self._run.finish(exit_code=0 if outcome == FINISHED else 1)
        self._run = None
        self._recent.clear()
