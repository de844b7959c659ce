"""DQN against one written plainly in torch for one agent, its targets by hand, and what its settings do."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

import marltrain as mt
from marltrain.core.errors import ConfigError, SpecError
from marltrain.policies.algorithms.dqn import huber
from marltrain.policies.backends.torch import ops
from tests.policies.some_batches import VECTOR, some_transitions


class Dueling(nn.Module):
    def __init__(self, trunk, value, advantage):
        super().__init__()
        self.trunk, self.value, self.advantage = trunk, value, advantage

    def forward(self, obs):
        x = self.trunk(obs)
        a = self.advantage(x)
        return self.value(x) + a - a.mean(-1, keepdim=True)


def plain_q(dueling: bool) -> nn.Module:
    def stream(out):
        return nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, out))

    trunk = nn.Sequential(nn.Linear(5, 16), nn.Tanh())
    return Dueling(trunk, stream(1), stream(4)) if dueling else nn.Sequential(*trunk, *stream(4))


def linears(module):
    return [layer for layer in module.modules() if isinstance(layer, nn.Linear)]


PLACES = {False: ["hidden0", "hidden1", "head0"], True: ["hidden0", "head0.hidden", "head0", "head1.hidden", "head1"]}


class PlainDQN:
    """One agent, torch's own layers, loss, optimizer and clipping."""

    def __init__(self, arrays, *, double, dueling, tau, target_sync):
        self.double, self.tau, self.target_sync, self.updates = double, tau, target_sync, 0
        self.places, self.net = PLACES[dueling], plain_q(dueling)
        for place, layer in zip(self.places, linears(self.net), strict=True):
            layer.weight.data = torch.from_numpy(arrays[f"net/q/{place}.weight"].T.copy())
            layer.bias.data = torch.from_numpy(arrays[f"net/q/{place}.bias"].copy())
        self.target = copy.deepcopy(self.net)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=3e-3)

    def update(self, batch):
        obs, following = torch.from_numpy(batch.obs[0]), torch.from_numpy(batch.next_obs[0])
        with torch.no_grad():
            legal = torch.ones(len(obs), 4, dtype=torch.bool)
            if batch.next_legal is not None:
                legal = torch.from_numpy(batch.next_legal[0])
            judge = (self.net if self.double else self.target)(following).masked_fill(~legal, -torch.inf)
            worth = self.target(following).gather(1, judge.argmax(1, keepdim=True))[:, 0]
            goal = torch.from_numpy(batch.reward[0]) + torch.from_numpy(batch.discount[0]) * worth
        q = self.net(obs).gather(1, torch.from_numpy(batch.action[0])[:, None])[:, 0]
        loss = nn.functional.huber_loss(q, goal)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        self.optimizer.step()
        self.updates += 1
        for slow, fast in zip(self.target.parameters(), self.net.parameters(), strict=True):
            if self.tau is not None:
                slow.data = (1 - self.tau) * slow.data + self.tau * fast.data
            elif self.updates % self.target_sync == 0:
                slow.data = fast.data.clone()

    def arrays(self):
        result = {}
        for name, net in (("q", self.net), ("target_q", self.target)):
            for place, layer in zip(self.places, linears(net), strict=True):
                result[f"net/{name}/{place}.weight"] = layer.weight.detach().numpy().T
                result[f"net/{name}/{place}.bias"] = layer.bias.detach().numpy()
        return result


@pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
@pytest.mark.parametrize("tau", [None, 0.2], ids=["hard", "soft"])
@pytest.mark.parametrize("dueling", [False, True], ids=["plain", "dueling"])
@pytest.mark.parametrize("double", [False, True], ids=["single", "double"])
def test_dqn_equals_a_plain_one(double, dueling, tau, masked):
    rule = {"double": double, "dueling": dueling, "tau": tau, "target_sync": 3}
    agent = mt.DQN(
        VECTOR,
        spaces.Discrete(4),
        seed=4,
        network=mt.MLP(hidden=(16, 8)),
        learning_rate=3e-3,
        max_grad_norm=0.5,
        **rule,
    )
    plain, rng = PlainDQN(agent.learner_.export(0).arrays, **rule), np.random.default_rng(0)
    start = agent.learner_.export(0).arrays
    for _ in range(8):  # a copy after the 3rd and the 6th
        batch = some_transitions(rng, VECTOR, 4, 1, 13, n_step=3, masked=masked)
        agent.learner_.update(batch, learn=np.ones(1, bool), batch_size=13)
        plain.update(batch)
    arrays = agent.learner_.export(0).arrays
    assert set(plain.arrays()) == {name for name in arrays if name.startswith("net/")}
    for name, array in plain.arrays().items():
        np.testing.assert_allclose(arrays[name], array, atol=1e-6, err_msg=name)
        assert np.abs(array - start[name]).max() > 1e-3, f"{name} hardly moved: the comparison says nothing"


