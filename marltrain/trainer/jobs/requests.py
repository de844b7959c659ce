"""What attached processes may ask of a run, and its answers between two collector calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from marltrain.trainer.jobs.messages import Answer
from marltrain.trainer.run import Run


def serve(run: Run) -> None:
    """Execute the requests that have come. One that fails gives its error to those who asked; training goes on."""
    job = run.context.job
    while job is not None and job.requests:
        request = job.requests.pop(0)
        try:
            answer = Answer(REQUESTS[request.kind](run, request.argument))
        except Exception as error:
            answer = Answer.of(error)
        job.answer(request, answer)


def _stop(run: Run, reason: str) -> None:
    """End training as `trainer.stop` does."""
    run.stop(reason)


def _table(run: Run, name: str) -> Any:
    """Return a table so far."""
    if name == "faults":
        return run.faults.frame
    return run.history.tests if name == "history" else run.history.episodes


REQUESTS: dict[str, Callable[[Run, Any], Any]] = {"stop": _stop, "table": _table}
"""Kind -> function of the run and the request's argument, which returns the answer."""
