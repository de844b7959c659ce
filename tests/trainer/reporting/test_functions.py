"""Functions are told apart by what they compute."""

import functools

import numpy as np

from marltrain.trainer.reporting.functions import described_function

WEIGHT = 2.0


def mean(rewards):
    return WEIGHT * rewards.mean()


def renamed(rewards):

    return WEIGHT * rewards.mean()


def of_player(player):
    return lambda rewards: rewards[:, player].mean()


def recursive(rewards):
    return recursive(rewards[1:]) if len(rewards) > 1 else mean(rewards)


class Metric:
    def __init__(self, player):
        self.player = player

    def __call__(self, rewards):
        return rewards[:, self.player].mean()

    def low(self, rewards):
        return rewards.min()


def code(function):
    return described_function(function)["code"]


def test_equal_code_has_an_equal_hash_whatever_its_name():
    assert described_function(mean)["name"] == "mean" and code(mean) == code(renamed)
    assert code(of_player(0)) == code(of_player(0)) and described_function(of_player(0))["name"] == "<lambda>"
    assert code(recursive) == code(recursive)
    assert code(functools.partial(mean, 1)) == code(functools.partial(renamed, 1))
    assert code(Metric(1)) == code(Metric(1)) and code(Metric(1).low) == code(Metric(1).low)


def test_other_code_other_values_and_other_globals_have_other_hashes(monkeypatch):
    def with_default(rewards, share=0.5):
        return share * rewards.mean()

    def with_another(rewards, share=0.6):
        return share * rewards.mean()

    scale, bias = np.ones(2), np.zeros(2)
    functions = [
        mean, of_player(0), of_player(1), recursive, with_default, with_another, Metric(0), Metric(1), Metric(0).low,
        np.mean, np.max, np.add, max, lambda r: r.max(), lambda r: r.min(), lambda r: (r * scale).max(),
        lambda r: (r * bias).max(), functools.partial(mean, 1), functools.partial(mean, 2),
        lambda r: max(x for x in r), lambda r: min(x for x in r),
    ]  # fmt: skip
    hashes = list(map(code, functions))
    assert len(set(hashes)) == len(functions)
    monkeypatch.setitem(mean.__globals__, "WEIGHT", 3.0)
    assert code(mean) != hashes[0] and code(recursive) != hashes[3] and code(of_player(0)) == hashes[1]
