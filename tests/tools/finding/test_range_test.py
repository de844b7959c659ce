"""A sweep of the learning rate within a run."""

import numpy as np
import pandas as pd
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError, SaveError
from tests.tools.bandit import SETTINGS, TRAINER, Bandit, Regressor
from tests.tools.search.test_candidates import digest
from tests.trainer.running import dqn, trainer


def sweep(steps=800, low=1e-3, high=10.0, trainer_steps=800, **arguments):
    callback = mt.LearningRateRangeTest(low, high, env_steps=steps, **arguments)
    run = mt.DecentralizedTrainer(
        Bandit, seed=0, steps_per_train=trainer_steps, test_freq=None, run_dir=False, progress=False,
        callbacks=[callback], **TRAINER,
    )  # fmt: skip
    agents = mt.make_agents(Regressor, Bandit, seed=0, **SETTINGS)
    before = digest(agents[0])
    return callback, run.train(agents, [1], plot=False), (before, digest(agents[0]))


def test_rates_grow_geometrically_and_agents_are_restored():
    callback, result, (before, after) = sweep(stop_at=None)
    table = callback.table
    np.testing.assert_allclose(table["learning_rate"], 1e-3 * 1e4 ** (table["env_steps"] / 800))
    assert before == after and result["stop_reason"] in ("a loss or a gradient is not finite", "the sweep is complete")
    assert 0.01 < callback.suggestion(smooth=15) < 0.5  # where the error falls to 0


def test_a_loss_that_grows_ends_the_sweep():
    """Rates above 2 multiply the error by more than -1."""
    callback, result, (before, after) = sweep(low=2.2, restore=False, stop_at=4.0)
    assert result["stop_reason"] == "the loss exceeds 4 times the smallest one" and before != after
    assert 5 < len(callback.table) < 20


def test_a_sweep_shorter_than_the_run_ends_it():
    callback, result, _ = sweep(steps=160, high=0.5)
    assert result["stop_reason"] == "the sweep is complete" and result["num_collected_steps"] == 160
    assert callback.table["learning_rate"].iloc[-1] == pytest.approx(0.5)


def test_a_run_with_a_folder_gets_the_sweep(tmp_path):
    callback = mt.LearningRateRangeTest(1e-3, 0.1, env_steps=80)
    result = trainer(Bandit, {}, callbacks=[callback], steps_per_train=80, test_freq=None, **TRAINER)
    result.train(mt.make_agents(Regressor, Bandit, seed=0, **SETTINGS), [1], plot=False)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "run" / "range_test.csv"), callback.table)
    assert (tmp_path / "run" / "range_test.png").stat().st_size > 5_000


def test_returns_and_losses_are_drawn(tmp_path):
    callback, *_ = sweep(steps=320, high=1.0)
    assert callback.suggestion("return", smooth=3) > 1e-3
    for by in ("loss", "return"):
        assert callback.plot(tmp_path / f"{by}.png", by=by, skip_end=2, limits=(-9, 9)).exists()
    with pytest.raises(ConfigError, match="by must be one of loss, return"):
        callback.plot(tmp_path / "a.png", by="metric")
    with pytest.raises(ConfigError, match="leave 2 of 40 points"):
        callback.plot(tmp_path / "a.png", skip_start=39)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [({"low": 1.0, "high": 0.1}, "low must be below high"), ({"stop_at": 1.0}, "stop_at must be greater than 1"),
     ({"players": 3}, "players must be names")],
)  # fmt: skip
def test_wrong_arguments_are_refused(arguments, match):
    with pytest.raises(ConfigError, match=match):
        mt.LearningRateRangeTest(**arguments)


def test_a_scheduled_rate_and_a_missing_budget_are_refused():
    with pytest.raises(ConfigError, match="give env_steps, or steps_per_train"):
        trainer(callbacks=[mt.LearningRateRangeTest()], episodes_per_train=3).train(dqn(), [1, 1])
    with pytest.raises(ConfigError, match="follows a schedule"):
        trainer(callbacks=[mt.LearningRateRangeTest()], steps_per_train=30).train(
            dqn(learning_rate=mt.linear(0.1, 0, 10)), [1, 1]
        )


@pytest.mark.parametrize("damage", ["shape", "missing", "dtype", "row"])
def test_a_state_with_other_agents_or_rows_is_refused_and_changes_no_agent(damage):
    callback, _, (_, now) = sweep(steps=160, high=0.5)
    (label, agent), *_ = callback._agents.items()
    state = callback.state_dict()
    arrays = state["before"][label]["arrays"]
    name = next(name for name in arrays if name.startswith("net/"))
    if damage == "shape":
        arrays[name] = arrays[name][:-1]
    if damage == "missing":
        del arrays[name]
    if damage == "dtype":
        arrays[name] = arrays[name].astype(np.int64)
    if damage == "row":
        state["rows"][-1] = state["rows"][-1][:3]
    with pytest.raises(SaveError):
        callback.load_state_dict(state)
    assert digest(agent) == now
