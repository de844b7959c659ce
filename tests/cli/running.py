"""Run commands of the command line in a test."""

from marltrain.cli import main

RELAY, SYMBOLS = "tests.toys:Relay", "tests.toys:Identity"


def said(capsys, *words):
    """Run a command that must succeed; return what it printed."""
    assert main([str(word) for word in words]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys, *words, code=2):
    """Run a command that must fail; return its one line on stderr."""
    assert main([str(word) for word in words]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("marltrain: ")
    return line
