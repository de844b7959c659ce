"""Completion in zsh itself (`make completion-test`): keys are typed at the prompt of a terminal."""

import os
import pty
import re
import select
import time

import pytest

from tests.cli.running import said

LIMIT = 60.0
"""Seconds that zsh may take to answer."""


def typed(folder, keys):
    """Return the arguments with which a command `marltrain` is called after keys are typed; Tab completes."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvpe("zsh", ["zsh", "-i"], {**os.environ, "ZDOTDIR": str(folder), "TERM": "dumb"})
    shown, asked, end = "", False, time.monotonic() + LIMIT
    while time.monotonic() < end and not (found := re.search(r"^called with \[(.*)\]", shown, re.MULTILINE)):
        if not asked and "ready" in shown:
            os.write(terminal, f"{keys}\n".encode())
            asked = True
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 10_000).decode(errors="replace").replace("\r", "")
    os.close(terminal)  # ends the shell
    os.waitpid(process, 0)
    assert found, shown
    return found[1]


@pytest.mark.parametrize(
    ("keys", "called"),
    [
        ("wat\t", "watch"),
        ("train --plateau-f\t 0.5", "train --plateau-factor 0.5"),
        ("tune --mem\t 8", "tune --members 8"),
        ("watch ru\t", "watch runs"),  # zsh removes the slash at the end
        ("watch wor\t", "watch worlds.txt"),
    ],
)
def test_keys_at_a_prompt(tmp_path, capsys, keys, called):
    (tmp_path / "runs").mkdir()
    (tmp_path / "worlds.txt").touch()
    script = said(capsys, "completion", "zsh").replace("&& compinit &&", "&& compinit -u &&")  # for folders of others
    (tmp_path / ".zshrc").write_text(f"{script}\nmarltrain() {{ print -r -- \"called with [$*]\" }}\nPS1='ready> '\n")
    assert typed(tmp_path, f"marltrain {keys}").rstrip() == called
