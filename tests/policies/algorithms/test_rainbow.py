"""Rainbow against one written plainly in torch for one agent: its weights are drawn before each pass."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

import marltrain as mt
from tests.policies.some_batches import VECTOR, some_transitions

LAYERS = {"hidden0": (5, 7), "head0.hidden": (7, 6), "head0": (6, 5), "head1.hidden": (7, 6), "head1": (6, 20)}
LOW, HIGH, ATOMS, ACTIONS = -2.0, 3.0, 5, 4
NAMES = [f"{layer}.{kind}" for layer in LAYERS for kind in ("weight", "bias", "weight_sigma", "bias_sigma")]
WIDTH = sum(map(sum, LAYERS.values()))


def logits(weights: Any, obs: Any, noise: Any) -> Any:
    """[B, A, N] by a network whose weights are mu + sigma * f(e_in) f(e_out)."""
    factors = iter(torch.split(noise, [width for pair in LAYERS.values() for width in pair]))
    drawn = {}
    for name in LAYERS:
        into, out = next(factors), next(factors)
        drawn[name] = (
            weights[f"{name}.weight"] + weights[f"{name}.weight_sigma"] * torch.outer(into, out),
            weights[f"{name}.bias"] + weights[f"{name}.bias_sigma"] * out,
        )

    def linear(name: str, x: Any) -> Any:
        return x @ drawn[name][0] + drawn[name][1]

    trunk = torch.tanh(linear("hidden0", obs))
    value = linear("head0", torch.tanh(linear("head0.hidden", trunk)))[:, None]
    advantage = linear("head1", torch.tanh(linear("head1.hidden", trunk))).view(-1, ACTIONS, ATOMS)
    return value + advantage - advantage.mean(1, keepdim=True)


def projected(reward: Any, discount: Any, p: Any) -> Any:
    """Algorithm 1 of Bellemare et al., atom by atom."""
    result, step = torch.zeros_like(p), (HIGH - LOW) / (ATOMS - 1)
    for row in range(len(p)):
        for j in range(ATOMS):
            moved = min(max(float(reward[row]) + float(discount[row]) * (LOW + j * step), LOW), HIGH)
            b = (moved - LOW) / step
            lower, upper = math.floor(b), math.ceil(b)
            result[row, lower] += p[row, j] * (upper - b if upper > lower else 1.0)
            if upper > lower:
                result[row, upper] += p[row, j] * (b - lower)
    return result


def test_an_update_equals_one_of_a_plain_rainbow():
    agent = mt.Rainbow(
        VECTOR, spaces.Discrete(ACTIONS), seed=4, network=mt.MLP((7, 6)), optimizer="sgd", learning_rate=0.05,
        max_grad_norm=None, v_min=LOW, v_max=HIGH, atoms=ATOMS, target_sync=99,
    )  # fmt: skip
    rng, on = np.random.default_rng(0), np.ones(1, bool)
    agent.learner_.update(some_transitions(rng, VECTOR, 4, 1, 13, n_step=3), learn=on, batch_size=13)
    before = agent.learner_.export(0).arrays  # the networks are different ones now
    online, target = ({name: torch.from_numpy(before[f"net/{net}/{name}"].copy()).requires_grad_() for name in NAMES}
                      for net in ("q", "target_q"))  # fmt: skip
    normal = copy.deepcopy(agent.learner_.rngs("update")[0]).standard_normal((3, WIDTH), np.float32)
    noise = torch.from_numpy(np.sign(normal) * np.sqrt(np.abs(normal)))
    batch = some_transitions(rng, VECTOR, 4, 1, 13, n_step=3, masked=True)
    metrics = agent.learner_.update(batch, learn=on, batch_size=13)

    given: dict[str, Any] = {
        n: torch.from_numpy(np.array(v)[0]) for n, v in vars(batch).items() if n != "extras" and v is not None
    }
    z, rows = torch.linspace(LOW, HIGH, ATOMS), torch.arange(13)
    with torch.no_grad():
        judged = (logits(online, given["next_obs"], noise[2]).softmax(-1) * z).sum(-1)
        best = judged.masked_fill(~given["next_legal"], -torch.inf).argmax(1)
        following = logits(target, given["next_obs"], noise[1]).softmax(-1)[rows, best]
        goal = projected(given["reward"], given["discount"], following)
    log_p = logits(online, given["obs"], noise[0]).log_softmax(-1)[rows, given["action"]]
    loss = -(goal * log_p).sum(1).mean()
    loss.backward()
    np.testing.assert_allclose(metrics["loss/total"][0], loss.item(), rtol=1e-5)
    after = agent.learner_.export(0).arrays
    for name, weight in online.items():
        assert weight.grad is not None
        expected = (weight - 0.05 * weight.grad).detach().numpy()
        np.testing.assert_allclose(after[f"net/q/{name}"], expected, atol=1e-6, err_msg=name)
        assert np.abs(after[f"net/q/{name}"] - before[f"net/q/{name}"]).max() > 1e-5, name
        np.testing.assert_array_equal(after[f"net/target_q/{name}"], before[f"net/target_q/{name}"])


def test_it_is_c51_with_all_parts():
    settings = mt.Rainbow(VECTOR, spaces.Discrete(2), seed=0).settings
    assert (settings.double, settings.dueling, settings.n_step, settings.noisy) == (True, True, 3, 0.5)
    assert settings.memory == mt.Replay(prioritized=mt.Prioritized(0.5, mt.linear(0.4, 1.0, 100_000)))
    algorithm: Any = mt.Rainbow(VECTOR, spaces.Discrete(2), seed=0).algorithm
    assert algorithm.exploration.rule == "greedy"
