"""Returns in tables, metrics and films: all rewards of `last()`, for players that join late too (tests.toys.Inn)."""

from __future__ import annotations

import numpy as np
import pytest

import marltrain as mt
from tests.toys import Inn
from tests.trainer.running import dqn, trainer


class Faulty(Inn):
    """Raises in move 5 of the episodes whose seed is divisible by 3."""

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.breaks = seed is not None and seed > 0 and seed % 3 == 0

    def step(self, action):
        if self.breaks and self.t == 5:
            raise OSError("a fault of the environment's own")
        super().step(action)


def returns(table):
    return list(map(tuple, table[["return/ann", "return/bob", "return/cat", "return/dan"]].to_numpy()))


def trained(env=Inn, agents=None, resume=None, **settings):
    result = trainer(env, test_freq=5, episodes_per_test=3, **settings)
    return result.train(agents or dqn(Inn), [1] * 4, plot=False, resume=resume)


@pytest.mark.parametrize("where", [{"vector": "dummy"}, {"vector": "subproc", "num_workers": 2}])
def test_return_includes_rewards_before_the_first_turn(where):
    result = trained(steps_per_train=3 * 19, **where)
    assert returns(result["episodes"]) == [Inn.RETURNS] * 6
    assert returns(result["history"]) == [Inn.RETURNS] * 3
    assert result["reward_metric_stats"] == [np.mean(Inn.RETURNS)] * 3


def test_return_includes_start_rewards_after_a_fault():
    result = trained(Faulty, steps_per_train=3 * 30, on_fault="restart", max_env_restarts=1000)
    assert {"train", "test"} == set(result["faults"]["role"])
    assert set(returns(result["episodes"])) == set(returns(result["history"])) == {Inn.RETURNS}


def test_return_of_a_resumed_episode_is_complete():
    trained(steps_per_train=3 * 3, callbacks=[mt.Checkpoint(every_steps=1000)])
    result = trained(steps_per_train=3 * 11, run_dir=None, resume="run")
    assert returns(result["episodes"]) == [Inn.RETURNS] * 3


def test_play_has_the_same_returns():
    played = mt.play(Inn, dqn(Inn), episodes=2, out="inn.gif")
    assert played.tolist() == [list(Inn.RETURNS)] * 2
