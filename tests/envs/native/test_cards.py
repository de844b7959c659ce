"""Card games against OpenSpiel's."""

import numpy as np
import pyspiel
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv

from marltrain.core.errors import ConfigError
from marltrain.envs import make_vector
from marltrain.envs.native.vector import NativeVectorEnv
from marltrain.envs.python.check_env import random_actions
from tests.envs.driving import act, column
from tests.envs.native.originals import hold
from tests.tiers import LONG, rounds


class OpenSpielEnv(AECEnv):
    """A game of OpenSpiel, in which all that chance gives is decided beforehand, in `deal`."""

    def __init__(self, game, cards, dealt, **parameters):
        """Load a game; `cards`: all there are, `dealt`: how many of them chance gives at most."""
        self.metadata = {"name": game}
        self.game = pyspiel.load_game(game, parameters)
        self.possible_agents = [f"player_{p}" for p in range(self.game.num_players())]
        self._cards, self._dealt = cards, dealt
        self._rng = np.random.default_rng()

    def observation_space(self, agent):
        seen = spaces.Box(0, 1, (self.game.information_state_tensor_size(),), np.float32)
        return spaces.Dict({"observation": seen, "action_mask": spaces.Box(0, 1, (self._choices,), np.int8)})

    def action_space(self, agent):
        return spaces.Discrete(self._choices)

    @property
    def _choices(self):
        return self.game.num_distinct_actions()

    def reset(self, seed=None, options=None):
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.deal = [int(card) for card in self._rng.permutation(self._cards)[: self._dealt]]
        self._left = list(self.deal)
        self.position = self.game.new_initial_state()
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict = {agent: {} for agent in self.agents}
        self._go_on()

    def observe(self, agent):
        p = self.possible_agents.index(agent)
        mask = np.zeros(self._choices, np.int8)
        if self.position.current_player() == p:
            mask[self.position.legal_actions()] = 1
        seen = np.array(self.position.information_state_tensor(p), np.float32)
        return {"observation": seen, "action_mask": mask}

    def step(self, action):
        mover = self.agent_selection
        if self.terminations[mover]:
            self._was_dead_step(action)
            return
        self._cumulative_rewards[mover] = 0.0
        self.position.apply_action(int(action))
        self._go_on()
        if self.position.is_terminal():
            self.terminations = dict.fromkeys(self.agents, True)
            self.rewards = dict(zip(self.possible_agents, self.position.returns(), strict=True))
        self._accumulate_rewards()

    def _go_on(self):
        while self.position.is_chance_node():
            self.position.apply_action(self._left.pop(0))
        mover = max(self.position.current_player(), 0)
        self.agent_selection = self.possible_agents[mover]


def kuhn(players=2):
    return OpenSpielEnv("kuhn_poker", range(players + 1), players, players=players)


def leduc(players=2, suit_isomorphism=False, **rules):
    cards = np.arange(2 * (players + 1)) // (2 if suit_isomorphism else 1)
    return OpenSpielEnv("leduc_poker", cards, players + 1, players=players, suit_isomorphism=suit_isomorphism, **rules)


def nothing(env):
    return {}


def deal(env):
    return env.deal


@pytest.mark.parametrize(("players", "episodes"), [(2, rounds(100, 200)), *([(3, 200), (10, 100)] if LONG else [])])
def test_kuhn_poker(players, episodes):
    hold(kuhn, "marltrain/kuhn_poker_v1", nothing, {"players": players}, episodes=episodes, chances=deal)


THREE = {"players": 3, "suit_isomorphism": True, "starting_player": 2}
MANY = {"players": 10, "suit_isomorphism": True, "starting_player": 7}
# Every number of players is a program: the short tier compiles two of leduc poker, and kuhn poker for two players.
SEVERAL = [THREE, {"players": 3}, MANY] if LONG else [THREE]


@pytest.mark.parametrize(
    ("rules", "episodes"),
    [
        ({}, rounds(100, 200)),
        ({"action_mapping": True, "starting_player": 1}, 50),
        *((rules, rounds(60, 100)) for rules in SEVERAL),
    ],
)
def test_leduc_poker(rules, episodes):
    hold(leduc, "marltrain/leduc_poker_v1", nothing, rules, episodes=episodes, chances=deal)


@pytest.mark.parametrize("rules", SEVERAL)
def test_leduc_poker_with_players_who_rarely_fold(rules):
    """So that there are second rounds, pairs, and hands that share."""

    def choose(spec, step, rng):
        weights = step.legal[0] * np.array([0.05, 1.0, 0.7]) + 1e-9
        chances = weights.cumsum(-1) / weights.sum(-1, keepdims=True)
        return ((rng.random((*chances.shape[:-1], 1)) > chances).sum(-1),)

    hold(leduc, "marltrain/leduc_poker_v1", nothing, rules, episodes=rounds(40, 100), choose=choose, chances=deal)


def played(vector, dealt, moves):
    """Replay a deal and moves; return the last Step."""
    vector.reset(0)
    vector.batch.set_chances(0, dealt)
    vector.batch.begin(0, 0)
    step = vector._step
    for move in moves:
        step = vector.step((np.full((len(vector.spec.names), 1), move),))
    return step


