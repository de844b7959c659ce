"""The time to a score: the first test that reaches it, of each kind of actions."""

from __future__ import annotations

import sys

from benchmarks.time_to_score import Found, Point, points_of, reached

LINES = (
    '{"processor": 1.5, "env_steps": 100, "greedy": -12.0, "sampled": -9.0}',
    "text of a library",
    '{"processor": 2.5, "env_steps": 200, "greedy": -9.8, "sampled": -10.0}',
    '{"processor": 3.5, "env_steps": 300, "greedy": -9.0, "sampled": -7.0}',
)


def test_first_test_of_each_kind_and_score():
    tests = [Point(10.0 * i, float(i), i, {"greedy": greedy, "sampled": sampled})
             for i, (greedy, sampled) in enumerate([(-12, -9), (-9.8, -10), (-9, -7)])]  # fmt: skip
    found = reached(tests, [-9.8, -7.8])
    assert found.first == {
        ("greedy", -9.8): tests[1], ("greedy", -7.8): None, ("sampled", -9.8): tests[0], ("sampled", -7.8): tests[2],
    }  # fmt: skip
    assert found.best == {"greedy": tests[2], "sampled": tests[2]}
    assert reached([], [-9.8]) == Found()


def test_no_test_is_read_after_the_last_score():
    tests = iter([Point(1.0, 1.0, 1, {"greedy": -9.0}), Point(2.0, 2.0, 2, {"greedy": -8.0})])
    reached(tests, [-9.8])
    assert next(tests).env_steps == 2


def test_tests_of_a_process():
    printing = f"for line in {LINES!r}: print(line)"
    found = list(points_of([sys.executable, "-c", printing], 60.0, {}))
    assert [(test.processor, test.env_steps, test.returns) for test in found] == [
        (1.5, 100, {"greedy": -12.0, "sampled": -9.0}), (2.5, 200, {"greedy": -9.8, "sampled": -10.0}),
        (3.5, 300, {"greedy": -9.0, "sampled": -7.0}),
    ]  # fmt: skip
    assert [test.env_steps for test in points_of([sys.executable, "-c", printing], 0.0, {})] == [100]
