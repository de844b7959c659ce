"""TensorBoard event files. Steps are env steps.

<agent>/<metric>                  means over the updates since the last point
train/return/<player>             mean over the training episodes since the last point
train/env_steps_per_second
test/metric, test/return/<player>
user/<name>                       values given to `Moment.log`
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.checks import counted, of_type
from marltrain.files import writing
from marltrain.state import State
from marltrain.trainer.callbacks import Callback, Moment
from marltrain.trainer.reporting.history import Means

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event


class EventFile:
    """A TensorBoard event file of scalars, written without TensorFlow or torch."""

    def __init__(self, folder: str | Path) -> None:
        """Create the file in `folder`; all methods raise SaveError if it cannot be written."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.record_writer import RecordWriter

        folder = Path(folder)
        now = time.time()
        self.path = folder / f"events.out.tfevents.{int(now)}.{socket.gethostname()}.{os.getpid()}.{time.time_ns()}"
        with writing(self.path):
            folder.mkdir(parents=True, exist_ok=True)
            self._records = RecordWriter(self.path.open("xb"))
        self._write(Event(wall_time=now, file_version="brain.Event:2"))

    def resume(self, step: int) -> None:
        """Mark the points of older files in the folder, from `step` on, as obsolete."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        started = SessionLog(status=SessionLog.START)
        self._write(Event(wall_time=time.time(), step=step, session_log=started))

    def write(self, scalars: Mapping[str, float], step: int) -> None:
        """Write all scalars of one step as one record."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()])
        self._write(Event(wall_time=time.time(), step=step, summary=summary))

    def flush(self) -> None:
        """Flush the buffered records to the operating system."""
        with writing(self.path):
            self._records.flush()

    def close(self) -> None:
        """Close the file."""
        with writing(self.path):
            self._records.close()

    def _write(self, event: Event) -> None:
        with writing(self.path):
            self._records.write(event.SerializeToString())


class TensorBoard(Callback):
    """Writes event files into a folder.

    every: seconds between two points of training; each is the mean of the values in between. Tests are written at once.
    """

    only_watches = True

    def __init__(self, folder: str | Path, *, every: float = 1.0) -> None:
        """Take the folder; the file is created when training starts."""
        self.folder, self.every = Path(folder), every
        self._file: EventFile | None = None
        self._means = Means()
        self._last = (0, 0.0)

    def on_train_start(self, moment: Moment) -> None:
        """Create the file."""
        self._file = EventFile(self.folder)
        if moment.env_steps:
            self._file.resume(moment.env_steps + 1)
        self._last = (moment.env_steps, moment.seconds)

    def on_episode_end(self, moment: Moment) -> None:
        """Add the returns to the means."""
        names, returns = moment.data["names"], moment.data["returns"].tolist()
        self._means.add({"train": {f"return/{name}": value for name, value in zip(names, returns, strict=True)}})

    def on_update_end(self, moment: Moment) -> None:
        """Add the metrics to the means; write a point if one is due."""
        self._means.add(moment.data["metrics"], moment.data["rounds"])
        if moment.seconds - self._last[1] >= self.every:
            self._point(moment)

    def on_test_end(self, moment: Moment) -> None:
        """Write a point of training, then the test."""
        self._point(moment)
        result: Any = moment.data["result"]
        means = {
            f"test/return/{name}": float(mean) for name, mean in zip(result.names, result.returns.mean(0), strict=True)
        }
        self._write({"test/metric": float(moment.data["metric"]), **means}, moment)
        self._flush()

    def on_log(self, moment: Moment) -> None:
        """Write a value that the user logged."""
        self._write({moment.data["tag"]: moment.data["value"]}, moment)

    def on_train_end(self, moment: Moment) -> None:
        """Write the last point and close the file."""
        try:
            self._point(moment)
        finally:
            if self._file is not None:
                file, self._file = self._file, None
                file.close()

    def state_dict(self) -> dict[str, Any]:
        """Return the running means for the next point, and the env step and time of the last point."""
        means = self._means.state()
        return {
            "names": means.info["names"], "last": list(self._last),
            **{name: array.tolist() for name, array in means.arrays.items()},
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        steps, seconds = of_type("the last point", state["last"], list)
        self._last = counted("the last step", steps), of_type("its seconds", seconds, float)
        means, kinds = State(dict(state), {}, "the means"), {"sums": float, "counts": int}
        means.arrays = {name: np.array(means.values(name, kind), kind) for name, kind in kinds.items()}
        self._means.restore(means)

    def _point(self, moment: Moment) -> None:
        scalars = self._means.take()
        steps, seconds = moment.env_steps - self._last[0], moment.seconds - self._last[1]
        if steps > 0 and seconds > 0:
            scalars["train/env_steps_per_second"] = steps / seconds
        self._last = (moment.env_steps, moment.seconds)
        if scalars:
            self._write(scalars, moment)
            self._flush()

    def _write(self, scalars: Mapping[str, float], moment: Moment) -> None:
        if self._file is not None:
            self._file.write(scalars, moment.env_steps)

    def _flush(self) -> None:
        if self._file is not None:
            self._file.flush()
