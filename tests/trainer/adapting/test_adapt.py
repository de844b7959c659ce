from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.trainer.adapting.adapt import DIRECTIONS
from marltrain.trainer.adapting.numbers import read
from tests.tiers import LONG
from tests.trainer.adapting.test_early_stopping import metrics
from tests.trainer.running import changed, dqn, ppo, tables, trainer, weights

NAMES = {"gradient_noise": None, "effective_sample_size": "effective_sample_size", "td_error": "loss/total"}


def driven(callback, agents, values, settings=None):
    """Give a prepared callback the metrics of updates; return the values of the number after each of them."""
    logged: list[tuple[str, float]] = []
    moment = SimpleNamespace(log=lambda name, value: logged.append((name, value)), data={})
    players = dict(zip(("anna", "ben"), agents, strict=True))
    callback.prepare(settings or trainer().settings, players)
    seen = []
    for value in values:
        moment.data = {"metrics": dict.fromkeys(players, value)}
        callback.on_update_end(moment)
        seen.append(dict(logged))
    return seen


def update(by, value):
    """The metrics of an update of which the quantity becomes `value`, with batches of 4."""
    if by == "gradient_noise":
        return {"gradient_noise/q": 4 * value, "gradient_signal/q": 1.0, "gradient_rows": 4.0}
    return {NAMES.get(by) or by: value}


def values_of(agents, name):
    return [read(agent, name, trainer().settings) for agent in agents]


def agents_with(name, value, memory=None):
    given = {} if memory is None else {"memory": memory}
    if name == "batch_size":
        result = dqn(**given)
        for agent in result:
            agent.hyper.batch_size = value
        return result
    if name in ("alpha", "beta"):
        return dqn(memory=mt.Replay(prioritized=mt.Prioritized(**{name: value})))
    if name in ("clip", "entropy_coef"):
        return ppo(**{name: value})
    if name == "window":
        return dqn(memory=mt.Replay(window=value, prioritized=mt.Prioritized()))
    return dqn(**{name: value}, **given)


@pytest.mark.parametrize(
    ("by", "name"),
    [(by, name) for by in ("gradient_noise", "effective_sample_size", "td_error") for name in DIRECTIONS[by]],
)
def test_direction_bounds_and_no_collapse(by, name):
    """A quantity that stays above or below its target drives the number to one bound; it comes back from there."""
    low, start, high = (8, 32, 128) if name == "batch_size" else (0.01, 0.1, 1.0)
    up = DIRECTIONS[by][name] == "up"
    above, below = (update(by, value) for value in ((4.0, 0.1) if by != "effective_sample_size" else (1.0, 0.05)))
    if by == "td_error":  # rising and falling errors
        above, below = update(by, 0.0), update(by, 0.0)
        values = [update(by, 3.0**i) for i in range(20)] + [update(by, 3.0 ** (20 - i)) for i in range(60)]
    else:
        values = [above] * 20 + [below] * 60
    adapt = mt.Adapt(name, by=by, low=low, high=high, rate=0.1, every=1, smoothing=0.0)
    memory = mt.Replay(prioritized=mt.Prioritized()) if by == "effective_sample_size" else None
    result = agents_with(name, start, memory)
    seen = [step[f"{name}/anna"] for step in driven(adapt, result, values)]
    assert all(low <= value <= high for value in seen)
    assert seen[19] == pytest.approx(high if up else low)
    assert seen[-1] == pytest.approx(low if up else high)
    assert seen[:20] == sorted(seen[:20], reverse=not up)
    assert values_of(result, name) == pytest.approx([seen[-1]] * 2)


def test_changes_are_limited_by_the_rate_and_rest_at_the_target():
    """On a range of 1: one step of log(2) / 10, two full steps, none at the target, one back."""
    adapt = mt.Adapt("gamma", by="q_mean", low=0.0, high=1.0, target=2.0, direction="up", rate=0.1, every=1,
                     smoothing=0.0)  # fmt: skip
    values = [{"q_mean": value} for value in (4.0, 2e9, 2e9, 2.0, -1.0)]
    seen = [step["gamma/anna"] for step in driven(adapt, dqn(gamma=0.5), values)]
    assert np.diff([0.5, *seen]) == pytest.approx([0.1 * np.log(2), 0.1, 0.1, 0.0, -0.1])


