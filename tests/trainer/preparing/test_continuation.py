"""`train(..., go_on=...)`: continued state, new state, errors, and exact resume from its checkpoints."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from tests.faulty_toys import Broken
from tests.tiers import LONG
from tests.toys import Identity
from tests.trainer.reporting.test_tensorboard import scalars
from tests.trainer.running import Recorder, Student, change, changed, dqn, ppo, streams_of, tables, trainer, weights


def budget(run: mt.DecentralizedTrainer, steps: int) -> None:
    change(run, settings=dataclasses.replace(run.settings, steps_per_train=steps))


def test_go_on_continues_counters_tables_and_folder_and_adds_budgets():
    """Two calls of 24 env steps each: episodes of 3 steps in 3 environments, a test every 6 episodes (18 env steps)."""
    agents, run = ppo(), trainer(steps_per_train=24, test_freq=6)
    first = run.train(agents, [1, 1], plot=False)
    second = run.train(agents, [1, 1], plot=False, go_on=True)
    assert [first[name] for name in ("num_collected_steps", "num_updates", "num_gradient_steps")] == [24, 2, 8]
    assert [second[name] for name in ("num_collected_steps", "num_updates", "num_gradient_steps")] == [48, 4, 16]
    assert second["stop_reason"] == "steps_per_train"
    assert second["run_dir"] == first["run_dir"]
    history, episodes = second["history"], second["episodes"]
    assert history.env_steps.tolist() == [0, 18, 24, 42, 48]  # no second test at 24
    assert history.episodes.tolist() == [0, 6, 6, 12, 12]
    assert history.updates.tolist() == [0, 1, 2, 3, 4]
    assert len(second["reward_metric_stats"]) == 5
    assert episodes.episode.tolist() == list(range(12))
    assert episodes.env_steps.tolist() == [9] * 3 + [18] * 3 + [33] * 3 + [42] * 3  # those under way at 24 are gone
    assert history.seconds.is_monotonic_increasing
    assert second["training_time"] > first["training_time"]
    assert tables({"history": history[:3], "episodes": episodes[:6]}) == tables(first)
    assert tables({name: pd.read_parquet(f"run/{name}.parquet") for name in ("history", "episodes")}) == tables(second)
    assert [step for step, _ in scalars("run")["test/metric"]] == [0, 18, 24, 42, 48]
    assert sorted(path.name for path in Path().iterdir()) == ["run"]


def test_second_call_without_go_on_is_a_new_run():
    agents, run = ppo(), trainer(steps_per_train=24)
    run.train(agents, [1, 1], plot=False)
    second = run.train(agents, [1, 1], plot=False)
    assert (second["num_collected_steps"], second["run_dir"]) == (24, str(Path("run-2").absolute()))


@pytest.mark.parametrize("go_on", [True, False])
def test_memory_does_not_grow_for_readers_of_earlier_calls(go_on):
    """The run of the first call is kept here, and in Python until cycles of references are collected."""
    agents, run = ppo(), trainer(steps_per_train=24, test_freq=None, run_dir=False)
    run.train(agents, [1, 1], plot=False)
    first = run.run
    assert first is not None
    before, rings = streams_of(run), streams_of(run).rings
    capacities = [ring.capacity for ring in rings.values()]
    change(run, settings=dataclasses.replace(run.settings, steps_per_train=300))
    run.train(agents, [1, 1], plot=False, go_on=go_on)
    assert streams_of(run) is before is first.context.streams
    assert [ring.capacity for ring in rings.values()] == capacities


def test_go_on_plays_new_episodes():
    """The symbols of an episode identify its seed."""
    seen: list[str] = []

    class Spy(Identity):
        def reset(self, seed=None, options=None):
            seen.append(str(seed))
            return super().reset(seed, options)

    agents, run = ppo(), trainer(Spy, {"length": 3}, steps_per_train=18, test_freq=100)
    run.train(agents, [1, 1], plot=False)
    tests = seen.copy()
    seen.clear()
    for _ in range(2):
        run.train(agents, [1, 1], plot=False, go_on=True)
    other = trainer(Spy, {"length": 3}, steps_per_train=18, test_freq=100, run_dir=None, seed=None)
    other.train(agents, [1, 1], plot=False, go_on=run)
    trained = [seed for seed in tests + seen if tests.count(seed) == 1 or seed not in tests]
    assert len(trained) > 20
    assert len(set(trained)) == len(trained)


def test_go_on_continues_schedules():
    """Epsilon falls from 1 to 0 in 48 env steps; learning begins at 24 and does not wait again."""
    agents = dqn(epsilon=mt.linear(1.0, 0.0, 48), learning_starts=24)
    run = trainer(steps_per_train=24)
    calls: list = []
    run.train(agents, [1, 1], plot=False)
    assert agents[0].hyper.epsilon == pytest.approx(0.5)
    change(run, callbacks=(Recorder(calls, ["on_update_end"]),))
    run.train(agents, [1, 1], plot=False, go_on=True)
    assert agents[0].hyper.epsilon == 0.0
    assert [steps for _, _, steps in calls] == [36, 48]


def test_go_on_continues_hooks_and_callbacks():
    """`train_fn` is called at multiples of 3 episodes, not with (0, 0) again; the state of a callback is restored."""
    calls: list[tuple[int, int]] = []

    class Counting(mt.Callback):
        def on_train_start(self, moment):
            self.steps = 0

        def on_step(self, moment):
            self.steps += 1

        def state_dict(self):
            return {"steps": self.steps}

        def load_state_dict(self, state):
            self.steps = state["steps"]

    counting = Counting()
    run = trainer(steps_per_train=18, callbacks=[counting], train_fn=lambda *given: calls.append(given))
    run.train(agents := ppo(), [1, 1], plot=False)
    run.train(agents, [1, 1], plot=False, go_on=True)
    assert calls == [(0, 0), (3, 9), (6, 18), (9, 27), (12, 36)]
    assert counting.steps == 12


@pytest.mark.parametrize(
    ("budgets", "counted"),
    [
        ({"episodes_per_train": 6}, ("num_collected_episodes", [6, 12, 18])),
        ({"updates_per_train": 2}, ("num_updates", [2, 4, 6])),
    ],
)
@pytest.mark.parametrize("make", [ppo, dqn])
def test_go_on_adds_every_budget(budgets, counted, make):
    agents, run = make(), trainer(**budgets)
    results = [run.train(agents, [1, 1], plot=False, go_on=number > 0) for number in range(3)]
    assert [result[counted[0]] for result in results] == counted[1]
    assert {result["stop_reason"] for result in results} == set(budgets)


def test_go_on_with_native_games_uses_compiled_code():
    env: dict[str, Any] = {"num_train_envs": 5, "update_freq": 5, "steps_per_train": 105, "run_dir": None}
    agents = dqn("marltrain/CartPole-v1", {}, jit_compile=True, batch_size=4)
    run = trainer("marltrain/CartPole-v1", {}, **env)
    calls: list = []
    run.train(agents, [1], plot=False)
    change(run, callbacks=(mt.LambdaCallback(on_collect=lambda moment: calls.append(moment.data["steps"])),))
    result = run.train(agents, [1], plot=False, go_on=True)
    assert (result["num_collected_steps"], result["num_updates"]) == (210, 42)
    assert len(calls) < sum(calls) == 21


def test_a_loop_over_opponents():
    """Each call has another opponent and another mask: a test at its start, and a new comparison."""
    learner, run = ppo()[0], trainer(steps_per_train=24, test_freq=1000)
    opponents = [mt.FunctionAgent(lambda seen: 0), mt.FunctionAgent(lambda seen: 1), mt.RandomAgent()]
    for number, opponent in enumerate(opponents):
        result = run.train([learner, opponent], [1, 0], plot=False, go_on=number > 0)
    history = result["history"]
    assert history.env_steps.tolist() == [0, 24, 24, 48, 48, 72]
    assert history.best[[0, 2, 4]].tolist() == [True] * 3
    assert result["num_updates"] == 6


def test_go_on_with_another_learning_mask_starts_with_a_test():
    agents, run = ppo(), trainer(steps_per_train=12)
    run.train(agents, [1, 0], plot=False)
    history = run.train(agents, [0, 1], plot=False, go_on=True)["history"]
    assert history.judged.tolist() == ["player_0", "player_0", "player_1", "player_1"]
    assert history.env_steps.tolist() == [0, 12, 12, 24]


def test_go_on_in_another_trainer_with_other_settings_and_environment():
    agents, first = dqn(learning_starts=12), trainer(steps_per_train=24)
    first.train(agents, [1, 1], plot=False)
    longer = trainer(Identity, {"players": 2, "length": 6}, steps_per_train=18, run_dir=None, seed=None, update_freq=6)
    result = longer.train(agents, [1, 1], plot=False, go_on=first)
    assert result["run_dir"] == str(Path("run").absolute())
    assert result["history"].env_steps.tolist() == [0, 24, 24, 42]
    assert result["episodes"].length.tolist() == [3] * 6 + [6] * 3
    assert result["num_updates"] == 2 + 2 + 3  # 0.2 an env step; it does not wait again
    assert streams_of(longer) is streams_of(first)
    with pytest.raises(ConfigError, match="another trainer has continued the run of this trainer"):
        first.train(agents, [1, 1], plot=False, go_on=True)


def test_go_on_after_an_interrupt():
    def interrupt(moment):
        if moment.env_steps == 6:
            raise KeyboardInterrupt

    agents, run = ppo(), trainer(steps_per_train=12, callbacks=[mt.LambdaCallback(on_step=interrupt)])
    assert run.train(agents, [1, 1], plot=False)["stop_reason"] == "interrupted"
    result = run.train(agents, [1, 1], plot=False, go_on=True)
    assert (result["num_collected_steps"], result["stop_reason"]) == (18, "steps_per_train")
    assert result["history"].env_steps.tolist() == [0, 18]


def test_go_on_without_a_folder():
    agents, run = ppo(), trainer(steps_per_train=12, run_dir=False)
    run.train(agents, [1, 1], plot=False)
    assert run.train(agents, [1, 1], plot=False, go_on=True)["num_collected_steps"] == 24
    assert not list(Path().iterdir())


def test_custom_agent_receives_the_env_steps_since_its_last_update():
    student, run = Student(lambda row: 0), trainer(steps_per_train=24)
    for number in range(2):
        run.train([student, mt.RandomAgent()], [1, 0], plot=False, go_on=number > 0)
    assert student.told == [12, 12, 12, 12]


@pytest.mark.parametrize(
    ("make", "seed"),
    [(ppo, 5), (dqn, 0), *LONG * [(ppo, 0), (dqn, 5)]],
    ids=lambda value: {0: "the same agents", 5: "others"}.get(value) if isinstance(value, int) else None,
)
def test_checkpoint_of_a_continued_run_resumes_exactly(make, seed):
    def two(steps, folder):
        agents = make()
        run = trainer(steps_per_train=30, run_dir=folder, test_freq=4, callbacks=[mt.Checkpoint(every_steps=1000)])
        run.train(agents, [1, 0], plot=False)
        budget(run, steps)
        agents = make(seed=seed) if seed else agents
        return run.train(agents, [1, 1], plot=False, go_on=True), agents

    expected, agents = two(30, "whole")
    two(9, "half")
    again = make(seed=seed)
    result = trainer(steps_per_train=60, run_dir=None, test_freq=4).train(again, [1, 1], plot=False, resume="half")
    assert result["num_updates"] == expected["num_updates"]
    assert result["num_gradient_steps"] == expected["num_gradient_steps"] > 0
    assert tables(result) == tables(expected)
    assert changed(weights(agents), weights(again)) == [False, False]


def test_go_on_refuses_runs_that_cannot_be_continued():
    agents, run, other = ppo(), trainer(steps_per_train=3), trainer(steps_per_train=3, run_dir=None)

    def refused(message, trainer=other, **given):
        with pytest.raises(ConfigError, match=message):
            trainer.train(agents, [1, 1], plot=False, **given)

    refused("this trainer has not trained yet, so there is no run to continue", go_on=True)
    refused("the trainer given to it has not trained yet", go_on=run)
    refused("go_on must be True, False or a DecentralizedTrainer, got 1", go_on=1)
    run.train(agents, [1, 1], plot=False)
    refused("resume continues a checkpoint: give one", go_on=run, resume="run")
    refused(r"the run is written in '.*run', and run_dir is '.*else'", trainer(run_dir="else"), go_on=run)
    refused("the run is written in '.*run', and run_dir is 'False'", trainer(run_dir=False), go_on=run)
    refused("the run has seed 0, and seed=1 was given", trainer(seed=1, run_dir=None), go_on=run)
    agents = ppo(Broken)
    refused(
        "go_on: Broken has the players left, right, and the run had player_0, player_1",
        trainer(Broken, {}, run_dir=None), go_on=run,
    )  # fmt: skip


def test_means_of_the_previous_call_do_not_enter_the_next_row():
    """Numbers logged between the last test and the next call belong to the next test."""
    agents, run = ppo(), trainer(steps_per_train=6, test_freq=1000)
    change(run, callbacks=(mt.LambdaCallback(on_collect=lambda moment: moment.log("steps", moment.env_steps)),))
    for number in range(2):
        history = run.train(agents, [1, 1], plot=False, go_on=number > 0)["history"]
    np.testing.assert_array_equal(history["user/steps"], [np.nan, 4.5, 10.5])
