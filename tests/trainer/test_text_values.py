"""Values as text come back equal; what no text stands for is refused."""

from __future__ import annotations

import pytest

import marltrain as mt
from marltrain.trainer.text_values import as_text, parse_value

VALUES = [
    1, 0.1, 1e-5, True, None, "popart", (1.0, 2.5), mt.linear(1, 0.05, 20_000), mt.decay(1.0, 0.1, 300),
    mt.MLP((128, 64), "relu"), mt.MLP(()), mt.CNN((8,), filters=((4, 3, 2),)), mt.GRU((8,), units=6, sequence_length=4),
    mt.LSTM((), units=5), mt.Replay(prioritized=mt.Prioritized(alpha=0.5, beta=mt.linear(0.4, 1, 1000)), n_step=3),
    mt.Replay(hindsight=mt.Hindsight(), capacity=500),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_a_value_comes_back(value):
    text = as_text(value, "x")
    if isinstance(value, tuple):
        assert tuple(text) == value
    else:
        again = parse_value(text) if isinstance(text, str) else text
        assert again == value and type(again) is type(value)


def test_other_objects_are_refused():
    with pytest.raises(mt.ConfigError, match=r"reward_model is <function .*, which no file can hold"):
        as_text(lambda: 0, "reward_model")
    with pytest.raises(mt.ConfigError, match="the text '12' would be read as another value"):
        as_text("12", "x")
    with pytest.raises(mt.ConfigError, match=r"there is no 'MPL'\. Did you mean 'MLP'"):
        parse_value("Replay(prioritized=MPL(1))")


@pytest.mark.parametrize(
    "text",
    ["-" * 20_000 + "1", "1+" * 20_000 + "1j", "a." * 50_000 + "a", f"MLP(({'-' * 20_000}1,))", "not " * 20_000 + "1",
     "f" + "()" * 50_000, "lambda:" * 20_000 + "1", f"MLP({'MLP(' * 5_000}1{')' * 5_000})"],
    ids=["signs", "terms", "attributes", "network", "words", "calls", "functions", "networks"],
)  # fmt: skip
def test_a_value_that_is_nested_too_deeply(text):
    """It is an error of one short line, or a text like any other that is no literal; never Python's own error."""
    try:
        assert parse_value(text) == text
    except mt.ConfigError as error:
        assert len(str(error)) < 300
    assert parse_value("{[1]: 2}") == "{[1]: 2}"
