"""A study in a storage of Optuna that several processes may share: its trials are claimed, reported and counted.

Trials have slots, 0 to N - 1 of N trials. A slot is free as long as no trial of it is finished or under way, so that an
interrupted trial is made again, and a study has exactly N finished trials however often it was interrupted. The
suggestions for a slot are drawn from a seed of its own: they depend on the trials finished before, and on nothing else.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import math
import os
import socket
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marltrain.core.errors import ConfigError
from marltrain.core.extras import imported
from marltrain.core.seeds import child_seed
from marltrain.core.settings import setting
from marltrain.trainer.preparing.resume import difference_of

PRUNERS = ("median", "hyperband", "none")
SLOT, OWNER, ERROR = "slot", "owner", "error"
"""Attributes of trials: the slot, the process that makes the trial, and why it failed."""
ABOUT = "about"
"""Attribute of a study: what it searches, by key."""


def optuna() -> Any:
    """Return the package; raises ConfigError if it is not installed."""
    package = imported("optuna", "tune", "A search of settings")
    package.logging.set_verbosity(package.logging.ERROR)
    return package


@dataclass(frozen=True, kw_only=True)
class TuneSettings:
    """Settings of a study; `tune` explains them."""

    trials: int = setting(50, doc="number of finished trials", low=1)
    steps: int = setting(50_000, doc="env steps of each training", low=1)
    seeds: int = setting(1, doc="trainings of each trial", low=1)
    population: int = setting(1, doc="trials that are trained at once", low=1)
    jobs: int = setting(1, doc="processes", low=1)
    storage: str | None = setting(None, doc="database, such as sqlite:///tune.db; None: memory")
    study: str = setting("tune", doc="name of the study in its storage")
    seed: int = setting(0, doc="seed of the study", low=0)
    pruner: str = setting("median", doc="ends trials early", choices=PRUNERS)
    warmup_trials: int = setting(5, doc="random trials; none is pruned before so many are complete", low=0)
    warmup_steps: int | None = setting(None, doc="env steps before which no trial is pruned; None: a fifth", low=0)
    fresh_seeds: int = setting(10, doc="trainings of the best settings with other seeds; 0: none", low=0)
    final: float = setting(0.25, doc="share of the tests, the last ones, whose mean is the metric", above=0, high=1)

    @property
    def unpruned(self) -> int:
        """Env steps before which no trial is pruned."""
        return self.steps // 5 if self.warmup_steps is None else self.warmup_steps


class Study:
    """A study of Optuna; see the module docstring."""

    def __init__(self, settings: TuneSettings, every: int, about: Mapping[str, Any]) -> None:
        """Create the study, or open it in its storage.

        every: env steps between tests.  about: what the study searches, JSON values by key; all calls that share the
        study must agree in it.
        Raises ConfigError for a storage that cannot be used, and for a study that searches something else.
        """
        self.settings, self.every, self._optuna = settings, every, optuna()
        try:
            with self._locked():
                self.study = self._optuna.create_study(
                    storage=settings.storage, study_name=settings.study, direction="maximize", load_if_exists=True,
                    pruner=self._pruner(),
                )  # fmt: skip
                self._check_about(dict(about))
        except ConfigError:
            raise
        except Exception as error:  # of the database, of any kind
            raise ConfigError(f"storage={settings.storage!r} cannot be used: {error}") from error

    def claim(self, most: int, suggest: Any) -> list[tuple[Any, Any]]:
        """Claim free slots, `most` at most; return the trials with their settings, suggest(trial).

        An error of `suggest` frees them again.
        """
        claimed: list[tuple[Any, Any]] = []
        with self._locked():
            used = {trial.user_attrs[SLOT] for trial in self._counted(fail_abandoned=True)}
            try:
                for slot in [slot for slot in range(self.settings.trials) if slot not in used][:most]:
                    claimed.append((self._new_trial(slot), {}))
                    claimed[-1] = (claimed[-1][0], suggest(claimed[-1][0]))
            except BaseException:
                for trial, _ in claimed:
                    self.interrupted(trial)
                raise
        return claimed

    def _new_trial(self, slot: int) -> Any:
        """Return a new trial of a slot."""
        self.study.sampler = self._optuna.samplers.TPESampler(
            seed=child_seed(self.settings.seed, "slot", slot), n_startup_trials=self.settings.warmup_trials
        )
        trial = self.study.ask()
        trial.set_user_attr(SLOT, slot)
        trial.set_user_attr(OWNER, _owner(os.getpid()))
        return trial

    def complete(self, trial: Any, value: float) -> None:
        """Finish a trial with its metric; with one that is not finite it has failed."""
        if math.isfinite(value):
            self.study.tell(trial, value)
        else:
            self.failed(trial, f"metric {value}")

    def pruned(self, trial: Any) -> None:
        """Finish a trial that was pruned."""
        self.study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)

    def failed(self, trial: Any, error: str) -> None:
        """Finish a trial that failed with an error; it counts."""
        trial.set_user_attr(ERROR, error)
        self.study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def interrupted(self, trial: Any) -> None:
        """Give up a trial; its slot becomes free."""
        self.study.tell(trial, state=self._optuna.trial.TrialState.FAIL)

    def prunes(self, trial: Any) -> bool:
        """Return whether a trial ends early; none does before `warmup_trials` trials are complete."""
        complete = self._optuna.trial.TrialState.COMPLETE
        done = sum(other.state == complete for other in self.study.get_trials(deepcopy=False))
        return done >= self.settings.warmup_trials and bool(trial.should_prune())

    def finished(self) -> list[Any]:
        """Return the finished trials, by slot."""
        running = self._optuna.trial.TrialState.RUNNING
        done = [trial for trial in self._counted() if trial.state != running]
        return sorted(done, key=lambda trial: trial.user_attrs[SLOT])

    def best(self) -> Any:
        """Return the complete trial with the largest metric; None if there is none."""
        complete = [t for t in self.finished() if t.state == self._optuna.trial.TrialState.COMPLETE]
        return max(complete, key=lambda trial: trial.value, default=None)

    def _counted(self, *, fail_abandoned: bool = False) -> list[Any]:
        """Return the trials that are finished or under way; with fail_abandoned, end those of dead processes."""
        states = self._optuna.trial.TrialState
        kept = []
        for trial in self.study.get_trials(deepcopy=False):
            if SLOT not in trial.user_attrs or (trial.state == states.FAIL and ERROR not in trial.user_attrs):
                continue
            if fail_abandoned and trial.state == states.RUNNING and not _alive(trial.user_attrs.get(OWNER, "")):
                self.study.tell(trial.number, state=states.FAIL)
                continue
            kept.append(trial)
        return kept

    def _check_about(self, about: dict[str, Any]) -> None:
        """Record what a new study searches; raise ConfigError if an older one searches something else."""
        stored = self.study.user_attrs.get(ABOUT)
        if stored is None and not self.study.get_trials(deepcopy=False):
            self.study.set_user_attr(ABOUT, about)
            return
        if difference := difference_of(stored or {}, about, ""):
            raise ConfigError(
                f"study {self.settings.study!r} of {self.settings.storage} has other settings: {difference}. Name "
                "another study for other searches: study=..., --study"
            )

    def _pruner(self) -> Any:
        settings, pruners = self.settings, self._optuna.pruners
        if settings.pruner == "median":
            return pruners.MedianPruner(settings.warmup_trials, settings.unpruned)
        if settings.pruner == "hyperband":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return pruners.HyperbandPruner(max(self.every, settings.unpruned, 1), settings.steps, 3)
        return pruners.NopPruner()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the storage, which processes of this machine share."""
        if self.settings.storage is None:
            yield
            return
        opened = os.open(_lock_file(self.settings.storage), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        with os.fdopen(opened, "r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _lock_file(storage: str) -> Path:
    """Return the path of the lock: beside the file of SQLite, else in the user's folder of caches."""
    _, separator, path = storage.partition("sqlite:///")
    if separator and path:
        return Path(f"{path.partition('?')[0]}.lock")
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "marltrain"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{hashlib.sha256(storage.encode()).hexdigest()[:16]}.lock"


def _owner(pid: int) -> str:
    return f"{socket.gethostname()} {pid} {_started(pid)}"


def _alive(owner: str) -> bool:
    """Return whether a process still runs; True for processes of other machines."""
    host, _, rest = owner.partition(" ")
    pid = rest.partition(" ")[0]
    return host != socket.gethostname() or not pid.isdigit() or _owner(int(pid)) == owner


def _started(pid: int) -> str:
    """Return when a process started, as Linux counts it; "" if it does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return ""
