"""QMIX: monotone for random states and weights, and equal to one written plainly in torch."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.policies.learner.joint_learner import JointLearner
from tests.policies.algorithms.mixing import BOTH, SPACES
from tests.policies.some_batches import some_team

STATES, UNITS = 4, 5


class PlainMixer(nn.Module):
    def __init__(self, players, skip):
        super().__init__()
        self.players, self.skip = players, skip
        self.widths = [players * UNITS, UNITS, UNITS, 1]
        self.net = nn.Sequential(nn.Linear(STATES, 6), nn.Tanh(), nn.Linear(6, sum(self.widths)))

    def forward(self, values, state):
        first, bias, second, value = self.net(state).split(self.widths, 1)
        first = first.abs().view(-1, self.players, UNITS)
        hidden = nn.functional.elu(torch.bmm(values[:, None], first)[:, 0] + bias)
        return (hidden * second.abs()).sum(1) + value[:, 0] + (values.sum(1) if self.skip else 0)


class PlainQMIX:
    """Two players, torch's own layers, optimizer and clipping."""

    def __init__(self, agents, team, skip):
        self.agents: list[Any] = [nn.Sequential(nn.Linear(n, 6), nn.Tanh(), nn.Linear(6, n)) for n in (2, 3)]
        self.mixer = PlainMixer(2, skip)
        for arrays, places in self.places(agents, team):
            for place, layer in places.items():
                layer.weight.data = torch.from_numpy(arrays[f"{place}.weight"].T.copy())
                layer.bias.data = torch.from_numpy(arrays[f"{place}.bias"].copy())
        self.target_agents, self.target_mixer = copy.deepcopy(self.agents), copy.deepcopy(self.mixer)
        self.trained = [p for net in (*self.agents, self.mixer) for p in net.parameters()]
        own: dict[str, Any] = {"params": list(self.mixer.parameters()), "lr": 1e-3 if skip else 3e-3}
        self.optimizer = torch.optim.Adam([{"params": self.trained[: -len(own["params"])]}, own], lr=3e-3)

    def places(self, agents, team):
        """Return the arrays of our networks, and the layers by their names in them."""
        for agent, net in zip(agents, self.agents, strict=True):
            yield agent.learner_.export(0).arrays, {"net/q/hidden0": net[0], "net/q/head0": net[2]}
        yield team.export(0), {"net/mixer/hidden0": self.mixer.net[0], "net/mixer/head0": self.mixer.net[2]}

    def update(self, batch):
        tensor = torch.from_numpy
        taken, following = [], []
        for i, rows in enumerate(batch.members):
            q = self.agents[i](tensor(rows.obs[0])).gather(1, tensor(rows.action[0])[:, None])[:, 0]
            taken.append(torch.where(tensor(rows.present[0]), q, 0.0))
            with torch.no_grad():
                after = tensor(rows.next_obs[0])
                best = self.agents[i](after).masked_fill(~tensor(rows.next_legal[0]), -torch.inf).argmax(1)
                q = self.target_agents[i](after).gather(1, best[:, None])[:, 0]
                following.append(torch.where(tensor(rows.next_present[0]), q, 0.0))
        with torch.no_grad():
            then = self.target_mixer(torch.stack(following, 1), tensor(batch.next_state[0]))
            target = tensor(batch.reward[0]) + tensor(batch.discount[0]) * then
        loss = (self.mixer(torch.stack(taken, 1), tensor(batch.state[0])) - target).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.trained, 0.5)
        self.optimizer.step()
        return loss.item()


@pytest.mark.parametrize(("backend", "skip"), [("torch", False), ("tensorflow", False), ("torch", True)])
def test_qmix_equals_a_plain_one(backend, skip):
    settings: dict[str, Any] = {
        "network": mt.MLP((6,)),
        "mixing_units": UNITS,
        "hyper_units": 6,
        "state_size": STATES,
        "team_size": 2,
        "skip_connection": skip,
        "mixer_learning_rate": 1e-3 if skip else None,
    }
    agents = [
        mt.QMIX(*SPACES[i], seed=i, **settings, learning_rate=3e-3, max_grad_norm=0.5, backend=backend)
        for i in range(2)
    ]
    learner = JointLearner([agent.learner_ for agent in agents], [1, 1], [0, 1])
    plain, rng = PlainQMIX(agents, learner.team, skip), np.random.default_rng(0)
    start = {id(layer): layer.weight.detach().clone() for _, places in plain.places(agents, learner.team)
             for layer in places.values()}  # fmt: skip
    for _ in range(4):
        batch = some_team(rng, learner.members, [1, 1], 7)
        metrics = learner.update(batch, learn=BOTH, batch_size=7)
        np.testing.assert_allclose(metrics["loss/total"], plain.update(batch), rtol=1e-4)
    for arrays, places in plain.places(agents, learner.team):
        for place, layer in places.items():
            np.testing.assert_allclose(arrays[f"{place}.weight"].T, layer.weight.detach(), atol=1e-5, err_msg=place)
            np.testing.assert_allclose(arrays[f"{place}.bias"], layer.bias.detach(), atol=1e-5, err_msg=place)
            assert (layer.weight - start[id(layer)]).abs().max() > 1e-3, f"{place} hardly moved"


def test_the_mixer_needs_the_size_of_the_state():
    with pytest.raises(ConfigError, match=r"qmix: the team reads a global state, .*state_size= does"):
        mt.QMIX(*SPACES[0], team_size=2)
