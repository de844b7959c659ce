"""Agents that act in compiled code hold what they do in numpy; who can, and what is refused."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.layout import Layout
from marltrain.policies.algorithms.dqn import DQNAlgorithm
from marltrain.policies.algorithms.ppo import PPOAlgorithm
from marltrain.policies.batches.batch import ActInputs
from marltrain.policies.compiled.acting import CompiledActing
from marltrain.policies.compiled.network import KNOWN_FIELDS, is_known
from marltrain.policies.interface.algorithm import CompiledForm
from marltrain.policies.networks.parameters import Parameter
from marltrain.policies.networks.specs import CNN, MLP, Head, NetworkDefinition, Plan
from tests.policies.learner.test_learner import stacked

NEAR = 1e-5
"""Two values this far apart may change places where sums are rounded otherwise."""
KINDS = {"ppo": mt.PPO, "dqn": mt.DQN}


def learners(kind, inputs, choices, hidden, activation, agents=3, backend="torch"):
    """Two learners of equal agents: one that acts in compiled code and one in numpy."""
    sees, acts = spaces.Box(-9, 9, (inputs,), np.float32), spaces.Discrete(choices)
    settings = {"network": MLP(hidden, activation), "backend": backend}
    result = [KINDS[kind](sees, acts, seed=seed, **settings) for seed in range(agents)]
    for i, agent in enumerate(result):
        if kind == "dqn":
            agent.hyper.epsilon = (0.0, 1.0, 0.4)[i]
        state = agent.learner_.export(0)
        for name, array in state.arrays.items():  # weights of an untrained head are too small to tell logits apart
            if name.startswith("net/"):
                array += np.random.default_rng(i).normal(scale=0.3, size=array.shape).astype(np.float32)
        agent.learner_.load(0, state)
    native, plain = stacked(result), stacked(result)
    plain.actor._compiled = {None: None}
    return native, plain


def clear(learner, kind, obs, legal, noise, explore):
    """Where the two highest of what is chosen by are further apart than rounding moves them, [K, B] bool."""
    network = learner.weights.nets[learner.algorithm.compiled_form().network].in_numpy()
    values = network(obs)[0]
    if kind == "ppo":
        values = values + np.where(explore[..., None], noise["sample"], 0)
    values = np.where(legal, values, -np.inf) if legal is not None else values
    if values.shape[-1] == 1:
        return np.ones(explore.shape, bool)
    first, second = np.sort(values, -1)[..., -1], np.sort(values, -1)[..., -2]
    return ~(first - second < NEAR)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("masked", [False, True], ids=["all legal", "masked"])
@pytest.mark.parametrize(
    ("rows", "inputs", "hidden", "activation", "choices"),
    [
        (1, 1, (1,), "tanh", 2), (2, 3, (5,), "relu", 1), (3, 4, (64, 64), "tanh", 5), (5, 7, (5, 64), "relu", 7),
        (5, 18, (64,), "tanh", 3), (3, 7, (), "tanh", 4), (2, 18, (3,) * 8, "relu", 6), (64, 18, (64, 64), "tanh", 5),
    ],
)  # fmt: skip
def test_compiled_acts_are_those_in_numpy(kind, masked, rows, inputs, hidden, activation, choices):
    """Three agents, with epsilons 0, 1 and 0.4; nobody, everybody and half of the rows explore."""
    native, plain = learners(kind, inputs, choices, hidden, activation)
    rng, compared = np.random.default_rng(rows), 0
    generators = [np.random.default_rng(seed) for seed in range(3)], [np.random.default_rng(seed) for seed in range(3)]
    for act in range(40):
        obs = rng.normal(size=(3, rows, inputs)).astype(np.float32)
        legal = rng.random((3, rows, choices)) < 0.5
        legal[..., act % choices] = True
        explore = rng.random((3, rows)) < (0.0, 1.0, 0.5)[act % 3]
        mask = legal if masked else None
        noise = plain.actor.noise.prepared(generators[1], rows)
        noise = {name: values[:, noise[1]] for name, values in noise[0].items()}
        given, turn = ActInputs(obs, mask, explore), np.ones((3, rows), bool)
        mine, theirs = (
            learner.act(given, turn=turn, rngs=rngs) for learner, rngs in zip((native, plain), generators, strict=True)
        )
        sure = clear(plain, kind, obs, mask, noise, explore)
        np.testing.assert_array_equal(mine.action[sure], theirs.action[sure])
        assert mine.action.dtype == theirs.action.dtype == np.int64
        assert mine.extras.keys() == theirs.extras.keys()
        for name, values in mine.extras.items():
            np.testing.assert_allclose(values[sure], theirs.extras[name][sure], atol=1e-5)
            assert values.dtype == theirs.extras[name].dtype
        compared += sure.mean()
    assert compared > 39
    assert native.actor._compiled[None] is not None
    assert plain.actor._compiled[None] is None


@pytest.mark.parametrize(("rows", "dims", "activation"), [(1, 1, "tanh"), (5, 3, "relu")])
def test_compiled_acts_of_normal_distributions_are_those_in_numpy(rows, dims, activation):
    """A dimension without a bound has the environment's units."""
    low, high = np.full(dims, -2, np.float32), np.full(dims, 3, np.float32)
    low[-1] = -np.inf
    settings: Any = {"network": MLP((5,), activation), "log_std": 0.7}
    result = [mt.PPO(VECTOR, spaces.Box(low, high), seed=seed, **settings) for seed in range(3)]
    native, plain = stacked(result), stacked(result)
    plain.actor._compiled = {None: None}
    rng = np.random.default_rng(rows)
    for share in (0.0, 1.0, 0.5):
        obs, explore = rng.normal(size=(3, rows, 5)).astype(np.float32), rng.random((3, rows)) < share
        inputs, turn = ActInputs(obs, None, explore), np.ones((3, rows), bool)
        mine, theirs = (
            learner.act(inputs, turn=turn, rngs=[np.random.default_rng(k) for k in range(3)])
            for learner in (native, plain)
        )
        for name, values in {"action": mine.action, **mine.extras}.items():
            expected = {"action": theirs.action, **theirs.extras}[name]
            np.testing.assert_allclose(values, expected, atol=1e-5, err_msg=name)
            assert values.dtype == expected.dtype
    assert native.actor._compiled[None] is not None


