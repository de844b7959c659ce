"""Check sums by which the workers of a cluster find that their rows differ."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from marltrain.policies.backends.tensorflow.joined import MODULUS, check_sum


def columns(seed=0):
    rng = np.random.default_rng(seed)
    obs = tf.constant(rng.standard_normal((2, 5, 3)), tf.float32)
    return {"obs": obs, "legal": None, "action": tf.constant(rng.integers(4, size=(2, 5))), "x": {"done": obs[0] > 0}}


def test_equal_rows_have_equal_sums_and_a_changed_bit_or_order_another_one():
    first = float(check_sum(columns()))
    assert 0 <= first < MODULUS
    assert first.is_integer()
    assert float(check_sum(columns())) == first
    assert float(tf.function(check_sum)(columns())) == first
    changed = columns()
    smallest = np.nextafter(changed["obs"].numpy(), np.float32(9))
    swapped = changed["obs"].numpy()[:, [1, 0, 2, 3, 4]]
    for obs in smallest, swapped:
        assert float(check_sum({**changed, "obs": tf.constant(obs)})) != first
    assert float(check_sum({**changed, "action": changed["action"] + 1})) != first
