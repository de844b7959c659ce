"""CustomAgent with losses and optimizers by name, in PyTorch and in Keras."""

from typing import Any, cast

import keras
import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from tests.policies.own import with_keras, with_torch
from tests.policies.some_batches import some_rollout, some_transitions

VECTOR = spaces.Box(-1, 1, (5,), np.float32)


@pytest.fixture(params=[with_torch, with_keras], ids=lambda module: module.FRAMEWORK)
def own(request) -> Any:
    """The user's models, losses and optimizers, written in one framework."""
    return request.param


def equal(own, one, two):
    return [np.array_equal(a, b) for a, b in zip(own.arrays(one), own.arrays(two), strict=True)]


def actor_and_critic(own, swapped=False, **changed):
    """An agent whose losses and optimizers are named after parts of its model."""
    model = own.ActorCritic(5, 3)
    parts = [model.critic, model.actor] if not swapped else [model.actor, model.critic]
    rules = [own.adam(2e-2, part) for part in parts]
    optimizers = {"actor": rules[1], "critic": rules[0], **changed.pop("optimizers", {})}
    losses = {"critic": own.critic_loss, "actor": own.actor_loss, **changed.pop("losses", {})}
    kept = {"act_fn": own.sample, "memory": mt.Rollouts(), "gamma": 0.5, "update_freq": 40, "minibatches": 1}
    return mt.CustomAgent(model, losses, optimizers, **{**kept, **changed})


def test_named_losses_move_the_parts_of_their_names_in_the_order_of_the_losses(own):
    batch = some_rollout(np.random.default_rng(0), VECTOR, spaces.Discrete(3), [40])
    named = actor_and_critic(own)
    model = own.ActorCritic(5, 3)
    rules = [own.adam(2e-2, part) for part in (model.critic, model.actor)]
    listed = mt.CustomAgent(
        model, [own.critic_loss, own.actor_loss], rules, act_fn=own.sample, memory=mt.Rollouts(), gamma=0.5
    )
    before = own.ActorCritic(5, 3)
    (one, _), (two, _) = named.learn(batch, 64), listed.learn(batch, 64)
    assert list(one) == list(two)
    assert {"loss/actor", "loss/critic"} <= set(one)
    assert all(equal(own, named.model, model))
    assert equal(own, model, before) == [True, True, False, False, False, False]  # shared, actor, critic


def test_a_keras_optimizer_of_a_parts_name_steps_this_part():
    adam = {name: keras.optimizers.Adam(2e-2, epsilon=1e-8) for name in ("actor", "critic")}
    agent, paired = actor_and_critic(with_keras, optimizers=adam), actor_and_critic(with_keras)
    batch = some_rollout(np.random.default_rng(0), VECTOR, spaces.Discrete(3), [40])
    agent.learn(batch, 64), paired.learn(batch, 64)
    assert all(equal(with_keras, agent.model, paired.model))


def test_names_that_do_not_fit_are_told(own):
    with pytest.raises(mt.AgentError, match="loss_fn has the names critic, actor, and optimizers has actor, critic, v"):
        actor_and_critic(own, optimizers={"v": None})
    with pytest.raises(mt.AgentError, match=r"optimizers\['critic'\] \(Adam\) steps no weights of .* part 'critic'"):
        actor_and_critic(own, swapped=True)
    model = own.ActorCritic(5, 3)
    both = {"actor": own.adam(1e-2, model.actor, model.critic), "critic": own.adam(1e-2, model.critic)}
    losses = {"actor": own.actor_loss, "critic": own.critic_loss}
    with pytest.raises(mt.AgentError, match=r"optimizers\['actor'\] \(Adam\) steps weights of .* part 'critic', which"):
        mt.CustomAgent(model, losses, both)
    with pytest.raises(mt.AgentError, match="both as mappings with the same names, or neither"):
        mt.CustomAgent(model, losses, list(both.values()))
    with pytest.raises(mt.AgentError, match=r"loss_fn\['actor'\] must be a function"):
        actor_and_critic(own, losses={"actor": 1})
    with pytest.raises(mt.AgentError, match="must be a word such as 'actor', not 'total', got 'total'"):
        mt.CustomAgent(model, {"total": own.actor_loss}, {"total": both["critic"]})


def test_labels_that_are_no_part_of_the_model_name_the_metrics(own):
    model = own.linear(5, 3)
    agent = mt.CustomAgent(model, {"td": own.squares}, {"td": own.sgd(0.1, model)})
    metrics, _ = agent.learn(some_transitions(np.random.default_rng(0), VECTOR, 3, 1, 16), 16)
    assert "loss/td" in metrics
    if own is with_keras:
        unsaid = {name: keras.optimizers.SGD(0.1) for name in ("td", "actor")}
        with pytest.raises(mt.AgentError, match=r"optimizers\['td'\] \(SGD\) does not say which variables it steps"):
            mt.CustomAgent(own.ActorCritic(5, 3), {"td": own.critic_loss, "actor": own.actor_loss}, unsaid)


def test_named_optimizers_are_saved_and_go_on_exactly(own, tmp_path):
    rng = np.random.default_rng(0)
    agent = actor_and_critic(own, observation_space=VECTOR, action_space=spaces.Discrete(3), seed=0)
    batches = [some_rollout(rng, VECTOR, spaces.Discrete(3), [40]) for _ in range(3)]
    agent.learn(batches[0], 64)
    mt.save(tmp_path / "agents", agent)
    (again,) = mt.load(tmp_path / "agents", custom_objects={"ActorCritic": lambda: actor_and_critic(own)})
    for batch in batches[1:]:
        assert agent.learn(batch, 64) == cast(Any, again).learn(batch, 64)
    assert all(equal(own, agent.model, cast(Any, again).model))
    other = lambda: actor_and_critic(own, losses={"critic": own.critic_loss})  # noqa: E731

    def turned():
        model = own.ActorCritic(5, 3)
        rules = {"actor": own.adam(2e-2, model.actor), "critic": own.adam(2e-2, model.critic)}
        return mt.CustomAgent(model, {"actor": own.actor_loss, "critic": own.critic_loss}, rules, act_fn=own.sample)

    assert (
        cast(Any, mt.load(tmp_path / "agents", custom_objects={"ActorCritic": other})[0]).own.phases[0].name == "critic"
    )
    with pytest.raises(
        mt.SaveError, match=r"losses of the names \['critic', 'actor'\], the one supplied has \['actor'"
    ):
        mt.load(tmp_path / "agents", custom_objects={"ActorCritic": turned})