@pytest.mark.parametrize("kind", KINDS)
def test_with_tensorflow_and_after_its_weights_have_moved(kind):
    native, plain = learners(kind, 4, 3, (5,), "tanh", backend="tensorflow")
    obs, on = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32), np.ones((3, 5), bool)
    seen = []
    for scale in (1.0, -1.0):
        for learner in (native, plain):
            for network in learner.weights.nets.values():
                network.assign(network.flat * scale)
                network.discard_copies()
        acts = [learner.act(ActInputs(obs, None, ~on), turn=on, rngs=learner.rngs("test")).action
                for learner in (native, plain)]  # fmt: skip
        np.testing.assert_array_equal(*acts)
        seen.append(acts[0].tolist())
    assert seen[0] != seen[1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("inputs", [1, 4, 18])
def test_rows_are_acted_on_alike_alone_and_among_others(kind, inputs):
    """One act of five rows, and five acts of one, by the same noise: the same to the last bit."""
    native, _ = learners(kind, inputs, 5, (5, 64), "tanh")
    acting, rng = native.actor.compiled(), np.random.default_rng(0)
    obs = rng.normal(size=(3, 5, inputs)).astype(np.float32)
    legal, explore = rng.random((3, 5, 5)) < 0.7, rng.random((3, 5)) < 0.5
    noise = {name: values[:, None] for name, values in native.algorithm.noise(rng.spawn(3), 5).items()}
    act_directly = acting.act(ActInputs(obs, legal, explore), noise, 0, native.hyper.columns)
    for row in range(5):
        only = slice(row, row + 1)
        own = {name: values[:, :, only] for name, values in noise.items()}
        alone = acting.act(ActInputs(obs[:, only], legal[:, only], explore[:, only]), own, 0, native.hyper.columns)
        np.testing.assert_array_equal(alone.action, act_directly.action[:, only])
        for name, values in alone.extras.items():
            np.testing.assert_array_equal(values, act_directly.extras[name][:, only])


def test_weights_that_are_no_numbers_give_log_probabilities_that_are_none():
    """So that learning from them ends with an error, as it does in numpy, and nothing else breaks."""
    native, plain = learners("ppo", 4, 3, (5,), "relu")
    obs, on = np.full((3, 2, 4), np.nan, np.float32), np.ones((3, 2), bool)
    for learner in (native, plain):
        acted = learner.act(ActInputs(obs, None, on), turn=on, rngs=learner.rngs("test"))
        assert np.isnan(acted.extras["log_prob"]).all()
        assert ((acted.action >= 0) & (acted.action < 3)).all()


VECTOR, IMAGE = spaces.Box(-1, 1, (5,), np.float32), spaces.Box(0, 255, (9, 9, 3), np.uint8)


@pytest.mark.parametrize(
    ("spec", "space", "heads", "expected"),
    [
        (MLP((4,)), VECTOR, [Head(3)], True),
        (MLP(()), VECTOR, [Head(3)], True),
        (MLP((4,) * 8, "relu"), VECTOR, [Head(3)], True),
        (MLP((4,) * 9, "relu"), VECTOR, [Head(3)], False),
        (MLP((4,), "elu"), VECTOR, [Head(3)], False),
        (MLP((4,)), VECTOR, [Head(1), Head(3)], False),
        (MLP((4,)), VECTOR, [Head(3, free=3)], False),
        (MLP((4,)), IMAGE, [Head(3)], False),
        (MLP((4,)), spaces.Dict({"a": IMAGE, "b": VECTOR}), [Head(3)], False),
        (MLP((4,)), spaces.Dict({"a": spaces.Discrete(3), "b": VECTOR}), [Head(3)], True),
        (CNN((4,)), IMAGE, [Head(3)], False),
    ],
)
def test_which_networks(spec, space, heads, expected):
    assert is_known(SimpleNamespace(plan=Plan(NetworkDefinition(spec, heads, Layout(space))))) is expected


def plain_plan():
    return Plan(NetworkDefinition(MLP((4,)), [Head(3)], Layout(VECTOR)))


def test_a_network_with_a_parameter_that_compiled_code_does_not_write_is_refused():
    plan = plain_plan()
    plan.parameters.insert(2, Parameter("hidden0.scale", (4,), constant=1.0))
    assert not is_known(SimpleNamespace(plan=plan))


def with_field(kind):
    """A class of this name with a field that changes what a network computes, and no parameter."""
    return dataclass(frozen=True)(type(kind.__name__, (kind,), {"__annotations__": {"skips": bool}, "skips": True}))


@pytest.mark.parametrize("kind", [MLP, NetworkDefinition, Head])
def test_a_subclass_with_a_field_of_its_own_is_refused(kind):
    made = {each: each for each in (MLP, NetworkDefinition, Head)} | {kind: with_field(kind)}
    plan = Plan(made[NetworkDefinition](made[MLP]((4,)), [made[Head](3)], Layout(VECTOR)))
    assert [each.shape for each in plan.parameters] == [each.shape for each in plain_plan().parameters]
    assert not is_known(SimpleNamespace(plan=plan))


@pytest.mark.parametrize("kind", [MLP, NetworkDefinition, Head])
def test_a_new_field_of_a_description_is_refused_until_it_is_entered(kind, monkeypatch):
    monkeypatch.setitem(KNOWN_FIELDS, kind, KNOWN_FIELDS[kind] - {min(KNOWN_FIELDS[kind])})
    assert not is_known(SimpleNamespace(plan=plain_plan()))


def test_a_model_of_ones_own_is_none():
    assert not is_known(object())


@pytest.mark.parametrize(
    ("kind", "actions", "settings", "expected"),
    [
        (mt.PPO, spaces.Discrete(3), {}, True),
        (mt.DQN, spaces.Discrete(3), {}, True),
        (mt.DQN, spaces.Discrete(3), {"dueling": True}, False),
        (mt.PPO, spaces.Discrete(3), {"network": MLP((4,), "silu")}, False),
        (mt.PPO, spaces.Discrete(3), {"network": MLP((4,)), "critic_network": MLP((4,), "silu")}, True),
        (mt.PPO, spaces.MultiDiscrete([2, 3]), {}, False),
        (mt.PPO, VECTOR, {}, True),
        (mt.A2C, VECTOR, {}, True),
        (mt.TRPO, VECTOR, {}, True),
        (mt.PPO, VECTOR, {"policy": "state_gaussian"}, False),
        (mt.PPO, VECTOR, {"policy": "beta"}, False),
        (mt.PPO, VECTOR, {"shared_trunk": True}, False),
    ],
)
def test_which_agents(kind, actions, settings, expected):
    learner = kind(VECTOR, actions, **settings).learner_
    assert (learner.actor.compiled() is not None) is expected


def test_an_algorithm_of_ones_own_acts_as_it_says():
    """It inherits how to act natively, but may act otherwise: in `act`, or in what that calls."""

    class Contrary(DQNAlgorithm):
        def values(self, ops, outputs):
            return -outputs[0]

    class Own(Contrary):
        def compiled_form(self):
            return CompiledForm("q", "epsilon_greedy")

    class Louder(PPOAlgorithm):
        def noise(self, rngs, rows):
            return {"sample": 9 * super().noise(rngs, rows)["sample"]}

    for algorithm, kind, expected in ((Contrary, mt.DQN, False), (Own, mt.DQN, True), (Louder, mt.PPO, False)):
        agent = type("Agent", (kind,), {"algorithm_class": algorithm})(VECTOR, spaces.Discrete(3), seed=0)
        assert (agent.learner_.actor.compiled() is not None) is expected


def test_what_an_algorithm_says_wrongly_is_told():
    learner = mt.PPO(VECTOR, spaces.Discrete(3), seed=0).learner_
    network: Any = learner.weights.nets["actor"]
    with pytest.raises(TypeError, match=r"rule='beta'.*'epsilon_greedy', 'categorical', 'gaussian'"):
        CompiledActing(CompiledForm("actor", "beta"), network)
    acting: Any = learner.actor.compiled()
    obs, on = np.zeros((1, 2, 5), np.float32), np.ones((1, 2), bool)
    for sample in (np.zeros((1, 2, 3)), np.zeros((1, 2, 4), np.float32), np.zeros((1, 2, 6), np.float32)[..., ::2]):
        with pytest.raises(TypeError, match=r"noise 'sample' .* must be float32 \(1, 1, 2, 3\)"):
            acting.act(ActInputs(obs, None, on), {"sample": sample[:, None]}, 0, learner.hyper.columns)


def test_acts_are_by_the_networks_that_it_acts_with():
    """While another thread learns, those are copies."""
    learner: Any = mt.PPO(VECTOR, spaces.Discrete(3), seed=0).learner_
    obs, on = np.zeros((1, 2, 5), np.float32), np.ones((1, 2), bool)

    def network() -> Any:
        learner.act(ActInputs(obs, None, on), turn=on, rngs=learner.rngs("act"))
        return learner.actor._compiled[None].network

    assert network() is learner.actor.compiled().network is learner.weights.nets["actor"]
    copies = learner.fork("a", lambda: None)
    assert network() is not learner.weights.nets["actor"]
    copies.end()
    assert network() is learner.weights.nets["actor"]


@pytest.mark.parametrize("kind", KINDS)
def test_one_agent_acts_as_it_does_among_others(kind):
    """To the last bit, though noise and rows are its own."""
    learner, _ = learners(kind, 4, 3, (5,), "tanh")
    obs, on = np.random.default_rng(0).normal(size=(3, 5, 4)).astype(np.float32), np.ones((3, 5), bool)
    everyone = learner.act(ActInputs(obs, None, on), turn=on, rngs=[np.random.default_rng(k) for k in range(3)])
    for k in range(3):
        alone = learner.actor.act_row(k, ActInputs(obs[k : k + 1], None, on[:1]), np.random.default_rng(k))
        np.testing.assert_array_equal(alone.action[0], everyone.action[k])
        for name, values in alone.extras.items():
            np.testing.assert_array_equal(values[0], everyone.extras[name][k])
