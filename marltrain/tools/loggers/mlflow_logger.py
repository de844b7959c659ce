"""MLflowLogger: runs in MLflow."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from marltrain.core.errors import ConfigError
from marltrain.core.extras import imported
from marltrain.core.settings import checked_arguments
from marltrain.storage.checks import counted, of_type
from marltrain.tools.loggers.run_logger import FAILED, FINISHED, INTERRUPTED, RunLogger
from marltrain.trainer.events.callbacks import Moment

STATUS = {FINISHED: "FINISHED", INTERRUPTED: "KILLED", FAILED: "FAILED"}
PARAMS, METRICS = 100, 1000
"""Maximum numbers of parameters and of metrics of a request."""
Place = tuple[int, int]
"""Place of a value in the history of a metric: its env step, and its number among the values of this env step."""
LONGEST = 500
"""Maximum length of a parameter's value that every store accepts."""


class MLflowLogger(RunLogger):
    """Logs runs to MLflow (https://mlflow.org): `pip install "marltrain[mlflow]"`.

    experiment: name of the experiment; it is created if there is none.  name: of the run; None: that of its folder.
    uri: tracking store, such as "sqlite:///mlflow.db" or "http://host:5000"; None: the environment variable
    MLFLOW_TRACKING_URI, else MLflow's default, the file mlflow.db in the working folder.
    every: seconds between two points of training.  files: send tables, picture and best agents at the end.

    Metrics have the tags of TensorBoard, at the step of their env step; a character that MLflow does not allow in a
    name is written as "_". The settings of config.json are parameters. Files are artifacts, the best agents in `best/`.
    A resumed run continues under its id; points that MLflow holds already are not sent again.
    Raises ConfigError for a wrong argument, or if mlflow is not installed.
    """

    described_by = ("experiment", "name", "uri", "every", "files")

    @checked_arguments
    def __init__(
        self,
        experiment: str = "marltrain",
        *,
        name: str | None = None,
        uri: str | None = None,
        every: float = 1.0,
        files: bool = True,
    ) -> None:
        """Import mlflow."""
        super().__init__(every=every, files=files)
        self.experiment, self.name, self.uri = experiment, name, uri
        self._mlflow = imported("mlflow", "mlflow", "MLflowLogger")
        self._client: Any = None
        self._places: dict[str, Place] = {}  # of the last value so far, by metric
        self._held: dict[str, Place] = {}  # of the last value that MLflow holds of a continued run

    def begin(self, folder: Path, config: Mapping[str, Any], run_id: str | None) -> str:
        """Begin or continue a run."""
        client = self._client = self._mlflow.MlflowClient(tracking_uri=self.uri)
        self._held = {}
        if run_id is not None:
            client.update_run(run_id, status="RUNNING")
            for metric in client.get_run(run_id).data.metrics:
                steps = [value.step for value in client.get_metric_history(run_id, metric)]
                self._held[metric] = max(steps), steps.count(max(steps))
            return run_id
        experiment = client.get_experiment_by_name(self.experiment)
        number = client.create_experiment(self.experiment) if experiment is None else experiment.experiment_id
        run: str = client.create_run(number, run_name=self.name or folder.name).info.run_id
        entities = self._mlflow.entities
        params = [entities.Param(_allowed(name), value[:LONGEST]) for name, value in _flat(config)]
        for start in range(0, len(params), PARAMS):
            client.log_batch(run, params=params[start : start + PARAMS], synchronous=True)
        return run

    def send(self, scalars: Mapping[str, float], env_steps: int) -> None:
        """Log scalars, except those that MLflow holds already."""
        now, kind = int(time.time() * 1000), self._mlflow.entities.Metric
        named = {_allowed(tag): value for tag, value in scalars.items()}
        if len(named) < len(scalars):
            raise ConfigError("MLflowLogger: MLflow allows only letters, digits and _-.: / in names, and with _ for "
                              f"other characters two of these are equal: {', '.join(scalars)}")  # fmt: skip
        metrics = [kind(name, value, now, env_steps) for name, value in named.items() if self._is_new(name, env_steps)]
        for start in range(0, len(metrics), METRICS):
            self._client.log_batch(self.run_id, metrics=metrics[start : start + METRICS], synchronous=True)

    def send_picture(self, tag: str, picture: bytes, env_steps: int) -> None:
        """Log a picture, as an image with steps."""
        from PIL import Image

        self._client.log_image(self.run_id, Image.open(BytesIO(picture)), key=_allowed(tag), step=env_steps)

    def open(self, moment: Moment) -> None:
        """See `RunLogger`."""
        super().open(moment)
        self._places = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the state of a `RunLogger`, and the place of the last value of each metric."""
        return {**super().state_dict(), "places": {name: list(place) for name, place in self._places.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        super().load_state_dict({name: value for name, value in state.items() if name != "places"})
        self._places = {}
        for name, place in of_type("places", state["places"], dict).items():
            step, count = of_type(f"the place of {name}", place, list)
            self._places[name] = counted("its step", step), counted("its count", count, 1)

    def _is_new(self, name: str, env_steps: int) -> bool:
        """Count a value of a metric; return whether MLflow does not hold it already."""
        step, count = self._places.get(name, (-1, 0))
        self._places[name] = place = env_steps, count + 1 if step == env_steps else 1
        return place > self._held.get(name, (-1, 0))

    def send_files(self, files: list[Path], best: Path | None) -> None:
        """Log the files as artifacts."""
        for file in files:
            self._client.log_artifact(self.run_id, str(file))
        if best is not None:
            self._client.log_artifacts(self.run_id, str(best), "best")

    def end(self, outcome: str) -> None:
        """Set the status of the run."""
        self._client.set_terminated(self.run_id, STATUS[outcome])


def _allowed(name: str) -> str:
    """Return a name with the characters that MLflow allows."""
    return re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the settings of nested JSON values, as ("trainer/seed", "0")."""
    for key, value in values.items():
        if isinstance(value, list) and any(isinstance(item, dict) for item in value):
            value = {str(place): item for place, item in enumerate(value)}
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}/")
        else:
            yield f"{prefix}{key}", str(value)
