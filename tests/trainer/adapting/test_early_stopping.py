import logging

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from tests.trainer.running import dqn, ppo, tables, trainer, weights


def metrics(*values):
    """A reward metric that returns these values, one a test."""
    rest = iter(values)
    return lambda rewards: next(rest)


def run(callback, *values, agents=None, **settings):
    given = {"test_freq": 3, "steps_per_train": 300, "reward_metric": metrics(*values) if values else None, **settings}
    return trainer(callbacks=[callback], **given).train(agents or ppo(), [1, 1], plot=False)


@pytest.mark.parametrize(
    ("arguments", "values", "reason"),
    [
        ({"target": 5.0}, (1, 2, 5, 9), "target 5 reached: mean 5 over the last test"),
        ({"target": 3.0, "tests": 2}, (4, 1, 5, 9), "target 3 reached: mean 3 over the last 2 tests"),
        ({"patience": 2}, (1, 3, 2, 3, 9), "no improvement in 2 tests: best mean 3"),
        ({"patience": 2, "min_delta": 1.0}, (1, 3, 4, 3.5, 9), "no improvement in 2 tests: best mean 3"),
        ({"target": 3.0, "patience": 1}, (3, 9), "target 3 reached: mean 3 over the last test"),
    ],
)
def test_training_ends_at_the_test_and_says_why(arguments, values, reason, caplog):
    caplog.set_level(logging.INFO, "marltrain")
    result = run(mt.EarlyStopping(**arguments), *values)
    assert result["stop_reason"] == reason
    assert any(reason in message for message in caplog.messages)
    assert result["reward_metric_stats"] == list(values[:-1])  # the test of the stop is the last one


def test_returns_of_training_episodes_of_the_players_that_learn():
    """A mean of the last 4 training episodes, and not of the returns of player 1, who does not learn."""
    seen: list[float] = []
    played = mt.LambdaCallback(on_episode_end=lambda moment: seen.append(moment.data["returns"][0]))
    stop = mt.EarlyStopping(patience=5, episodes=4)
    result = trainer(callbacks=[played, stop], steps_per_train=900, test_freq=None).train(ppo(), [1, 0], plot=False)
    means = [np.mean(seen[i - 4 : i]) for i in range(4, len(seen) + 1)]
    best, waited = means[0], 0
    for number, mean in enumerate(means[1:], 5):  # noqa: B007
        best, waited = (mean, 0) if mean > best else (best, waited + 1)
        if waited == 5:
            break
    assert result["stop_reason"] == f"no improvement in 5 training episodes: best mean {best:.6g}"
    assert number <= result["num_collected_episodes"] < number + 3  # of a batch step of 3 environments


def test_counts_continue_after_resume():
    """The run that is interrupted after 2 of 3 tests without improvement ends at the same test as the whole one."""
    values, results = (5, 4, 4, 4, 9, 9), []
    for name, parts in (("whole", [200]), ("halves", [18, 200])):
        agents, played = ppo(), iter(values)
        for i, steps in enumerate(parts):
            results.append(
                trainer(
                    reward_metric=lambda rewards, played=played: next(played), test_freq=3, steps_per_train=steps,
                    run_dir=None if i else name, callbacks=[mt.EarlyStopping(patience=3), mt.Checkpoint(every_steps=9)],
                ).train(agents, [1, 1], plot=False, resume=name if i else None)
            )  # fmt: skip
    whole, _, resumed = results
    assert whole["stop_reason"] == resumed["stop_reason"] == "no improvement in 3 tests: best mean 5"


def test_a_second_run_starts_anew():
    stop = mt.EarlyStopping(patience=2)
    assert run(stop, 5, 4, 4, 4)["num_collected_episodes"] > 0
    again = run(stop, 1, 2, 1, 1, 9, run_dir="again")
    assert again["reward_metric_stats"] == [1, 2, 1, 1]


def test_it_only_watches():
    """Training that it does not end is the same as without it."""
    agents, others = dqn(), dqn()
    with_it = run(mt.EarlyStopping(target=1e9), agents=agents, steps_per_train=60)
    without = trainer(test_freq=3, steps_per_train=60, run_dir="other").train(others, [1, 1], plot=False)
    assert tables(with_it) == tables(without)
    assert all((a[n] == b[n]).all() for a, b in zip(weights(agents), weights(others), strict=True) for n in a)


def test_wrong_arguments_are_refused():
    with pytest.raises(ConfigError, match="EarlyStopping: say when training ends: target= or patience="):
        mt.EarlyStopping(tests=3)
    with pytest.raises(ConfigError, match=r"EarlyStopping: .*patien.*Did you mean 'patience'"):
        mt.EarlyStopping(patienc=3)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="target must be a number or None"):
        mt.EarlyStopping(target="high")  # type: ignore[arg-type]


def test_a_criterion_over_tests_needs_tests(tmp_path):
    with pytest.raises(ConfigError, match=r"EarlyStopping: .* test_freq=None switches tests off.*episodes=100"):
        run(mt.EarlyStopping(patience=3), test_freq=None)
    assert not list(tmp_path.iterdir())  # nothing has begun
