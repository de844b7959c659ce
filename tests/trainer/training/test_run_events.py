"""All hooks and events of a complete run, in order, with counts that do not divide evenly."""

from __future__ import annotations

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError, EnvError
from marltrain.trainer.events.callbacks import Callback
from tests.faulty_toys import Broken
from tests.toys import Identity
from tests.trainer.running import At, Recorder, changed, dqn, ppo, tables, trainer, weights


def noting(calls, metrics=(), stops=()):
    """Hooks that record their calls. Metrics come from the list, one per test."""
    ahead = iter(metrics)
    return {
        "train_fn": lambda episodes, steps: calls.append(("train_fn", episodes, steps)),
        "test_fn": lambda episodes, steps: calls.append(("test_fn", episodes, steps)),
        "save_best_fn": lambda episode: calls.append(("save_best_fn", episode)),
        "save_last_fn": lambda: calls.append(("save_last_fn",)),
        "stop_fn": lambda metric, episode: calls.append(("stop_fn", metric, episode)) or metric in stops,
        **({"reward_metric": lambda rewards: next(ahead)} if metrics else {}),
    }


def test_hooks_and_events_of_a_complete_run():
    """Episodes of 3 steps in 3 environments: 3 end with every third batch step (of 3 env steps).

    update_freq 10 falls due every 4th batch step; test_freq 7 at 9, 15 and 21 episodes; 16 episodes are 18.
    A test of 5 episodes in 2 environments: 2 end after 6 env steps, 4 after 12, the fifth is no multiple of 2.
    """
    calls: list = []
    run = trainer(
        test_freq=7, episodes_per_test=5, episodes_per_train=16, callbacks=[Recorder(calls)],
        **noting(calls, metrics=[1.0, 0.5, 2.0, 2.0]),
    )  # fmt: skip
    result = run.train(ppo(), [1, 1], plot=False)

    def test(episodes, steps, metric, best):
        yield from [("on_test_start", episodes, steps), ("test_fn", 0, 0), ("test_fn", 2, 6), ("test_fn", 4, 12)]
        yield ("on_test_end", episodes, steps)
        if best:
            yield ("save_best_fn", episodes)
        yield ("stop_fn", metric, episodes)
        if best:
            yield ("on_checkpoint", episodes, steps)

    expected = [("on_train_start", 0, 0), *test(0, 0, 1.0, True), ("train_fn", 0, 0)]
    expected += [("on_episode_start", 0, 0)] * 3
    for step in range(1, 19):
        before = 3 * ((step - 1) // 3)
        expected.append(("on_step", before, 3 * step))
        if step % 3 == 0:
            expected += [("on_episode_end", before + i, 3 * step) for i in (1, 2, 3)]
            expected += [("on_episode_start", before + 3, 3 * step)] * 3
        expected.append(("on_collect", 3 * (step // 3), 3 * step))
        if step % 3 == 0:
            expected.append(("train_fn", before + 3, 3 * step))
        if step % 4 == 0:
            expected += [(event, 3 * (step // 3), 3 * step) for event in ("on_update_start", "on_update_end")]
        if step == 9:
            expected += test(9, 27, 0.5, False)
        if step == 15:
            expected += test(15, 45, 2.0, True)
    expected += [*test(18, 54, 2.0, False), ("save_last_fn",), ("on_checkpoint", 18, 54), ("on_train_end", 18, 54)]
    assert calls == expected
    assert result["reward_metric_stats"] == [1.0, 0.5, 2.0, 2.0]
    assert (result["num_collected_episodes"], result["num_collected_steps"], result["num_updates"]) == (18, 54, 4)
    assert result["num_gradient_steps"] == 4 * 2 * 2  # updates x minibatches x agents
    assert result["stop_reason"] == "episodes_per_train"
    assert result["history"].episodes.tolist() == [0, 9, 15, 18]
    assert result["history"].updates.tolist() == [0, 2, 3, 4]
    assert result["episodes"].env_steps.tolist() == [9 * (1 + i // 3) for i in range(18)]
    assert result["episodes"].env.tolist() == [0, 1, 2] * 6
    assert (result["episodes"].length == 3).all()


def test_off_policy_update_steps_and_gradient_step_counts():
    """0.2 updates an env step, checked every 12 env steps: 2.4 each time, so 2, 2, 3, 2; none before step 24."""
    calls: list = []

    class Count(Callback):
        def on_update_end(self, moment):
            calls.append((moment.env_steps, moment.updates, moment.gradient_steps))

    result = trainer(steps_per_train=60, callbacks=[Count()]).train(dqn(), [1, 0], plot=False)
    assert calls == [(12, 2, 2), (24, 4, 4), (36, 7, 7), (48, 9, 9), (60, 12, 12)]
    calls.clear()
    trainer(steps_per_train=60, callbacks=[Count()]).train(dqn(learning_starts=25), [1, 1], plot=False)
    assert calls == [(36, 2, 4), (48, 4, 8), (60, 7, 14)]
    assert result["num_updates"] == 12


UPDATES = ("on_update_start", "on_update_end")


@pytest.mark.parametrize(
    ("make", "settings", "steps"),
    [
        pytest.param(lambda: dqn(update_per_step=0.05), {}, [24, 48, 60], id="0.6 updates every 12 env steps"),
        pytest.param(lambda: dqn(learning_starts=25), {}, [36, 48, 60], id="a late start"),
        pytest.param(lambda: [dqn()[0], ppo()[1]], {"update_freq": 12}, [12, 24, 36, 48, 60], id="two learners"),
        pytest.param(dqn, {"updates_per_train": 3}, [12, 24], id="a budget of updates"),
    ],
)
def test_every_update_has_start_and_end_events(make, settings, steps):
    calls: list = []
    trainer(**{"steps_per_train": 60, "callbacks": [Recorder(calls, UPDATES)], **settings}).train(
        make(), [1, 1], plot=False
    )
    assert [(event, at) for event, _, at in calls] == [(event, at) for at in steps for event in UPDATES]


def test_an_update_in_a_thread_ends_before_the_next_begins():
    """It ends when the next update is due or training ends; results equal those of a run without callbacks."""
    calls: list = []
    recorder = Recorder(calls, UPDATES)
    heard = trainer(steps_per_train=36, collect="overlap", callbacks=[recorder]).train(
        result := ppo(), [1, 1], plot=False
    )
    alone = trainer(steps_per_train=36, collect="overlap").train(agents := ppo(), [1, 1], plot=False)
    assert [(event, at) for event, _, at in calls] == [
        ("on_update_start", 12), ("on_update_end", 24), ("on_update_start", 24), ("on_update_end", 36),
        ("on_update_start", 36), ("on_update_end", 36),
    ]  # fmt: skip
    assert tables(heard) == tables(alone)
    assert changed(weights(result), weights(agents)) == [False, False]


def test_setting_changed_in_on_update_start_applies_to_this_update():
    agents, rates = ppo(), []

    class Halving(Callback):
        def on_update_start(self, moment):
            agents[0].hyper.learning_rate /= 2

        def on_update_end(self, moment):
            rates.append(moment.data["metrics"]["player_0"]["learning_rate/actor"])

    agents[0].hyper.learning_rate = 0.5
    trainer(steps_per_train=24, callbacks=[Halving()]).train(agents, [1, 1], plot=False)
    assert rates == [0.25, 0.125]


def starts(calls):
    """A callback that records the counters, the environment and the episode at every start of an episode."""
    return mt.LambdaCallback(
        on_episode_start=lambda m: calls.append((m.episodes, m.env_steps, m.data["env"], m.data["episode"]))
    )


def test_on_episode_start_names_the_episode():
    calls: list = []
    trainer(steps_per_train=9, callbacks=[starts(calls)]).train(ppo(), [1, 1], plot=False)
    assert calls == [(0, 0, 0, 0), (0, 0, 1, 0), (0, 0, 2, 0), (3, 9, 0, 1), (3, 9, 1, 1), (3, 9, 2, 1)]


def test_on_episode_start_after_a_fault():
    """The third episode of 10 steps fails at its third step."""
    calls: list = []
    trainer(
        Broken, {"fault": "raise", "at": 3, "episode": 2}, num_train_envs=1, num_test_envs=1, episodes_per_test=1,
        on_fault="restart", steps_per_train=25, callbacks=[starts(calls)],
    ).train(ppo(Broken), [1, 1], plot=False)  # fmt: skip
    assert [(episodes, steps) for episodes, steps, _, _ in calls] == [(0, 0), (1, 10), (2, 20), (2, 23)]


def test_resumed_run_does_not_repeat_on_episode_start():
    calls: list = []
    trainer(steps_per_train=12, callbacks=[mt.Checkpoint(every_steps=3)]).train(ppo(), [1, 1], plot=False)
    trainer(steps_per_train=18, run_dir=None, callbacks=[starts(calls)]).train(ppo(), [1, 1], plot=False, resume="run")
    assert [(steps, env, episode) for _, steps, env, episode in calls] == [(18, 0, 2), (18, 1, 2), (18, 2, 2)]


@pytest.mark.parametrize(
    ("budget", "steps", "reason"),
    [
        ({"episodes_per_train": 4}, 18, "episodes_per_train"),  # 6 episodes: three end at once
        ({"episodes_per_train": 6}, 18, "episodes_per_train"),
        ({"steps_per_train": 10}, 12, "steps_per_train"),
        ({"steps_per_train": 12}, 12, "steps_per_train"),
        ({"updates_per_train": 2}, 24, "updates_per_train"),
        ({"episodes_per_train": 4, "steps_per_train": 7}, 9, "steps_per_train"),
        ({"episodes_per_train": 4, "steps_per_train": 70}, 18, "episodes_per_train"),
        ({"updates_per_train": 1, "steps_per_train": 70}, 12, "updates_per_train"),
    ],
)
def test_budgets(budget, steps, reason):
    result = trainer(**budget).train(ppo(), [1, 1], plot=False)
    assert (result["num_collected_steps"], result["stop_reason"]) == (steps, reason)


def test_default_of_episodes_per_train_applies_only_alone():
    assert trainer().settings.episode_budget == 5000
    assert trainer(steps_per_train=9).settings.episode_budget is None
    assert trainer(updates_per_train=9).settings.episode_budget is None
    assert trainer(steps_per_train=9, episodes_per_train=5000).settings.episode_budget == 5000


def test_one_test_for_several_multiples_and_no_repeated_last_test():
    """Three episodes at a time with test_freq 1: a test at 3, 6 and 9; the one at 9 is also the last."""
    result = trainer(test_freq=1, episodes_per_train=9).train(ppo(), [1, 1], plot=False)
    assert result["history"].episodes.tolist() == [0, 3, 6, 9]


def test_stop_fn_at_the_first_test():
    calls: list = []
    run = trainer(callbacks=[Recorder(calls)], **noting(calls, metrics=[3.0], stops=[3.0]))
    agents = ppo()
    before = weights(agents)
    result = run.train(agents, [1, 1], plot=False)
    assert [call[0] for call in calls if not call[0].startswith("test_fn")] == [
        "on_train_start", "on_test_start", "on_test_end", "save_best_fn", "stop_fn", "on_checkpoint", "train_fn",
        *["on_episode_start"] * 3, "save_last_fn", "on_checkpoint", "on_train_end",
    ]  # fmt: skip
    assert result["num_collected_steps"] == 0
    assert result["stop_reason"] == "stop_fn"
    assert changed(before, weights(agents)) == [False, False]


def test_stop_by_a_callback_is_followed_by_a_last_test():
    result = trainer(callbacks=[At(4, lambda moment: moment.stop("enough"))]).train(ppo(), [1, 1], plot=False)
    assert (result["num_collected_steps"], result["stop_reason"]) == (12, "enough")
    assert result["history"].env_steps.tolist() == [0, 12]


def test_save_best_fn_is_called_with_the_tested_weights():
    """Agents tested in `save_best_fn` give the same metric; so do the agents in the folder `best`."""
    agents, again = ppo(learning_rate=0.05), []

    def save_best(episode):
        again.append(run.test(agents).mean)

    run = trainer(
        test_freq=9, episodes_per_test=20, episodes_per_train=150, update_freq=15, save_best_fn=save_best
    )  # fmt: skip
    result = run.train(agents, [1, 1], plot=False)
    metrics = result["reward_metric_stats"]
    bests = [m for i, m in enumerate(metrics) if i == 0 or m > max(metrics[:i])]
    assert len(bests) > 2
    assert again == bests
    assert run.test(mt.load("run/best")).mean == max(metrics)
    assert run.test(mt.load("run/last")).mean == run.test(agents).mean == metrics[-1]


def test_ctrl_c_returns_the_result_so_far_without_a_last_test():
    calls: list = []

    def interrupt(moment):
        raise KeyboardInterrupt

    run = trainer(callbacks=[At(5, interrupt), Recorder(calls)], **noting(calls))
    result = run.train(ppo(), [1, 1], plot=False)
    assert (result["num_collected_steps"], result["num_updates"], result["stop_reason"]) == (15, 1, "interrupted")
    assert len(result["history"]) == 1
    assert [call[0] for call in calls][-3:] == ["save_last_fn", "on_checkpoint", "on_train_end"]
    assert len(mt.load("run/last")) == 2


def test_exception_in_an_environment_is_raised_after_saving():
    """The third training episode fails at its third step; the test's two episodes (in another object) do not."""
    calls: list = []
    run = trainer(
        Broken, {"fault": "raise", "at": 3, "episode": 2}, num_train_envs=1, num_test_envs=1, episodes_per_test=1,
        callbacks=[Recorder(calls)], on_fault="raise", **noting(calls),
    )  # fmt: skip
    agents = ppo(Broken)
    with pytest.raises(EnvError, match="a fault of the environment's own") as caught:
        run.train(agents, [1, 1], plot=False)
    assert isinstance(caught.value.__cause__, ZeroDivisionError) or "ZeroDivisionError" in str(caught.value)
    assert [call[0] for call in calls][-3:] == ["save_last_fn", "on_checkpoint", "on_train_end"]
    assert calls[-1] == ("on_train_end", 2, 22)
    assert sum(call[0] == "on_test_end" for call in calls) == 1
    saved = [agent.state().arrays for agent in mt.load("run/last")]
    assert changed(saved, [agent.state().arrays for agent in agents]) == [False, False]


def test_exception_in_a_hook_names_the_hook():
    def fail(metric, episode):
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine") as caught:
        trainer(stop_fn=fail).train(ppo(), [1, 1], plot=False)
    assert any(note.startswith("in stop_fn(") for note in caught.value.__notes__)


def test_hyperparameters_set_in_hooks_are_used():
    """train_fn sets the learning rate at the start and after 3 episodes; the tables show the used values."""
    agents = ppo()

    def train_fn(episodes, steps):
        agents[0].hyper.learning_rate = 0.0 if episodes < 3 else 0.5

    before = weights(agents)
    seen = []

    class Watch(Callback):
        def on_update_end(self, moment):
            rates = [moment.data["metrics"][f"player_{i}"]["learning_rate/actor"] for i in (0, 1)]
            nets = [{k: v for k, v in arrays.items() if k.startswith("net/")} for arrays in weights(agents)]
            seen.append((rates, changed(nets, before)))

    trainer(train_fn=train_fn, update_freq=6, steps_per_train=12, callbacks=[Watch()]).train(agents, [1, 1], plot=False)
    assert seen == [([0.0, 3e-4], [False, True]), ([0.5, 3e-4], [True, True])]


def test_schedules_follow_the_runs_env_steps():
    """Linear from 1 to 0 over 48 env steps, evaluated before each update: 36/48 at 12, 24/48 at 24, ..."""
    agents = dqn(epsilon=mt.linear(1.0, 0.0, 48))
    seen = []

    class Watch(Callback):
        def on_update_end(self, moment):
            seen.append((agents[0].hyper.epsilon, moment.data["metrics"]["player_0"]["epsilon"]))

    assert agents[0].hyper.epsilon == 1.0
    trainer(steps_per_train=48, callbacks=[Watch()]).train(agents, [1, 1], plot=False)
    assert [round(value, 9) for value, _ in seen] == [0.75, 0.5, 0.25, 0.0]
    assert [round(value, 9) for _, value in seen] == [0.75, 0.5, 0.25, 0.0]


def test_schedule_of_an_agent_that_explores_without_learning():
    agents = dqn(epsilon=mt.linear(1.0, 0.0, 48))
    agents[0] = mt.DQN(agents[0].observation_space, agents[0].action_space, seed=9, epsilon=mt.linear(1.0, 0.0, 48))
    trainer(steps_per_train=24).train(agents, [0, 1], plot=False)
    assert agents[0].hyper.epsilon == pytest.approx(0.5)


def test_masks_and_stop_require_a_running_trainer():
    run = trainer(steps_per_train=3)
    with pytest.raises(ConfigError, match="only while training runs"):
        run.learning_mask = [1, 1]
    run.train(ppo(), [1, 1], plot=False)
    with pytest.raises(ConfigError, match="only while training runs"):
        run.exploration_mask = [1, 1]


def test_second_train_plays_other_episodes():
    agents, run = ppo(), trainer(steps_per_train=9)
    first = run.train(agents, [1, 1], plot=False)
    second = run.train(agents, [1, 1], plot=False)
    assert first["episodes"].shape == second["episodes"].shape
    assert first["num_gradient_steps"] == second["num_gradient_steps"] == 0
    longer = trainer(steps_per_train=12)
    assert [longer.train(agents, [1, 1], plot=False)["num_gradient_steps"] for _ in range(2)] == [4, 4]
    assert not np.array_equal(first["episodes"].filter(like="return"), second["episodes"].filter(like="return"))


def test_identity_environment():
    env = Identity(players=2, length=3)
    env.reset(seed=0)
    steps = [env.step(dict.fromkeys(env.agents, 0))[3] for _ in range(3)]
    assert [any(truncated.values()) for truncated in steps] == [False, False, True]
