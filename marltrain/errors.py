"""Every error marltrain raises on purpose.

    MarlTrainError
      SpecError        a space or an observation that marltrain cannot represent      (ValueError)
      ConfigError      a setting that is unknown, of the wrong type or out of range   (ValueError)
      MaskError        a learning or exploration mask that does not fit the players   (ValueError)
      AgentError       an agent that does not fit its seat                            (ValueError)
      EnvError         an environment that broke its contract, or raised              (RuntimeError)
        WorkerError    a worker process that died                                     (RuntimeError)
      SaveError        a file that cannot be written, or read back                    (RuntimeError)

A message says what was expected, what came, where, and what to do about it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

LONGEST = 200
"""Characters of a value that a message shows."""


class MarlTrainError(Exception):
    """Base of every error that marltrain raises on purpose."""


class SpecError(MarlTrainError, ValueError):
    """A space or an observation that marltrain cannot represent."""


class ConfigError(MarlTrainError, ValueError):
    """A setting that is unknown, of the wrong type or out of range."""


class MaskError(MarlTrainError, ValueError):
    """A learning or exploration mask that does not fit the players."""


class AgentError(MarlTrainError, ValueError):
    """An agent that does not fit the seat it was given."""


class EnvError(MarlTrainError, RuntimeError):
    """An environment that broke its contract or raised an exception of its own."""


class WorkerError(EnvError):
    """A worker process that died or stopped answering."""


class SaveError(MarlTrainError, RuntimeError):
    """A file that cannot be written, or a saved one that is missing, damaged or of another kind."""


def shown(value: Any) -> str:
    """Return what a message shows of any value: its repr in one line, not too long, and never an exception."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a repr of a user's own, or an integer of more digits than Python prints
        text = f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({type(value).__name__})"


def spoken(error: BaseException) -> str:
    """Return what an error says, for the message of another; one that is not ours with its type."""
    return str(error) if isinstance(error, MarlTrainError) else f"{type(error).__name__}: {error}"


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the nearest known name, or an empty string; also for what is no name."""
    if not isinstance(name, str) or len(name) > LONGEST:
        return ""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""
