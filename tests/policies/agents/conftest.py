"""The fixture `own`: the user's models in one framework."""

from typing import Any

import pytest

from tests.policies.own.agents import FRAMEWORKS


@pytest.fixture(params=FRAMEWORKS, ids=lambda module: module.FRAMEWORK)
def own(request) -> Any:
    """The user's models, losses and optimizers, written in one framework."""
    return request.param
