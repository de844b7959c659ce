"""Tests during training: they are played, recorded, and the best agents are saved."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from marltrain.envs.python.probe import closed
from marltrain.trainer.evaluating.equal_rewards import EqualRewards
from marltrain.trainer.evaluating.evaluation import Evaluation, TestInterrupted, TestResult
from marltrain.trainer.evaluating.selection import Selected
from marltrain.trainer.seats.by_player import Agents, in_seats
from marltrain.trainer.seats.seats import Seating
from marltrain.trainer.training.context import TrainerSetup
from marltrain.trainer.training.run import Run
from marltrain.trainer.training.run_files import save_agents, write_table


def play_agents(
    setup: TrainerSetup, agents: Agents, episodes: int | None, given_up: Callable[[], bool] = lambda: False
) -> TestResult:
    """Return the result of a test of these agents in these seats, in environments of its own, that is not recorded.

    episodes: number of episodes; None: `episodes_per_test`.  given_up: see `Evaluation.play`.
    """
    settings = setup.settings
    episodes = settings.episodes_per_test if episodes is None else episodes
    with closed(setup.vector_env(min(settings.num_test_envs, episodes), "test"), setup.source.name) as envs:
        learners = Seating(envs.spec, in_seats(agents, envs.spec), setup.seed, stack=False).learners
        return Evaluation(envs, setup.seed, settings.max_test_steps).play(learners, episodes, given_up=given_up)


def last_test(run: Run) -> None:
    """Play the test at the end of training, unless the last test measured the same agents."""
    if run.due.tests.due_at_end(run.counters) and not run.interrupts.asked and not play_test(run):
        run.reason = "interrupted"


def play_test(run: Run) -> bool:
    """Play a test, record it, save the best agents, call `stop_fn`; return False if it was interrupted."""
    context, counters, hooks = run.context, run.counters, run.context.hooks
    episodes = context.settings.episodes_per_test
    if context.evaluation is None:
        raise RuntimeError("a run without tests plays none")

    def on_step(finished: int, steps: int) -> None:
        hooks.test.call_if_due(finished, steps)
        run.events.tell("on_test_step", finished=finished, episodes=episodes, steps=steps)

    run.updates.settle()
    run.events.tell("on_test_start", episodes=episodes)
    hooks.test.start()
    try:
        result = context.evaluation.play(
            context.line_up.learners, episodes, rotate=context.rotate, on_step=on_step,
            on_faults=partial(run.note_faults, role="test"), given_up=lambda: run.interrupts.asked,
            equal_rewards=_equal_rewards(run),
        )  # fmt: skip
    except TestInterrupted:
        return False
    selected = run.selection.add(result.returns, run.masks.effective[0])
    run.new_best = selected.best
    run.due.tests.tested_at = (counters.episodes, counters.env_steps)
    try:
        run.events.tell("on_test_end", metric=selected.metric, result=result, best=selected.best)
    finally:  # values logged in on_test_end belong to the row of this test
        _record(run, selected, result)
    saved = save_agents(run, "best") if selected.best else None
    if selected.best:
        hooks.save_best(counters.episodes)
    if hooks.stops(selected.metric, counters.episodes):
        run.stop("stop_fn")
    if saved is not None:
        run.events.tell("on_checkpoint", path=saved)
    return True


def _equal_rewards(run: Run) -> EqualRewards | None:
    """Return the check of teams' rewards, until the first update: updates check the rewards that they read.

    A run that continues an earlier call may have another environment; one that is resumed has the same.
    """
    resumed = run.context.earlier is None and run.counters.updates
    if run.updates.made or resumed:
        return None
    learning = run.masks.effective[0]
    check = EqualRewards(run.context.envs.spec, run.context.seating.updated, run.team_rewards, learning)
    return check if check.teams else None


def _record(run: Run, selected: Selected, result: TestResult) -> None:
    counters = run.counters
    run.history.add_test(
        episodes=counters.episodes, env_steps=counters.env_steps, updates=counters.updates,
        gradient_steps=counters.gradient_steps, seconds=run.clock.seconds, returns=result.returns.mean(0),
        num_unfinished=result.num_unfinished, records=result.record_means, **selected._asdict(),
    )  # fmt: skip
    write_table(run, run.history.write)
    write_table(run, run.faults.write)
