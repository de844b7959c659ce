"""Trials: what is reported to the study."""

from types import SimpleNamespace
from typing import Any

from marltrain.tools.search.training import Reading, Training
from marltrain.tools.tuning.trials import _report, _Trial


class Asked:
    """A trial that records its reports, and how often it is asked whether to end."""

    def __init__(self):
        self.reports, self.times = [], 0

    def report(self, value, step):
        self.reports.append((step, value))

    def should_prune(self):
        self.times += 1
        return False


def test_a_trial_is_asked_only_when_it_has_a_new_test():
    """Where trials are trained one after another, an earlier one is complete while a later one plays its tests."""
    study: Any = SimpleNamespace(prunes=lambda trial: trial.should_prune())
    trials: list[Any] = [Asked(), Asked()]
    first, second = Training(0, 0, list), Training(1, 0, list)
    running = [_Trial(trials[0], [first]), _Trial(trials[1], [second])]
    for training in (first, second):
        for step in (0, 8):
            training.readings.append(Reading(step, step / 2, {}))
            _report(study, running)
    assert [trial.reports for trial in trials] == [[(0, 0.0), (8, 4.0)]] * 2
    assert [trial.times for trial in trials] == [2, 2]
