"""What attached processes may ask of a run, and its answers between two collector calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle

from marltrain.core.errors import WorkerError
from marltrain.core.spec import PlayerSpec
from marltrain.trainer.evaluating.evaluation import TestInterrupted, TestResult
from marltrain.trainer.jobs.messages import Answer
from marltrain.trainer.settings import TestSettings
from marltrain.trainer.training.experience import memory_of, store
from marltrain.trainer.training.run import Run
from marltrain.trainer.training.testing import play_agents


def serve(run: Run) -> None:
    """Execute the requests that have come, and send new weights to the actor of the agents if it is time to.

    A request that fails gives its error to those who asked; training goes on.
    """
    job = run.context.job
    if job is None:
        return
    if job.policies is not None:
        job.policies.refresh(run.counters.updates)
    store(run, job.experience)
    while job.requests:
        request = job.requests.pop(0)
        try:
            answer = Answer(REQUESTS[request.kind](run, request.argument))
            cloudpickle.dumps(answer)  # a table may hold what an environment gave in its infos
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


def _test(run: Run, asked: TestSettings) -> TestResult:
    """Play a test with the weights that the agents act by now; it is not recorded, and changes nothing in the run."""
    run.updates.wait()
    agents = run.context.seating.agents
    try:
        return play_agents(run.context, agents, asked, given_up=lambda: run.interrupts.asked)
    except TestInterrupted as error:
        raise WorkerError("the run was interrupted during the test") from error


def _serve(run: Run, nothing: None) -> str:
    """Start the actor of the run's agents; return its name."""
    job, context = run.context.job, run.context
    if job is None:
        raise RuntimeError("a run without a name serves no agents")
    if job.policies is None:
        from marltrain.trainer.jobs.policies import Policies  # loads the code of runners

        settings, seats = context.settings, context.seating.learners
        job.policies = Policies(job.cluster, job.name, context.envs.spec, context.seed, seats, settings.timeout)
    return job.policies.start(run.counters.updates)


def _player(run: Run, name: str) -> PlayerSpec:
    """Make the memory for the observed transitions of a player; return the player."""
    job, spec = run.context.job, run.context.envs.spec
    if job is None:
        raise RuntimeError("a run without a name observes nothing")
    memory_of(run, job.experience, name)
    return spec.players[spec.names.index(name)]


REQUESTS: dict[str, Callable[[Run, Any], Any]] = {
    "stop": _stop,
    "table": _table,
    "test": _test,
    "serve": _serve,
    "player": _player,
}
"""Kind -> function of the run and the request's argument, which returns the answer."""
