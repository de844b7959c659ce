"""The measurements on a GPU: a process that fails, or never ends, leaves its rows."""

from __future__ import annotations

import sys
from argparse import Namespace
from typing import Any

import pytest

from benchmarks import gpu
from marltrain.policies.backends.torch.places import instead

ROW = 'print(\'{"case": "one", "env steps/s": 5.0}\', flush=True); '


@pytest.mark.parametrize(
    ("end", "limit", "error"),
    [("raise SystemExit(3)", 60.0, "3:"), ("import time; time.sleep(60)", 3.0, "s are over"), ("", 60.0, None)],
)
def test_rows_of_a_process_that_fails(
    end: str, limit: float, error: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "command", lambda asked: [sys.executable, "-c", ROW + end])
    rows = gpu.part(Namespace(), "spread", limit)
    assert rows[0] == {"case": "one", "env steps/s": 5.0}
    assert [error in row["error"] for row in rows[1:]] == ([] if error is None else [True])


def test_a_case_that_fails_leaves_the_others() -> None:
    def fails() -> Any:
        raise ValueError("no memory")

    assert [*gpu.attempt("one", fails), *gpu.attempt("two", lambda: {"x": 1})] == [
        {"case": "one", "error": "ValueError: no memory"}, {"case": "two", "x": 1},
    ]  # fmt: skip


def test_a_table_has_the_columns_of_all_rows() -> None:
    lines = gpu.table([{"case": "a", "x": 1234.5}, {"case": "b", "error": "one | two\nthree"}]).splitlines()
    assert lines == ["| case | x | error |", "| --- | --- | --- |", "| a | 1,234 |  |", "| b |  | one / two three |"]


def test_a_cpu_stands_for_the_gpu_only_where_the_gpu_computes() -> None:
    for uses, expected in ((False, False), (True, True)):
        place, context = gpu.placed("cpu", gpu=uses)
        with context:
            assert (place, instead() is not None) == ("cpu", expected)
    assert gpu.placed("cuda:1", gpu=True)[0] == "cuda:1"


def test_a_rate_is_measured_by_the_same_code_on_a_cpu() -> None:
    asked = Namespace(device="cpu", small=True, seconds=0.05)
    work = {"learning_starts": 8, "capacity": 100, "batch_size": 8}
    (row,) = gpu.rates(asked, "small", "gpu, captured", "dqn", gpu.noise((3,), 2), work, update_freq=4)
    assert row["mode"] == "gpu, captured" and row["env steps"] > 0 and row["env steps/s"] > 0, row
