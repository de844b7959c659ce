"""Keys of players that share agents."""

import pytest

from marltrain.core.errors import ConfigError
from marltrain.tools.run_files.sharing import by_agent


def test_each_agent_gets_one_key():
    """A player's own name takes precedence over the patterns, so "wolf_*" may match the third wolf too."""
    plans = {"wolf_1": 1, "wolf_2": 1, "wolf_3": 3, "big hare": 4, "old hare": 4}
    assert by_agent(plans, [0, 0, 1, 2, 2]) == {"wolf_*": 1, "wolf_3": 3, "* hare": 4}


def test_what_no_pattern_tells_apart_is_refused():
    plans = dict.fromkeys(("x_1", "x_2", "x_3", "x_4"), 1)
    with pytest.raises(ConfigError, match=r"the pattern 'x_\*' of x_1, x_3 matches x_2, x_4 too"):
        by_agent(plans, [0, 1, 0, 1])
    with pytest.raises(ConfigError, match="players of one agent that differ: x_1, x_2"):
        by_agent({**plans, "x_2": 2}, [0, 0, 1, 2])
