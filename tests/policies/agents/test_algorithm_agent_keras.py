"""A user's own Keras model in place of a network of PPO and DQN."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from keras import layers
from torch import nn

import marltrain as mt
from marltrain.core.errors import AgentError, SaveError
from tests.policies.some_batches import PICTURE_AND_VECTOR, VECTOR, some_rollout, some_transitions
from tests.tiers import LONG
from tests.toys import Identity
from tests.trainer.running import changed, trainer, weights

ONE = np.ones(1, bool)


def functional(out=3, dropout=0.0, width=5):
    seen = keras.Input((width,))
    hidden = layers.Dropout(dropout)(layers.Dense(8, activation="relu")(seen))
    return keras.Model(seen, layers.Dense(out)(hidden))


def sequential(out=3):
    return keras.Sequential([keras.Input((5,)), layers.Dense(8, activation="relu"), layers.Dense(out)])


def unbuilt(out=3):
    return keras.Sequential([layers.Dense(8, activation="relu"), layers.Dense(out)])


class Plain(keras.Model):
    """Subclassed, with a get_config, since Keras does not remember what __init__ was given."""

    def __init__(self, out=3):
        super().__init__()
        self.body, self.out = layers.Dense(8, activation="relu"), layers.Dense(out)

    def get_config(self):
        return {"out": self.out.units}

    def call(self, obs, training=False):
        return self.out(self.body(obs))


class Scaled(Plain):
    """Subclassed, with an argument that Keras does not know how to write down."""

    def __init__(self, scale, out=3):
        super().__init__(out)
        self.scale = scale

    def call(self, obs, training=False):
        return super().call(obs) * self.scale


class Louder(keras.Model):
    """Without a get_config: a copy would forget the volume, and no shape would tell."""

    def __init__(self, volume=1.0):
        super().__init__()
        self.volume, self.out = volume, layers.Dense(3)

    def call(self, obs, training=False):
        return self.volume * self.out(obs)


class Normed(keras.Model):
    """With running statistics, a layer that never learns, and a layer built of another."""

    def __init__(self, out=3):
        super().__init__()
        self.norm, self.fixed, self.out = layers.BatchNormalization(), layers.Dense(5), layers.Dense(out)
        self.fixed.trainable = False

    def get_config(self):
        return {"out": self.out.units}

    def call(self, obs, training=False):
        return self.out(self.fixed(self.norm(obs, training=training)))


def built(model):
    model(np.ones((2, 5), np.float32))
    return model


KINDS = {
    "functional": functional,
    "sequential": sequential,
    "unbuilt": unbuilt,
    "subclassed": lambda out=3: built(Plain(out)),
    "subclassed, unbuilt": Plain,
    "function": lambda out=3: lambda: Scaled(np.ones(1, np.float32), out),
    "running statistics": lambda out=3: built(Normed(out)),
}


def learn(agent, updates=3):
    rng = np.random.default_rng(0)
    for _ in range(updates):
        batch = (
            some_transitions(rng, VECTOR, 3, 1, 12) if isinstance(agent, mt.DQN)
            else some_rollout(rng, VECTOR, spaces.Discrete(3), [12])
        )  # fmt: skip
        agent.learner_.update(batch, learn=ONE, batch_size=12)


def made(kind, network, seed=0, **settings):
    critic = {"critic_network": functional(1), "minibatches": 2} if kind is mt.PPO else {"target_sync": 2}
    return kind(VECTOR, spaces.Discrete(3), seed=seed, network=network, backend="tensorflow", **{**critic, **settings})


def same(one, two):
    return changed(weights([one]), weights([two])) == [False]


BY_PPO, BY_DQN = (
    (KINDS, KINDS) if LONG else (("running statistics",), ("sequential", "subclassed, unbuilt", "function"))
)
"""A network of PPO is copied, built and loaded by what does so for DQN."""


@pytest.mark.parametrize(("kind", "model"), [*((mt.PPO, model) for model in BY_PPO), *((mt.DQN, m) for m in BY_DQN)])
def test_every_kind_of_model_learns_as_a_copy_and_is_loaded_again(kind, model):
    keras.utils.set_random_seed(1)
    given: Any = KINDS[model]()
    before = given.get_weights() if isinstance(given, keras.Model) else None
    critic = {"critic_network": functional(1)} if kind is mt.PPO else {}
    first, second = made(kind, given, **critic), made(kind, given, **critic)
    assert same(first, second), "equal seeds, equal weights"
    if before:
        mine = first.learner_.export(0).arrays
        name = "actor" if kind is mt.PPO else "q"
        assert sum(a.sum() for k, a in mine.items() if k.startswith(f"net/{name}/")) == pytest.approx(
            sum(a.sum() for a in before), rel=1e-5
        )
    start = weights([first])
    learn(first)
    assert changed(start, weights([first, second])[:1]) == [True]
    assert changed(start, weights([second])) == [False]
    if before is not None:
        assert all(np.array_equal(a, b) for a, b in zip(before, given.get_weights(), strict=True))
    second.learner_.load(0, first.learner_.export(0))
    assert same(first, second)
    learn(first), learn(second)
    assert same(first, second)


def test_what_is_not_built_is_drawn_from_the_agents_own_stream():
    for given in (unbuilt(), Plain(), Plain):
        one, two = made(mt.DQN, given, seed=1), made(mt.DQN, given, seed=2)
        assert same(one, made(mt.DQN, given, seed=1))
        assert not same(one, two)
    assert same(made(mt.DQN, functional := sequential(), seed=1), made(mt.DQN, functional, seed=1))


def test_it_computes_what_a_network_of_marltrains_does():
    """The same architecture as model and as NetworkSpec, from the same weights, stays the same."""
    agent = mt.DQN(VECTOR, spaces.Discrete(3), seed=0, network=mt.MLP((8,), activation="relu"), target_sync=2,
                   backend="tensorflow")  # fmt: skip
    model = sequential()
    model.set_weights(list(agent.learner_.weights.online["q"].arrays(0).values()))
    twin = made(mt.DQN, model)
    start = agent.learner_.weights.online["q"].arrays(0)
    learn(agent, 5), learn(twin, 5)
    for net in ("q", "target_q"):
        ours, theirs = (one.learner_.weights.nets[net].arrays(0).values() for one in (agent, twin))
        for mine, other, first in zip(ours, theirs, start.values(), strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-5)
            assert np.abs(mine - first).max() > 1e-4


def test_running_statistics_move_in_learning_are_kept_and_followed():
    agent = made(mt.DQN, built(Normed()))
    name = next(k for k, a in agent.learner_.export(0).arrays.items() if k.endswith("moving_mean") and "/q/" in k)
    before = agent.learner_.export(0).arrays
    agent.act(np.ones((4, 5), np.float32))
    assert np.array_equal(before[name], agent.learner_.export(0).arrays[name])
    learn(agent, 2)
    after = agent.learner_.export(0).arrays
    assert not np.array_equal(before[name], after[name])
    assert np.array_equal(after[name], after[name.replace("/q/", "/target_q/")])
    fixed = [k for k, a in before.items() if "/q/" in k and a.shape == (5, 5)]
    assert fixed
    assert all(np.array_equal(before[k], after[k]) for k in fixed)


@pytest.mark.parametrize("kind", [mt.DQN, *LONG * [mt.PPO]])
def test_dropout_is_off_in_acting_on_in_learning_and_repeats_with_the_agents_seed(kind):
    keras.utils.set_random_seed(0)
    dropping, plain = functional(dropout=0.5), functional()
    plain.set_weights(dropping.get_weights())
    critic = {"critic_network": functional(1)} if kind is mt.PPO else {}

    def run(model):
        agent = made(kind, model, **critic)
        observation = np.random.default_rng(0).uniform(-1, 1, (20, 5)).astype(np.float32)
        keras.random.normal((3,))  # others draw from Keras's generators too
        assert agent.act(observation).tolist() == agent.act(observation).tolist()
        learn(agent)
        return agent

    first, without = run(dropping), run(plain)
    assert same(first, run(dropping))
    assert [a.shape for a in weights([first])[0].values()] == [a.shape for a in weights([without])[0].values()]
    assert not same(first, without)


def test_compiled_by_xla_it_learns_the_same():
    keras.utils.set_random_seed(0)
    model = functional()
    plain, compiled = made(mt.DQN, model), made(mt.DQN, model, jit_compile=True)
    learn(plain), learn(compiled)
    for one, two in zip(*(agent.learner_.export(0).arrays.values() for agent in (plain, compiled)), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-5)


def test_it_may_take_a_mapping_with_images():
    seen = {"view": keras.Input((8, 9), name="view"), "vector": keras.Input((2,), name="vector")}
    seeing = layers.Flatten()(layers.Rescaling(1 / 255)(seen["view"]))
    model = keras.Model(seen, layers.Dense(3)(layers.Concatenate()([seeing, seen["vector"]])))
    agent = mt.DQN(PICTURE_AND_VECTOR, spaces.Discrete(3), seed=0, network=model, backend="tensorflow")
    assert agent.act({"place": np.zeros(2, np.float32), "view": np.zeros((8, 9), np.uint8)}) in range(3)
    before = weights([agent])
    batch = some_transitions(np.random.default_rng(0), PICTURE_AND_VECTOR, 3, 1, 12)
    agent.learner_.update(batch, learn=ONE, batch_size=12)
    assert changed(before, weights([agent])) == [True]


def test_models_train_in_every_seat_beside_stacked_agents():
    args = {"players": 3, "length": 3}
    agents = mt.make_agents(
        "dqn", Identity, env_args=args, seed=0, network=functional(width=3), learning_starts=0, backend="tensorflow"
    )[:2]
    agents.append(mt.make_agents("dqn", Identity, env_args=args, seed=0, learning_starts=0)[2])
    before = weights(agents)
    trainer(Identity, args, steps_per_train=36).train(agents, [1, 0, 1], plot=False)
    assert changed(before, weights(agents)) == [True, False, True]


def test_a_frozen_copy_and_one_that_is_loaded():
    for given in (functional(), lambda: Scaled(np.ones(1, np.float32))):
        agent = made(mt.DQN, given)
        frozen = mt.FrozenAgent(agent)
        observation = np.random.default_rng(0).uniform(-1, 1, (20, 5)).astype(np.float32)
        before = agent.act(observation).tolist()
        agent.hyper.learning_rate = 0.1
        learn(agent, 10)
        assert frozen.act(observation).tolist() == before != agent.act(observation).tolist()


def test_a_saved_model_must_be_supplied_again():
    agent = made(mt.DQN, built(Plain()))
    learn(agent)
    state = agent.state()
    with pytest.raises(SaveError, match=r"custom_objects=\{'Plain': "):
        mt.DQN.from_state(state, {}, None)
    for given in (Plain(), Plain, lambda: Plain()):
        twin = mt.DQN.from_state(state, {"Plain": given}, None)
        assert same(agent, twin)
        assert twin.state().info == state.info
    with pytest.raises(SaveError, match=r"must be float32 of shape \(5, 9\), got float32 of shape \(5, 8\)"):
        mt.DQN.from_state(state, {"Plain": lambda: keras.Sequential([layers.Dense(9), layers.Dense(3)])}, None)


def half_built():
    model = Plain()
    model.body.build((None, 5))
    return model


def twice():
    model = functional()
    return lambda: model


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: made(mt.DQN, functional(4)), "model Functional returned an output of shape (2, 4), expected"),
        (lambda: made(mt.DQN, functional(width=6)), "Functional cannot take this player's observations, of shapes"),
        (lambda: made(mt.DQN, keras.Sequential([layers.LSTM(3)])), "Sequential cannot take this player's"),
        (lambda: made(mt.DQN, keras.Sequential([layers.Dense(3, trainable=False)])), "has no weights that learn"),
        (lambda: made(mt.DQN, Scaled(np.ones(1))), "Give a function that makes it, such as network=lambda: Scaled("),
        (lambda: made(mt.DQN, half_built()), "model Plain is built in part"),
        (lambda: made(mt.DQN, twice()), "returned the same model twice"),
        (lambda: made(mt.DQN, lambda: 3), "it must make a keras.Model, it made 3"),
        (
            lambda: made(mt.DQN, nn.Linear(5, 3)),
            "GRU(...), LSTM(...)), a model of",
        ),
        (
            lambda: made(mt.DQN, layers.Dense(3)),
            "GRU(...), LSTM(...)), a model of",
        ),
        (lambda: mt.DQN(VECTOR, spaces.Discrete(3), network=functional()), "a model of backend 'torch'"),
        (
            lambda: mt.DQN(VECTOR, spaces.Discrete(3), network=mt.MLP),
            "DQN: network is the class MLP: write MLP()",
        ),
        (lambda: made(mt.PPO, functional(), critic_network=functional(2)), "expected a tensor of shape (2, 1)"),
    ],
)
def test_models_that_do_not_fit_are_refused_when_the_agent_is_made(make, words):
    with pytest.raises(AgentError) as caught:
        make()
    assert words in str(caught.value)


def test_what_is_drawn_elsewhere_is_left_as_it_was():
    keras.utils.set_random_seed(3)
    agent = made(mt.DQN, functional(dropout=0.5))
    keras.utils.set_random_seed(4)
    expected = keras.random.normal((2,)), np.random.random(2), tf.random.normal((2,))
    keras.utils.set_random_seed(4)
    learn(agent)
    drawn = keras.random.normal((2,)), np.random.random(2), tf.random.normal((2,))
    assert all(np.array_equal(one, two) for one, two in zip(expected, drawn, strict=True))


def test_a_model_that_would_forget_its_arguments_is_not_copied():
    model = Louder(10.0)
    model(np.zeros((1, 5), np.float32))
    with pytest.raises(
        AgentError,
        match=r"Louder cannot be copied.*network=lambda: Louder.*get_config lacks the arguments of __init__: volume",
    ):
        mt.DQN(VECTOR, spaces.Discrete(3), backend="tensorflow", network=model)
    result: Any = mt.DQN(
        VECTOR, spaces.Discrete(3), backend="tensorflow", network=lambda: Louder(10.0), seed=0
    ).learner_
    assert result.weights.online["q"].model.volume == 10.0
