"""The progress bar of slow preparations, such as making agents."""

from __future__ import annotations

import io

import pytest

import marltrain as mt
from marltrain.trainer.reporting import preparation
from tests.toys import Identity


@pytest.fixture
def terminal(monkeypatch):
    """Let stderr be taken for a terminal."""
    monkeypatch.setattr(preparation, "_in_a_terminal", lambda: True)


def test_make_agents_shows_a_bar_if_it_takes_long(monkeypatch, capsys, terminal):
    result = mt.make_agents("random", Identity, env_args={"players": 3}, seed=0)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(preparation, "PATIENCE", -1.0)
    assert len(mt.make_agents("random", Identity, env_args={"players": 3}, seed=0)) == len(result)
    shown = capsys.readouterr().err
    assert "making agents" in shown
    assert "0/3" in shown


def test_bar_shows_the_remaining_items(monkeypatch, capsys, terminal):
    seen = []
    for item in preparation.shown_if_slow("abcd", "spelling"):
        seen.append(item)
        if item == "b":
            monkeypatch.setattr(preparation, "PATIENCE", -1.0)
    assert seen == ["a", "b", "c", "d"]
    assert "2/4" in capsys.readouterr().err


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), ValueError("I/O operation on closed file.")])
def test_work_continues_when_the_reader_of_the_bar_is_gone(monkeypatch, error):
    class Gone(io.StringIO):
        def write(self, text):
            raise error

        def isatty(self):
            return True

    monkeypatch.setattr(preparation, "PATIENCE", -1.0)
    monkeypatch.setattr("sys.stderr", Gone())
    assert list(preparation.shown_if_slow("abcd", "spelling")) == ["a", "b", "c", "d"]


def test_no_bar_in_a_pipe(monkeypatch, capsys):
    monkeypatch.setattr(preparation, "PATIENCE", -1.0)
    assert list(preparation.shown_if_slow("abcd", "spelling")) == ["a", "b", "c", "d"]
    assert capsys.readouterr().err == ""


def test_no_bar_on_a_closed_stderr(monkeypatch):
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(preparation, "PATIENCE", -1.0)
    monkeypatch.setattr("sys.stderr", closed)
    assert list(preparation.shown_if_slow("abcd", "spelling")) == ["a", "b", "c", "d"]
