"""The returns that count for the metric, the best test, and the warning about a constant metric."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError, SaveError
from marltrain.storage.state import State
from marltrain.trainer.evaluating.selection import ModelSelection
from tests.toys import Auction
from tests.trainer.running import At, Student, ppo, trainer

NAMES = ("a", "b", "c")
AGENTS = [mt.RandomAgent() for _ in NAMES]
TWO = {"players": 2}


def selection(reward_metric=None, line_up=None):
    return ModelSelection(reward_metric, NAMES, AGENTS, line_up)


def mask(*values):
    return np.array(values, bool)


def returns(*rows):
    return np.array(rows, float)


def test_default_metric_is_the_mean_over_learning_seats():
    selected = selection().add(returns([1, 2, 30], [3, 4, 50]), mask(1, 1, 0))
    assert (selected.metric, selected.judged) == (2.5, ("a", "b"))
    assert selected.interval[0] >= 1.5
    assert selected.interval[1] <= 3.5
    assert selection().add(returns([1, 2, 30]), mask(0, 0, 1)).metric == 30


def test_default_metric_of_a_line_up_uses_columns_of_learning_agents():
    """b learns and plays the first and third entry; if no entry learns, all columns count."""
    line_up = [AGENTS[1], mt.RandomAgent(), AGENTS[1]]
    assert selection(line_up=line_up).add(returns([1, 20, 3]), mask(0, 1, 1)).judged == ("a", "c")
    assert selection(line_up=line_up).add(returns([1, 20, 3]), mask(0, 1, 1)).metric == 2
    assert selection(line_up=line_up).add(returns([1, 20, 3]), mask(1, 0, 1)).metric == 8


def test_reward_metric_receives_all_columns_and_is_compared_across_masks():
    result = selection(lambda rewards: rewards.sum())
    first, second = (result.add(returns([1, 2, value]), learning) for value, learning in
                     ((3, mask(1, 0, 0)), (2, mask(0, 1, 1))))  # fmt: skip
    assert (first.metric, first.judged, second.judged) == (6, NAMES, NAMES)
    assert all(map(math.isnan, first.interval))
    assert not second.best


def bests(made, values, learning=(1, 1, 1)):
    """Whether each test is the best so far."""
    return [made.add(returns([value] * 3), mask(*learning)).best for value in values]


def test_best_metric_exceeds_all_previous_ones():
    assert bests(selection(), [1, 3, 2, 3, 4]) == [True, True, False, False, True]
    assert bests(selection(), [1, 0, 1, 2]) == [True, False, False, True]


def test_last_test_is_the_best_while_the_metric_is_constant():
    assert bests(selection(), [1, 1, 1, 2, 2]) == [True, True, True, True, False]
    assert bests(selection(), [1, 1, 0, 1]) == [True, True, False, False]
    assert bests(selection(lambda rewards: rewards.max()), [-math.inf, -math.inf, 0, 0]) == [True, True, True, False]


def test_rounding_does_not_count_as_a_change_of_the_metric():
    """Sums of float32 rewards of 0.3, -0.1 and -0.2 are not quite 0, and not the same in every test."""
    result = selection()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        selections = [result.add(returns([0.3 + shift, -0.1, -0.2]), mask(1, 1, 1)) for shift in (7e-9, 1e-8, 0, 9e-9)]
    assert [selected.best for selected in selections] == [True] * 4
    assert len(caught) == 1
    assert result.add(returns([0.3, -0.1, -0.1999]), mask(1, 1, 1)).best
    assert not result.add(returns([0.3, -0.1, -0.1999]), mask(1, 1, 1)).best


def test_other_learning_seats_restart_the_comparison():
    result = selection()
    assert bests(result, [5, 4], (1, 0, 0)) == [True, False]
    assert bests(result, [1, 0, 1, 2], (0, 1, 0)) == [True, False, False, True]
    assert bests(result, [1, 1, 0], (1, 0, 0)) == [True, True, False]


@pytest.mark.parametrize(
    ("rows", "learning", "warned"),
    [
        ([[1, -1, 0], [-2, 1, 1]], (1, 1, 1), True),
        ([[1, -1, 7], [-2, 2, 7]], (1, 1, 0), True),
        ([[1, -1, 0], [-2, 1, 1]], (1, 1, 0), False),
        ([[0, 0, 0], [0, 0, 0]], (1, 1, 1), False),  # a game of rare rewards, perhaps
        ([[1, -1, 0], [1, 1, 1]], (1, 1, 1), False),
    ],
)
def test_warning_for_returns_that_sum_to_zero(rows, learning, warned):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        selection().add(returns(*rows), mask(*learning))
    assert ["test_agents=[agent, RandomAgent()]" in str(warning.message) for warning in caught] == [True] * warned


def test_selection_continues_from_its_state():
    one = selection()
    bests(one, [1, 1], (1, 1, 0))
    other = selection()
    other.restore(one.state())
    assert other.metrics == [1, 1]
    for result in (one, other):
        assert bests(result, [0.5, 1, 2], (1, 1, 0)) == [False, False, True]
    assert one.state().info == other.state().info
    assert one.state().arrays["metrics"].tolist() == other.state().arrays["metrics"].tolist()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("judged", "a"), ("judged", [1]), ("moved", 1), ("metrics", np.zeros((2, 2))), ("metrics", np.zeros(2, int)),
        ("best", np.zeros(1)), ("best", np.zeros((), np.float32)),
    ],
)  # fmt: skip
def test_state_with_wrong_types_is_refused(name, value):
    state = selection().state()
    held = State({**state.info}, {**state.arrays})
    (held.info if name in held.info else held.arrays)[name] = value
    with pytest.raises(SaveError):
        selection().restore(held)


# In a run -------------------------------------------------------------------------------------------------------------


def test_metric_of_one_learner_in_a_zero_sum_game():
    """The mean over both players is 0 in every test, so `best` would hold the untrained agents. The learner bids 2."""
    bids: list[int] = [0, 4, 4, 0]
    saved: list[int] = []
    others = mt.FunctionAgent(lambda observation: bids[0])
    result = trainer(Auction, TWO, test_freq=3, episodes_per_train=9, save_best_fn=saved.append,
                   stop_fn=lambda metric, episode: bids.append(bids.pop(0)))  # fmt: skip
    history = result.train([others, Student(lambda row: 2)], [0, 1], plot=False)["history"]
    assert history["metric"].tolist() == history["return/bidder_1"].tolist()
    assert np.sign(history["metric"]).tolist() == [1, -1, -1, 1]
    assert history["judged"].tolist() == ["bidder_1"] * 4
    assert saved == [0]


def test_self_play_warns_and_best_is_the_last_test():
    agents = ppo(Auction, TWO, share=True, learning_rate=0.1)
    saved: list[int] = []
    events: list[tuple[int, bool]] = []

    class Watch(mt.Callback):
        def on_test_end(self, moment):
            events.append((moment.episodes, moment.data["best"]))

    output = trainer(Auction, TWO, test_freq=6, episodes_per_train=12, save_best_fn=saved.append, callbacks=[Watch()])
    with pytest.warns(
        UserWarning, match=r"returns of the players that learn \(bidder_0, bidder_1\) sum to zero"
    ) as data:
        result = output.train(agents, [1, 1], plot=False)
    assert len([w for w in data if "sum to zero" in str(w.message)]) == 1
    assert data[0].filename == __file__
    assert set(result["reward_metric_stats"]) == {0.0}
    assert saved == [episodes for episodes, _ in events] == result["history"]["episodes"].tolist()
    assert all(best for _, best in events)
    kept, last = (mt.load(f"run/{name}")[0].state().arrays for name in ("best", "last"))
    assert all((kept[name] == last[name]).all() for name in kept if name.startswith("net/"))


def test_changed_masks_restart_the_comparison_and_appear_in_the_table():
    """Tests at 0, 3, 6 and 9 episodes; the mask changes after the second batch step, before 3 have ended."""

    def change(moment):
        moment.trainer.learning_mask = [0, 1]

    result = trainer(test_freq=3, episodes_per_train=9, callbacks=[At(2, change)])
    history = result.train(ppo(), [1, 0], plot=False)["history"]
    assert history["judged"].tolist() == ["player_0", *["player_1"] * 3]
    assert history["metric"].tolist() == [history[f"return/{name}"][i] for i, name in enumerate(history["judged"])]
    assert history["best"].tolist()[:2] == [True, True]


def test_mask_set_before_a_test_applies_to_the_next_test():
    """It is set in the batch step before a test: the metric uses the seats that have learned."""

    def change(moment):
        moment.trainer.learning_mask = [0, 1]

    result = trainer(test_freq=3, episodes_per_train=6, callbacks=[At(3, change)])
    history = result.train(ppo(), [1, 0], plot=False)["history"]
    assert history["judged"].tolist() == ["player_0", "player_0", "player_1"]


def test_resumed_run_compares_with_earlier_tests():
    """Metrics 1, 1, 2 | 1.5, 2.5: the last but one is not the best, because the metric changed before the interrupt."""
    metrics = [1.0, 1.0, 2.0, 1.5, 2.5]

    def train(steps, ahead, run_dir, **more):
        result = trainer(test_freq=3, steps_per_train=steps, reward_metric=lambda rewards: next(ahead), run_dir=run_dir,
                       callbacks=[mt.Checkpoint(every_steps=9)])  # fmt: skip
        return result.train(ppo(), [1, 1], plot=False, **more)["history"]

    whole = train(36, iter(metrics), "whole")
    train(18, iter(metrics), "half")
    resumed = train(36, iter(metrics[3:]), None, resume="half")
    assert whole["best"].tolist() == resumed["best"].tolist() == [True, True, True, False, True]
    assert whole["judged"].tolist() == resumed["judged"].tolist()


def test_error_of_reward_metric_names_the_default():
    with pytest.raises(ConfigError, match="The default is their mean over the players that learn"):
        selection(lambda rewards: None).add(returns([1, 2, 3]), mask(1, 1, 1))
