import math

import pytest

from marltrain.core.errors import ConfigError, SaveError
from marltrain.trainer.adapting.criterion import Criterion, CriterionCallback


def test_means_best_and_waiting_by_hand():
    criterion = Criterion(2, 1.0)
    seen = []
    for value in (1, 3, 4, 5, 2, 9):  # means: -, 2, 3.5, 4.5, 3.5, 5.5
        criterion.add(value)
        seen.append((criterion.mean, criterion.best, criterion.waited))
    assert seen == [
        (None, None, 0), (2.0, 2.0, 0), (3.5, 3.5, 0), (4.5, 3.5, 1), (3.5, 3.5, 2), (5.5, 5.5, 0)
    ]  # fmt: skip


def test_restart_keeps_the_best():
    criterion = Criterion(1, 0.0)
    for value in (3, 2):
        criterion.add(value)
    criterion.restart()
    criterion.add(3)  # no improvement
    assert (criterion.best, criterion.waited) == (3.0, 1)


def test_state_is_restored_and_trimmed_to_the_newest():
    criterion, same, shorter = Criterion(3, 0.0), Criterion(3, 0.0), Criterion(2, 0.0)
    for value in (1, -math.inf, 3, 4, 5, 0):
        criterion.add(value)
    same.load_state_dict(criterion.state_dict())
    shorter.load_state_dict(criterion.state_dict())
    assert same.state_dict() == criterion.state_dict()
    assert (same.mean, same.best, same.waited) == (3.0, 4.0, 1)
    assert shorter.mean == 2.5


@pytest.mark.parametrize(
    "wrong", [{"values": [1]}, {"values": 1.0}, {"best": "much"}, {"waited": -1}, {"values": ["1"]}]
)
def test_invalid_state_is_refused(wrong):
    with pytest.raises(SaveError):
        Criterion(2, 0.0).load_state_dict(Criterion(2, 0.0).state_dict() | wrong)


def test_only_the_event_of_the_criterion_is_overridden():
    from marltrain.trainer.events.callbacks import CallbackList

    tests, episodes = CallbackList([CriterionCallback()]), CallbackList([CriterionCallback(episodes=2)])
    assert [tests.listens(event) for event in ("on_test_end", "on_episode_end")] == [True, False]
    assert [episodes.listens(event) for event in ("on_test_end", "on_episode_end")] == [False, True]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tests": 0}, "tests must be at least 1, got 0"),
        ({"patience": 0}, "patience must be at least 1, got 0"),
        ({"min_delta": -1.0}, "min_delta must be at least 0"),
        ({"tests": 1, "episodes": 2}, "tests or over training episodes: give one of both"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=f"CriterionCallback: .*{message}"):
        CriterionCallback(**settings)
