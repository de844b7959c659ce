"""Asynchronous runners: the lag is bounded, and results depend on the bound, never on the time that runners take."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.trainer.cluster.collector import RunnerCollector
from marltrain.trainer.cluster.lookahead import WorkAhead
from marltrain.trainer.cluster.runners import RunnerPool
from marltrain.trainer.preparing.preflight import check_lag
from marltrain.trainer.training.updates import _with_lag
from tests.tiers import LONG
from tests.trainer.cluster.training import agents_of, assert_equal, trained, trainer_of

ASYNC: dict[str, Any] = {"runners": 2 if LONG else 1, "sync": False}


def orders_of(
    updates: list[tuple[int, int]], max_lag: int, steps: int, most_ahead: int = 10**6, most_fragments: int = 10**6
) -> Iterator[tuple[int, int, int]]:
    """Yield (batch step of the order, first, last + 1) of each fragment, while batch steps and updates take turns.

    updates: (batch steps to the first update, batch steps between two) of each learner.
    """
    result = [SimpleNamespace(steps_left=left, period=period) for left, period in updates]
    lookahead, ahead = WorkAhead(result, max_lag, most_ahead, most_fragments), 0  # type: ignore[arg-type]
    for now in range(steps):
        while length := lookahead.steps(ahead, 1):
            yield now, now + ahead, now + ahead + length
            ahead += length
        ahead -= 1
        for each in result:
            each.steps_left = each.steps_left - 1 or each.period


@pytest.mark.parametrize(
    ("updates", "max_lag", "expected"),
    [
        ([(40, 40)], 0, [(0, 0, 40), (40, 40, 80), (80, 80, 120)]),
        ([(40, 40)], 1, [(0, 0, 40), (0, 40, 80), (40, 80, 120), (80, 120, 160)]),
        ([(15, 40)], 2, [(0, 0, 15), (0, 15, 55), (0, 55, 95), (15, 95, 135), (55, 135, 175)]),
        # a fragment of two updates is worth a message; its lag is 1 or 3, and would be 5 if it was ordered earlier
        ([(10, 10)], 4, [(0, 0, 20), (0, 20, 40), (10, 40, 60), (30, 60, 80), (50, 80, 100), (70, 100, 120)]),
        ([(1, 1)], 64, [(0, 0, 32), (0, 32, 64), (31, 64, 96), (63, 96, 128)]),
        # two learners: no step of a fragment lags by more than one of either's updates
        ([(60, 60), (16, 40)], 1, [(0, 0, 16), (0, 16, 56), (16, 56, 60), (16, 60, 96), (56, 96, 120), (60, 120, 136)]),
    ],
)
def test_fragments_by_hand(updates, max_lag, expected):
    assert list(orders_of(updates, max_lag, 81)) == expected


def test_a_fragment_takes_half_of_the_memory_at_most():
    found = list(orders_of([(40, 40)], 3, 81, most_ahead=60))
    assert found[:4] == [(0, 0, 30), (0, 30, 40), (10, 40, 70), (20, 70, 80)]
    assert max(end - first for _, first, end in found) == 30
    assert max(end - now for now, _, end in found) == 60


def test_fragments_of_large_weights_are_few():
    """Two copies of the weights fit: two fragments of 40 batch steps, and not four, as a lag of 3 allows."""
    found = list(orders_of([(40, 40)], 3, 81, most_fragments=2))
    assert found == [(0, 0, 40), (0, 40, 80), (40, 80, 120), (80, 120, 160)]
    assert list(orders_of([(10, 10)], 4, 41, most_fragments=1)) == [(0, 0, 20), (20, 20, 40), (40, 40, 60)]


@pytest.mark.parametrize(
    ("period", "max_lag", "expected"),
    [
        (10, 4, [(0, 16, 0), (0, 4, 0), (0, 20, 0), (10, 20, 1), (30, 20, 3)]),
        (20, 3, [(0, 16, 0), (0, 24, 0), (0, 40, 0)]),
        (1, 40, [(0, 16, 0), (0, 4, 0), (0, 20, 0), (19, 20, 19)]),
        (12, 0, [(0, 12, 0), (12, 12, 1), (24, 12, 2), (36, 12, 3)]),
    ],
)
def test_the_first_fragment_of_a_collector_moves_no_other(period, max_lag, expected):
    """(Batch step of the order, length, updates of its weights): the first is ordered in two parts at the same time."""
    scheduler, orders = SimpleNamespace(steps_left=period, period=period, times_due=0, now=0), list[Any]()
    result = SimpleNamespace(
        seconds_per_step=0.0, newest=lambda times_due: times_due[0], here=lambda: None,
        place=lambda parts, version, origin: orders.extend((scheduler.now, steps, version) for steps in parts),
    )  # fmt: skip
    collector: Any = object.__new__(RunnerCollector)
    collector.schedulers, collector._orders, collector._ahead, collector._synchronous = [scheduler], result, 0, False
    collector._lookahead = WorkAhead([scheduler], max_lag, 10**6, 10**6)  # type: ignore[list-item]
    for scheduler.now in range(37):
        collector._order(1)
        result.seconds_per_step, collector._ahead = 1.0, collector._ahead - 1
        scheduler.steps_left = scheduler.steps_left - 1 or period
        scheduler.times_due += scheduler.steps_left == period
    assert orders == expected


def test_the_lag_of_rows_that_no_update_has_read_is_kept_for_the_next_one():
    scheduler: Any = SimpleNamespace(lag=3)
    assert _with_lag(scheduler, {}) == {} and scheduler.lag == 3
    assert _with_lag(scheduler, {"player_0": {"loss": 1.0}}) == {"player_0": {"loss": 1.0, "lag": 3.0}}
    assert scheduler.lag == 0


class Disturbed(mt.Callback):
    """Freezes runner 1 for a part of a second after each of four updates, and then kills runner 0."""

    def __init__(self) -> None:
        self.updates, self.pids = 0, [0, 0]

    def on_update_end(self, moment):
        self.updates += 1
        if self.updates == 1:
            pool = moment.trainer.run.context.envs.pool
            calls = [actor._handle.__ray_call__.remote(lambda self: os.getpid()) for actor in pool._actors]
            self.pids = pool._cluster.ray.get(calls, timeout=60)
        if self.updates <= 4:
            os.kill(self.pids[1], signal.SIGSTOP)
            threading.Timer(0.15, os.kill, (self.pids[1], signal.SIGCONT)).start()
        if self.updates == 6:
            os.kill(self.pids[0], signal.SIGKILL)


@pytest.mark.usefixtures("ray_cluster")
def test_the_lag_is_bounded_and_results_do_not_depend_on_the_runners(monkeypatch):
    """5 environments, updates after every 7 batch steps; an update reads the batch steps since the one before it."""
    agents = agents_of("dqn")
    trainer: Any = trainer_of("dqn", callbacks=[Disturbed()], runners=2, sync=False, max_lag=2)
    request, orders = RunnerPool.request, list[tuple[int, int]]()

    def noted(pool, w, asked, acting):
        if w == 1 and (asked.start is None or not orders):  # not the repetition at the end
            orders.append((trainer.run.counters.env_steps // 5, asked.steps))
        return request(pool, w, asked, acting)

    monkeypatch.setattr(RunnerPool, "request", noted)
    found = trainer.train(agents, [1], plot=False), [agent.state() for agent in agents]
    ends = np.cumsum([steps for _, steps in orders])
    lags = [(end - 1) // 7 - now // 7 for (now, _), end in zip(orders, ends, strict=True)]
    assert max(lags) == found[0]["max_lag"] == 2
    lag = found[0]["history"]["player_0/lag"].iloc[1:]
    assert (lag <= 2).all() and (lag > 1).any()
    assert found[0]["faults"]["kind"].tolist() == ["died"]
    monkeypatch.undo()
    assert_equal(trained("dqn", runners=3 if LONG else 1, sync=False, max_lag=2), found, tolerance=0.0)


EQUAL = [("ppo", 450, 0.0), ("dqn", 385, 0.0), ("gru", 600, 1e-6)] if LONG else [("dqn", 385, 0.0)]
"""(case, steps, tolerance); a run ends with a fragment: asynchronous runners do not return to its middle at the end."""


@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(("case", "steps", "tolerance"), EQUAL)
def test_without_lag_results_equal_those_of_one_process(case, steps, tolerance):
    found = trained(case, **ASYNC, max_lag=0, steps_per_train=steps)
    assert_equal(trained(case, steps_per_train=steps), found, tolerance=tolerance)
    assert found[0]["max_lag"] == 0


RESUMED: list[Any] = [("dqn", 2, {})]
"""(case, max_lag, settings); the last one has fragments of two updates of 10 batch steps, longer than the first one."""
if LONG:
    RESUMED += [("ppo", 1, {}), ("gru", 1, {}), ("dqn", 4, {"update_freq": 50})]


def checkpointed(case: str, folder: Any, **settings: Any) -> Any:
    """Return the result of a run with a checkpoint after every 7 episodes."""
    resume = folder if folder.exists() else None
    agents = agents_of(case)
    trainer = trainer_of(case, run_dir=folder, callbacks=[mt.Checkpoint(every_episodes=7)], **ASYNC, **settings)
    result = trainer.train(agents, [1] * len(agents), plot=False, resume=resume)
    return result, [agent.state() for agent in agents]


if LONG:

    @pytest.mark.usefixtures("ray_cluster")
    @pytest.mark.parametrize(("case", "max_lag", "more"), RESUMED)
    def test_a_resumed_run_equals_one_that_was_not_stopped(tmp_path, case, max_lag, more):
        """A checkpoint in the middle of a fragment: what runners have collected beyond it is collected again."""
        settings = {"max_lag": max_lag, **more}
        expected = checkpointed(case, tmp_path / "whole", **settings)
        checkpointed(case, tmp_path / "parts", episodes_per_train=7, **settings)
        found = checkpointed(case, tmp_path / "parts", **settings)
        assert_equal(expected, found, tolerance=0.0)
        assert expected[0]["max_lag"] == max_lag


if LONG:

    @pytest.mark.usefixtures("ray_cluster")
    def test_the_variance_of_importance_ratios_grows_with_the_lag():
        """Their mean is 1 for any two policies; the variance of the ratios is limited at a lag of 16 updates, too."""
        variance = {}
        for lag in (1, 16):
            agents = mt.make_agents(
                "ppo", "marltrain/CartPole-v1", seed=0, learning_rate=1e-3, epochs=10, minibatches=4
            )
            result = mt.DecentralizedTrainer(
                "marltrain/CartPole-v1", seed=0, num_train_envs=8, update_freq=256, updates_per_train=50,
                test_freq=None, test_freq_steps=3_000, episodes_per_test=1, run_dir=False, progress=False, runners=1,
                sync=False, max_lag=lag,
            ).train(agents, [1], plot=False)  # fmt: skip
            rows = result["history"].iloc[3:]
            assert result["max_lag"] == lag and (rows["player_0/lag"] == lag).all()
            assert rows["player_0/ratio_mean"].between(0.9, 1.1).all()
            variance[lag] = rows["player_0/ratio_variance"].mean()
        assert 0 < variance[1] < 0.05 < variance[16] < 0.5

    @pytest.mark.usefixtures("ray_cluster")
    def test_learner_actors_change_nothing():
        expected = trained("dqn", **ASYNC, max_lag=2)
        assert_equal(expected, trained("dqn", **ASYNC, max_lag=2, learners=1), tolerance=0.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sync": False}, r"sync=False lets runners work ahead of the updates: give runners=, or leave sync=False out"),
        ({"runners": 2, "max_lag": 1}, "max_lag=1 has no effect with sync=True"),
        ({**ASYNC, "max_lag": -1}, "max_lag must be at least 0, got -1"),
    ],
)
def test_wrong_settings_are_refused_without_a_cluster(settings, message):
    with pytest.raises(ConfigError, match=message):
        trainer_of("ppo", **settings)


@pytest.mark.parametrize("algorithm", ["trpo", "seac", "ppo", "dqn"])
def test_on_policy_agents_that_do_not_correct_for_the_lag_are_refused(algorithm):
    (agent,) = mt.make_agents(algorithm, "gymnasium/CartPole-v1", seed=0)
    seats: Any = [SimpleNamespace(learner=agent.learner(), who="player_0", all_frozen=False)]
    check_lag(seats, None)
    check_lag(seats, 0)
    if algorithm in ("ppo", "dqn"):
        check_lag(seats, 1)
        return
    text = (
        f"player_0 learns on-policy, and {algorithm} does not correct .* Use a2c, acer, gail, maa2c, mappo, ppo, an off"
    )
    with pytest.raises(ConfigError, match=text):
        check_lag(seats, 1)


@pytest.mark.parametrize(
    ("counting", "reproducible", "message"),
    [
        ("player_0", True, "each act of the agent of player_0 depends on how often actions were chosen"),
        (None, False, "drifting is not reproducible, and runners that work ahead return to earlier steps"),
    ],
)
def test_what_cannot_work_ahead_is_refused(counting, reproducible, message):
    spec, source = SimpleNamespace(reproducible=reproducible), SimpleNamespace(name="drifting")
    collector = SimpleNamespace(_counting=lambda: counting, envs=SimpleNamespace(spec=spec, source=source))
    with pytest.raises(ConfigError, match=message):
        RunnerCollector._work_ahead(collector, 1)  # type: ignore[arg-type]
