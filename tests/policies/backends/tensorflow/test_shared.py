"""A variable and an array with the same numbers: what is read follows what was changed last."""

import numpy as np
import pytest
import tensorflow as tf

from marltrain.policies.backends.tensorflow.shared import SharedVariable


@pytest.fixture
def shared():
    return SharedVariable(tf.Variable([1.0, 2.0]))


def test_the_array_is_the_same_object_with_the_numbers_of_the_variable(shared):
    array = shared.array()
    np.testing.assert_array_equal(array, [1, 2])
    shared.variable().assign([3.0, 4.0])
    shared.variable_changed()
    assert shared.array() is array
    np.testing.assert_array_equal(array, [3, 4])


def test_the_variable_follows_the_array_when_it_is_read(shared):
    variable, array = shared.variable(), shared.array()
    array[0] = 7.0
    shared.array_changed()
    np.testing.assert_array_equal(variable, [1, 2])
    assert shared.variable() is variable
    np.testing.assert_array_equal(variable, [7, 2])


def test_a_later_change_of_the_variable_replaces_that_of_the_array(shared):
    shared.array()[0] = 7.0
    shared.array_changed()
    shared.variable().assign([3.0, 4.0])
    shared.variable_changed()
    np.testing.assert_array_equal(shared.array(), [3, 4])
    np.testing.assert_array_equal(shared.variable(), [3, 4])


def test_what_did_not_change_is_not_copied(shared):
    shared.array()[0] = 7.0  # without a note
    np.testing.assert_array_equal(shared.variable(), [1, 2])
    np.testing.assert_array_equal(shared.array(), [7, 2])
