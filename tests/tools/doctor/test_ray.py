"""The token of Ray's clusters: in the environment, in a file with its mode, not there yet, switched off."""

from pathlib import Path

import pytest

from marltrain.tools.doctor.packages import Packages
from marltrain.tools.doctor.ray import ray
from marltrain.tools.doctor.requirements import Needed

PACKAGES = Packages((), {"ray": [Needed("ray>=2.52", "ray", "ray", "2.60", True)]})


@pytest.fixture
def token(tmp_path, monkeypatch):
    """The file of the token in a home of this test."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ray").mkdir()
    return tmp_path / ".ray" / "auth_token"


def told(version="2.60"):
    found = ray(PACKAGES, version)
    return {fact.name: fact.value for fact in found.facts}, [finding.cause for finding in found.findings]


def test_no_token_yet(token):
    facts, causes = told()
    assert facts == {
        "version": "2.60", "needed": "ray>=2.52", "RAY_AUTH_MODE": None, "token": {"from": str(token), "mode": None},
    }  # fmt: skip
    assert not causes


@pytest.mark.parametrize(("mode", "doubts"), [(0o600, 0), (0o400, 0), (0o640, 1), (0o604, 1), (0o602, 1), (0o644, 1)])
def test_a_token_that_others_may_read(token, mode, doubts):
    token.write_text("secret")
    token.chmod(mode)
    facts, causes = told()
    assert facts["token"] == {"from": str(token), "mode": f"{mode:o}"}
    assert len(causes) == doubts and all(f"mode {mode:o}" in cause for cause in causes)
    assert token.stat().st_mode & 0o777 == mode  # reports change nothing
    assert told(None)[1] == []  # without Ray, no finding


def test_files_without_a_token(token):
    token.touch(0o600)
    assert told()[1] == [f"{token} holds no token"]
    token.unlink()
    token.mkdir(0o700)
    assert told()[1] == [f"{token} holds no token"]


def test_a_token_in_a_place_that_cannot_be_read(token, monkeypatch):
    token.write_text("")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token / "inner"))
    assert told()[1] == [f"{token}/inner cannot be read: Not a directory"]


def test_a_token_in_the_environment_is_not_shown(token, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    facts, causes = told()
    assert facts["token"] == {"from": "RAY_AUTH_TOKEN"} and not causes and "secret" not in str(facts)


def test_a_mode_without_tokens(token, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert told()[1] == ["RAY_AUTH_MODE=disabled: marltrain starts no cluster without a token"]
    monkeypatch.setenv("RAY_AUTH_MODE", "TOKEN")
    assert told()[1] == []


def test_no_home(token, monkeypatch):
    def unknown():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    assert told()[0]["token"] is None
