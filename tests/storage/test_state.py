import numpy as np
import pytest

from marltrain.core.errors import SaveError
from marltrain.storage.state import State


def test_a_state_is_read_by_names_that_say_where_it_stands():
    state = State.joined(a=State({"n": 3, "names": ["x", "y"]}, {"v": np.zeros(2)})).part("a")
    assert (state.count("n"), state.names("names"), state.array("v", float, (2,)).tolist()) == (3, ["x", "y"], [0, 0])
    state.info["names"] = ["x", "x"]
    wrong = {
        "a/v is missing": lambda: state.value("v", int),
        "a/n is missing": lambda: state.any_array("n"),
        "a/n must be of type str, got 3": lambda: state.value("n", str),
        "a/n must be from 4 to 9, got 3": lambda: state.count("n", 4, 9),
        r"a/names\[0\] must be of type int, got 'x'": lambda: state.values("names", int),
        "a/names holds a name twice: x, x": lambda: state.names("names"),
        "a/b is missing": lambda: state.part("b"),
        r"a/v must be int64 of shape \(2,\), got float64": lambda: state.array("v", np.int64, (2,)),
    }
    for message, ask in wrong.items():
        with pytest.raises(SaveError, match=message):
            ask()
