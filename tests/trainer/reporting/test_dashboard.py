import sys
import time
from types import SimpleNamespace
from typing import Any

import pytest

import marltrain as mt
from marltrain.trainer.events.due import Budgets
from marltrain.trainer.preparing import built_in
from marltrain.trainer.reporting import dashboard
from marltrain.trainer.reporting.dashboard import Dashboard
from tests.trainer.reporting.test_progress import moment
from tests.trainer.running import ppo, trainer


class Seen:
    """A screen that keeps the text of every drawing; it can fail, or take time."""

    def __init__(self, error=None, seconds=0.0):
        self.texts: list[str] = []
        self.error, self.seconds, self.closed = error, seconds, False

    def show(self, view):
        end = time.thread_time() + self.seconds
        while time.thread_time() < end:
            pass
        if self.error is not None:
            raise self.error
        self.texts.append(view.text())

    def close(self):
        self.closed = True


def shown_on(screen, **budgets):
    return Dashboard(Budgets(**{"episodes": None, "env_steps": None, "updates": None, **budgets}), screen, "game")


@pytest.fixture
def seen(monkeypatch):
    """The screen of every dashboard of a run."""
    screen = Seen()
    monkeypatch.setattr(built_in, "make_screen", lambda file: screen)
    monkeypatch.setattr(dashboard, "INTERVAL", 0.0)
    monkeypatch.setattr(dashboard, "DRAWING_SHARE", 1e9)
    return screen


@pytest.mark.parametrize("folder", ["run", False])
def test_a_run_draws_its_numbers_with_and_without_a_folder(seen, folder):
    result = trainer(steps_per_train=60, test_freq=10, progress="dashboard", run_dir=folder).train(ppo(), [1, 1])
    last = seen.texts[-1]
    assert seen.closed and "ended: steps_per_train" in last and last.startswith("100%, 18 episodes, 60 env steps")
    metrics = result["reward_metric_stats"]
    assert f"metric {metrics[-1]:.4g} (best {max(metrics):.4g})" in last and "return/player_1" in last
    assert any("testing 1/2 episodes" in text or "testing 2/2 episodes" in text for text in seen.texts)


def test_outside_of_a_terminal_there_are_lines(capsys):
    trainer(steps_per_train=27, progress="dashboard").train(ppo(), [1, 1], plot=False)
    line, end = capsys.readouterr().err.splitlines()
    assert line.startswith("100%  9 episodes, 27 env steps") and end == "training ended: steps_per_train"


def test_drawing_takes_a_small_share_of_the_time(monkeypatch):
    monkeypatch.setattr(dashboard, "INTERVAL", 0.0)
    monkeypatch.setattr(dashboard, "DRAWING_SHARE", 0.2)
    screen = Seen(seconds=0.005)
    shown = shown_on(screen)
    end = time.process_time() + 0.2
    while time.process_time() < end:
        shown.on_collect(moment("on_collect"))
    assert 2 <= len(screen.texts) <= 9


@pytest.mark.parametrize("error", [OSError(), ValueError("closed")])
def test_training_goes_on_if_nobody_reads(error):
    shown = shown_on(Seen(error))
    shown.on_train_start(moment("on_train_start"))
    shown.on_collect(moment("on_collect"))
    shown.on_train_end(moment("on_train_end", reason="enough"))


def test_a_resumed_run_shows_the_whole_curve_of_the_metric():
    first, screen = shown_on(Seen()), Seen()
    first.point({"test/metric": 1.0}, 0)
    first.point({"test/metric": 5.0}, 100)
    second = shown_on(screen)
    second.load_state_dict(first.state_dict())
    second.point({"test/metric": 2.0}, 200)
    second.on_train_start(moment("on_train_start", env_steps=200))
    assert "metric 2 (best 5)" in screen.texts[-1]


def test_wrong_progress_is_refused():
    with pytest.raises(mt.ConfigError, match="progress"):
        trainer(progress="dashbord")


def test_terminal_and_notebook_have_screens(monkeypatch):
    """IPython is replaced by the two functions that are used."""
    from marltrain.trainer.reporting.run_view import RunView
    from marltrain.trainer.reporting.screens import NotebookScreen, TerminalScreen, make_screen
    from tests.trainer.reporting.test_progress import Terminal

    file: Any = Terminal()
    screen = make_screen(file)
    assert isinstance(screen, TerminalScreen)
    screen.show(RunView("<game>", {}))
    screen.close()
    assert "<game>" in file.getvalue() and make_screen(None) is None
    shown: list[Any] = []

    def display(text: str, *, display_id: bool) -> Any:
        shown.append(text)
        return SimpleNamespace(update=shown.append)

    shell = SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(HTML=str, display=display))
    notebook = make_screen(None)
    assert isinstance(notebook, NotebookScreen)
    for title in ("<a>", "<b>"):
        notebook.show(RunView(title, {}))
    assert ["&lt;a&gt;" in shown[0], "&lt;b&gt;" in shown[1], len(shown)] == [True, True, 2]
