"""Graphs: traced once for each structure of their arguments, whatever the number of rows."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from marltrain.policies.backends.tensorflow.graphs import Graph


class Counted:
    """Adds what it is given, and counts how often it is traced."""

    def __init__(self, **options):
        self.traces = 0
        self.graph = Graph(self._add, **options)

    def _add(self, tree, extra):
        self.traces += 1
        total = tree["x"] * 2.0 + tf.cast(tree["inner"]["y"], tf.float32)
        return total if extra is None else total + extra

    def __call__(self, rows, extra=None, dtype=np.int64):
        x = tf.ones([2, rows])
        return self.graph({"x": x, "inner": {"y": np.full((2, rows), 3, dtype), "none": None}}, extra).numpy()


@pytest.mark.parametrize(("jit_compile", "traces"), [(False, 1), (True, 2)], ids=["plain", "XLA"])
def test_only_a_compiled_one_is_traced_for_every_number_of_rows(jit_compile, traces):
    function = Counted(jit_compile=jit_compile)
    for rows in (4, 7, 4, 7):
        assert function(rows).tolist() == [[5.0] * rows] * 2
    assert function.traces == traces


def test_a_structure_or_type_of_its_own_has_a_trace_of_its_own():
    function = Counted()
    assert function(2).tolist() == [[5.0, 5.0]] * 2
    assert function(2, extra=tf.constant([[1.0], [2.0]])).tolist() == [[6.0, 6.0], [7.0, 7.0]]
    assert function(2, dtype=np.int32).tolist() == [[5.0, 5.0]] * 2
    assert function.traces == 3
    assert function(3).tolist() == [[5.0] * 3] * 2
    assert function.traces == 3


def test_what_a_graph_reads_may_change():
    """Variables are read when it runs, not when it is traced."""
    variable = tf.Variable([1.0])
    graph = Graph(lambda x: x + variable)
    assert graph(tf.zeros([1])).numpy().tolist() == [1.0]
    variable.assign([5.0])
    assert graph(tf.zeros([1])).numpy().tolist() == [5.0]
