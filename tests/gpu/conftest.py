"""The fixture `device`: tests of this folder run where `MARLTRAIN_GPU` names a device, as `make gpu-test` does.

On a machine without a GPU, `MARLTRAIN_GPU=cpu` runs the tests themselves, with the CPU in its place.
"""

import os

import pytest
import torch

from tests.conftest import ON_A_GPU


@pytest.fixture(scope="session")
def device() -> str:
    """The device that is held against the CPU."""
    name = os.environ.get(ON_A_GPU)
    if not name:
        pytest.skip(f"needs a GPU: make gpu-test sets {ON_A_GPU}")
    if name != "cpu" and not torch.cuda.is_available():
        pytest.skip(f"{ON_A_GPU}={name}, and torch finds no GPU")
    return name