def test_a_change_follows_every_nth_update_of_an_agent():
    adapt = mt.Adapt("gamma", by="q_mean", low=0.0, high=1.0, target=1.0, direction="down", rate=0.1, every=3)
    seen = driven(adapt, dqn(gamma=0.5), [{"q_mean": 100.0}] * 7)
    assert [step.get("gamma/ben") for step in seen] == pytest.approx([None, None, 0.4, 0.4, 0.4, 0.3, 0.3])
    assert seen[-1]["gamma_by_q_mean/ben"] == pytest.approx(100.0)


def test_a_plateau_moves_the_number_and_an_improvement_moves_it_back():
    """Tests: 1, 2 (better), 2, 2 (plateau), 1, 1 (plateau), 5 (better)."""
    agents = ppo(entropy_coef=0.5)
    adapt = mt.Adapt("entropy_coef", by="plateau", low=0.1, high=0.9, patience=2, rate=0.25)
    result = trainer(
        callbacks=[adapt], reward_metric=metrics(1, 2, 2, 2, 1, 1, 5), test_freq=3, steps_per_train=54
    ).train(agents, [1, 1], plot=False)
    column = result["history"]["entropy_coef/player_0"]
    assert column.dropna().tolist() == pytest.approx([0.3, 0.1, 0.3, 0.5, 0.3])
    assert column.isna().tolist() == [False, False, True, False, True, False, False]
    assert [agent.hyper.entropy_coef for agent in agents] == pytest.approx([0.3, 0.3])


PRIORITIZED = {"memory": mt.Replay(prioritized=mt.Prioritized(beta=0.5))}
RUNS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "dqn, noise": (dqn, {"batch_size": 8, "update_per_step": 1.0}, {"name": "batch_size", "by": "gradient_noise",
                                                                    "low": 2, "high": 64}),
    "ppo, rows": (ppo, {"learning_rate": 0.1}, {"name": "clip", "by": "effective_sample_size", "low": 0.05, "high": 0.4,
                                              "target": 0.9}),
    "dqn, beta": (dqn, PRIORITIZED, {"name": "beta", "by": "effective_sample_size", "low": 0.1, "high": 1.0}),
    "dqn, window": (dqn, {"memory": mt.Replay(60, window=20, half_life=40, effective_share=0.2,
                                              prioritized=mt.Prioritized())},
                    {"name": "window", "by": "effective_sample_size", "low": 5, "high": 40, "target": 0.8}),
    "dqn, errors": (dqn, {}, {"name": "epsilon", "by": "td_error", "low": 0.05, "high": 1.0}),
}  # fmt: skip


def play(make: Any, settings: Any, adapt: Any, parts: Any, name: str) -> Any:
    """A run in parts, each resumed from the one before."""
    for i, steps in enumerate(parts):
        agents = make(**settings)
        callback = mt.Adapt(**{"rate": 0.2, "every": 1, "smoothing": 0.5, **adapt})
        result = trainer(
            steps_per_train=steps, callbacks=[callback, mt.Checkpoint(every_steps=9)], test_freq=9,
            run_dir=None if i else name,
        ).train(agents, [1, 1], plot=False, resume=name if i else None)  # fmt: skip
    return agents, result


