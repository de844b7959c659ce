"""Tests during training: they are played, recorded, and the best agents are saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from marltrain.envs.python.probe import closed
from marltrain.trainer.evaluating.equal_rewards import EqualRewards
from marltrain.trainer.evaluating.evaluation import Evaluation, TestInterrupted, TestResult
from marltrain.trainer.evaluating.selection import Selected
from marltrain.trainer.seats.by_player import Agents, in_seats
from marltrain.trainer.seats.seats import Seating
from marltrain.trainer.settings import TestSettings
from marltrain.trainer.training.context import TrainerSetup
from marltrain.trainer.training.run import Run
from marltrain.trainer.training.run_files import save_agents, write_table


def play_agents(
    setup: TrainerSetup, agents: Agents, asked: TestSettings, given_up: Callable[[], bool] = lambda: False
) -> TestResult:
    """Return the result of a test of these agents in these seats, in environments of its own, that is not recorded.

    given_up: see `Evaluation.play`.
    """
    settings = setup.settings
    episodes = settings.episodes_per_test if asked.episodes is None else asked.episodes
    with closed(setup.vector_env(min(settings.num_test_envs, episodes), "test"), setup.source.name) as envs:
        learners = Seating(envs.spec, in_seats(agents, envs.spec), setup.seed, stack=False).learners
        evaluation = Evaluation(envs, setup.seed, settings.max_test_steps)
        return evaluation.play(learners, episodes, sampled=asked.sampled, given_up=given_up)


def last_test(run: Run) -> None:
    """Play the test at the end of training, unless the last test measured the same agents."""
    if run.due.tests.due_at_end(run.counters) and not run.interrupts.asked and not play_test(run):
        run.reason = "interrupted"


def play_test(run: Run) -> bool:
    """Play a test, record it, save the best agents, call `stop_fn`; return False if it was interrupted."""
    counters, hooks = run.counters, run.context.hooks
    run.updates.settle()
    try:
        result, sampled = _played(run)
    except TestInterrupted:
        return False
    selected = run.selection.add(result.returns, run.masks.effective[0])
    sampled_metric = None if sampled is None else run.selection.metric_of(sampled.returns, run.masks.effective[0])
    run.new_best = selected.best
    run.due.tests.tested_at = (counters.episodes, counters.env_steps)
    try:
        run.events.tell(
            "on_test_end", metric=selected.metric, result=result, best=selected.best, sampled=sampled,
            sampled_metric=sampled_metric,
        )  # fmt: skip
    finally:  # values logged in on_test_end belong to the row of this test
        _record(run, selected, result, _columns_of_sampled(sampled, sampled_metric))
    saved = save_agents(run, "best") if selected.best else None
    if selected.best:
        hooks.save_best(counters.episodes)
    if hooks.stops(selected.metric, counters.episodes):
        run.stop("stop_fn")
    if saved is not None:
        run.events.tell("on_checkpoint", path=saved)
    return True


def _played(run: Run) -> tuple[TestResult, TestResult | None]:
    """Return the results of a test, and of the same episodes with agents that explore if the run has sampled tests.

    Raises TestInterrupted.
    """
    context, hooks, settings = run.context, run.context.hooks, run.context.settings
    if context.evaluation is None:
        raise RuntimeError("a run without tests plays none")
    play = partial(
        context.evaluation.play, context.line_up.learners, settings.episodes_per_test, rotation=context.rotation,
        on_faults=partial(run.note_faults, role="test"), given_up=lambda: run.interrupts.asked,
    )  # fmt: skip
    episodes = settings.episodes_per_test * (2 if settings.sampled_tests else 1)
    before = played = (0, 0)

    def on_step(finished: int, steps: int) -> None:
        nonlocal played
        played = before[0] + finished, before[1] + steps
        hooks.test.call_if_due(*played)
        run.events.tell("on_test_step", finished=played[0], episodes=episodes, steps=played[1])

    run.events.tell("on_test_start", episodes=episodes)
    hooks.test.start()
    greedy = play(on_step=on_step, equal_rewards=_equal_rewards(run))
    if not settings.sampled_tests:
        return greedy, None
    before = played
    return greedy, play(on_step=on_step, sampled=True)


def _columns_of_sampled(result: TestResult | None, metric: float | None) -> dict[str, float]:
    """Return the columns of the table of tests for agents that explored; {} without."""
    if result is None or metric is None:
        return {}
    means = zip(result.names, result.returns.mean(0), strict=True)
    return {"sampled/metric": metric, **{f"sampled/return/{name}": float(mean) for name, mean in means}}


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


def _record(run: Run, selected: Selected, result: TestResult, more: Mapping[str, float]) -> None:
    """Add the row of a test to the table of tests; more: further columns."""
    counters = run.counters
    run.history.add_test(
        episodes=counters.episodes, env_steps=counters.env_steps, updates=counters.updates,
        gradient_steps=counters.gradient_steps, seconds=run.clock.seconds, returns=result.returns.mean(0),
        num_unfinished=result.num_unfinished, more={**result.record_means, **more}, **selected._asdict(),
    )  # fmt: skip
    write_table(run, run.history.write)
    write_table(run, run.faults.write)
