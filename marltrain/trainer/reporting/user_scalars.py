"""Scalars and pictures logged by the user: their checks, and their way into tables and TensorBoard files."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from marltrain.core.errors import ConfigError, shown
from marltrain.core.settings import LARGEST, python_number
from marltrain.trainer.reporting.figures import png_of
from marltrain.trainer.reporting.history import History

if TYPE_CHECKING:
    from matplotlib.figure import Figure

USER = "user"
"""Prefix of names without a slash."""
LONGEST = 200
"""Maximum length of a name, in characters."""
TAKEN = (
    "return/", "sampled/", "test/metric", "test/return/", "test/sampled/", "train/return/",
    "train/env_steps_per_second", "train/episodes", "train/updates",
)  # fmt: skip
"""Prefixes of names that a run writes itself, besides the names of its agents."""


class Scalars:
    """Checks and records the values given to `Moment.log`, and the pictures given to `Moment.log_picture`."""

    def __init__(self, history: History, agents: Collection[str], tell: Callable[..., None]) -> None:
        """Take the history, the agents' names in the tables, and `tell`, which calls the callbacks of an event."""
        self._history, self._taken, self._tell = history, (*TAKEN, *(f"{name}/" for name in agents)), tell

    def log(self, name: str, value: float) -> None:
        """Add a value to the mean of the next test's row, and call `on_log`; see `Moment.log`."""
        tag, number = self._tag("log", name), checked_number(name, value)
        first, rest = tag.split("/", 1)
        self._history.add_update({first: {rest: number}})
        self._tell("on_log", tag=tag, value=number)

    def log_picture(self, name: str, figure: Figure) -> None:
        """Call `on_picture`; see `Moment.log_picture`."""
        from matplotlib.figure import Figure

        if not isinstance(figure, Figure):
            raise ConfigError(f"log_picture: {name!r} must be a figure of matplotlib, got {shown(figure)}")
        self._tell("on_picture", tag=self._tag("log_picture", name), picture=png_of(figure))

    def _tag(self, who: str, name: Any) -> str:
        """Return the name of a value in tables and files; raises ConfigError for a name that cannot be used.

        who: the function that got it.
        """
        good = isinstance(name, str) and name.isprintable() and name.strip() == name and len(name) <= LONGEST
        if not good or not all(name.split("/")):
            raise ConfigError(
                f"{who}: name must be text, such as 'loss' or 'mine/loss': at most {LONGEST} printable characters, and "
                f"none of its parts between slashes empty; got {shown(name)}"
            )
        tag = name if "/" in name else f"{USER}/{name}"
        if taken := next((begin for begin in self._taken if tag.startswith(begin)), ""):
            raise ConfigError(f"{who}: {name!r} is a name that the run writes itself ({taken}...): give another one")
        return tag


def checked_number(name: str, value: Any) -> float:
    """Return a number, or an array or tensor of one number, as a float.

    Raises ConfigError, with `name`, unless it is one finite number.
    """
    number = python_number(value)
    if hasattr(value, "__float__") and getattr(value, "shape", None) == ():
        try:
            number = float(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"log: the value of {name!r} must be one number, got {shown(value)}") from error
    if not isinstance(number, int | float):
        raise ConfigError(f"log: the value of {name!r} must be one number, got {shown(value)}")
    if not abs(number) <= LARGEST[float]:
        raise ConfigError(f"log: the value of {name!r} must be a finite number, got {shown(value)}")
    return float(number)
