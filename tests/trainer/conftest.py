"""A run with checkpoints, and a copy of it to damage."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from marltrain.trainer.saving.checkpoint import Checkpoint
from tests.trainer.running import dqn, trainer


@pytest.fixture(scope="module")
def half(tmp_path_factory) -> Path:
    """A run of 60 env steps with checkpoints at 21, 42 and 60."""
    here = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("half"))
    trainer(steps_per_train=60, callbacks=[Checkpoint(every_steps=20, keep=5)]).train(dqn(), [1, 1], plot=False)
    folder = Path("run").resolve()
    os.chdir(here)
    return folder


@pytest.fixture
def run(half, tmp_path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(half, tmp_path / "run"))
