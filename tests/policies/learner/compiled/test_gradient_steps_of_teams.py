"""Which teams learn in compiled code: by settings, backend, networks, and what an algorithm says of itself."""

from __future__ import annotations

from typing import Any

import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.algorithms.vdn import VDNAlgorithm
from marltrain.policies.interface.algorithm import CompiledForm
from marltrain.policies.learner.compiled.gradient_steps import TEAM_LOSSES
from marltrain.policies.learner.compiled.team_update import TeamSteps
from marltrain.policies.learner.gradient_steps import GradientSteps
from marltrain.policies.learner.joint_learner import JointLearner
from marltrain.policies.networks.specs import MLP
from tests.policies.some_batches import VECTOR
from tests.tiers import LONG


class SilentVDN(VDNAlgorithm):
    """Mixes otherwise, and says nothing of it."""

    def mixed(self, ops, team, values, *, target):
        return 2 * super().mixed(ops, team, values, target=target)


class UnknownVDN(VDNAlgorithm):
    def compiled_form(self):
        return CompiledForm("q", "epsilon_greedy", "double_q")


def team_steps(agent: Any, **settings: Any) -> Any:
    """The gradient steps of a team of one."""
    sizes = {} if issubclass(agent, mt.VDN) else {"state_size": 4}
    given = {"seed": 0, "team_size": 1, "device": "cpu", "jit_compile": True, **sizes, **settings}
    return JointLearner([agent(VECTOR, spaces.Discrete(3), **given).learner_], [1], [0]).steps


@pytest.mark.parametrize(
    ("agent", "settings", "expected"),
    [
        (mt.VDN, {"double": False, "tau": 0.1, "optimizer": "adamw"}, True),
        (mt.QMIX, {"mixer_input": "joint", "skip_connection": True}, True),
        (mt.QMIX, {"hyper_units": 400}, False),  # more than 2^15 weights
        (mt.QMIX, {"network": MLP((180, 180))}, False),
        (mt.VDN, {"jit_compile": False}, False),
        (mt.VDN, {"dueling": True}, False),
        (mt.VDN, {"network": mt.GRU()}, False),
        (mt.VDN, {"optimizer": "adamax"}, False),
        *LONG * [(mt.VDN, {"backend": "tensorflow"}, False)],
        (mt.WQMIX, {}, False),
        (type("Agent", (mt.VDN,), {"algorithm_class": SilentVDN}), {}, False),
    ],
    ids=str,
)
def test_which_teams(agent, settings, expected):
    steps = team_steps(agent, **settings)
    assert type(steps) is (TeamSteps if expected else GradientSteps)
    assert steps.plannable is expected


def test_a_loss_of_a_team_that_is_not_known_is_told():
    assert TEAM_LOSSES == ("mixed_q", "double_mixed_q")
    with pytest.raises(TypeError, match=r"compiled code knows 'mixed_q', 'double_mixed_q' of a team; not .*'double_q'"):
        team_steps(type("Agent", (mt.VDN,), {"algorithm_class": UnknownVDN}))
