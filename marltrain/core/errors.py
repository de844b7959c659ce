"""Exceptions of marltrain, and helpers for their messages.

    MarlTrainError
      SpecError        a space or an observation that marltrain cannot represent      (ValueError)
      ConfigError      a setting that is unknown, of the wrong type or out of range   (ValueError)
      MaskError        a learning or exploration mask that does not fit the players   (ValueError)
      AgentError       an agent that does not fit its seat                            (ValueError)
      EnvError         an environment that broke its contract, or raised              (RuntimeError)
        WorkerError    a worker process that died                                     (RuntimeError)
      SaveError        a file that cannot be written, or read back                    (RuntimeError)

A message states the expected value, the actual value, its place and a remedy.
"""

from __future__ import annotations

import contextlib
import difflib
import logging
import os
import sys
import traceback as tracebacks
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

LONGEST = 200
"""Maximum length of a value in a message, in characters."""
LONGEST_TEXT, LONGEST_TRACEBACK = 2_000, 8_000
"""Maximum lengths of the text and of the traceback of foreign errors, in characters."""
DOCTOR = "If a package cannot be imported that marltrain needs, `marltrain doctor` tells the cause and the remedy."
"""Note of failed imports."""
ALSO_CALLED: dict[str, tuple[str, ...]] = {
    "actor_lr": ("learning_rate",),
    "buffer_size": ("capacity",),
    "clip_param": ("clip",),
    "clip_range": ("clip",),
    "critic_lr": ("critic_learning_rate",),
    "discount": ("gamma",),
    "ent_coef": ("entropy_coef",),
    "episodes": ("episodes_per_train",),
    "eps": ("epsilon",),
    "gae": ("gae_lambda",),
    "grad_clip": ("max_grad_norm",),
    "lam": ("gae_lambda",),
    "lambda": ("gae_lambda",),
    "lambda_": ("gae_lambda",),
    "lr": ("learning_rate",),
    "max_steps": ("steps_per_train",),
    "memory_size": ("capacity",),
    "minibatch_size": ("batch_size",),
    "n_envs": ("num_train_envs",),
    "n_epochs": ("epochs",),
    "n_steps": ("n_step", "update_freq"),
    "net": ("network",),
    "num_envs": ("num_train_envs",),
    "num_epochs": ("epochs",),
    "num_minibatches": ("minibatches",),
    "num_sgd_iter": ("epochs",),
    "num_steps": ("n_step", "update_freq"),
    "policy_kwargs": ("network",),
    "polyak": ("tau",),
    "replay_size": ("capacity",),
    "rollout_fragment_length": ("update_freq",),
    "rollout_length": ("update_freq",),
    "sgd_minibatch_size": ("batch_size",),
    "steps": ("steps_per_train",),
    "target_update_freq": ("target_sync",),
    "target_update_interval": ("target_sync",),
    "timesteps": ("steps_per_train",),
    "total_timesteps": ("steps_per_train",),
    "train_batch_size": ("update_freq",),
    "train_freq": ("update_freq",),
    "vf_coef": ("value_coef",),
    "vf_loss_coeff": ("value_coef",),
}
"""Names of settings in other libraries -> names in marltrain, for suggestions; several if the library decides."""
_SKIPPED = (f"{Path(__file__).parents[1]}{os.sep}", contextlib.__file__)
"""Beginnings of the paths of files whose frames a warning does not point to."""


class MarlTrainError(Exception):
    """Base class of all exceptions that marltrain raises deliberately; their texts are `printable`."""

    def __str__(self) -> str:
        """Return the message without characters on which a terminal acts."""
        return printable(super().__str__())


class SpecError(MarlTrainError, ValueError):
    """A space or an observation that marltrain cannot represent."""


class ConfigError(MarlTrainError, ValueError):
    """A setting that is unknown, of the wrong type or out of range."""


class MaskError(MarlTrainError, ValueError):
    """A learning or exploration mask that does not fit the players."""


class AgentError(MarlTrainError, ValueError):
    """An agent that does not fit its seat."""


class EnvError(MarlTrainError, RuntimeError):
    """An environment that violated its contract or raised an exception."""


