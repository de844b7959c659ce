"""A plain training step executes few files, and none of a feature that its run does not use."""

from __future__ import annotations

import pytest

from tests.house.path import PACKAGE, path_of

MOST = {"ppo": 45, "dqn": 47}
"""Algorithm -> limit of the files that a step executes. It may only fall."""
UNUSED = {
    "sets of policies": "trainer/collecting/cast.py",
    "leagues": "envs/matches.py",
    "functions of the trainer": "trainer/events/hooks.py",
    "masks of legal moves": "envs/python/masks.py",
    "recurrent networks": "policies/interface/recurrence.py",
    "asynchronous runners": "policies/algorithms/lagging.py",
    "replay of rollouts": "policies/algorithms/replayed_rollouts.py",
    "planned updates": "trainer/updating/planned.py",
    "random numbers of losses": "policies/learner/phase_draws.py",
    "arrays beside the variables of TensorFlow": "policies/backends/base.py",
}


@pytest.mark.parametrize("algo", MOST)
def test_a_step_executes_few_files_and_no_unused_feature(algo):
    assert all((PACKAGE / file).is_file() for file in UNUSED.values())
    files = path_of(algo)
    assert [feature for feature, file in UNUSED.items() if file in files] == []
    assert len(files) <= MOST[algo], "\n".join(files)
