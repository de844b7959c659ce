"""What a named run, its actor and attached processes send each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from marltrain.core import errors
from marltrain.core.errors import MarlTrainError, error_text

if TYPE_CHECKING:
    from marltrain.policies.memory.observed import ObservedMemory, ObservedRows
    from marltrain.trainer.reporting.run_view import RunView

STARTING = 60.0
"""Seconds that an actor has to start."""
MOST_HELD = 64 * 2**20
"""Bytes of observed transitions that an actor holds for the run; beyond, `observe` waits."""
MOST_ROWS = 2**13
"""Observed transitions that it holds: a run stores about as many in half a second."""
EVERY = 0.5
"""Seconds between two reports of a run."""


def served_name(run: str) -> str:
    """Return the name of the actor that acts with the agents of a run; names of runs have no slash."""
    return f"{run}/agents"


@dataclass(frozen=True)
class RunProgress:
    """How far a named run is.

    name: of the run.  env: of the environment.  players: their names.  process: where the run goes on.
    run_dir: its folder there, or None.  budgets: counts at which it ends, by counter; None: no limit.
    episodes, env_steps, updates, gradient_steps: counts so far.  seconds: its duration.
    observed: transitions from attached processes that agents may learn from.
    metric, best: metric of the last test, and the best one; None before the first test.
    runners, all_runners: that collect now, and as many as the run was given; 0 without runners.
    note: what happens now, such as a test.  stop_reason: reason of its end; "" while it goes on.
    age: seconds since the run has reported this.
    """

    name: str
    env: str
    players: tuple[str, ...]
    process: str
    run_dir: str | None
    budgets: Mapping[str, int | None]
    episodes: int = 0
    env_steps: int = 0
    updates: int = 0
    gradient_steps: int = 0
    seconds: float = 0.0
    observed: int = 0
    metric: float | None = None
    best: float | None = None
    runners: int = 0
    all_runners: int = 0
    note: str = ""
    stop_reason: str = ""
    age: float = 0.0

    @property
    def done(self) -> float | None:
        """Share of the budget that is closest to its end, up to 1; None without a budget."""
        shares = [getattr(self, counter) / budget for counter, budget in self.budgets.items() if budget]
        return min(max(shares), 1.0) if shares else None


@dataclass(frozen=True)
class Answer:
    """The result of a request, or the error that it ended with: the name of its class and its text."""

    value: Any = None
    error: tuple[str, str] | None = None

    @classmethod
    def of(cls, error: Exception) -> Answer:
        """Return the answer of a request that failed."""
        return cls(error=(type(error).__name__, error_text(error)))

    def result(self) -> Any:
        """Return the result; raises the error, or a WorkerError for one that is none of marltrain's."""
        if self.error is None:
            return self.value
        name, text = self.error
        kind = getattr(errors, name, None)
        known = isinstance(kind, type) and issubclass(kind, MarlTrainError)
        raise (kind if known and kind is not None else errors.WorkerError)(text)


@dataclass(frozen=True)
class Request:
    """What an attached process asks of a run: kind, a key of `requests.REQUESTS`, and its argument."""

    number: int
    kind: str
    argument: Any = None


@dataclass
class Experience:
    """The transitions that attached processes have observed, in the run.

    waiting: those that are not stored yet, by player.  memories: by group of players.  stored: number of transitions.
    goes_on_at: time until which storing rests.
    """

    waiting: list[tuple[str, ObservedRows]] = field(default_factory=list)
    memories: dict[int, ObservedMemory] = field(default_factory=dict)
    stored: int = 0
    goes_on_at: float = 0.0


@dataclass(frozen=True)
class Taken:
    """What a run gets for a report: the requests, and the observed transitions by player, since the last one."""

    requests: Sequence[Request]
    experience: Sequence[tuple[str, ObservedRows]]


@dataclass(frozen=True)
class Report:
    """What a run tells its actor.

    points: (scalars, env steps) of its loggers since the last report.
    answers: by the number of the request.
    view: the numbers of the run before this process resumed it, once.
    room: whether the run takes observed transitions now.
    """

    progress: RunProgress
    points: Sequence[tuple[Mapping[str, float], int]] = ()
    answers: Mapping[int, Answer] = field(default_factory=dict)
    room: bool = True
    view: RunView | None = None
