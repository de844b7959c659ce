"""Games of OpenSpiel as environments, held against pyspiel itself."""

import sys
from typing import Any

import numpy as np
import pyspiel
import pytest

from marltrain.core.errors import ConfigError
from marltrain.envs import DummyVectorEnv, check_env, list_environments, probe, resolve
from marltrain.envs.python.check_env import random_actions
from marltrain.envs.registry import imports_only_known
from tests.tiers import LONG

GAMES: list[tuple[str, dict[str, Any]]] = [
    ("kuhn_poker", {"players": 3}), ("leduc_poker", {}), ("tic_tac_toe", {}), ("backgammon", {}), ("pig", {}),
    ("goofspiel", {"num_cards": 4}), ("matrix_rps", {}), ("matching_pennies_3p", {}), ("catch", {}),
    ("coop_box_pushing", {"horizon": 20}),
]  # fmt: skip


OTHERS: list[tuple[str, dict[str, Any]]] = [
    (name.split("/")[1], {}) for name in list_environments() if name.startswith("openspiel/") and LONG
]


@pytest.mark.parametrize(("name", "arguments"), GAMES + OTHERS)
def test_games_keep_the_contract(name, arguments):
    report = check_env(f"openspiel/{name}", arguments, resets=5)
    assert report.ok and report.pure and report.deterministic


def test_names_are_those_of_games_that_can_be_played():
    names = [name for name in list_environments() if name.startswith("openspiel/")]
    assert {f"openspiel/{name}" for name, _ in GAMES} <= set(names) and len(names) > 80
    left_out = {"crossword", "mfg_garnet", "turn_based_simultaneous_game", "coin_game", "negotiation"}
    assert not {f"openspiel/{name}" for name in left_out} & set(names)


def test_leduc_poker_shows_information_states_rewards_and_legal_moves():
    env = resolve("openspiel/leduc_poker").make()
    env.reset(seed=3)
    while env.agents:
        observation, reward, over, truncated, _ = env.last()
        p, position = env.possible_agents.index(env.agent_selection), env.state
        assert np.array_equal(observation["observation"], np.float32(position.information_state_tensor(p)))
        assert np.flatnonzero(observation["action_mask"]).tolist() == ([] if over else position.legal_actions())
        assert reward == position.returns()[p] and over == position.is_terminal() and not truncated
        env.step(None if over else int(position.legal_actions()[-1]))
    assert position.is_terminal() and sum(position.returns()) == 0


def test_the_observation_tensor_is_chosen_by_argument():
    sizes = [
        probe("openspiel/leduc_poker", {"observation": kind}) for kind in (None, *("information_state", "observation"))
    ]
    game = pyspiel.load_game("leduc_poker")
    expected = [game.information_state_tensor_size()] * 2 + [game.observation_tensor_size()]
    assert [spec.players[0].layout.vector_size for spec in sizes] == expected
    board = resolve("openspiel/tic_tac_toe").make().observation_space("player_0")["observation"]
    assert board.shape == (3, 3, 3)


def test_players_of_simultaneous_games_move_at_once():
    env = resolve("openspiel/goofspiel", {"num_cards": 3, "points_order": "descending"}).make()
    observations, _ = env.reset(seed=0)
    assert set(observations) == {"player_0", "player_1"}
    total = np.zeros(2)
    while env.agents:
        legal = env.state.legal_actions(0), env.state.legal_actions(1)
        moves = {"player_0": legal[0][-1], "player_1": legal[1][0]}
        observations, rewards, over, _, _ = env.step(moves)
        total += [rewards["player_0"], rewards["player_1"]]
        seen = observations["player_1"]["observation"]
        assert np.array_equal(seen.ravel(), np.float32(env.state.information_state_tensor(1)))
        assert all(over.values()) == env.state.is_terminal()
    assert total.tolist() == [1.0, -1.0]  # 3 points of 6 for the higher card of the first round, none for a draw


def test_rewards_during_an_episode_sum_to_the_returns():
    env = resolve("openspiel/coop_box_pushing", {"horizon": 20}).make()
    env.reset(seed=0)
    total, paid = np.zeros(2), 0
    while env.agents:
        _, rewards, *_ = env.step(dict.fromkeys(env.agents, 2))  # forward
        total += [rewards["player_0"], rewards["player_1"]]
        paid += any(rewards.values())
    assert paid > 1 and np.allclose(total, env.state.returns())
    turns = resolve("openspiel/2048").make()
    turns.reset(seed=0)
    gained = 0.0
    while not turns.state.is_terminal():
        turns.step(turns.state.legal_actions()[0])
        gained += turns.rewards["player_0"]
    assert gained == turns.state.returns()[0] > 0


def test_chance_follows_its_probabilities():
    """Kuhn's cards are dealt equally often."""
    env = resolve("openspiel/kuhn_poker").make()
    dealt = []
    for seed in range(3000):
        env.reset(seed=seed)
        dealt.append(env.state.history()[:2])
    count = np.zeros((3, 3))
    np.add.at(count, tuple(np.transpose(dealt)), 1)
    assert count.diagonal().sum() == 0
    off = count[~np.eye(3, dtype=bool)]
    assert ((off - 500) ** 2 / 500).sum() < 20.5  # chi-squared, 5 degrees of freedom, 0.1 %


def test_games_train_in_vectors_and_draw_their_text():
    vector = DummyVectorEnv("openspiel/leduc_poker", 4)
    step, rng, ended = vector.reset(0), np.random.default_rng(0), 0
    for _ in range(60):
        step = vector.step(random_actions(vector.spec, step, rng))
        assert np.allclose(step.reward.sum(0), 0)
        ended += int(step.ended.sum())
    assert ended > 10
    env = resolve("openspiel/tic_tac_toe").make("ansi")
    env.reset(seed=0)
    env.step(4)
    assert env.render() == "...\n.x.\n..."


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("leduc_pokr", {}, r"Did you mean 'openspiel/leduc_poker'\?"),
        ("negotiation", {}, "unknown environment"),
        ("leduc_poker", {"playrs": 3}, r"takes no argument 'playrs'. Did you mean 'players'\?"),
        ("leduc_poker", {"players": 77}, r"openspiel/leduc_poker refuses .*77"),
        ("leduc_poker", {"players": "two"}, r"openspiel/leduc_poker refuses .*two"),
        ("leduc_poker", {"observation": "information"}, r"one of .*information_state.*got 'information'"),
        ("tic_tac_toe", {"observation": "information_state"}, "tic_tac_toe has no tensor for .* set 'observation'"),
    ],
)
def test_what_cannot_be_built_says_what_to_do(name, arguments, message):
    with pytest.raises(ConfigError, match=message):
        resolve(f"openspiel/{name}", arguments).make()


def test_pictures_are_refused():
    with pytest.raises(ConfigError, match="draws text only: render_mode must be None or 'ansi', got 'rgb_array'"):
        resolve("openspiel/tic_tac_toe").make("rgb_array")


def test_without_openspiel_its_games_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspiel", None)  # as if it were absent
    assert not any(name.startswith("openspiel/") for name in list_environments())
    assert imports_only_known("openspiel/leduc_poker")
    with pytest.raises(
        ConfigError, match=r'needs pyspiel, which is not installed: pip install "marltrain\[openspiel\]"'
    ):
        resolve("openspiel/leduc_poker")
