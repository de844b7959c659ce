import subprocess
import sys
from pathlib import Path

import pytest

from marltrain.cli import COMMANDS, main
from marltrain.core.errors import SaveError
from tests.cli.running import SYMBOLS, refused, said

COMMAND = "import sys; from marltrain.cli import main; sys.exit(main())"


def test_runs_are_plotted(capsys, run, tmp_path):
    assert said(capsys, "plot", run, "--x", "time", "--smooth", 2, "--out", tmp_path / "a.png") == f"{tmp_path}/a.png\n"
    assert said(capsys, "plot", run, run) == "runs.png\n"
    assert Path("runs.png").exists()


def test_environments_are_listed(capsys):
    everything = said(capsys, "envs").splitlines()
    assert {"mpe2/simple_spread_v3", "pettingzoo/classic/tictactoe_v3", "gymnasium/CartPole-v1"} <= set(everything)
    assert said(capsys, "envs", "SPREAD").splitlines() == ["marltrain/simple_spread_v3", "mpe2/simple_spread_v3"]


def test_what_fails_on_the_way_is_one_line_too(capsys, run, tmp_path):
    assert "there is no such folder" in refused(capsys, "test", tmp_path / "nothing", code=1)
    assert "config.json: cannot be read" in refused(capsys, "test", tmp_path, code=1)
    assert "is not a run's folder" in refused(capsys, "plot", tmp_path, code=1)
    (tmp_path / "config.json").write_text("{}")
    assert "names no environment" in refused(capsys, "play", tmp_path, code=1)
    words = ["play", run, "--env", SYMBOLS, "--out", "film.gif"]
    assert "render_mode" in refused(capsys, *words, code=1)  # this one draws nothing


@pytest.mark.parametrize("python", [["-m", "marltrain"], ["-P", "-c", COMMAND]])
def test_a_folder_of_a_run_executes_nothing(run, tmp_path, python):
    """A downloaded one may hold a file of any module's name; `-P` is PYTHONSAFEPATH=1, and the installed command."""
    hostile = "open('ran', 'a').write(__name__ + '\\n')\nraise ImportError(__name__)\n"
    for name in {*sys.stdlib_module_names, "gymnasium", "matplotlib", "numpy", "pandas", "pyarrow", "torch", "yaml"}:
        (tmp_path / f"{name}.py").write_text(hostile)
    for name in ("config.json", "history.parquet"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    words = [sys.executable, *python, "plot", "."]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == ("runs.png\n", "", 0)
    assert not (tmp_path / "ran").exists()


def test_a_reader_that_is_gone_ends_the_command_without_a_word():
    """As in `marltrain envs | head -1`."""
    command = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "envs"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert command.stdout is not None
    command.stdout.close()
    _, data = command.communicate()
    assert (command.returncode, data) == (141, "")


def test_another_broken_pipe_is_no_reader_that_is_gone(monkeypatch):
    def broken(given):
        raise BrokenPipeError("of a worker")

    monkeypatch.setitem(COMMANDS, "envs", type(COMMANDS["envs"])("", lambda parser: None, broken))
    with pytest.raises(BrokenPipeError, match="of a worker"):
        main(["envs"])


def test_interrupting_is_no_traceback(capsys, monkeypatch):
    def interrupted(given):
        raise KeyboardInterrupt

    monkeypatch.setitem(COMMANDS, "envs", type(COMMANDS["envs"])("", lambda parser: None, interrupted))
    assert main(["envs"]) == 130
    assert capsys.readouterr().err == "marltrain: interrupted\n"


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_the_overview_names_the_commands(capsys, words):
    out = said(capsys, *words)
    assert all(f"  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_fits_on_two_screens(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"usage: marltrain {command}") and lines[0].endswith("[options]")
    assert len(lines) <= 120


def test_help_is_quick_and_the_module_runs():
    code = (
        "import sys, runpy\nsys.argv = ['marltrain', '--help']\n"
        "try:\n    runpy.run_module('marltrain', run_name='__main__')\n"
        "finally:\n    heavy = {'torch', 'pandas', 'matplotlib', 'numba', 'numpy', 'pettingzoo'}\n"
        "    print(heavy & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: marltrain COMMAND")
    assert done.stderr.strip() == "set()"


def test_what_is_known_besides_follows_the_error(capsys, monkeypatch):
    def failing(given):
        error = SaveError("no room")
        error.add_note("run/checkpoints/30 is whole")
        raise error

    monkeypatch.setitem(COMMANDS, "envs", type(COMMANDS["envs"])("", lambda parser: None, failing))
    assert main(["envs"]) == 1
    assert capsys.readouterr().err == "marltrain: no room\nrun/checkpoints/30 is whole\n"
