"""Traces: one for each structure of the arguments, called with their tensors alone."""

from __future__ import annotations

import weakref

import numpy as np

from marltrain.policies.backends.traces import Traces


class Noted(Traces):
    """Traces numpy functions by calling them; told apart by type."""

    def __init__(self, function):
        super().__init__(function)
        self.made = []

    def leaf(self, given):
        return given, (given.dtype,)

    def traced(self, call, leaves):
        self.made.append(len(leaves))
        return call


def total(tree, extra):
    return tree["x"] * 10 + tree["inner"]["y"] + (0 if extra is None else extra)


def test_a_trace_is_given_the_leaves_in_order_and_is_used_again():
    traces = Noted(total)
    one, two = np.array([1.0]), np.array([2.0])
    assert traces({"x": one, "inner": {"y": two, "none": None}}, None).tolist() == [12.0]
    assert traces({"x": two, "inner": {"y": one, "none": None}}, None).tolist() == [21.0]
    assert traces.made == [2]
    assert traces({"x": two, "inner": {"y": one, "none": None}}, one).tolist() == [22.0]
    assert traces({"x": two.astype(np.float32), "inner": {"y": one, "none": None}}, None).tolist() == [21.0]
    assert traces({"x": two, "inner": {"y": one}}, None).tolist() == [21.0]
    assert traces.made == [2, 3, 2, 2]


def test_a_trace_keeps_no_argument_alive():
    class Column(np.ndarray):
        """An array that can be referred to weakly."""

    traces, given = Noted(lambda x: x + 1), np.zeros(3).view(Column)
    traces(given)
    seen = weakref.ref(given)
    del given
    assert seen() is None
