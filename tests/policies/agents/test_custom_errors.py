"""Errors of CustomAgent: wrong arguments, losses and outputs."""

from typing import Any, cast

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import marltrain as mt
from marltrain.core.layout import Layout
from marltrain.core.spec import PlayerSpec
from tests.policies.own import with_keras, with_torch
from tests.policies.own.agents import FRAMEWORKS, VECTOR, identity_player
from tests.policies.some_batches import some_transitions


def test_wrong_use_is_told(own):
    make, q_loss, linear = cast(Any, mt.CustomAgent), own.q_loss, own.linear(3, 3)
    model = own.Twins(3, 3)
    adam = own.adam(1e-3, model.online)
    kind = "torch" if own is with_torch else "Keras"
    with pytest.raises(
        mt.AgentError, match=rf"optimizers\[0\] \(Adam\) steps {own.VARIABLES} that are not the model's, of shapes"
    ):
        make(own.Twins(3, 3), q_loss, adam)
    with pytest.raises(mt.AgentError, match="2 losses and 1 optimizers"):
        make(model, [q_loss, q_loss], adam)
    with pytest.raises(mt.AgentError, match=rf"optimizers\[0\] must be a {kind} optimizer.*got float"):
        make(model, q_loss, 0.1)
    with pytest.raises(mt.AgentError, match=rf"optimizers\[0\] must be a {kind} optimizer.*got (torch|keras)\.SGD"):
        make(linear, q_loss, (with_keras if own is with_torch else with_torch).sgd(0.1, nn.Linear(2, 2)))
    with pytest.raises(mt.AgentError, match=r"loss_fn\[0\] must be a function"):
        make(model, "mse", adam)
    with pytest.raises(mt.ConfigError, match=r"loss_fn\[0\] is called as .*\(model, batch\), but what was given takes"):
        make(model, lambda model: 0, adam)
    with pytest.raises(mt.ConfigError, match=r"act_fn is called as .*\(model, obs, legal, explore, rng\), but what"):
        make(model, q_loss, adam, act_fn=lambda model, obs: 0)
    with pytest.raises(mt.ConfigError, match=r"after_update is called as CustomAgent: after_update\(model\), but what"):
        make(model, q_loss, adam, after_update=lambda: 0)
    with pytest.raises(mt.ConfigError, match="CustomAgent: jit_compile must be True or False or 'require', got array"):
        make(model, q_loss, adam, jit_compile=np.zeros(2))
    with pytest.raises(mt.ConfigError, match=r"CustomAgent: seed must be an integer of at least 0, .* or None"):
        make(model, q_loss, adam, seed=0.5)
    with pytest.raises(mt.ConfigError, match="CustomAgent: missing a required argument: 'optimizers'"):
        make(model, q_loss)
    with pytest.raises(mt.AgentError, match=r"must be a torch\.nn\.Module, or a keras\.Model of Keras 3, got function"):
        make(q_loss, q_loss, adam)
    for no_model in (torch.zeros(2), adam):
        with pytest.raises(mt.AgentError, match=r"model must be a torch\.nn\.Module, or a keras\.Model of Keras"):
            make(no_model, q_loss, adam)
    with pytest.raises(mt.ConfigError, match=r"no setting 'epsilom'\. Did you mean 'epsilon'"):
        make(model, q_loss, adam, epsilom=0.1)
    with pytest.raises(mt.ConfigError, match=r"no setting 'memry'\. Did you mean 'memory'"):
        make(model, q_loss, adam, memry=mt.Replay(10))
    with pytest.raises(
        mt.ConfigError, match=r"memory must be marltrain\.Replay\(capacity=50000\) or marltrain\.Rollouts"
    ):
        make(model, q_loss, adam, memory=100)
    if own is with_torch:
        with pytest.raises(mt.AgentError, match="has no parameters"):
            make(nn.ReLU(), q_loss, adam)
        with pytest.raises(mt.AgentError, match="jit_compile is for Keras models"):
            make(model, q_loss, adam, jit_compile=True)
    player = PlayerSpec("p", spaces.Discrete(4), spaces.Discrete(3), Layout(spaces.Discrete(4)))
    with pytest.raises(mt.AgentError, match=r"its observation space is Discrete\(4\)"):
        make(model, q_loss, adam, observation_space=spaces.Discrete(3), action_space=spaces.Discrete(3)).sit(player, 0)


@pytest.mark.parametrize(("own", "case"), [(own, i) for own in FRAMEWORKS for i in range(4)], indirect=["own"])
def test_a_wrong_loss_is_told_at_the_first_update(own, case):
    loss, data = own.WRONG_LOSSES[case]
    model = own.Twins(5, 3)
    agent = mt.CustomAgent(model, loss, own.adam(1e-3, model.online))
    batch = some_transitions(np.random.default_rng(0), VECTOR, 3, 1, 16)
    with pytest.raises(mt.AgentError, match=data):
        agent.learn(batch, 16)


def test_a_wrong_output_is_told(own):
    def seated(model, **settings):
        agent = mt.CustomAgent(model, own.squares, own.sgd(0.1, model), seed=0, **settings)
        agent.sit(identity_player(), 0)
        return agent

    with pytest.raises(
        mt.AgentError, match=r"model (Linear|Sequential) returned shape \(2, 4\) for 2 rows, expected shape \(2, 3\)"
    ):
        seated(own.linear(3, 4)).act(np.zeros(2, np.int64))
    with pytest.raises(mt.AgentError, match=r"model (Linear|Sequential) raised for observations of shape .*\(2, 3\)"):
        seated(own.linear(5, 3)).act(np.zeros(2, np.int64))
    wrong = seated(own.linear(3, 3), act_fn=lambda model, obs, legal, explore, rng: model(obs))
    with pytest.raises(mt.AgentError, match=r"act_fn returned actions of shape \(2, 3\), expected \(2,\)"):
        wrong.act(np.zeros(2, np.int64))
    illegal = seated(own.linear(3, 3), act_fn=lambda model, obs, legal, explore, rng: np.zeros(len(obs), int))
    with pytest.raises(mt.AgentError, match=r"CustomAgent chose action 0 in row 0 of 1, where only \[2\] are legal"):
        illegal.act(np.int64(1), legal=[0, 0, 1])
    space = spaces.MultiDiscrete([2, 2])
    agent = seated(own.linear(3, 4))
    agent.action_space = space
    with pytest.raises(mt.AgentError, match=r"have no default: give act_fn="):
        agent.act(np.zeros(2, np.int64))
