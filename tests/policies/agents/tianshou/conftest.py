"""A fixture of the tests of tianshou's algorithms."""

import pytest

from tests.policies.agents.tianshou.interpreted import interpret


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    interpret(monkeypatch)
