"""The tiers of the tests: `make test` in few rounds, `make check-long` in many, and a short one of some files."""

from __future__ import annotations

import os

LONG = os.environ.get("MARLTRAIN_TESTS") == "long"


def rounds(short: int, long: int) -> int:
    """Return how many rounds (episodes, steps, starts) a test plays: `short`, or `long` with MARLTRAIN_TESTS=long."""
    return long if LONG else short


SHORT = (
    "tests/core/test_extras.py",
    "tests/jit/test_machine_code.py",
    "tests/envs/python/test_parallel.py",
    "tests/envs/python/test_turns.py",
    "tests/envs/native/test_vector.py",
    "tests/envs/test_frame_stack.py",
    "tests/envs/workers/test_ray_vector.py",
    "tests/envs/workers/test_pool.py",
    "tests/policies/agents/test_saving.py",
    "tests/policies/agents/tianshou/test_agents.py",
    "tests/policies/algorithms/test_ppo.py",
    "tests/policies/backends/tensorflow/test_graphs.py",
    "tests/policies/backends/test_optimizers.py",
    "tests/policies/learner/programs/test_program_steps.py",
    "tests/policies/learner/programs/test_rollout_steps.py",
    "tests/policies/demonstrations/test_minari_episodes.py",
    "tests/trainer/collecting/test_fused_updates.py",
    "tests/trainer/reporting/test_dashboard.py",
    "tests/trainer/reporting/test_history.py",
    "tests/trainer/reporting/test_plots.py",
    "tests/trainer/reporting/test_tables.py",
    "tests/trainer/reporting/test_tensorboard.py",
    "tests/trainer/preparing/test_resume.py",
    "tests/trainer/playing/test_play.py",
    "tests/tools/comparing/test_compare.py",
    "tests/tools/export/test_function.py",
    "tests/tools/test_film.py",
    "tests/cli/test_train.py",
)
"""The short tier: files and folders that together use every interface of the dependencies, and need no repository.

`make dist-test`, `make test-oldest` and `make test-newest` run it in environments of their own.
"""
