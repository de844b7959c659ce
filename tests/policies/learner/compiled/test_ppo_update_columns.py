"""Columns that compiled updates by PPO read, and those that they refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from marltrain.policies.compiled.ppo_kernel import METRICS
from marltrain.policies.learner.minibatches import Minibatches
from marltrain.policies.learner.trained_team import ALONE
from marltrain.policies.networks.specs import MLP
from tests.policies.compiled.wrong_columns import WRONG_COLUMNS
from tests.policies.learner.compiled.test_ppo_update import learner_of, rollout_of, update
from tests.policies.learner.compiled.test_q_update import CLOSE, assert_close, assert_metrics_close
from tests.policies.learner.test_learner import everyone, moved


def columns_of(rng: np.random.Generator, rows: int = 7, *, masked: bool = True) -> dict[str, Any]:
    """What passes are given of a prepared rollout."""

    def some(*shape: int) -> Any:
        return torch.tensor(rng.normal(size=(3, rows, *shape)), dtype=torch.float32)

    return {
        "obs": some(5), "legal": torch.ones((3, rows, 5), dtype=torch.bool) if masked else None,
        "action": torch.tensor(rng.integers(5, size=(3, rows))), "log_prob": some() - 1.6, "advantage": some(),
        "target": some(), "value": some(), "state": None,
    }  # fmt: skip


def given_to(learner: Any, columns: dict[str, Any], **changes: Any) -> Any:
    """Have its passes made by columns, and by what is dealt of their rows with some changes."""
    dealt = Minibatches(np.ones((3, 7), np.float32), 2, 64).dealt(2, [np.random.default_rng(0) for _ in range(3)])
    due = changes.pop("due", dealt.present)
    return learner.steps.steps[0](columns, replace(dealt, **changes), learner.hyper.stacked(), due)


WRONG: dict[str, Any] = {**WRONG_COLUMNS, r"\(3, 7, 3": lambda column: column[..., :3].contiguous()}
OF = dict.fromkeys(("obs", "log_prob", "advantage", "target", "value"), "float32") | {
    "action": "int64",
    "legal": "bool",
}


@pytest.mark.parametrize("name", OF)
def test_columns_that_compiled_code_would_not_read_aright(name):
    native = learner_of(network=MLP((5,)), value_clip=0.2)
    before = [native.export(row) for row in range(3)]
    for wrong, made_wrong in WRONG.items():
        columns = columns_of(np.random.default_rng(0))
        if wrong == r"\(3, 7, 3" and columns[name].ndim == 2:
            continue
        columns[name] = made_wrong(columns[name])
        if (name, wrong) == ("legal", "nothing"):  # all actions are
            continue
        text = rf"column '{name}' must be {OF[name]} \(3, \d.*\) in one piece; .*{wrong}"
        if (name, wrong) == ("target", r"\(3, 6"):  # then all others have one row too many
            text = "column 'obs' must be"
        with pytest.raises(TypeError, match=text):
            given_to(native, columns)
    assert not any(moved(state, native.export(row)) for row, state in enumerate(before))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"action": -1}, r"actions must lie in \[0, 5\); they are -1"),
        ({"action": 5}, r"actions must lie in \[0, 5\); they are . to 5"),
        ({"index": -1}, r"rows must lie in \[0, 7\); they are -1"),
        ({"index": 7}, r"rows must lie in \[0, 7\); they are 0 to 7"),
        ({"index": np.zeros((2, 3, 7), np.int32)}, r"column 'index' must be int64 \(2, 3, 7\)"),
        ({"index": np.zeros((2, 2, 7), np.int64)}, r"column 'index' must be int64 \(2, 3, 7\)"),
        ({"weight": np.zeros((2, 3, 7))}, r"column 'share' must be float32 \(2, 3, 7\)"),
        ({"weight": np.zeros((2, 3, 6), np.float32)}, r"column 'share' must be float32 \(2, 3, 7\)"),
        ({"start": np.zeros(8, np.int64)[::2]}, r"column 'start' must be int64 \(4,\)"),
        ({"stop": np.zeros(3, np.int64)}, r"column 'stop' must be int64 \(4,\)"),
        ({"epoch": np.zeros(4, np.int32)}, r"column 'epoch' must be int64 \(4,\)"),
        ({"due": np.ones((4, 2), bool)}, r"column 'due' must be bool \(4, 3\)"),
        ({"due": np.ones((4, 3))}, r"column 'due' must be bool \(4, 3\)"),
    ],
)
def test_places_that_there_are_not(changes, told):
    """Actions, rows and passes."""
    native, columns, changes = learner_of(network=MLP((5,))), columns_of(np.random.default_rng(0)), dict(changes)
    before = [native.export(row) for row in range(3)]
    if "action" in changes:
        columns["action"][2, 6] = changes.pop("action")
    if isinstance(changes.get("index"), int):
        changes["index"], place = np.zeros((2, 3, 7), np.int64), changes["index"]
        changes["index"][1, 2, 6] = place
    with pytest.raises(TypeError, match=told):
        given_to(native, columns, **changes)
    assert not any(moved(state, native.export(row)) for row, state in enumerate(before))


def test_the_same_columns_are_taken_as_they_should_be():
    """Without values, where they are not clipped, and without masks; each pass is as torch's."""
    native, plain = (learner_of(compiled=compiled, network=MLP((5,))) for compiled in (True, False))
    assert native.steps.at_once
    assert not native.steps.plannable
    rngs = [np.random.default_rng(0) for _ in range(3)]
    dealt = Minibatches(np.ones((3, 7), np.float32), 2, 64).dealt(2, rngs)
    for masked in (False, True):
        columns = columns_of(np.random.default_rng(0), masked=masked)
        due = np.array([[True, False, True]] * 4)
        unclipped = {name: column for name, column in columns.items() if name != "value"}
        measured = native.steps.steps[0](unclipped, dealt, native.hyper.stacked(), due)
        assert measured.shape == (4, METRICS, 3)
        for number, (start, stop, epoch) in enumerate(zip(dealt.start, dealt.stop, dealt.epoch, strict=True)):
            index = dealt.index[epoch, :, start:stop]
            rows = {n: None if c is None else c[np.arange(3)[:, None], index] for n, c in columns.items()}
            rows["weight"] = torch.tensor(dealt.weight[epoch, :, start:stop].copy())
            expected = plain.steps.steps[0]({ALONE: rows}, {ALONE: plain.hyper.stacked()}, due[number])
            np.testing.assert_allclose(measured[number][:, [0, 2]], expected[:, [0, 2]], rtol=2 * CLOSE, atol=2 * CLOSE)
        assert native.steps.steps[0].metrics == plain.steps.steps[0].metrics
    for name, array in native.weights.trained().items():
        np.testing.assert_allclose(array, plain.weights.trained()[name], rtol=0, atol=CLOSE, err_msg=name)


def test_everyone_may_have_nothing_to_learn_from():
    native, plain = (learner_of(compiled=compiled, network=MLP((5,))) for compiled in (True, False))
    before = native.export(0)
    rollout = rollout_of(np.random.default_rng(0), [4, 4, 4])
    assert_metrics_close(*update(replace(rollout, weight=0 * rollout.weight), native, plain))
    assert_metrics_close(*update(rollout, native, plain, learn=~everyone(native)))
    assert not moved(before, native.export(0))
    assert_close(native, plain)
