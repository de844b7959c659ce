"""Which algorithms may read arrays of batches; runs are compared in `tests/whole/test_rows_on_device.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from marltrain.policies.algorithms.a2c import A2CAlgorithm
from marltrain.policies.algorithms.acer import ACERAlgorithm
from marltrain.policies.algorithms.coma import COMAAlgorithm
from marltrain.policies.algorithms.dqn import DQNAlgorithm
from marltrain.policies.algorithms.mappo import MAPPOAlgorithm
from marltrain.policies.algorithms.mmd import MMDAlgorithm
from marltrain.policies.algorithms.ppo import PPOAlgorithm
from marltrain.policies.algorithms.seac import SEACAlgorithm
from marltrain.policies.algorithms.trpo import TRPOAlgorithm
from marltrain.policies.algorithms.vdac import VDACAlgorithm
from marltrain.policies.interface.algorithm import Algorithm
from marltrain.policies.learner.rows_on_device import reads_arrays

OWN = [
    A2CAlgorithm, ACERAlgorithm, COMAAlgorithm, DQNAlgorithm, MAPPOAlgorithm, MMDAlgorithm, PPOAlgorithm,
    SEACAlgorithm, TRPOAlgorithm, VDACAlgorithm,
]  # fmt: skip


class Preparing(PPOAlgorithm):
    def prepare(self, *given: Any) -> Any:
        return super().prepare(*given)


class Rating(PPOAlgorithm):
    def row_errors(self, *given: Any) -> Any:
        return None


class Louder(PPOAlgorithm):
    """Overrides nothing that gets a whole batch."""


class OfTensors(Preparing):
    reads_arrays = False

    def prepare(self, *given: Any) -> Any:
        return super().prepare(*given)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [*((kind, False) for kind in OWN), (Preparing, True), (Rating, True), (Louder, False), (OfTensors, False)],
)
def test_a_subclass_that_overrides_a_method_does_not_inherit_the_flag(kind: type[Algorithm], expected: bool) -> None:
    assert reads_arrays(object.__new__(kind)) is expected


@pytest.mark.parametrize(("kind", "expected"), [(PPOAlgorithm, False), (Algorithm, True)])
def test_a_method_that_the_constructor_sets_has_the_flag_of_the_class(kind: type[Algorithm], expected: bool) -> None:
    algorithm = object.__new__(kind)
    algorithm.row_errors = lambda *_: np.zeros(1)
    assert reads_arrays(algorithm) is expected
