"""Training from recorded decisions: rows by hand, a policy better than the one that was recorded, and errors."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.tools.offline import _filled, _spec_of
from marltrain.trainer.seats.seats import Seating
from tests.toys import Identity

LINE = spaces.Box(-10, 10, (1,), np.float32)


def recorded(**changes: Any) -> mt.Demonstrations:
    """Return two episodes: 1, 2 (truncated after 3), and 5, 6 (terminated at 7); then 8, whose end is unknown."""
    given: dict[str, Any] = {
        "observation": [[1], [2], [5], [6], [8]], "action": [0, 1, 1, 0, 1], "ends": [0, 1, 0, 1, 0],
        "next_observation": [[2], [3], [6], [7], [9]], "reward": [10, 20, 30, 40, 50], "terminated": [0, 0, 0, 1, 0],
        **changes,
    }  # fmt: skip
    arrays: dict[str, Any] = {name: None if value is None else np.array(value, np.float32 if "obs" in name else None)
              for name, value in given.items()}  # fmt: skip
    return mt.Demonstrations.from_arrays(LINE, spaces.Discrete(2), **arrays)


def rows_read(agent, data, rows=400):
    """Return the transitions (obs, action, reward, discount, next obs) that an agent can draw."""
    spec = _spec_of(data)
    seated = Seating(spec, [agent], 0, stack=True).updated[0]
    reader = _filled(seated, spec, data)
    batch = reader.sample([np.random.default_rng(0)], np.array([0.5]), rows)
    columns = [batch.obs[0, :, 0], batch.action[0], batch.reward[0], batch.discount[0], batch.next_obs[0, :, 0]]
    return sorted(set(zip(*(column.tolist() for column in columns), strict=True)))


def test_the_rows_are_those_of_the_data_by_hand():
    agent = mt.DQN(LINE, spaces.Discrete(2), seed=0)
    assert rows_read(agent, recorded()) == [
        (1, 0, 10, 0.5, 2), (2, 1, 20, 0.5, 3), (5, 1, 30, 0.5, 6), (6, 0, 40, 0, 7), (8, 1, 50, 0.5, 9)
    ]  # fmt: skip
    agent = mt.DQN(LINE, spaces.Discrete(2), seed=0, n_step=2, memory=mt.Replay(prioritized=mt.Prioritized()))
    assert rows_read(agent, recorded()) == [
        (1, 0, 20, 0.25, 3), (2, 1, 20, 0.5, 3), (5, 1, 50, 0, 7), (6, 0, 40, 0, 7), (8, 1, 50, 0.5, 9)
    ]  # fmt: skip


def test_rows_without_ends_lead_to_their_own_next_observation():
    """Shuffled rows are no episode."""
    data = recorded(ends=[0, 0, 0, 1, 0], next_observation=[[2], [3], [7], [7], [9]])
    assert rows_read(mt.DQN(LINE, spaces.Discrete(2), seed=0), data) == [
        (1, 0, 10, 0.5, 2), (2, 1, 20, 0.5, 3), (5, 1, 30, 0.5, 7), (6, 0, 40, 0, 7), (8, 1, 50, 0.5, 9)
    ]  # fmt: skip


@pytest.mark.parametrize("algo", ["dqn", "sac"])
def test_the_identity_is_learned_from_random_actions(algo):
    data = mt.demonstrations(Identity, [mt.RandomAgent(), mt.RandomAgent()], episodes=40, player="player_0")
    agent = mt.make_agents(algo, Identity, seed=0, learning_rate=0.01, gamma=0.0)[0]
    table = mt.train_offline(agent, data, updates=100, batch_size=64)
    assert (len(table), table["update"].iloc[-1]) == (100, 100)
    total = next(name for name in map(str, table) if name.startswith("loss"))
    assert np.isfinite(table[total]).all()
    assert [agent.act(symbol) for symbol in range(3)] == [0, 1, 2]


def test_legal_actions_are_kept():
    """tic-tac-toe: the values of illegal moves enter no target."""
    game = "marltrain/tictactoe_v3"
    data = mt.demonstrations(game, [mt.RandomAgent(), mt.RandomAgent()], episodes=4, player="player_1")
    agent = mt.make_agents("dqn", game, seed=0)[0]
    spec = _spec_of(data)
    reader = _filled(Seating(spec, [agent], 0, stack=True).updated[0], spec, data)
    batch = reader.sample([np.random.default_rng(0)], np.array([0.5]), 200)
    assert batch.legal.sum(2).tolist() == (~batch.obs.reshape(1, 200, 9, 2).any(3)).sum(2).tolist()
    assert batch.next_legal.any(2).all()
    assert len(mt.train_offline(agent, data, updates=3)) == 3


def test_all_actions_are_legal_after_a_truncation():
    data = recorded(legal=[[1, 0], [0, 1], [0, 1], [1, 1], [1, 1]])
    masked = spaces.Dict({"observation": LINE, "action_mask": spaces.Box(0, 1, (2,), np.int8)})
    agent = mt.DQN(masked, spaces.Discrete(2), seed=0)
    spec = _spec_of(data)
    reader = _filled(Seating(spec, [agent], 0, stack=True).updated[0], spec, data)
    batch = reader.sample([np.random.default_rng(0)], np.array([0.5]), 100)
    after = {(o, *legal) for o, legal in zip(batch.obs[0, :, 0].tolist(), batch.next_legal[0].tolist(), strict=True)}
    assert after == {(1, False, True), (2, True, True), (5, True, True), (6, True, True), (8, True, True)}


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda seats: mt.PPO(*seats), "it learns on-policy"),
        (lambda seats: mt.DQN(*seats, network=mt.GRU((4,))), "as recurrent networks do"),
        (lambda seats: mt.make_agents("vdn", "marltrain/simple_spread_v3")[0], "it is trained with a team"),
    ],
)
def test_agents_that_cannot_learn_so_are_refused(make, reason):
    with pytest.raises(ConfigError, match=f"cannot learn from recorded decisions: .*{reason}.*such as dqn"):
        mt.train_offline(make((LINE, spaces.Discrete(2))), recorded(), updates=1)


def test_wrong_arguments_are_refused():
    agent = mt.DQN(LINE, spaces.Discrete(2))
    with pytest.raises(ConfigError, match=r"updates.*at least 1, got 0"):
        mt.train_offline(agent, recorded(), updates=0)
    with pytest.raises(ConfigError, match="RandomAgent is not an agent of marltrain's algorithms"):
        mt.train_offline(mt.RandomAgent(), recorded(), updates=1)
    with pytest.raises(AgentError, match="the data lack reward, terminated"):
        mt.train_offline(agent, recorded(reward=None, terminated=None), updates=1)
    with pytest.raises(AgentError, match="spaces"):
        mt.train_offline(mt.DQN(LINE, spaces.Discrete(3)), recorded(), updates=1)
