"""A user's own models and losses in PyTorch; `with_keras` writes the same ones."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn

import marltrain as mt

FRAMEWORK = "torch"
VARIABLES = "parameters"


class Twins(nn.Module):
    """A Q-network and its target."""

    def __init__(self, inputs: int, actions: int, seed: int = 0, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.online = nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Dropout(dropout), nn.Linear(16, actions))
        self.target = copy.deepcopy(self.online)

    def forward(self, obs):
        return self.online(obs)


def q_loss(model, batch):
    """Double Q-learning with the Huber loss, as marltrain's DQN has it."""
    with torch.no_grad():
        judge = model.online(batch.next_obs)
        if batch.next_legal is not None:
            judge = judge.masked_fill(~batch.next_legal, -1e9)
        best = judge.argmax(1, keepdim=True)
        target = batch.reward + batch.discount * model.target(batch.next_obs).gather(1, best)[:, 0]
    q = model.online(batch.obs).gather(1, batch.action[:, None])[:, 0]
    return (nn.functional.smooth_l1_loss(q, target, reduction="none") * batch.weight).sum() / batch.weight.sum()


def follow(model):
    model.target.load_state_dict(model.online.state_dict())


def q_agent(inputs, actions, seed=0, rate=1e-2, dropout=0.0, rule=None, **settings):
    model = Twins(inputs, actions, seed, dropout)
    kept = {"batch_size": 32, "update_per_step": 0.5, "epsilon": 0.2, "gamma": 0.9, **settings}
    return mt.CustomAgent(model, q_loss, (rule or adam)(rate, model.online), after_update=follow, **kept)


class ActorCritic(nn.Module):
    def __init__(self, inputs: int, actions: int, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.shared = nn.Linear(inputs, 8)
        self.actor, self.critic = nn.Linear(8, actions), nn.Linear(8, 1)

    def logits(self, obs, legal):
        logits = self.actor(torch.tanh(self.shared(obs)))
        return logits if legal is None else logits.masked_fill(~legal, -1e9)

    def value(self, obs):
        return self.critic(torch.tanh(self.shared(obs)))[:, 0]


def critic_loss(model, batch):
    with torch.no_grad():
        target = batch.reward + batch.discount * model.value(batch.next_obs)
    return (model.value(batch.obs) - target).pow(2).mean()


def actor_loss(model, batch):
    advantage = batch.reward + batch.discount * model.value(batch.next_obs) - model.value(batch.obs)
    log_prob = model.logits(batch.obs, batch.legal).log_softmax(1).gather(1, batch.action[:, None])[:, 0]
    return -(log_prob * advantage).mean()  # advantage not detached


def sample(model, obs, legal, explore, rng):
    logits = model.logits(obs, legal)
    return torch.where(explore, torch.multinomial(logits.softmax(1), 1)[:, 0], logits.argmax(1))


def actor_critic_agent(inputs, actions, seed=0, model=None, only=None, rule=None, **settings):
    """Make an agent of two phases, or of `only` one of them."""
    model, rule = model or ActorCritic(inputs, actions, seed), rule or adam
    critic, actor = rule(2e-2, model.critic), rule(2e-2, model.actor, model.shared)
    phases = {"critic": (critic_loss, critic), "actor": (actor_loss, actor)}
    losses, optimizers = zip(*([phases[only]] if only else phases.values()), strict=True)
    kept = {"gamma": 0.5, "update_freq": 40, "minibatches": 1, **settings}
    return mt.CustomAgent(model, list(losses), list(optimizers), act_fn=sample, memory=mt.Rollouts(), **kept)


def linear(inputs, outputs, kernel: Any = None):
    """Make [B, inputs] -> [B, outputs] without a bias, from a kernel [inputs, outputs]."""
    model = nn.Linear(inputs, outputs, bias=False)
    if kernel is not None:
        model.weight.data[:] = torch.tensor(np.asarray(kernel, np.float32).T)
    return model


def adam(rate, *parts):
    return torch.optim.Adam([parameter for part in parts for parameter in part.parameters()], lr=rate)


def momentum(rate, *parts):
    return torch.optim.SGD([parameter for part in parts for parameter in part.parameters()], lr=rate, momentum=0.9)


def sgd(rate, *parts):
    return torch.optim.SGD([parameter for part in parts for parameter in part.parameters()], lr=rate)


EXACT = {"adam": adam, "sgd": sgd}
"""The optimizers that compute as marltrain's of the same names, to float rounding."""


def squares(model, batch):
    return model(batch.obs).pow(2).mean()


def arrays(model) -> list[np.ndarray]:
    """Return a model's weights in order, kernels as [inputs, outputs]."""
    return [parameter.detach().numpy().T.copy() for parameter in model.parameters()]


def fill(model, values) -> None:
    for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.data[:] = torch.from_numpy(np.ascontiguousarray(value.T))


def draw() -> None:
    """Draw from the framework's global generator, as code elsewhere may."""
    torch.rand(int(np.random.randint(1, 9)))


WRONG_LOSSES = [
    (lambda model, batch: model(batch.obs).mean(1), r"must return a scalar tensor, got a tensor of shape \(16,\)"),
    (lambda model, batch: 0.0, "must return a scalar tensor, got a float"),
    (lambda model, batch: batch.reward.mean(), "depends on none of its optimizer's parameters"),
    (lambda model, batch: model.target(batch.obs).mean(), "depends on none of its optimizer's parameters"),
]
