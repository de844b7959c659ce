"""Loss terms shared by several algorithms, written with `ops`; all arguments and results are [K, B]."""

from __future__ import annotations

from typing import Any


def clipped_surrogate(ops: Any, ratio: Any, advantage: Any, clip: Any) -> Any:
    """Return PPO's clipped objective, which is maximised: Schulman et al. 2017 (arXiv:1707.06347), eq. 7."""
    bounded = ops.minimum(ops.maximum(ratio, 1.0 - clip), 1.0 + clip)
    return ops.minimum(ratio * advantage, bounded * advantage)


def clipped_value_loss(ops: Any, value: Any, old_value: Any, target: Any, clip: Any) -> Any:
    """Return the larger squared error of the value and of the value clipped to old_value +- clip.

    This is the value clipping of Schulman et al.'s published code; an infinite clip gives the plain squared error.
    """
    step = ops.minimum(ops.maximum(value - old_value, -clip), clip)
    return ops.maximum(ops.square(value - target), ops.square(old_value + step - target))


def huber(ops: Any, error: Any) -> Any:
    """Return the Huber loss with threshold 1: quadratic near 0, linear beyond (Mnih et al. 2015)."""
    size = ops.absolute(error)
    near = ops.minimum(size, ops.ones_like(size))
    return near * (size - 0.5 * near)


def approx_kl(ops: Any, log_ratio: Any) -> Any:
    """Return (ratio - 1) - log ratio, an unbiased, non-negative estimate of KL(old, new) (Schulman 2020)."""
    return ops.exp(log_ratio) - 1.0 - log_ratio
