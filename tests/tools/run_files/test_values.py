"""Values as text come back equal; what no text stands for is refused."""

from __future__ import annotations

import pytest

import marltrain as mt
from marltrain.tools.run_files.values import as_text, parse_value

VALUES = [
    1, 0.1, 1e-5, True, None, "popart", (1.0, 2.5), mt.linear(1, 0.05, 20_000), mt.decay(1.0, 0.1, 300),
    mt.MLP((128, 64), "relu"), mt.MLP(()), mt.CNN((8,), filters=((4, 3, 2),)), mt.GRU((8,), units=6, sequence_length=4),
    mt.LSTM((), units=5), mt.Replay(prioritised=mt.Prioritised(alpha=0.5, beta=mt.linear(0.4, 1, 1000)), n_step=3),
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
        parse_value("Replay(prioritised=MPL(1))")
