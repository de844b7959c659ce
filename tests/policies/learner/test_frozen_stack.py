"""Frozen agents in one stack act as each of them does alone, in compiled code, numpy and tensors."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import SaveError
from marltrain.policies.batches.batch import ActInputs
from marltrain.policies.learner.frozen_stack import Dealt, FrozenStack
from marltrain.storage.state import State

OBS, ACTIONS = spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(4)
KINDS: dict[str, Any] = {
    "compiled": (mt.PPO, {"network": mt.MLP((4,))}),
    "numpy": (mt.PPO, {"network": mt.MLP((4,)), "normalize_observations": True}),
    "tensors": (mt.PPO, {"network": mt.MLP((4,), activation="elu")}),
    "recurrent": (mt.PPO, {"network": mt.GRU(hidden=(), units=4)}),
    "programs": (mt.PPO, {"network": mt.GRU(hidden=(), units=4), "jit_compile": True}),
    "values": (mt.DQN, {"network": mt.MLP((4,))}),
}


def three(kind: str) -> tuple[list[Any], FrozenStack]:
    """Three agents, and a stack that holds them in the rows 2, 0 and 1 of four."""
    make, settings = KINDS[kind]
    agents = [make(OBS, ACTIONS, seed=seed, **settings) for seed in range(3)]
    stack = FrozenStack(agents[0].algorithm, agents[0].backend, 4)
    for agent, row in zip(agents, (2, 0, 1), strict=True):
        stack.copy_from(agent.learner_, 0, row)
    return agents, stack


def acted(stack: FrozenStack, rows: Any, obs: Any, *, explore: bool = False, seed: int = 0, turn: Any = None) -> Any:
    rows = np.array(rows)
    inputs = ActInputs(obs[None], None, np.full((1, len(rows)), explore))
    turn = np.ones(len(rows), bool) if turn is None else np.array(turn)
    return stack.act(rows, inputs, turn, [np.random.default_rng(seed)])


@pytest.mark.parametrize("kind", list(KINDS))
def test_members_act_as_alone(kind):
    agents, stack = three(kind)
    obs = np.random.default_rng(0).uniform(-1, 1, (7, 3)).astype(np.float32)
    rows = [2, 1, 0, 0, -1, 1, 0]
    action = acted(stack, rows, obs).action
    alone = {2: agents[0], 0: agents[1], 1: agents[2]}
    assert action.shape == (1, 7)
    assert action[0].tolist() == [0 if r < 0 else int(alone[r].act(one)) for r, one in zip(rows, obs, strict=True)]


def test_an_update_of_the_agent_changes_no_member():
    agents, stack = three("compiled")
    obs = np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32)
    before, own = acted(stack, [2] * 50, obs).action, agents[0].act(obs)
    agents[0].learner_.load(0, agents[1].learner_.export(0))
    assert (agents[0].act(obs) != own).any()
    assert (acted(stack, [2] * 50, obs).action == before).all()


def test_the_noise_of_a_row_does_not_depend_on_who_else_acts():
    _, stack = three("compiled")
    obs = np.random.default_rng(0).uniform(-1, 1, (6, 3)).astype(np.float32)
    all_act = acted(stack, [0, 1, 2, 0, 1, 2], obs, explore=True).action[0]
    some = acted(stack, [0, -1, 2, 0, 1, 2], obs, explore=True, turn=[1, 1, 0, 1, 1, 1]).action[0]
    kept = [0, 3, 4, 5]
    assert some[kept].tolist() == all_act[kept].tolist() and some[1] == some[2] == 0
    greedy = acted(stack, [0, 1, 2, 0, 1, 2], obs).action[0]
    assert (all_act != greedy).any()
    stack.greedy[:] = True
    assert (acted(stack, [0, 1, 2, 0, 1, 2], obs, explore=True).action[0] == greedy).all()


def test_carries_follow_the_rows():
    agents, stack = three("recurrent")
    obs = np.random.default_rng(0).uniform(-1, 1, (2, 3)).astype(np.float32)
    first = acted(stack, [1, 2], obs)
    inputs = ActInputs(obs[None], None, np.zeros((1, 2), bool), first.carry)
    second = stack.act(np.array([1, 2]), inputs, np.ones(2, bool), [np.random.default_rng(0)])
    for row, agent in enumerate((agents[2], agents[0])):
        _, carry = agent.act_with_carry(obs[row], None)
        _, carry = agent.act_with_carry(obs[row], carry)
        for name, value in carry.items():
            np.testing.assert_allclose(second.carry[name][0, row], value[0], rtol=1e-5, atol=1e-6)


def test_saved_rows_and_a_grown_stack_act_alike():
    _, stack = three("numpy")
    obs = np.random.default_rng(0).uniform(-1, 1, (9, 3)).astype(np.float32)
    rows = [0, 1, 2] * 3
    grown, twin = stack.grown(), three("numpy")[1]
    twin.load(0, stack.export(2))
    assert grown.size == 8
    assert (acted(grown, rows, obs).action == acted(stack, rows, obs).action).all()
    assert (acted(twin, [0] * 9, obs).action == acted(stack, [2] * 9, obs).action).all()
    state = stack.export(0)
    with pytest.raises(SaveError, match="actor"):
        twin.load(0, State(state.info, {k: v for k, v in state.arrays.items() if "actor" not in k}))


def test_rows_are_dealt_in_order():
    dealt = Dealt.of(np.array([1, 0, 1, 1]), np.array([0, 2, 3, 5]), 3)
    assert dealt.counts.tolist() == [1, 3, 0]
    out = dealt.out(np.arange(1, 7)[None])
    assert out.tolist() == [[3, 0, 0], [1, 4, 6], [0, 0, 0]]
    assert dealt.back(out, 6).tolist() == [[1, 0, 3, 4, 0, 6]]
