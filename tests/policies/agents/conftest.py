"""The fixture `own`: the user's models in one framework."""

from importlib import import_module
from typing import Any

import pytest


@pytest.fixture(params=["torch", "keras"])
def own(request) -> Any:
    """The user's models, losses and optimizers, written in one framework: by its name, or as the module itself."""
    return (
        import_module(f"tests.policies.own.with_{request.param}") if isinstance(request.param, str) else request.param
    )
