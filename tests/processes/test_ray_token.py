"""The token of Ray clusters: made, kept for the owner alone, and sent to clusters of this user only."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from marltrain.core.errors import ConfigError
from marltrain.processes import ray_token
from marltrain.processes.ray_token import mode, require_token, restore_mode, use_token


class FakeRaylet:
    """Ray's module, as far as tokens go: the mode is read from the environment when it is told to."""

    AuthenticationMode = SimpleNamespace(TOKEN="token")
    now: Any = None

    def __init__(self) -> None:
        self.Config = SimpleNamespace(initialize=self._initialize)
        loader = SimpleNamespace(reset_cache=lambda: None, has_token=_readable)
        self.AuthenticationTokenLoader = SimpleNamespace(instance=lambda: loader)

    def _initialize(self, config: str) -> None:
        FakeRaylet.now = os.environ.get("RAY_AUTH_MODE")

    def get_authentication_mode(self) -> Any:
        return FakeRaylet.now


def _readable() -> bool:
    given, file = os.environ.get("RAY_AUTH_TOKEN"), os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(file) if file else Path.home() / ".ray" / "auth_token"
    return bool(given) or (path.is_file() and bool(path.read_text().strip()))


def without_token(monkeypatch: pytest.MonkeyPatch, home: Path) -> Path:
    """Make a user who has no token yet; return the place of its file."""
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # so that what a test leaves there is taken back
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(ray_token, "_raylet", FakeRaylet)
    monkeypatch.setattr(FakeRaylet, "now", None)
    return home / ".ray" / "auth_token"


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file of the token of a user who has none yet."""
    return without_token(monkeypatch, tmp_path)


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_token_is_the_owners_alone(token):
    """Whatever the mask of the process; 256 bits, and another one for another user."""
    before = os.umask(0)
    try:
        require_token()
    finally:
        os.umask(before)
    first = token.read_text()
    assert (permissions(token), permissions(token.parent), mode()) == (0o600, 0o700, "token")
    assert len(first) == 64 and int(first, 16) >= 0
    assert [path.name for path in token.parent.iterdir()] == ["auth_token"]
    require_token()
    assert token.read_text() == first
    token.unlink()
    require_token()
    assert token.read_text() != first


@pytest.mark.parametrize("wide", [0o644, 0o640, 0o604, 0o666, 0o620, 0o777])
def test_a_token_that_others_could_read_is_the_owners_alone_from_then_on(token, wide):
    token.parent.mkdir()
    token.write_text("secret")
    token.chmod(wide)
    with pytest.warns(UserWarning, match=f"auth_token had mode {wide:o}: others could read it. It has mode 600 now"):
        require_token()
    assert permissions(token) == 0o600 and token.read_text() == "secret"
    token.chmod(wide)
    restore_mode(None)
    with pytest.warns(UserWarning, match="others could read it"):
        use_token(of_this_machine=True)
    assert permissions(token) == 0o600


@pytest.mark.parametrize("narrow", [0o600, 0o400])
def test_a_token_of_the_owner_alone_is_left_as_it_is(token, narrow):
    token.parent.mkdir()
    token.write_text("secret")
    token.chmod(narrow)
    require_token()
    assert permissions(token) == narrow


def test_rights_that_cannot_be_taken_away_are_refused(token, monkeypatch):
    token.parent.mkdir()
    token.write_text("secret")
    token.chmod(0o644)

    def refused(self: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refused)
    with pytest.raises(ConfigError, match=r"has mode 644, and others may read it .*: chmod 600 .*, or set RAY_"):
        require_token()
    assert mode() is None


def test_a_token_that_another_process_makes_at_the_same_time_is_kept(token, monkeypatch):
    link = os.link

    def second(draft: Path, path: Path) -> None:
        path.write_text("theirs")
        path.chmod(0o600)
        link(draft, path)

    monkeypatch.setattr(os, "link", second)
    require_token()
    assert [path.read_text() for path in token.parent.iterdir()] == ["theirs"]


@pytest.mark.parametrize("asked", ["disabled", "DISABLED", "", "k8s"])
def test_a_mode_without_a_token_is_refused(token, monkeypatch, asked):
    monkeypatch.setenv("RAY_AUTH_MODE", asked)
    with pytest.raises(ConfigError, match=f"RAY_AUTH_MODE='{asked}': .* unset RAY_AUTH_MODE .* or start a cluster"):
        require_token()
    assert not token.exists() and mode() == asked


@pytest.mark.parametrize("asked", ["token", "TOKEN"])
def test_the_mode_of_tokens_is_accepted(token, monkeypatch, asked):
    monkeypatch.setenv("RAY_AUTH_MODE", asked)
    require_token()
    assert token.exists() and mode() == "token"


def test_an_empty_token_is_refused(token):
    token.parent.mkdir()
    token.touch(0o600)
    with pytest.raises(ConfigError, match=r"finds no token in .*auth_token, and starts no cluster without one: delete"):
        require_token()


def test_a_file_that_is_named_is_not_made(token, monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "mine"))
    with pytest.raises(ConfigError, match=r"finds no token in .*mine"):
        require_token()
    (tmp_path / "mine").write_text("secret")
    (tmp_path / "mine").chmod(0o644)
    with pytest.warns(UserWarning, match="mine had mode 644"):
        require_token()
    assert not token.exists()


def test_a_token_in_the_environment_needs_no_file(token, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    require_token()
    assert mode() == "token" and not token.parent.exists()


def test_a_folder_that_cannot_be_made_is_told(token):
    token.parent.write_text("no folder")
    with pytest.raises(ConfigError, match=r"the token of Ray clusters cannot be kept in .*: set RAY_AUTH_TOKEN"):
        require_token()


def test_ray_without_tokens_is_refused(token, monkeypatch):
    monkeypatch.undo()  # the fixture's module in place of Ray's
    monkeypatch.setattr("importlib.import_module", lambda name: SimpleNamespace(__version__="2.51.0"))
    with pytest.raises(ConfigError, match=r"Ray '2.51.0' has no tokens, .*: install ray>=2.52"):
        ray_token._raylet()


def test_ray_that_ignores_the_mode_is_refused(token, monkeypatch):
    monkeypatch.setattr(FakeRaylet, "get_authentication_mode", lambda self: "disabled")
    with pytest.raises(ConfigError, match="Ray did not take RAY_AUTH_MODE=token"):
        require_token()


def test_the_token_is_sent_to_clusters_of_this_user_only(token, monkeypatch):
    """A token that was given for the connection is sent to any cluster; a mode that was given stays."""
    use_token(of_this_machine=True)
    assert mode() is None  # there is no token yet
    require_token()
    restore_mode(None)
    assert mode() is None and FakeRaylet.now is None
    use_token(of_this_machine=False)
    assert mode() is None
    use_token(of_this_machine=True)
    assert mode() == FakeRaylet.now == "token"
    restore_mode(None)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of another cluster")
    use_token(of_this_machine=False)
    assert mode() == "token"
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    use_token(of_this_machine=True)
    assert mode() == "disabled"
