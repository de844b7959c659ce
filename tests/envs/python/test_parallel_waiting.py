"""Games with simultaneous moves in which players wait: a mask that allows no action, for example those of PettingZoo's
`turn_based_aec_to_parallel`."""

from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.classic import connect_four_v3, tictactoe_v3
from pettingzoo.utils import BaseParallelWrapper
from pettingzoo.utils.conversions import turn_based_aec_to_parallel

import marltrain as mt
from marltrain.core.errors import ConfigError, EnvError
from marltrain.envs import DummyVectorEnv, make_vector, probe
from marltrain.envs.python.check_env import random_actions
from marltrain.policies.memory import Storage, Streams
from tests.envs.driving import act, column, random_run, rewards, same, snapshot


class Gate(ParallelEnv):
    """Players a and b; b can act in even steps, a in the steps of `open_to_a`. Step t pays 10 * t to a, t to b.

    An episode ends after five steps. Actions are recorded in `sent`.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "gate", "turn_based": True}

    def __init__(self, open_to_a=(0, 1, 2, 3, 4), needs=False):
        self.open_to_a, self.needs, self.possible_agents, self.sent = open_to_a, needs, ["a", "b"], []
        self._seen, self._acts = spaces.Box(0, 9, (1,), np.float32), spaces.Discrete(2)

    def observation_space(self, agent):
        return self._seen

    def action_space(self, agent):
        return self._acts

    def reset(self, seed=None, options=None):
        self.t, self.agents = 0, ["a", "b"]
        return self._answer()

    def step(self, actions):
        self.sent.append({name: actions[name] for name in ("a", "b")} if self.needs else dict(actions))
        rewards, self.t = {"a": 10.0 * self.t, "b": float(self.t)}, self.t + 1
        self.agents = [] if self.t == 5 else ["a", "b"]
        seen, infos = self._answer()
        return seen, rewards, dict.fromkeys("ab", self.t == 5), dict.fromkeys("ab", False), infos

    def _answer(self):
        may = {"a": self.t in self.open_to_a, "b": self.t % 2 == 0}
        seen = {name: np.full(1, self.t, np.float32) for name in "ab"}
        return seen, {name: {"action_mask": [may[name]] * 2} for name in "ab"}


def test_a_player_whose_mask_allows_nothing_waits():
    result: list[Gate] = []

    def make():
        result.append(Gate())
        return result[-1]

    vector = DummyVectorEnv(make, 1)
    assert vector.spec.turn_based
    step = vector.reset(0)
    turns, paid = [list(column(vector.spec, step)["turn"])], []
    for _ in range(5):
        step = vector.step(act(vector.spec, a=1, b=1))
        turns.append(list(column(vector.spec, step)["turn"]))
        paid.append(rewards(vector.spec, step))
        assert list(column(vector.spec, step)["alive"]) == ["a", "b"]
    assert turns == [["a", "b"], ["a"], ["a", "b"], ["a"], ["a", "b"], ["a", "b"]]
    assert paid == [[0, 0], [10, 1], [20, 2], [30, 3], [40, 4]]
    assert step.ended[0] and step.terminated.all()
    assert result[-1].sent == [{"a": 1, "b": 1}, {"a": 1}, {"a": 1, "b": 1}, {"a": 1}, {"a": 1, "b": 1}]


def test_a_transition_of_a_waiting_player_holds_the_rewards_of_its_waiting():
    """The decisions of b at 0 and 2 bring 0 + 1 and 2 + 3, that at 4 brings 4; those of a 0, 10, 20, 30 and 40."""
    vector = DummyVectorEnv(Gate, 2)
    streams = Streams(vector.spec, 2, {0: Storage(8)})
    streams.record_step(vector.reset(0))
    for _ in range(5):
        actions = act(vector.spec, 2)
        streams.record_actions(0, actions[0], {})
        streams.record_step(vector.step(actions))
    ring = streams.rings[0]
    credited = [{t: ring.reward[p, t, 1].item() for t in range(5) if ring.acted[p, t, 1]} for p in range(2)]
    assert credited == [{0: 0, 1: 10, 2: 20, 3: 30, 4: 40}, {0: 1, 2: 5, 4: 4}]
    assert ring.drawable_count.tolist() == [5 * 2, 3 * 2] and ring.terminated.sum((1, 2)).tolist() == [2, 2]


@pytest.mark.parametrize("game", [tictactoe_v3, connect_four_v3])
def test_pettingzoos_conversion_plays_the_game_that_it_converts(game):
    turns = DummyVectorEnv(game.env, 2)
    parallel = DummyVectorEnv(lambda: BaseParallelWrapper(turn_based_aec_to_parallel(game.env())), 2)
    assert parallel.spec.turn_based
    rng = np.random.default_rng(0)
    one, other = turns.reset(0), parallel.reset(0)
    for _ in range(60):
        for field in ("turn", "alive", "reward", "terminated", "truncated", "ended"):
            assert np.array_equal(getattr(one, field), getattr(other, field)), field
        turn = one.turn[0]
        for name in ("obs/0", "legal/0"):
            assert (one.arrays()[name][turn] == other.arrays()[name][turn]).all(), name
        actions = random_actions(turns.spec, one, rng)
        one, other = turns.step(actions), parallel.step(actions)


def test_workers_and_replays_equal_this_process():
    local = make_vector(Gate, None, 3, recording=True)
    with make_vector(Gate, None, 3, vector="subproc", num_workers=2) as workers:
        assert all(same(*pair) for pair in zip(random_run(local, 7), random_run(workers, 7), strict=True))
    again = make_vector(Gate, None, 3, recording=True)
    step, restarted = again.restore(local.state())
    assert not restarted
    actions = act(local.spec, 3, a=1)
    assert same(snapshot(local.step(actions)), snapshot(again.step(actions))) and step is not None


def test_all_players_that_wait_are_an_error():
    vector = DummyVectorEnv(lambda: Gate(open_to_a=(0,)), 1)
    vector.reset(0)
    with pytest.raises(EnvError, match=r"step 1: the action_mask of every living player \('a', 'b'\) allows no action"):
        vector.step(act(vector.spec))


def test_an_environment_that_needs_the_action_of_a_waiting_player_is_told():
    vector = DummyVectorEnv(lambda: Gate(needs=True), 1)
    vector.reset(0)
    vector.step(act(vector.spec))
    with pytest.raises(EnvError, match=r"step raised KeyError: 'b': no action is sent for 'b', because"):
        vector.step(act(vector.spec))


class Undeclared(Gate):
    metadata: ClassVar[dict[str, Any]] = {"name": "gate"}


def test_without_the_declaration_it_is_an_error_with_the_remedy():
    vector = DummyVectorEnv(Undeclared, 1)
    vector.reset(0)
    said = r"player 'b' must move, but its action_mask allows no action. If it waits .* metadata: 'turn_based': True"
    with pytest.raises(EnvError, match=said):
        vector.step(act(vector.spec))
    assert not probe(Undeclared).turn_based


def test_a_team_is_refused_before_it_trains():
    agents = mt.make_agents("vdn", Gate, seed=0, network=mt.MLP((4,)))
    trainer = mt.DecentralizedTrainer(Gate, team_reward="sum", seed=0, progress=False, run_dir=False)
    with pytest.raises(ConfigError, match="players move one after another"):
        trainer.train(agents, [1, 1], plot=False)
