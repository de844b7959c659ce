import subprocess

import pytest

from marltrain.cli import completion
from tests.cli.running import refused, said

ASK = '{}\nCOMP_WORDS=({}); COMP_CWORD={}; _marltrain; printf "%s\\n" "${{COMPREPLY[@]}}"'


def completed(script, *words):
    """What bash offers for the last of these words."""
    quoted = " ".join(f"'{word}'" for word in words)
    asked = ASK.format(script, quoted, len(words) - 1)
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.fixture(scope="module")
def script():
    return completion.script("bash", {"watch": ["--every", "--once"], "train": ["--algo"], "test": []})


def test_bash_completes_commands_options_and_files(script, tmp_path):
    (tmp_path / "runs").mkdir()
    assert completed(script, "marltrain", "") == ["watch", "train", "test"]
    assert completed(script, "marltrain", "t") == ["train", "test"]
    assert completed(script, "marltrain", "watch", "--e") == ["--every"]
    assert completed(script, "marltrain", "watch", "ru") == ["runs"], "the working folder of a test is its own"
    assert completed(script, "marltrain", "test", "--") == []


def test_every_command_and_its_options_are_in_the_script(capsys):
    script = said(capsys, "completion", "bash")
    assert completed(script, "marltrain", "wat") == ["watch"]
    assert completed(script, "marltrain", "train", "--plateau-f") == ["--plateau-factor"]
    assert completed(script, "marltrain", "play", "--hu") == ["--human"]
    assert said(capsys, "completion", "zsh").endswith(script)  # zsh reads it with bashcompinit: `make completion-test`


def test_another_shell_is_refused(capsys):
    assert "invalid choice: 'fish'" in refused(capsys, "completion", "fish")
