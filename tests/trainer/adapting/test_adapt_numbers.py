"""Each number that `Adapt` may change is used: its run equals one in which the user sets the same value."""

from __future__ import annotations

from typing import Any

import pytest

import marltrain as mt
from tests.tiers import LONG
from tests.trainer.running import changed, dqn, ppo, tables, trainer, weights

NEAR = {"update_per_step": 0.5, "batch_size": 8, "tau": 0.1}
PRIORITIES = mt.Prioritized(alpha=0.4, beta=0.4)
NUMBERS: dict[str, tuple[Any, dict[str, Any], float, float]] = {
    "window": (dqn, {"memory": mt.Replay(window=15)}, 15, 3),
    "half_life": (dqn, {"memory": mt.Replay(half_life=40)}, 40, 2),
    "effective_share": (dqn, {"memory": mt.Replay(30, effective_share=0.1, half_life=8)}, 0.1, 0.9),
    "alpha": (dqn, {"memory": mt.Replay(prioritized=PRIORITIES)}, 0.4, 0.9),
    "beta": (dqn, {"memory": mt.Replay(prioritized=PRIORITIES)}, 0.4, 0.9),
    "batch_size": (dqn, {}, 8, 2),
    "epsilon": (dqn, {"epsilon": 0.9}, 0.9, 0.1),
    "tau": (dqn, {}, 0.1, 0.9),
    "gamma": (dqn, {"gamma": 0.9}, 0.9, 0.1),
    "learning_rate": (dqn, {"learning_rate": 0.1}, 0.1, 0.001),
    "clip": (ppo, {"clip": 0.3, "learning_rate": 0.1, "epochs": 3}, 0.3, 0.001),
}
"""The agents, their settings, and the number's value at first and after the third update."""


def played(name: str, callback: Any) -> tuple[Any, Any]:
    make, settings, _, _ = NUMBERS[name]
    agents = make(**{**(NEAR if make is dqn else {}), **settings})
    result = trainer(callbacks=[callback], steps_per_train=81, test_freq=None, run_dir=False).train(
        agents, [1, 1], plot=False
    )
    return agents, result


@pytest.mark.parametrize(
    "name", NUMBERS if LONG else ["window", "half_life", "alpha", "batch_size", "epsilon", "learning_rate", "clip"]
)
def test_the_next_update_uses_the_new_value(name):
    """A change of the whole range after the third update, by a quantity that is far above its target."""
    make, _, before, after = NUMBERS[name]
    by = "grad_norm/q" if make is dqn else "grad_norm/actor"
    low, high = sorted((before, after))
    direction = "up" if after > before else "down"
    adapt = mt.Adapt(name, by=by, low=low, high=high, target=1e-9, direction=direction, rate=1.0, every=3)
    seen: list[int] = []

    def set_it(moment):
        seen.append(1)
        for agent in by_hand if len(seen) == 3 else ():
            setattr(agent.hyper if name in dir(agent.hyper) else agent.memory, name, type(before)(after))

    adapted, result = played(name, adapt)
    make, settings, _, _ = NUMBERS[name]
    by_hand = make(**{**(NEAR if make is dqn else {}), **settings})
    callback = mt.LambdaCallback(on_update_end=set_it)
    other = trainer(callbacks=[callback], steps_per_train=81, test_freq=None, run_dir=False).train(
        by_hand, [1, 1], plot=False
    )
    left, _ = played(name, mt.LambdaCallback(on_update_end=lambda moment: None))
    assert changed(weights(adapted), weights(by_hand)) == [False, False]
    assert changed(weights(adapted), weights(left)) == [True, True]
    assert tables(result)[1] == tables(other)[1]
