"""The columns of sequences by hand, the carries of what follows, and recurrent networks where there are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.core.layout import Layout
from marltrain.policies.batches.batch import Rollout
from marltrain.policies.interface.recurrence import carries_after, needs_of, sequence_columns
from marltrain.policies.memory.needs import Column, Needs
from marltrain.policies.networks.specs import GRU, LSTM, MLP, Head, NetworkDefinition
from tests.policies.some_batches import GOALS

SPACE = spaces.Box(-1, 1, (2,), np.float32)


def networks(**specs: Any) -> dict[str, NetworkDefinition]:
    return {name: NetworkDefinition(spec, [Head(1)], Layout(SPACE)) for name, spec in specs.items()}


ONE = networks(actor=GRU(units=2, sequence_length=3), critic=MLP())


def rollout() -> Rollout:
    """Six rows of one agent in two blocks: an episode ends with row 1, a trace with row 3, and row 5 is padding."""
    cut = np.array([[False, True, False, True, True, True]])
    return Rollout(
        obs=np.zeros((1, 6, 2), np.float32), legal=None, action=np.zeros((1, 6), int), reward=np.zeros((1, 6)),
        discount=np.ones((1, 6)), weight=np.array([[1.0, 1, 1, 1, 1, 0]], np.float32),
        extras={"carry/actor/2": np.arange(12, dtype=np.float32).reshape(1, 6, 2)}, cut=cut, truncated=cut,
        boot=np.array([[-1, 0, -1, 1, 2, 0]]), boot_obs=np.zeros((1, 3, 2), np.float32), boot_legal=None,
    )  # fmt: skip


def test_a_row_begins_after_a_cut_and_at_the_start_of_a_block():
    columns = sequence_columns(rollout(), ONE)
    assert columns["begins"].tolist() == [[True, False, True, True, True, True]]
    assert list(columns["carry"]) == ["actor"]
    assert columns["carry"]["actor"].tolist() == np.arange(12).reshape(1, 6, 2).tolist()


def test_what_follows_a_trace_gets_the_carry_after_its_last_row():
    after = np.arange(6, dtype=np.float32)[None, :, None] * 10
    assert carries_after(after, rollout()).tolist() == [[[10], [30], [40]]]


def test_needs():
    needs = needs_of(Needs(on_policy=True, columns={"log_prob": Column()}), ONE)
    assert (needs.block, dict(needs.columns)) == (3, {"log_prob": Column(), "carry/actor/2": Column((2,))})
    assert needs_of(Needs(on_policy=True), networks(actor=MLP())) == Needs(on_policy=True)
    replayed = needs_of(Needs(on_policy=False), ONE)
    assert (replayed.block, replayed.sequence, replayed.burn_in) == (3, 3, 0)
    both = needs_of(Needs(on_policy=True), networks(actor=LSTM(units=2), critic=GRU(units=3)))
    shapes = {name: column.shape for name, column in both.columns.items()}
    assert shapes == {"carry/actor/4": (4,), "carry/critic/3": (3,)}


ACTIONS, MOVES = spaces.Discrete(2), spaces.Box(-1, 1, (1,), np.float32)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: mt.SEAC(SPACE, ACTIONS, network=mt.GRU()), "seac: its network 'actor' cannot be recurrent, got"),
        (lambda: mt.TRPO(SPACE, ACTIONS, network=mt.LSTM()), "trpo: its network 'actor'"),
        (lambda: mt.ACER(SPACE, ACTIONS, network=mt.GRU()), "acer: its network 'actor'"),
        (lambda: mt.DDPG(SPACE, MOVES, network=mt.GRU()), "ddpg: its network 'actor'"),
        (lambda: mt.TD3(SPACE, MOVES, critic_network=mt.GRU()), "td3: its network 'critic'"),
        (
            lambda: mt.MASAC(SPACE, MOVES, network=mt.GRU(), team_size=2, state_size=2, joint_action_size=2),
            "masac: its network 'actor'",
        ),
        (
            lambda: mt.SAC(SPACE, MOVES, network=mt.GRU(), memory=mt.Replay(60, prioritized=mt.Prioritized())),
            "sac: recurrent networks learn from sequences of one-step transitions",
        ),
        (
            lambda: mt.SAC(SPACE, MOVES, network=mt.GRU(), critic_network=mt.LSTM(sequence_length=3)),
            "sequence_length differs: {'actor': 16, 'critic': 3}",
        ),
        (lambda: mt.TRL(GOALS, ACTIONS, network=mt.GRU()), "trl: its network"),
        (lambda: mt.DQN(SPACE, ACTIONS, network=mt.GRU(), n_step=3), "dqn: recurrent networks learn from sequences of"),
        (lambda: mt.VDN(SPACE, ACTIONS, team_size=2, network=mt.GRU(), n_step=3), "uniformly: leave n_step out"),
        (lambda: mt.DQN(SPACE, ACTIONS, network=mt.GRU(), noisy=0.5), "cannot be noisy"),
        (lambda: mt.Rainbow(SPACE, ACTIONS, network=mt.GRU(), noisy=0.0, n_step=1), "leave memory=Replay(prioritized)"),
        (
            lambda: mt.C51(SPACE, ACTIONS, network=mt.LSTM(), memory=mt.Replay(60, half_life=9)),
            "leave memory=Replay(window, effective_share, half_life, clear_every) out",
        ),
        (lambda: mt.MAPPO(SPACE, ACTIONS, state_size=2, critic_network=mt.GRU()), "mappo: its network 'critic'"),
        (lambda: mt.DQN(SPACE, ACTIONS, burn_in=3), "dqn: burn_in=3 is for recurrent networks"),
        (
            lambda: mt.SAC(SPACE, MOVES, network=mt.GRU(sequence_length=4), burn_in=4),
            "sac: burn_in=4 leaves no row to learn from in sequences of 4 rows",
        ),
        (
            lambda: mt.PPO(SPACE, ACTIONS, network=mt.GRU(sequence_length=4), critic_network=mt.GRU()),
            "sequence_length differs: {'actor': 4, 'critic': 16}",
        ),
        (
            lambda: mt.PPO(SPACE, ACTIONS, network=mt.GRU(), strategy=mt.DataParallel(processes=2)),
            "splits a minibatch by rows",
        ),
    ],
)
def test_where_recurrent_networks_are_refused(make, words):
    with pytest.raises(ConfigError) as caught:
        make()
    assert words in str(caught.value)


def test_a_central_critic_has_no_memory_by_default():
    agent = mt.MAPPO(SPACE, ACTIONS, state_size=5, network=mt.GRU((8,), units=4))
    assert agent.algorithm.networks()["critic"].spec == MLP((8, 4))
    own = mt.MAPPO(SPACE, ACTIONS, critic_input="own", network=mt.GRU((8,), units=4))
    assert list(own.algorithm.carry()) == ["actor", "critic"]


def test_no_compiled_form():
    for agent in (
        mt.PPO(SPACE, ACTIONS, network=mt.GRU()), mt.A2C(SPACE, ACTIONS, critic_network=mt.LSTM()),
        mt.DQN(SPACE, ACTIONS, network=mt.GRU()),
    ):  # fmt: skip
        assert agent.algorithm.compiled_form() is None
        assert agent.learner().actor.compiled() is None