class WorkerError(EnvError):
    """A worker process that died or stopped answering."""


class SaveError(MarlTrainError, RuntimeError):
    """A file that cannot be written, or a saved file that is missing, damaged or of another kind."""


def printable(text: str, keep: str = "\n\t") -> str:
    """Return a text that acts on no terminal: characters that are not printable are written as `repr` writes them.

    Names come from other people's environments, files and folders. A terminal obeys ESC and other control characters,
    and characters of direction change the order of what is read.
    keep: characters that stay.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in text)


def in_line(name: Any) -> str:
    """Return a name as `printable` text of one line."""
    return printable(str(name), keep="")


class _Printable(logging.Filter):
    """Makes the messages of marltrain's logger `printable`."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = printable(record.getMessage()), None
        return True


logging.getLogger("marltrain").addFilter(_Printable())


def shown(value: Any) -> str:
    """Return the repr of a value for a message: in one line, shortened, and without raising an exception."""
    try:
        text = printable(" ".join(repr(value).split()))
    except Exception:  # a custom __repr__, or an integer with more digits than Python prints
        text = f"a {type(value).__name__} that cannot be shown"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({type(value).__name__})"


def warn(message: str) -> None:
    """Issue a UserWarning that points to the line outside of marltrain that made the call."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_SKIPPED):
        frame, level = frame.f_back, level + 1
    warnings.warn(printable(message), stacklevel=level)


def raised_by(work: Callable[[], Any]) -> BaseException | None:
    """Call a function; return the exception that it raised, or None."""
    try:
        work()
    except BaseException as error:
        return error
    return None


def name_the_doctor(error: ImportError) -> None:
    """Add a note to a failed import, once: the traceback then ends with the command that checks the installation."""
    if DOCTOR not in getattr(error, "__notes__", ()):
        error.add_note(DOCTOR)


def error_text(error: BaseException) -> str:
    """Return the text of an error for another message; errors of other libraries get their type as prefix."""
    return str(error) if isinstance(error, MarlTrainError) else clean(f"{type(error).__name__}: {text_of(error)}")


def text_of(error: BaseException) -> str:
    """Return the text of any error, cleaned by `clean`; its `__str__` may raise."""
    try:
        return clean(str(error))
    except Exception:  # the error's own __str__
        return "(an error whose text cannot be shown)"


def traceback_of(error: BaseException) -> str:
    """Return the traceback of any error, cleaned by `clean`."""
    try:
        return clean("".join(tracebacks.format_exception(error)), LONGEST_TRACEBACK)
    except Exception:  # formatting calls code of the error
        return f"{type(error).__name__}: (an error whose traceback cannot be shown)"


def clean(text: str, longest: int = LONGEST_TEXT) -> str:
    """Return a text that any file can hold and any terminal can show, without the middle of a long text.

    Lone surrogates become "?", other characters are those of `printable`.
    """
    if len(text) > longest:
        half = longest // 2 - 25
        text = f"{text[:half]} ... {len(text) - 2 * half:,} characters left out ... {text[-half:]}"
    return printable(text.encode(errors="replace").decode())


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the nearest known name; an empty string without one, or if `name` is not text.

    A name of other libraries that stands for several known names suggests all of them.
    """
    near = nearest_names(name, known)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def nearest(name: Any, known: Iterable[str]) -> str:
    """Return the known name nearest to `name`, or an empty string; case and dashes are ignored."""
    return (nearest_names(name, known) or [""])[0]


def nearest_names(name: Any, known: Iterable[str]) -> list[str]:
    """Return the known names nearest to `name`, several only for a name of other libraries; see `nearest`."""
    if not isinstance(name, str) or len(name) > LONGEST:
        return []
    plain = {other.lower().lstrip("-").replace("-", "_"): other for other in known}
    wanted = name.lower().lstrip("-").replace("-", "_")
    if called := [plain[own] for own in ALSO_CALLED.get(wanted, ()) if own in plain]:
        return called
    longer = [other for other in plain if f"_{wanted}_" in f"_{other}_"]
    near = longer if len(longer) == 1 else difflib.get_close_matches(wanted, plain, n=1, cutoff=0.6)
    return [plain[one] for one in near]