@pytest.mark.parametrize("case", RUNS if LONG else ["dqn, errors", "ppo, rows", "dqn, window"])
def test_a_run_repeats_and_resumes_exactly(case):
    make, settings, adapt = RUNS[case]
    whole, result = play(make, settings, adapt, [81], "whole")
    again, repeated = play(make, settings, adapt, [81], "again")
    halves, resumed = play(make, settings, adapt, [30, 81], "halves")
    name = adapt["name"]
    assert values_of(whole, name) == values_of(halves, name) == values_of(again, name)
    assert values_of(whole, name) != values_of(make(**settings), name)
    assert changed(weights(whole), weights(halves)) == changed(weights(whole), weights(again)) == [False, False]
    assert tables(result) == tables(repeated)
    assert result["num_gradient_steps"] == resumed["num_gradient_steps"]


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_the_next_update_uses_the_new_rate(backend):
    """A learning rate that falls to 1e-30 within one change freezes the agent from the next update on."""
    agents = dqn(backend=backend, learning_rate=0.01, update_per_step=0.1)
    after: list[list[np.ndarray]] = []

    def note(moment):
        after.append([agent["net/q/head0.bias"] for agent in weights(agents)])

    adapt = mt.Adapt("learning_rate", by="grad_norm/q", low=1e-30, high=0.01, target=1e-9, direction="down", rate=1.0,
                     every=3, players="player_1")  # fmt: skip
    trainer(callbacks=[adapt, mt.LambdaCallback(on_update_end=note)], steps_per_train=72, test_freq=None).train(
        agents, [1, 1], plot=False
    )
    assert [agent.hyper.learning_rate for agent in agents] == [0.01, 1e-30]
    moved = [[bool((b[k] != a[k]).any()) for a, b in pairwise(after)] for k in range(2)]
    assert moved == [[True] * 5, [True, True, False, False, False]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"low": 1.0, "high": 0.5}, "low must be less than high"),
        ({"rate": 0.0}, "rate must be greater than 0"),
        ({"every": 0}, "every must be at least 1"),
        ({"smoothing": 1.0}, "smoothing must be at most 0.999999"),
        ({"direction": "sideways"}, "direction must be one of up, down"),
        ({"by": "effective_sample_size", "target": 1.0}, "target must be less than 1 for a share of rows"),
        ({"by": "entropy"}, "the metric 'entropy' has no usual target: give target="),
        ({"by": "entropy", "target": 1.0}, "gamma by entropy has no usual direction"),
        ({"by": "plateau", "direction": "up"}, 'by="plateau" needs patience='),
        ({"by": "plateau", "direction": "up", "patience": 0}, "patience must be at least 1, got 0"),
        ({"patience": 3}, "patience=3 has no effect with by='gradient_noise'"),
        ({"by": "td_error", "direction": "up", "network": "q"}, "network='q' has no effect with by='td_error'"),
        ({"lower": 1.0}, "Did you mean 'low'"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        mt.Adapt(**{"name": "gamma", "by": "gradient_noise", "low": 0.5, "high": 0.99, **arguments})


@pytest.mark.parametrize(
    ("adapt", "settings", "message"),
    [
        (
            {"name": "gama", "direction": "up"},
            {},
            "has no number 'gama' that may change in training.* Did you mean 'gamma'",
        ),
        ({"low": 0.995, "high": 1.0}, {}, r"gamma of player_0 is 0.99, outside \[0.995, 1\]"),
        ({"high": 1.5}, {}, "gamma must be at most 1, got 1.5"),
        ({}, {"gamma": mt.linear(0.5, 0.9, 10)}, "gamma of player_0 follows a schedule"),
        ({"players": "anna"}, {}, "no player is called 'anna'"),
        (
            {"name": "batch_size", "low": 8, "high": 32},
            {},
            r"batch_size of player_0\+player_1 is 64, outside \[8, 32\]",
        ),
        ({"by": "effective_sample_size"}, {}, "dqn: the effective sample size of its draws is always that of all rows"),
        (
            {"by": "effective_sample_size"},
            {"memory": mt.Replay(prioritized=mt.Prioritized(alpha=0.0))},
            "dqn: the effective sample size of its draws is always that of all rows",
        ),
    ],
)
def test_what_does_not_fit_the_run_is_refused_before_it_begins(adapt, settings, message, tmp_path):
    given = {"name": "gamma", "by": "gradient_noise", "low": 0.5, "high": 0.999, **adapt}
    with pytest.raises(ConfigError, match=f"{message}"):
        trainer(callbacks=[mt.Adapt(**given)]).train(dqn(**settings), [1, 1], plot=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("callback", "settings", "message"),
    [
        (
            mt.Adapt("batch_size", by="gradient_noise", low=2, high=8),
            {},
            "ppo: batch_size=2 has no effect with minibatches=2",
        ),
        (
            mt.Adapt("batch_size", by="gradient_noise", low=2, high=13),
            {"batch_size": 4},
            r"Adapt's high=13 exceeds one rollout of the agent of player_0 and player_1: 4 batch steps x 3 environments"
            r" = 12 rows\. Raise update_freq \(now 10 env steps\) or lower Adapt's high",
        ),
        (mt.ReduceOnPlateau("batch_size", patience=1), {}, "ppo: batch_size=1 has no effect with minibatches=2"),
    ],
)
def test_batch_sizes_that_do_not_fit_are_refused_before_the_run(callback, settings, message, tmp_path):
    agents = ppo(**{"minibatches": None, **settings} if "batch_size" in settings else settings)
    with pytest.raises(ConfigError, match=message):
        trainer(callbacks=[callback]).train(agents, [1, 1], plot=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "callback",
    [mt.Adapt("batch_size", by="gradient_noise", low=1, high=8), mt.ReduceOnPlateau("batch_size", patience=1)],
)
def test_batches_of_fewer_rows_than_the_algorithm_takes_are_refused(callback):
    agents = ppo(minibatches=None, batch_size=4)
    for agent in agents:
        agent.learner_.update_schedule = replace(agent.learner_.update_schedule, least_rows=2)
    with pytest.raises(ConfigError, match=r"ppo: batch_size=1 is too small: .* takes 2 rows"):
        callback.prepare(trainer().settings, dict(zip(("anna", "ben"), agents, strict=True)))


def test_a_callback_that_joins_a_resumed_run_starts_from_the_restored_value():
    """The first part halves the rate, 0.1, at each test; the second one adapts what it finds, 0.0125."""
    parts: list[Any] = [
        [mt.ReduceOnPlateau(patience=1, factor=0.5)],
        [
            mt.Adapt(
                "learning_rate", by="grad_norm/q", low=1e-3, high=0.1, target=1e9, rate=1e-9, every=1, direction="up"
            )
        ],
    ]
    for i, callbacks in enumerate(parts):
        agents = dqn(learning_rate=0.1)
        trainer(
            callbacks=[*callbacks, mt.Checkpoint(every_steps=9)], steps_per_train=27 * (i + 1), test_freq=3,
            run_dir=None if i else "run", reward_metric=lambda rewards: 0.0,
        ).train(agents, [1, 1], plot=False, resume="run" if i else None)  # fmt: skip
    assert [agent.hyper.learning_rate for agent in agents] == pytest.approx([0.0125] * 2, rel=1e-6)


def test_states_are_restored_by_number_and_agent():
    """The callbacks of a resumed run come in another order; one of them is of an agent that had none."""
    own: dict[str, Any] = {"by": "grad_norm/q", "low": 0.1, "high": 0.9, "target": 1e-9, "every": 1, "rate": 0.1}

    def made(name, players, **more):
        return mt.Adapt(name, players=players, direction="down", **{**own, **more})

    for i, order in enumerate(
        [
            [made("epsilon", "player_0"), made("epsilon", "player_1", rate=0.01), made("gamma", None)],
            [made("gamma", None), made("epsilon", "player_1", rate=0.01), made("epsilon", "player_0")],
        ]
    ):
        agents = dqn(epsilon=0.9, gamma=0.9)
        trainer(
            callbacks=[*order, mt.Checkpoint(every_steps=9)], steps_per_train=30 * (i + 1), test_freq=None,
            run_dir=None if i else "run",
        ).train(agents, [1, 1], plot=False, resume="run" if i else None)  # fmt: skip
        wanted = [[0.74, 0.884], [0.5, 0.86]][i]
        assert values_of(agents, "epsilon") == pytest.approx(wanted)
    assert [one.position for adapt in order for one in adapt._driven] == pytest.approx([0.5, 0.5, 0.95, 0.5])


def test_measuring_ends_with_the_next_run():
    agents = dqn()
    adapt = mt.Adapt("gamma", by="gradient_noise", low=0.5, high=0.999)
    with_it = trainer(callbacks=[adapt], steps_per_train=30).train(agents, [1, 1], plot=False)
    without = trainer(steps_per_train=30, run_dir="other").train(agents, [1, 1], plot=False)
    assert [any("gradient_noise" in name for name in each["history"]) for each in (with_it, without)] == [True, False]