def value(vector, policy, dealt, moves=()):
    """Return what player 0 wins on average after a deal and moves, over the whole tree of what may follow."""
    step = played(vector, dealt, moves)
    if step.ended[0]:
        return float(step.reward[0, 0])
    mover = int(np.flatnonzero(step.turn[0][:, 0])[0])
    card = int(np.argmax(step.obs[0][mover, 0, 2:5]))
    bets = policy(card, moves)
    return (1 - bets) * value(vector, policy, dealt, (*moves, 0)) + bets * value(vector, policy, dealt, (*moves, 1))


def kuhn_value(policy):
    vector = NativeVectorEnv("marltrain/kuhn_poker_v1", 1)
    return np.mean([value(vector, policy, (a, b)) for a in range(3) for b in range(3) if a != b])


@pytest.mark.parametrize("bluff", [0.0, 0.2, 1 / 3])
def test_value_of_kuhn_poker_in_equilibrium(bluff):
    """Kuhn (1950): -1/18 for whoever begins, however often it bluffs with the lowest card, up to 1/3 of the time."""
    bets = {
        (): (bluff, 0.0, 3 * bluff),
        (0,): (1 / 3, 0.0, 1.0),
        (1,): (0.0, 1 / 3, 1.0),
        (0, 1): (0.0, bluff + 1 / 3, 1.0),
    }
    assert kuhn_value(lambda card, moves: bets[moves][card]) == pytest.approx(-1 / 18, abs=1e-6)


def test_value_of_kuhn_poker_among_dice():
    """Who passes on a bet loses 1: player 1 a quarter of the time, player 0 an eighth; showdowns are even."""
    assert kuhn_value(lambda card, moves: 0.5) == pytest.approx(1 / 8, abs=1e-6)


def average(position):
    """What player 0 of OpenSpiel's game wins on average, if all legal actions are as likely."""
    if position.is_terminal():
        return position.returns()[0]
    legal = position.legal_actions()
    likely = dict(position.chance_outcomes()) if position.is_chance_node() else dict.fromkeys(legal, 1 / len(legal))
    return sum(chance * average(position.child(action)) for action, chance in likely.items())


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_poker"])
def test_sampled_deals_give_the_expected_value(name):
    """Deals are drawn by the native game itself; 4.5 standard errors."""
    vector, rng = make_vector(f"marltrain/{name}_v1", None, 4096), np.random.default_rng(0)
    step, found = vector.reset(0), []
    for _ in range(120):
        step = vector.step(random_actions(vector.spec, step, rng))
        found.append(step.reward[0, step.ended].copy())
    returns = np.concatenate(found)
    error = returns.std() / np.sqrt(len(returns))
    assert len(returns) > 50_000
    assert abs(returns.mean() - average(pyspiel.load_game(name).new_initial_state())) < 4.5 * error


@pytest.mark.parametrize(("rules", "ranks"), [({}, 3), (THREE, 4), *([(MANY, 11)] if LONG else [])])
def test_every_deal_of_leduc_poker_is_as_likely(rules, ranks):
    """Two of each rank are in the deck: the second player's is the first one's as often as one other card in all."""
    vector = NativeVectorEnv("marltrain/leduc_poker_v1", 10_000, rules)
    vector.reset(3)
    found = vector.batch.records["card"] // (1 if rules else 2)
    assert np.mean(found[:, 0] == found[:, 1]) == pytest.approx(1 / (2 * ranks - 1), abs=0.02)
    assert np.bincount(found[:, 0]) / 10_000 == pytest.approx(np.full(ranks, 1 / ranks), abs=0.025)


def test_leduc_poker_of_three_by_hand():
    """Player 0 holds a queen and folds, 1 a king, 2 a jack, which the open card pairs; all is settled at the end."""
    vector = NativeVectorEnv("marltrain/leduc_poker_v1", 1, {"players": 3, "suit_isomorphism": True})
    spec = vector.spec
    step = played(vector, (1, 2, 0, 0), (1, 2, 1))  # check, raise to 3, call
    assert column(spec, step)["turn"] == {"player_0": True}
    assert column(spec, step)["legal"] == {"player_0": [0, 1, 2]}
    step = vector.step(act(spec, 1, player_0=0))
    assert not step.terminated.any() and not step.reward.any()
    assert column(spec, step)["turn"] == {"player_1": True}  # the first who is left begins the second round
    assert column(spec, step)["legal"] == {"player_1": [1, 2]}
    step = vector.step(act(spec, 1, player_1=2))
    assert column(spec, step)["alive"] == {"player_0": True, "player_1": True, "player_2": True}
    step = vector.step(act(spec, 1, player_2=2))
    assert column(spec, step)["turn"] == {"player_1": True}
    assert column(spec, step)["legal"] == {"player_1": [0, 1]}  # two raises were made
    step = vector.step(act(spec, 1, player_1=1))
    assert column(spec, step)["reward"] == {"player_0": -1.0, "player_1": -11.0, "player_2": 12.0}
    assert step.terminated.all() and step.ended[0]


@pytest.mark.parametrize(
    ("name", "rules", "said"),
    [
        ("kuhn_poker_v1", {"players": 11}, "players must be a whole number from 2 to 10, got 11"),
        ("leduc_poker_v1", {"players": 1}, "players must be a whole number from 2 to 10, got 1"),
        ("leduc_poker_v1", {"starting_player": 2}, "starting_player must be a whole number from 0 to 1, got 2"),
        ("leduc_poker_v1", {"action_mapping": 1}, "action_mapping must be True or False, got 1"),
    ],
)
def test_what_the_rules_do_not_allow_is_said(name, rules, said):
    with pytest.raises(ConfigError, match=said):
        make_vector(f"marltrain/{name}", rules, 1)
