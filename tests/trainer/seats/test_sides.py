import marltrain as mt
from marltrain.trainer.seats.sides import sides_of, teams_of
from tests.team_toys import TEAMS, Seats

PLAYERS = ["red_0", "red_1", "blue_0", "blue_1", "blue_2"]
ALONE = {name: [name] for name in PLAYERS}


def test_each_player_is_a_side_without_teams():
    assert sides_of(PLAYERS) == sides_of(PLAYERS, "mean") == sides_of(PLAYERS, max) == ALONE


def test_teams_of_the_reward_are_sides():
    assert sides_of(PLAYERS, TEAMS) == TEAMS
    assert sides_of(PLAYERS, {"b": ["blue_*"]}) == {"red_0": ["red_0"], "red_1": ["red_1"], "b": PLAYERS[2:]}


def test_teams_that_learn_together_are_sides():
    teams = {name: name.partition("_")[0] for name in PLAYERS}
    assert sides_of(PLAYERS, None, teams) == TEAMS
    assert sides_of(PLAYERS, "mean", dict.fromkeys(PLAYERS, "all")) == ALONE  # one team has no other side
    agents = mt.make_agents("vdn", Seats, seed=0, teams=TEAMS, network=mt.MLP((4,)))
    assert teams_of(agents, PLAYERS) == teams
    assert teams_of(mt.make_agents("dqn", Seats, seed=0, network=mt.MLP((4,))), PLAYERS) == {}


def test_many_players_are_sides_by_their_names():
    many = [f"{team}_{i}" for team in ("red", "blue") for i in range(5)]
    assert sides_of(many) == {"red": many[:5], "blue": many[5:]}
    assert len(sides_of(many[:8])) == 8
    assert len(sides_of([f"player_{i}" for i in range(20)])) == 20  # one name: no sides
    assert len(sides_of([f"p{i}_x" for i in range(20)])) == 20  # too many names
