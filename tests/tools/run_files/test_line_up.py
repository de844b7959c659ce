import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.tools.run_files.line_up import check_test_against, line_up

PLAYERS = ["red_0", "red_1", "blue_0", "blue_1", "blue_2"]
TEAMS = {"red": PLAYERS[:2], "blue": PLAYERS[2:]}
ALONE = {name: [name] for name in PLAYERS}
LEARN = [True] * 5


class Named(mt.RandomAgent):
    """An agent that is told from the random players of a line-up."""


def seated(against, agents, learns=LEARN, sides=TEAMS):
    """Return the places of the agents that hold their seats, and whether the line-up changes seats."""
    result = line_up(against, agents, PLAYERS, learns, sides)
    assert len(result.test_agents) == 5
    held = [i for i, agent in enumerate(result.test_agents) if isinstance(agent, Named)]
    assert all(result.test_agents[i] is agents[i] for i in held)
    return held, result.rotate_tests


@pytest.fixture
def agents():
    return [Named() for _ in PLAYERS]


def test_the_first_side_that_learns_holds_its_agents(agents):
    assert seated("random", agents) == ([0, 1], False)
    assert seated("random", agents, [False, False, False, True, False]) == ([2, 3, 4], False)
    assert seated("random", agents, sides=ALONE) == ([0], False)
    assert seated("random", agents, [False, True, True, True, True], ALONE) == ([1], False)


def test_players_by_name_or_pattern_are_random(agents):
    assert seated({"red_*": "random"}, agents) == ([2, 3, 4], False)
    assert seated({"red_1": "random", "blue_[01]": "random"}, agents, sides=ALONE) == ([0, 4], False)


def test_one_agent_in_all_seats_changes_seats(agents):
    one = [agents[0]] * 5
    assert seated("random", one, sides=ALONE) == ([0], True)
    assert seated("random", one) == ([0, 1], False)  # in teams, changing seats would mix them
    assert seated({"red_*": "random"}, one, sides=ALONE) == ([2, 3, 4], False)


@pytest.mark.parametrize(
    ("against", "sides", "learns", "words"),
    [
        ({"grey_*": "random"}, TEAMS, LEARN, r"'grey_\*' matches no player.* Players: red_0, red_1, blue_0"),
        ({"*": "random"}, TEAMS, LEARN, "all players .* would be random"),
        ("random", {"all": PLAYERS}, LEARN, "there is one side"),
        ("random", TEAMS, [False] * 5, "no player learns"),
    ],
)
def test_line_ups_that_test_nothing(agents, against, sides, learns, words):
    with pytest.raises(ConfigError, match=words):
        line_up(against, agents, PLAYERS, learns, sides)


@pytest.mark.parametrize(
    ("against", "words"),
    [
        ("randon", "must be \"random\".*Did you mean 'random'"),
        (3, "must be"),
        ({}, "must be"),
        ({"red_0": "dqn"}, "seat of 'red_0' must be random, got 'dqn'"),
    ],
)
def test_other_opponents_are_refused(against, words):
    with pytest.raises(ConfigError, match=words):
        check_test_against(against)
    check_test_against(None)
    check_test_against("random")
    check_test_against({"red_*": "random"})
