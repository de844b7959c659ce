import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.trainer.playing.demonstrations import demonstrations
from tests.toys import Crowd, Identity, Inn, Motley, Relay


def same(obs, expected):
    return np.array_equal(obs, expected)


def copycats():
    return [mt.FunctionAgent(lambda symbol: symbol) for _ in range(2)]


def lowest(observation, legal):
    return legal.argmax(-1)


def highest(observation, legal):
    return legal.shape[-1] - 1 - legal[..., ::-1].argmax(-1)


def test_decisions_of_a_turn_based_game_by_hand():
    """Relay of 8 moves: ann 0, bob 1, cat 2, ann 3, bob 4, cat 5 (bob dies), ann 6, cat 7 (the end)."""
    agents = [mt.FunctionAgent(play) for play in (highest, lowest, highest)]
    result = demonstrations(Relay, agents, episodes=2, env_args={"absences": False})
    assert list(result) == ["ann", "bob", "cat"]
    ann, bob = result["ann"], result["bob"]
    assert same(ann.obs, [[0, 0, -1], [3, 0, 2], [6, 0, 1]] * 2)
    assert same(ann.next_obs, [[3, 0, 2], [6, 0, 1], [8, 0, 1]] * 2)
    assert ann.action.tolist() == [2, 1, 2] * 2
    assert ann.ends.tolist() == [False, False, True] * 2
    assert ann.legal is not None
    assert ann.legal.tolist() == [[True, True, True], [True, True, False], [True, True, True]] * 2
    assert same(bob.obs, [[1, 1, 2], [4, 1, 1]] * 2)
    assert same(bob.next_obs, [[4, 1, 1], [6, 1, 1]] * 2)
    assert bob.ends.tolist() == [False, True] * 2
    assert bob.num_episodes == 2


def test_absent_player_makes_no_decisions_in_these_episodes():
    agents = [mt.FunctionAgent(lowest) for _ in range(3)]
    result = demonstrations(Relay, agents, episodes=20)
    assert result["ann"].num_episodes == 20
    assert 0 < result["bob"].num_episodes < 20


def test_player_that_dies_and_returns_ends_twice():
    """bob moves twice, dies, returns and dies again before his turn; dan never moves."""
    with pytest.raises(AgentError, match="player 'dan' made no decision"):
        demonstrations(Inn, [mt.RandomAgent(seed=0)] * 4, episodes=1)
    bob = demonstrations(Inn, [mt.RandomAgent(seed=0)] * 4, episodes=1, player="bob")
    assert same(bob.obs, [[1, 1], [3, 1]])
    assert same(bob.next_obs, [[3, 1], [5, 1]])
    assert bob.ends.tolist() == [False, True]


def test_simultaneous_game_with_more_episodes_than_environments():
    """17 episodes of 10 steps in 16 environments; the copied symbol is the observed one."""
    result = demonstrations(Identity, copycats(), episodes=17, seed=4)["player_1"]
    assert len(result) == 170
    assert result.ends.tolist() == ([False] * 9 + [True]) * 17
    assert isinstance(result.obs, np.ndarray)
    assert np.array_equal(result.obs.argmax(1), result.action)
    assert same(np.asarray(result.next_obs)[:9], result.obs[1:10])
    again = demonstrations(Identity, copycats(), episodes=17, seed=4)["player_1"]
    assert np.array_equal(result.action, again.action)
    assert not np.array_equal(
        result.action, demonstrations(Identity, copycats(), episodes=17, seed=5)["player_1"].action
    )


def test_spaces_of_every_kind_and_actions_with_a_start():
    mixed = demonstrations(Motley, [mt.RandomAgent(seed=1)] * 2, episodes=1)["mixed"]
    assert isinstance(mixed.obs, dict)
    assert mixed.obs["screen"][:, 0, 0].tolist() == [10, 11, 12, 13, 14]
    assert mixed.action.shape == (5, 3)
    assert mixed.action.min() >= 0
    red, blue = (
        demonstrations(Crowd, [mt.RandomAgent(seed=1)] * 3, episodes=4, player=name) for name in ("red_1", "blue")
    )
    assert same(red.obs, [[0, 1], [1, 1]] * 4)
    assert red.ends.tolist() == [False, True] * 4
    assert set(blue.action.tolist()) <= {0, 1}


def test_exploring_agents_decide_differently():
    agents = mt.make_agents("dqn", Identity, seed=0, network=mt.MLP((4,)), epsilon=1.0)
    greedy, exploring = (
        demonstrations(Identity, agents, episodes=2, player="player_0", explore=explore) for explore in (False, True)
    )
    symbols, choices = np.asarray(greedy.obs).argmax(1), greedy.action
    assert all(len(set(choices[symbols == s])) == 1 for s in set(symbols))
    assert len({*zip(np.asarray(exploring.obs).argmax(1), exploring.action, strict=True)}) > 3


def test_agents_of_a_run_and_of_a_folder_play(tmp_path):
    agents = mt.make_agents("dqn", Identity, seed=0, network=mt.MLP((4,)))
    for name in ("own", "run/last"):
        mt.save(tmp_path / name, agents)
    expected = demonstrations(Identity, agents, episodes=1, player="player_0").action
    for folder in (tmp_path / "own", tmp_path / "run", str(tmp_path / "run")):
        assert np.array_equal(demonstrations(Identity, folder, episodes=1, player="player_0").action, expected)
    mt.save(tmp_path / "run/best", mt.make_agents("random", Identity, seed=3))
    assert not np.array_equal(
        demonstrations(Identity, tmp_path / "run", episodes=1, player="player_0").action, expected
    )
    with pytest.raises(AgentError, match=r"holds neither saved agents nor those of a run \(best or last\)"):
        demonstrations(Identity, tmp_path, episodes=1)


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"episodes": 0}, ConfigError, "episodes must be an integer of at least 1, got 0"),
        ({"player": "player_2"}, ConfigError, "player 'player_2' is not one of player_0, player_1"),
        ({"explore": 3}, ConfigError, "explore"),
        ({"agents": []}, AgentError, "got 0 agents"),
    ],
)
def test_wrong_arguments_are_refused(changed, error, message):
    with pytest.raises(error, match=message):
        demonstrations(**{"env": Identity, "agents": copycats(), "episodes": 1, **changed})
