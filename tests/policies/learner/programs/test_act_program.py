"""Acts by programs beside acts in the framework, of all kinds of policies; rows, carries, counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.jit.notices import listening
from marltrain.policies.algorithms.ppo import PPOAlgorithm
from marltrain.policies.algorithms.td3 import TD3Algorithm
from marltrain.policies.batches.batch import ActInputs
from marltrain.policies.learner.programs.act_program import ActProgram, act_program
from marltrain.policies.learner.programs.act_table import LARGEST
from marltrain.policies.memory.needs import Column
from tests.policies.learner.test_learner import stacked

VECTOR, CHOICES, SEVERAL = spaces.Box(-9, 9, (5,), np.float32), spaces.Discrete(4), spaces.MultiDiscrete([3, 2])
BOX = spaces.Box(-2, 3, (3,), np.float32)
HALF_OPEN = spaces.Box(np.array([-np.inf, -1], np.float32), np.array([np.inf, 2], np.float32))
PICTURE = spaces.Dict({"picture": spaces.Box(0, 255, (8, 8, 3), np.uint8), "numbers": VECTOR})
GRU, LSTM = mt.GRU((6,), units=7, sequence_length=4), mt.LSTM((6,), units=7, sequence_length=4)
SMALL = mt.MLP((8,), "relu")
RULES = ("boltzmann", "max_boltzmann", "gumbel_softmax", "boltzmann_gumbel", "epsilon_greedy", "greedy")
CASES: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
    "ppo with a gru": (mt.PPO, VECTOR, CHOICES, {"network": GRU}),
    "ppo with an lstm": (mt.PPO, VECTOR, HALF_OPEN, {"network": LSTM}),
    "ppo with a shared gru": (mt.PPO, VECTOR, SEVERAL, {"network": GRU, "shared_trunk": True}),
    "ppo by a beta distribution": (mt.PPO, VECTOR, BOX, {"policy": "beta", "network": SMALL}),
    "ppo by a squashed gaussian": (mt.PPO, VECTOR, BOX, {"policy": "squashed_gaussian", "network": SMALL}),
    "ppo of normalized observations": (mt.PPO, VECTOR, CHOICES, {"normalize_observations": True}),
    "ppo of images": (mt.PPO, PICTURE, CHOICES, {}),
    "acer": (mt.ACER, VECTOR, CHOICES, {"network": SMALL}),
    "dqn with a gru": (mt.DQN, VECTOR, CHOICES, {"network": GRU}),
    "dueling and noisy dqn": (mt.DQN, VECTOR, CHOICES, {"dueling": True, "noisy": 0.5}),
    "c51": (mt.C51, VECTOR, CHOICES, {"network": SMALL}),
    **{f"dqn by {rule}": (mt.DQN, VECTOR, CHOICES, {"exploration": rule, "random_share": 0.2}) for rule in RULES},
    "sac": (mt.SAC, VECTOR, BOX, {"network": SMALL}),
    "sac with a gru": (mt.SAC, VECTOR, BOX, {"network": GRU, "exploration": "ornstein_uhlenbeck"}),
    "sac of choices": (mt.SAC, VECTOR, CHOICES, {"network": SMALL}),
    "td3": (mt.TD3, VECTOR, BOX, {"network": SMALL, "noise_scale": (1, 2, 0)}),
}


def learner_of(kind: Any, sees: Any, acts: Any, settings: dict[str, Any], **more: Any) -> Any:
    """Two agents with weights that tell choices apart."""
    agents = [kind(sees, acts, seed=seed, jit_compile=True, **settings, **more) for seed in range(2)]
    for i, agent in enumerate(agents):
        state = agent.learner_.export(0)
        for name, array in state.arrays.items():
            if name.startswith("net/"):
                array += np.random.default_rng(i).normal(scale=0.3, size=array.shape).astype(np.float32)
        agent.learner_.load(0, state)
    learner = stacked(agents)
    for statistics in learner.weights.statistics.values():
        statistics.mean[...], statistics.variance[...] = 1000.0, 0.01
    if learner.actor.counts.size:
        learner.actor.counts[...] = np.arange(learner.actor.counts.size).reshape(2, -1) ** 2
    return learner


def given(learner: Any, rows: int, seed: int, carry: Any = None) -> ActInputs:
    """Inputs of an act of both agents, with masks if the actions can be masked."""
    rng, algorithm = np.random.default_rng(seed), learner.algorithm
    obs = algorithm.layout.empty((2, rows))
    if isinstance(obs, dict):
        for array in obs.values():
            array[...] = rng.integers(0, 9, array.shape)
    else:
        obs[...] = rng.normal(size=obs.shape) * 0.1 + (1000.0 if learner.weights.statistics else 0.0)
    legal = None
    if not isinstance(algorithm.action_space, spaces.Box) and seed % 2:
        width = sum(SEVERAL.nvec) if algorithm.action_space == SEVERAL else CHOICES.n
        legal = rng.random((2, rows, int(width))) < 0.6
        legal[..., ::3] = True
    return ActInputs(obs, legal, rng.random((2, rows)) < 0.7, carry)


@pytest.mark.parametrize(
    ("case", "backend"),
    [*((case, "torch") for case in CASES), *((case, "tensorflow") for case in ("ppo with a gru", "c51", "sac"))],
)
def test_acts_by_programs_are_those_of_the_framework(case, backend):
    mine, theirs = (learner_of(*CASES[case], backend=backend) for _ in range(2))
    theirs.actor._compiled, theirs.actor._in_numpy = {None: None}, None
    for rows in (1, 3, LARGEST + 2):
        carries: list[Any] = [None, None]
        for act in range(2):
            pair = [
                learner.actor.act(given(learner, rows, act, carry), [np.random.default_rng(k) for k in range(2)])
                for learner, carry in zip((mine, theirs), carries, strict=True)
            ]
            one, other = pair
            assert one.action.dtype == other.action.dtype
            np.testing.assert_allclose(one.action, other.action, rtol=2e-5, atol=2e-5)
            assert one.extras.keys() == other.extras.keys()
            assert (one.carry or {}).keys() == (other.carry or {}).keys()
            for results in (lambda acted: acted.extras, lambda acted: acted.carry or {}):
                for name, array in results(one).items():
                    np.testing.assert_allclose(array, results(other)[name], rtol=2e-5, atol=2e-5, err_msg=name)
            carries = [one.carry, other.carry]
    assert isinstance(mine.actor._compiled[None], ActProgram)


@pytest.mark.parametrize("case", ["ppo with a gru", "ppo of normalized observations", "dueling and noisy dqn", "sac"])
def test_a_row_is_acted_on_alike_alone_and_among_others(case):
    """To the last bit: by both agents at once and by one of them."""
    learner, rows = learner_of(*CASES[case]), LARGEST + 5
    inputs = given(learner, rows, 1)
    noise = learner.algorithm.noise([np.random.default_rng(k) for k in range(2)], rows)
    acting = learner.actor.compiled(), learner.actor.compiled(1)
    every = acting[0].act(inputs, {name: array[:, None] for name, array in noise.items()}, 0, learner.actor.refreshed())
    for row in (0, 1, rows - 1):
        only = slice(row, row + 1)
        own = {name: array[1:, None, only] for name, array in noise.items()}
        legal = None if inputs.legal is None else inputs.legal[1:, only]
        one = ActInputs(inputs.obs[1:, only], legal, inputs.explore[1:, only])
        alone = acting[1].act(one, own, 0, learner.actor.refreshed())
        np.testing.assert_array_equal(alone.action, every.action[1:, only])
        for name, array in alone.extras.items():
            np.testing.assert_array_equal(array, every.extras[name][1:, only])


def test_the_noise_of_an_act_is_that_of_its_number():
    """Of noise drawn ahead, whose numbers are not side by side in memory."""
    learner = learner_of(*CASES["dqn by epsilon_greedy"])
    learner.set_hyper(0, "epsilon", 1.0)
    inputs = given(learner, 3, 0)
    inputs.explore[...] = True
    noise = {
        name: array.reshape(2, 4, 3, *array.shape[2:])
        for name, array in learner.algorithm.noise([np.random.default_rng(k) for k in range(2)], 12).items()
    }
    noise["coin"][...] = 0.5
    acting = learner.actor.compiled()
    for at in (2, 0, 3):
        acted = acting.act(inputs, noise, at, learner.actor.refreshed())
        np.testing.assert_array_equal(acted.action[0], noise["choice"][0, at].argmax(-1))


@pytest.mark.parametrize("case", ["ppo with a gru", "dqn by boltzmann_gumbel"])
def test_parts_of_an_act_make_the_same_bits(case):
    """Of two blocks and a smaller one of each agent, in any order; actions that are counted are chosen by one part."""
    learner, rows, found = learner_of(*CASES[case]), 2 * LARGEST + 3, []
    inputs, before = given(learner, rows, 0), learner.actor.counts.copy()
    noise = learner.algorithm.noise([np.random.default_rng(k) for k in range(2)], rows)
    for parts in (1, 2, 3, 7):
        learner.actor.counts[...] = before
        acting, action = learner.actor.compiled(), np.full((2, rows), -1)
        acting.set_arrays(obs=inputs.obs, legal=None, explore=inputs.explore, action=action)
        acting.divide(parts)
        acting.refresh({name: array[:, None] for name, array in noise.items()}, learner.actor.refreshed())
        acting.start_from(None, learner.actor.counts)
        for part in reversed(range(parts)):
            act_program()(acting.address, 0, part * 10 // parts, (part + 1) * 10 // parts, 10)
        found.append({"action": action, "counts": learner.actor.counts.copy(), **(acting.carried() or {})})
    for each in found[1:]:
        np.testing.assert_equal(each, found[0])


def test_actions_are_counted_within_a_call():
    learner = learner_of(*CASES["dqn by boltzmann_gumbel"])
    inputs, acting = given(learner, 3, 0), learner.actor.compiled()
    inputs.explore[...] = [[True, False, True], [False, True, True]]
    action, before = np.zeros((2, 3), np.int64), learner.actor.counts.copy()
    acting.set_arrays(obs=inputs.obs, legal=None, explore=inputs.explore, action=action)
    learner.actor.prepare(acting, learner.rngs("act"))
    acting.start_from(None, learner.actor.counts)
    act_program()(acting.address, 0, 0, 1, 1)
    for k in range(2):
        before[k] += np.bincount(action[k][inputs.explore[k]], minlength=4)
    np.testing.assert_array_equal(learner.actor.counts, before)
    np.testing.assert_array_equal(learner.actor._read["action_counts"], before)


class Swapping(PPOAlgorithm):
    """Its acts carry two numbers on, each in the place of the other."""

    acts_in_numpy = True

    def carry(self):
        return {"a": Column((1,)), "b": Column((1,))}

    def act(self, ops, nets, inputs):
        acted, carry = super().act(ops, nets, inputs), inputs.carry
        return mt.Acted(acted.action, {"a": carry["b"], "b": carry["a"]}, acted.extras)


class Scaling(TD3Algorithm):
    """Converts actions by a function of its own."""

    def to_units(self, action):
        return 10 * action


class Asking(PPOAlgorithm):
    """Asks for the numbers of a tensor, which a recording does not have."""

    acts_in_numpy = True

    def act(self, ops, nets, inputs):
        bool(inputs.obs[0, 0, 0] > 0)
        return super().act(ops, nets, inputs)


def agent_of(kind: Any, algorithm: Any, acts: Any) -> Any:
    own = type("Own", (kind,), {"algorithm_class": algorithm})
    return own(VECTOR, acts, seed=0, jit_compile=True, network=SMALL)


def test_carries_may_change_their_places():
    actor = agent_of(mt.PPO, Swapping, CHOICES).learner_.actor
    carry = {"a": np.full((1, 1, 1), 3, np.float32), "b": np.full((1, 1, 1), 4, np.float32)}
    inputs = ActInputs(np.zeros((1, 1, 5), np.float32), None, np.ones((1, 1), bool), carry)
    acted = actor.act(inputs, [np.random.default_rng(0)])
    assert isinstance(actor._compiled[None], ActProgram)
    assert {name: array.item() for name, array in acted.carry.items()} == {"a": 4, "b": 3}


@pytest.mark.parametrize(("algorithm", "told"), [(Scaling, 0), (Asking, 1)])
def test_other_functions_of_a_user_are_left_to_the_framework(algorithm, told):
    agent = agent_of(mt.PPO if algorithm is Asking else mt.TD3, algorithm, CHOICES if algorithm is Asking else BOX)
    notices: list[str] = []
    with listening(notices.append):
        for _ in range(2):
            assert agent.learner_.actor.compiled() is None
    assert len([line for line in notices if "recorded" in line]) == told
    action = agent.act(np.ones(5, np.float32))
    assert np.shape(action) == (() if algorithm is Asking else (3,))
