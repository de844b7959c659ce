import threading

import pytest

from marltrain.jit import notices
from marltrain.jit.notices import compiling, listening


class Clock:
    """A timer that goes off when it is told to."""

    made: list["Clock"] = []  # noqa: RUF012

    def __init__(self, seconds, function):
        self.seconds, self.function, self.canceled = seconds, function, False
        Clock.made.append(self)

    def start(self):
        pass

    def cancel(self):
        self.canceled = True


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(threading, "Timer", Clock)
    Clock.made = []
    return Clock.made


def test_a_long_compilation_is_told_at_its_start_and_with_its_seconds_at_its_end(clock):
    lines: list[str] = []
    with listening(lines.append), compiling("a kernel"):
        assert lines == []
        clock[0].function()
        assert lines == ["compiling a kernel ..."]
    assert len(lines) == 2
    assert lines[1].startswith("compiled a kernel in ")
    assert lines[1].endswith(" s")


def test_a_short_one_is_not_told_also_by_a_timer_that_is_late(clock):
    lines: list[str] = []
    with listening(lines.append):
        with compiling("a kernel"):
            pass
        assert clock[0].canceled
        clock[0].function()
    assert lines == []
    assert clock[0].seconds == notices.TOLD_AFTER


def test_one_that_fails_ends_too_and_nobody_need_listen(clock):
    lines: list[str] = []
    with pytest.raises(ValueError, match="no"), listening(lines.append), compiling("a kernel"):
        clock[0].function()
        raise ValueError("no")
    assert len(lines) == 2
    with compiling("another"):
        clock[1].function()
    assert len(lines) == 2
