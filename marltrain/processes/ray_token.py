"""The token of Ray clusters: a process that has it can run code in them, and connections without it are refused.

Ray reads it from the variable RAY_AUTH_TOKEN, else from the file that RAY_AUTH_TOKEN_PATH names, else from
~/.ray/auth_token. Ray's processes listen on all network interfaces: a cluster without a token is open to the network.
"""

from __future__ import annotations

import importlib
import os
import secrets
import stat
from pathlib import Path
from typing import Any

from marltrain.core.errors import ConfigError, error_text, shown, warn

MODE, TOKEN, TOKEN_FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
ON = "token"
"""Value of `RAY_AUTH_MODE` with which connections need the token."""
OWNER_ONLY = 0o600


def require_token() -> None:
    """Make Ray ask for a token in the clusters that this process starts; create the token if this user has none.

    Raises ConfigError if `RAY_AUTH_MODE` says otherwise, if Ray is too old for tokens, or if there is no safe token.
    """
    asked = os.environ.get(MODE, ON)
    if asked.lower() != ON:
        raise ConfigError(
            f"{MODE}={asked!r}: a Ray cluster without a token runs the code of every process that can reach this "
            f"machine over the network, and marltrain starts none: unset {MODE} (a token is made and found by itself), "
            "or start a cluster yourself and give its address="
        )
    if not os.environ.get(TOKEN):
        ensure_token_file()
    _switch_on()
    if not _has_token():
        raise ConfigError(
            f"Ray finds no token in {token_file()}, and starts no cluster without one: delete this file, so that a new "
            f"token is made, or set {TOKEN}"
        )


def use_token(*, of_this_machine: bool) -> None:
    """Use the token of this user in connections to a cluster, if there is one and `RAY_AUTH_MODE` is not set.

    of_this_machine: whether the cluster runs here, as this user. The token in ~/.ray is sent to such a cluster only;
    that of `RAY_AUTH_TOKEN` or `RAY_AUTH_TOKEN_PATH` is sent to any. Raises ConfigError as `require_token`.
    """
    given = os.environ.get(TOKEN) or os.environ.get(TOKEN_FILE)
    if MODE in os.environ or not (given or (of_this_machine and token_file().is_file())):
        return
    if not os.environ.get(TOKEN) and token_file().is_file():
        _protect(token_file())
    _switch_on()


def mode() -> str | None:
    """Return the value of `RAY_AUTH_MODE`, None if it is not set."""
    return os.environ.get(MODE)


def restore_mode(before: str | None) -> None:
    """Set `RAY_AUTH_MODE` to what `mode` returned: later connections decide anew whether to send the token."""
    if before == os.environ.get(MODE):
        return
    if before is None:
        os.environ.pop(MODE, None)
    else:
        os.environ[MODE] = before
    _raylet().Config.initialize("")


def token_file() -> Path:
    """Return the file of the token. Raises RuntimeError if the system knows no home of this user."""
    given = os.environ.get(TOKEN_FILE)
    return Path(given) if given else Path.home() / ".ray" / "auth_token"


def ensure_token_file() -> None:
    """Create the file of the token, or take away the rights of others; raises ConfigError if that is not possible."""
    path = token_file()
    try:
        if not path.exists() and not os.environ.get(TOKEN_FILE):
            _create(path)
        if path.exists():
            _protect(path)
    except OSError as error:
        raise ConfigError(
            f"the token of Ray clusters cannot be kept in {path} ({error_text(error)}): set {TOKEN} to a secret of "
            "your own, or make the folder writable"
        ) from error


def _create(path: Path) -> None:
    """Write a new token; a token that another process writes at the same time is kept."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}-{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))
        try:
            os.link(draft, path)
        except FileExistsError:
            return
    finally:
        draft.unlink()


def _protect(path: Path) -> None:
    """Let only the owner read the file of the token; warn if others could. Raises ConfigError if that fails."""
    now = stat.S_IMODE(path.stat().st_mode)
    if os.name != "posix" or not now & ~OWNER_ONLY & 0o077:
        return
    try:
        path.chmod(OWNER_ONLY)
    except OSError as error:
        raise ConfigError(
            f"the token of Ray clusters in {path} has mode {now:o}, and others may read it ({error_text(error)}): "
            f"chmod {OWNER_ONLY:o} {path}, or set {TOKEN}"
        ) from error
    warn(
        f"the token of Ray clusters in {path} had mode {now:o}: others could read it. It has mode {OWNER_ONLY:o} now. "
        "If other people use this machine, delete the file, so that a new token is made"
    )


def _switch_on() -> None:
    """Set the mode for this process and those that it starts; raises ConfigError if Ray has no tokens."""
    raylet = _raylet()
    os.environ[MODE] = ON
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()
    if raylet.get_authentication_mode() != raylet.AuthenticationMode.TOKEN:
        raise ConfigError(f"Ray did not take {MODE}={ON}: it would start a cluster without a token")


def _has_token() -> bool:
    return bool(_raylet().AuthenticationTokenLoader.instance().has_token())


def _raylet() -> Any:
    """Return Ray's extension module; raises ConfigError for a version without tokens."""
    raylet = importlib.import_module("ray._raylet")
    if not hasattr(raylet, "AuthenticationTokenLoader"):
        version = importlib.import_module("ray").__version__
        raise ConfigError(
            f"Ray {shown(version)} has no tokens, so that its clusters are open to the network: install ray>=2.52"
        )
    return raylet
