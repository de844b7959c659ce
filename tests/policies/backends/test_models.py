"""A user's own model with its optimizers: what only Keras asks, and that no framework loads the other."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gymnasium import spaces
from keras import layers

import marltrain as mt
from marltrain.policies.backends.frameworks import framework_of, makes_models, named
from tests.policies.own import with_keras, with_torch
from tests.policies.some_batches import some_transitions
from tests.tiers import LONG

VECTOR = spaces.Box(-1, 1, (5,), np.float32)
BATCH: Any = some_transitions(np.random.default_rng(0), VECTOR, 3, 1, 16)


def agent(model, optimizers, loss=with_keras.squares, **settings):
    return mt.CustomAgent(model, loss, optimizers, seed=0, **settings)


def moved(model, made):
    before = model.get_weights()
    made.learn(BATCH, 16)
    return [not np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True)]


def two_layers():
    return keras.Sequential([keras.Input((5,)), layers.Dense(4, use_bias=False), layers.Dense(3, use_bias=False)])


@pytest.mark.parametrize("form", ["unbuilt", "pair", "tuple of pairs", "built", "list"])
def test_an_optimizer_steps_the_variables_that_it_was_given(form):
    model = two_layers()
    last, sgd = model.layers[1].trainable_variables, keras.optimizers.SGD(0.1)
    if form == "built":
        sgd.build(last)
    optimizers = {"unbuilt": sgd, "pair": (sgd, last), "tuple of pairs": ((sgd, last),), "built": sgd, "list": [sgd]}
    assert moved(model, agent(model, optimizers[form])) == [form in ("unbuilt", "list"), True]


def test_frozen_layers_are_not_stepped():
    model = two_layers()
    model.layers[0].trainable = False
    assert moved(model, agent(model, keras.optimizers.SGD(0.1))) == [False, True]


def test_wrong_optimizers_are_told():
    model, loss = two_layers(), with_keras.squares
    adam = keras.optimizers.Adam
    with pytest.raises(mt.AgentError, match=r"optimizers\[0\] \(Adam\) does not say which variables .* write pairs"):
        agent(model, [adam(), adam()], [loss, loss])
    built = adam()
    built.build(model.layers[0].trainable_variables)
    with pytest.raises(mt.AgentError, match=r"optimizers\[0\] \(Adam\) was built for other variables"):
        agent(model, (built, model.trainable_variables))
    with pytest.raises(mt.AgentError, match=r"optimizers\[0\] \(Adam\) has no variables to train"):
        agent(model, (adam(), []))
    with pytest.raises(mt.AgentError, match=r"\(Adam\) steps variables that are not the model's, of shapes \[\(5, 4\)"):
        agent(model, (adam(), two_layers().trainable_variables))


def test_wrong_models_are_told():
    adam = keras.optimizers.Adam()
    with pytest.raises(mt.AgentError, match="Sequential has no variables to train"):
        agent(keras.Sequential([layers.Dense(3)]), adam)
    with pytest.raises(mt.AgentError, match=r"must be a keras\.Model, got keras\.Dense, which is a part of one"):
        agent(layers.Dense(3), adam)
    with pytest.raises(mt.AgentError, match=r"must be a torch\.nn\.Module, or a keras\.Model.*got tensorflow\.Module"):
        agent(tf.Module(), adam)

    class HalfBuilt(keras.Model):
        def __init__(self):
            super().__init__()
            self.there, self.later = two_layers(), layers.Dense(3)

        def call(self, obs):
            return self.later(self.there(obs))

    with pytest.raises(mt.AgentError, match="HalfBuilt was not built: its loss made 2 variables"):
        agent(HalfBuilt(), adam).learn(BATCH, 16)


def test_xla_eager_and_graph_compute_the_same():
    results = []
    for mode in ("graph", "xla", "eager"):
        model = with_keras.Twins(5, 3)
        result = agent(model, with_keras.adam(1e-2, model.online), with_keras.q_loss, jit_compile=mode == "xla")
        tf.config.run_functions_eagerly(mode == "eager")
        try:
            metrics = [result.learn(BATCH, 16)[0] for _ in range(3)]
        finally:
            tf.config.run_functions_eagerly(False)
        results.append((metrics, model.get_weights()))
    for metrics, arrays in results[1:]:
        assert all(a == pytest.approx(b, rel=1e-5) for a, b in zip(metrics, results[0][0], strict=True))
        for one, two in zip(arrays, results[0][1], strict=True):
            np.testing.assert_allclose(one, two, atol=1e-6)


def test_gradients_are_clipped_and_reported_and_schedules_of_keras_followed():
    model, still = two_layers(), two_layers()
    still.set_weights(model.get_weights())
    rate = keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
    result = agent(model, keras.optimizers.SGD(rate), max_grad_norm=0.01)
    first, second = (result.learn(BATCH, 16)[0] for _ in range(2))
    assert [first["learning_rate/total"], second["learning_rate/total"]] == pytest.approx([0.1, 0.05])
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(still(BATCH.obs[0]) ** 2)
    norm = float(tf.linalg.global_norm(tape.gradient(loss, [v.value for v in still.trainable_variables])))
    assert (first["loss/total"], first["grad_norm/total"]) == pytest.approx((float(loss), norm), rel=1e-5)
    assert norm > first["grad_norm_clipped/total"] == pytest.approx(0.01)


def test_sparse_gradients_of_an_embedding_are_taken():
    model = keras.Sequential([keras.Input((5,)), layers.Embedding(4, 3), layers.Flatten(), layers.Dense(2)])
    assert moved(model, agent(model, keras.optimizers.SGD(0.1), max_grad_norm=1.0)) == [True, True, True]


def test_random_layers_repeat_with_the_agents_seed_whatever_ran_before():
    def learned(before):
        model = with_keras.Twins(5, 3, dropout=0.5)
        result = agent(model, with_keras.adam(1e-2, model.online), with_keras.q_loss)
        result.learner()
        for _ in range(before):
            model(np.ones((2, 5), np.float32), training=True)
        result.learner().update(BATCH, learn=np.ones(1, bool), batch_size=16)
        result.learner().update(BATCH, learn=np.ones(1, bool), batch_size=16)
        return model.get_weights()

    assert all(np.array_equal(a, b) for a, b in zip(learned(0), learned(3), strict=True))


def test_what_a_loss_draws_by_tf_random_repeats_with_the_agents_seed():
    def learned(seed):
        model = with_keras.Twins(5, 3)
        tf.random.normal((3,))  # what is drawn elsewhere must not matter
        noisy = lambda model, batch: tf.reduce_mean((model(batch.obs) + tf.random.normal((16, 3))) ** 2)  # noqa: E731
        learner = mt.CustomAgent(model, noisy, keras.optimizers.SGD(0.1), seed=seed).learner()
        return [learner.update(BATCH, learn=np.ones(1, bool), batch_size=16)["loss/total"][0] for _ in range(3)]

    first = learned(0)
    assert len(set(first)) == 3
    assert learned(0) == first != learned(1)


def test_which_framework_a_model_is_of():
    torch_model, keras_model = with_torch.linear(2, 2), with_keras.linear(2, 2)
    assert [framework_of(x) for x in (torch_model, keras_model, 3, np.ones(1))] == ["torch", "tensorflow", None, None]
    assert [makes_models(x) for x in (torch_model, keras_model, with_keras.Twins, two_layers, 3)] == [
        False, False, True, True, False,
    ]  # fmt: skip
    assert [named(x) for x in (0.1, keras.optimizers.SGD())] == ["float", "keras.SGD"]


FRESH = """
import sys
from gymnasium import spaces
import numpy as np
import marltrain as mt
from tests.policies.own import with_{here}
from tests.toys import Identity
agents = [with_{here}.q_agent(3, 3), with_{here}.actor_critic_agent(3, 3)]
trainer = mt.DecentralizedTrainer(Identity, steps_per_train=40, num_train_envs=2, episodes_per_test=2, progress=False)
trainer.train(agents, [1, 1], plot=False)
mt.save("agents", agents)
print(sorted({{"torch", "tensorflow", "keras"}} & set(sys.modules)))
"""


if LONG:  # a process of its own

    @pytest.mark.parametrize(("here", "loaded"), [("keras", "['keras', 'tensorflow']"), ("torch", "['torch']")])
    def test_no_framework_loads_the_other(here, loaded, tmp_path, request):
        done = subprocess.run(
            [sys.executable, "-c", FRESH.format(here=here)], capture_output=True, text=True, check=False, timeout=150,
            cwd=tmp_path, env={"PYTHONPATH": str(request.config.rootpath), "PATH": "", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == loaded