def constant_agent(q, target_q, **settings):
    """An agent whose networks give the same values for every observation."""
    agent = mt.DQN(VECTOR, spaces.Discrete(3), seed=0, learning_rate=0.0, **settings)
    state = agent.learner_.export(0)
    for name, array in state.arrays.items():
        if "/head0." in name:
            array[...] = 0.0
    state.arrays["net/q/head0.bias"][:] = q
    state.arrays["net/target_q/head0.bias"][:] = target_q
    agent.learner_.load(0, state)
    return agent


@pytest.mark.parametrize(
    ("double", "legal", "worth"),
    [
        (False, [True, True, True], 30.0),  # the target's best
        (True, [True, True, True], 10.0),  # the online network's best is action 0
        (True, [False, True, True], 20.0),  # its best legal one is action 1
        (False, [True, True, False], 20.0),
    ],
)
def test_the_target_by_hand(double, legal, worth):
    agent = constant_agent([5.0, 4.0, 3.0], [10.0, 20.0, 30.0], double=double)
    batch = some_transitions(np.random.default_rng(0), VECTOR, 3, 1, 2)
    batch.action[0], batch.reward[0], batch.discount[0] = [2, 0], [1.0, 7.5], [0.9, 0.0]
    batch.next_legal = np.array([[legal, legal]])
    metrics = agent.learner_.update(batch, learn=np.ones(1, bool), batch_size=2)
    # errors 3 - (1 + 0.9 * worth) and, terminated, 5 - 7.5: Huber |error| - 1/2
    assert metrics["loss/total"][0] == pytest.approx(((0.9 * worth - 2 - 0.5) + (2.5 - 0.5)) / 2, rel=1e-6)
    assert metrics["q_mean"][0] == pytest.approx(4.0)


def test_greedy_among_legal_actions_and_epsilon_where_exploring():
    agent = constant_agent([5.0, 4.0, 3.0], [0.0] * 3, epsilon=0.6)
    obs, rows = np.zeros((6000, 5), np.float32), np.arange(6000)
    legal = np.broadcast_to([False, True, True], (6000, 3))
    assert (agent.act(obs) == 0).all()
    assert (agent.act(obs, legal) == 1).all()
    explored = agent.act(obs, legal, explore=rows < 3000)
    assert (explored[3000:] == 1).all()
    # 0.6 of the exploring rows choose uniformly among two: 0.3 of them take action 2; 0.042 is five deviations
    assert abs((explored[:3000] == 2).mean() - 0.3) < 0.042
    assert not (explored == 0).any()
    agent.hyper.epsilon = 0.0
    assert (agent.act(obs, explore=True) == 0).all()


def test_what_it_asks_of_the_memory():
    agent = mt.DQN(VECTOR, spaces.Discrete(3), seed=0, n_step=3, capacity=777, update_per_step=0.5, learning_starts=9)
    needs, schedule = agent.learner_.needs, agent.learner_.update_schedule
    assert needs is not None
    assert (needs.on_policy, needs.n_step, needs.capacity) == (False, 3, 777)
    assert (schedule.update_per_step, schedule.learning_starts, schedule.minibatches) == (0.5, 9, None)


@pytest.mark.parametrize("space", [spaces.Box(-1, 1, (2,)), spaces.MultiDiscrete([2, 2])])
def test_other_actions_are_refused(space):
    with pytest.raises(SpecError, match="DQN needs a Discrete action space"):
        mt.DQN(VECTOR, space, seed=0)


def test_a_model_of_ones_own_cannot_duel():
    with pytest.raises(ConfigError, match="dueling=True needs a NetworkSpec"):
        mt.DQN(VECTOR, spaces.Discrete(3), network=nn.Linear(5, 3), dueling=True)


def test_a_share_for_the_target_cannot_be_switched_on_later():
    agent = mt.DQN(VECTOR, spaces.Discrete(3), seed=0)
    with pytest.raises(ConfigError, match=r"tau cannot become 0\.5"):
        agent.hyper.tau = 0.5
    soft = mt.DQN(VECTOR, spaces.Discrete(3), seed=0, tau=0.1)
    soft.hyper.tau = 0.5
    assert soft.hyper.tau == 0.5


def test_huber_equals_torchs_with_its_gradient():
    error = torch.tensor([[-3.0, -1.0, -0.25, 0.0, 0.5, 2.0]], requires_grad=True)
    result = huber(ops, error)
    torch.testing.assert_close(result, torch.nn.functional.huber_loss(error, torch.zeros_like(error), reduction="none"))
    (grad,) = torch.autograd.grad(result.sum(), error)
    assert grad.tolist() == [[-1.0, -1.0, -0.25, 0.0, 0.5, 1.0]]
