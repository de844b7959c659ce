"""What messages are made of: values of any kind, and the nearest name."""

from __future__ import annotations

import contextlib
import copy
import logging
from pathlib import Path
from types import FunctionType

import numpy as np
import pytest

import marltrain
from marltrain.cli.agents import settings_of_agents
from marltrain.core.errors import (
    ALSO_CALLED,
    LONGEST,
    LONGEST_TEXT,
    ConfigError,
    EnvError,
    SaveError,
    clean,
    did_you_mean,
    error_text,
    in_line,
    nearest,
    printable,
    shown,
    text_of,
    traceback_of,
    warn,
)
from marltrain.trainer.settings import TrainerSettings

PACKAGE = Path(marltrain.__file__).parent


@pytest.mark.parametrize(
    ("caller", "pointed_to"),
    [
        (PACKAGE / "trainer" / "loop.py", __file__),
        (Path(contextlib.__file__), __file__),
        (PACKAGE.parent / "marltrain_scripts" / "script.py", None),
        (PACKAGE.parent / "script.py", None),
    ],
)
def test_a_warning_points_to_the_line_outside_of_the_package(caller, pointed_to):
    """A folder of the user may have a name that begins with that of the package."""
    code = compile("def call():\n    warn('careful')", str(caller), "exec")
    function = FunctionType(code.co_consts[0], {"warn": warn})
    with pytest.warns(UserWarning, match="careful") as found:
        function()
    assert found[0].filename == (pointed_to or str(caller))


class Unspeakable:
    def __repr__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", "'a\\nb'"),
        (np.zeros((2, 2)), "array([[0., 0.], [0., 0.]])"),
        (Unspeakable(), "a Unspeakable that cannot be shown"),
        (10**5000, "a int that cannot be shown"),
        ("x" * 1000, "'" + "x" * (LONGEST - 1) + "... (str)"),
    ],
    ids=["lines", "array", "unspeakable", "digits", "long"],
)
def test_any_value_is_shown_in_one_line_of_few_words(value, text):
    assert shown(value) == text


@pytest.mark.parametrize("name", [3, None, ["nam"], np.zeros(2), "x" * 10_000, "zzz"])
def test_what_is_no_name_has_no_nearest_one(name):
    assert did_you_mean(name, ["name"]) == ""


def test_the_nearest_name():
    assert did_you_mean("nmae", ["other", "name"]) == " Did you mean 'name'?"


@pytest.mark.parametrize(
    ("name", "known", "near"),
    [
        ("LR", ["clip", "learning_rate"], "learning_rate"),
        ("--n-envs", ["--num-test-envs", "--num-train-envs"], "--num-train-envs"),
        ("steps", ["n_step", "steps_per_train"], "steps_per_train"),
        ("PPO", ["dqn", "ppo"], "ppo"),
        ("--agents", ["--seed", "target_sync"], ""),
        ("rate", ["first_rate", "second_rate"], ""),
    ],
)
def test_names_in_other_libraries_and_whole_words_come_before_letters(name, known, near):
    assert nearest(name, known) == near


def test_names_in_other_libraries_lead_to_settings_that_exist():
    known = {*settings_of_agents(), *TrainerSettings.__dataclass_fields__}
    assert {own for names in ALSO_CALLED.values() for own in names} <= known
    assert not known & set(ALSO_CALLED)


def test_texts_of_errors_are_kept_short_and_clean():
    assert clean("short") == "short"
    assert clean("a\ud800b\U0001f600") == "a?b\U0001f600"
    text = clean("start" + "x" * 10_000 + "end")
    assert text.startswith("startxxx") and text.endswith("xxxend") and "8,058 characters left out" in text
    assert len(text) <= LONGEST_TEXT


def test_an_error_that_cannot_be_shown_is_told_by_its_type():
    class SilentError(Exception):
        def __str__(self) -> str:
            raise KeyError("no text")

    assert text_of(SilentError()) == "(an error whose text cannot be shown)"
    assert error_text(SilentError()) == "SilentError: (an error whose text cannot be shown)"
    try:
        raise SilentError
    except SilentError as error:
        assert "raise SilentError" in traceback_of(error)
    odd = SyntaxError("bad", ("file", 1, 1, "text"))
    odd.text = odd.offset = 3  # type: ignore[assignment]
    assert traceback_of(odd) == "SyntaxError: (an error whose traceback cannot be shown)"


UNSEEN = {"\x1b[2J": "\\x1b[2J", "\r": "\\r", "\x9b": "\\x9b", "\x07": "\\x07", "\u202e": "\\u202e",
          "\ud800": "\\ud800", "\u2028": "\\u2028", "\x7f": "\\x7f", "\0": "\\x00", "\x08": "\\x08"}  # fmt: skip


@pytest.mark.parametrize("text", UNSEEN)
def test_no_message_acts_on_a_terminal(text, caplog):
    named = f"player {text}!"
    written = f"player {UNSEEN[text]}!"
    assert printable(named) == in_line(named) == written
    for kind in (ConfigError, EnvError, SaveError):
        assert str(kind(named)) == written
        assert copy.copy(kind(named)).args == (named,)  # as through a pickle
    assert error_text(OSError(named)) == f"OSError: player {'?' if text == chr(0xD800) else UNSEEN[text]}!"
    with pytest.warns(UserWarning) as data:
        warn(named)
    assert str(data[0].message) == written
    logging.getLogger("marltrain").warning("%s", named)
    assert caplog.messages == [written]


def test_lines_stay_in_messages_and_not_in_names():
    assert printable("a\n\tb") == "a\n\tb"
    assert in_line("a\n\tb") == "a\\n\\tb"
    assert printable("שלום, é 😀") == "שלום, é 😀"
    assert str(ConfigError()) == "" and str(ConfigError(3)) == "3"


def test_a_repr_acts_on_no_terminal():
    class Loud:
        def __repr__(self):
            return "\x1b[2J"

    assert shown(Loud()) == "\\x1b[2J"
