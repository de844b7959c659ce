"""TensorBoard event files, written and read; `ScalarLogger` defines their tags."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from marltrain.core.errors import SaveError
from marltrain.storage.files import to_disk, writing
from marltrain.trainer.events.callbacks import Moment
from marltrain.trainer.reporting.scalar_logger import ScalarLogger

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event


PNG_SIZE, PNG_RGBA = (16, 20), 4
"""Places of width and height in a PNG file, and TensorBoard's number of its colors."""


class EventFile:
    """A TensorBoard event file of scalars and pictures, written without TensorFlow or torch."""

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

    def write_picture(self, tag: str, picture: bytes, step: int) -> None:
        """Write a PNG file's bytes as a record, in the format of the images plugin."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        width, height = (int.from_bytes(picture[at : at + 4], "big") for at in PNG_SIZE)
        image = Summary.Image(width=width, height=height, colorspace=PNG_RGBA, encoded_image_string=picture)
        summary = Summary(value=[Summary.Value(tag=tag, image=image)])
        self._write(Event(wall_time=time.time(), step=step, summary=summary))

    def flush(self) -> None:
        """Flush the buffered records to the operating system."""
        with writing(self.path):
            self._records.flush()

    def sync(self) -> None:
        """Flush the buffered records to the disk."""
        self.flush()
        to_disk(self.path)

    def close(self) -> None:
        """Close the file."""
        with writing(self.path):
            self._records.close()

    def _write(self, event: Event) -> None:
        with writing(self.path):
            self._records.write(event.SerializeToString())


class EventReader:
    """Reads the events of a file that may still grow, without TensorFlow or torch."""

    def __init__(self, path: str | Path) -> None:
        """Take the path of the file."""
        self.path, self._read = Path(path), 0

    def new(self) -> Iterator[Event]:
        """Yield the events that were written since the last call; raises SaveError for a damaged file.

        A record is its length in 8 bytes, their checksum in 4, the event, and its checksum in 4.
        """
        from google.protobuf.message import DecodeError
        from tensorboard.compat.proto.event_pb2 import Event

        with self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        place = 0
        while place + 12 <= len(data):
            size = int.from_bytes(data[place : place + 8], "little")
            if place + 16 + size > len(data):  # not written completely yet
                break
            try:
                yield Event.FromString(data[place + 12 : place + 12 + size])
            except DecodeError as error:
                raise SaveError(f"{self.path}: is no file of TensorBoard events, or was damaged: {error}") from error
            place += 16 + size
            self._read += 16 + size


class TensorBoard(ScalarLogger):
    """Writes the scalars and pictures of a run into event files.

    every: see `ScalarLogger`.  path: the file, None before training starts.
    """

    def __init__(self, folder: str | Path, *, every: float = 1.0) -> None:
        """Take the folder; the file is created when training starts."""
        super().__init__(every=every)
        self.folder = Path(folder)
        self.path: Path | None = None
        self._file: EventFile | None = None

    def open(self, moment: Moment) -> None:
        """Create the file; points of older files after this env step become obsolete."""
        self._file = EventFile(self.folder)
        self.path = self._file.path
        if moment.env_steps:
            self._file.resume(moment.env_steps + 1)

    def write(self, scalars: Mapping[str, float], env_steps: int) -> None:
        """Write scalars as one record."""
        if self._file is not None:
            self._file.write(scalars, env_steps)

    def write_picture(self, tag: str, picture: bytes, env_steps: int) -> None:
        """Write a picture as one record."""
        if self._file is not None:
            self._file.write_picture(tag, picture, env_steps)

    def flush(self) -> None:
        """Flush the file."""
        if self._file is not None:
            self._file.flush()

    def sync(self) -> None:
        """Flush the file to the disk."""
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            file, self._file = self._file, None
            file.close()
