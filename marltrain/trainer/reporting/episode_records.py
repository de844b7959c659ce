"""Attributes of the environment at the end of training episodes (`record`): columns of the table of episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from marltrain.core.errors import EnvError, SaveError
from marltrain.core.layout import Array
from marltrain.storage.checks import within
from marltrain.storage.state import State
from marltrain.trainer.reporting.tables import LongTable

ROW: dict[str, Any] = {"episode": np.int64, "name": np.int32, "text": np.int32, "value": np.float64}
"""Columns of the table: a row for each episode and name with a value; text: index of a text, `NUMBER` for numbers."""
NUMBER = -1
MOST_TEXTS = 10_000
"""Maximum number of different texts; more are no categories but identifiers, and would fill the memory."""


class EpisodeRecords:
    """A row for each recorded value of each episode: names may appear at any time, and are few in most episodes."""

    def __init__(self, folder: Path | None, held: int) -> None:
        """Start without a value.  folder, held: see `LongTable`."""
        self._rows = LongTable(ROW, folder, held)
        self._names: dict[str, int] = {}  # name -> its number
        self._texts: dict[str, int] = {}
        self._textual: set[str] = set()  # names that had a text

    def __bool__(self) -> bool:
        """Return whether anything was recorded."""
        return bool(self._names)

    def add(self, episode: int, values: Mapping[str, Any]) -> None:
        """Add the values of an episode, whose number exceeds those before; raises EnvError for too many texts."""
        for name, value in values.items():
            number = self._names.setdefault(name, len(self._names))
            if value is None:
                continue
            if isinstance(value, str):
                self._textual.add(name)
                self._rows.add(episode, number, self._text(name, value), math.nan)
            else:
                self._rows.add(episode, number, NUMBER, float(value))

    def _text(self, name: str, text: str) -> int:
        if text not in self._texts and len(self._texts) == MOST_TEXTS:
            raise EnvError(
                f"record: {name!r} and others have had {MOST_TEXTS:,} different texts: record numbers, or texts that "
                "name a few outcomes"
            )
        return self._texts.setdefault(text, len(self._texts))

    def reader(self) -> RecordReader:
        """Return a reader that begins with episode 0."""
        return RecordReader(self._rows, list(self._names), list(self._texts), self._textual)

    def state(self) -> State:
        """Return all values."""
        result = State.joined(rows=self._rows.state())
        result.info |= {"names": list(self._names), "texts": list(self._texts), "textual": sorted(self._textual)}
        return result

    def restore(self, state: State, episodes: int) -> None:
        """Restore what `state` returned.

        episodes: number of finished episodes.  Raises SaveError for values that `state` cannot have returned.
        """
        names, texts, textual = (state.names(key) for key in ("names", "texts", "textual"))
        if len(texts) > MOST_TEXTS or not set(textual) <= set(names):
            raise SaveError(f"{state.place('texts')} or {state.place('textual')} does not belong to recorded values")
        self._rows.restore(state.part("rows"))
        last = 0
        for part in self._rows.parts():
            limits = {"episode": (last, episodes - 1), "name": (0, len(names) - 1), "text": (NUMBER, len(texts) - 1)}
            for column, (low, high) in limits.items():
                within(state.place(f"rows/{column}"), part[column], low, high)
            if (np.diff(part["episode"]) < 0).any():
                raise SaveError(f"{state.place('rows/episode')}: the episodes are not in order")
            last = int(part["episode"][-1]) if len(part["episode"]) else last
        self._names, self._texts = ({text: i for i, text in enumerate(held)} for held in (names, texts))
        self._textual = set(textual)


class RecordReader:
    """Reads recorded values as columns of the table of episodes, block by block.

    textual: names of the columns of texts.
    """

    def __init__(self, rows: LongTable, names: list[str], texts: list[str], textual: set[str]) -> None:
        """Begin with episode 0."""
        self._names, self._textual, self._first = names, textual, 0
        self._texts = np.array([*texts, ""], object)
        self._parts = rows.parts()
        self._part, self._at = next(self._parts), 0

    @property
    def textual(self) -> set[str]:
        """Names of the columns of texts."""
        return {f"record/{name}" for name in self._textual}

    def take(self, episodes: int) -> dict[str, Array]:
        """Return the columns "record/<name>" of the next episodes: float64 with nan, or objects with None, of texts.

        Numbers among texts become texts.
        """
        columns = {
            name: np.full(episodes, None, object) if name in self._textual else np.full(episodes, math.nan)
            for name in self._names
        }
        while True:
            own = self._part["episode"][self._at :]
            end = self._at + int(np.searchsorted(own, self._first + episodes))
            self._fill(columns, {key: values[self._at : end] for key, values in self._part.items()})
            self._at = end
            following = next(self._parts, None) if end == len(self._part["episode"]) else None
            if following is None:
                break
            self._part, self._at = following, 0
        self._first += episodes
        return {f"record/{name}": values for name, values in columns.items()}

    def _fill(self, columns: Mapping[str, Array], rows: Mapping[str, Array]) -> None:
        for number, name in enumerate(self._names):
            own = rows["name"] == number
            places, values, texts = (rows[key][own] for key in ("episode", "value", "text"))
            if name in self._textual:
                numbers = np.array([f"{value:g}" for value in values.tolist()], object)
                values = np.where(texts == NUMBER, numbers, self._texts[texts])
            columns[name][places - self._first] = values
