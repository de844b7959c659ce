"""Act kernel of K agents in compiled code: forward passes and action selection."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
from numba import float32

from marltrain.addresses import flags, numbers, record_at, wholes
from marltrain.compiling import compiled, program
from marltrain.policies.compiled.network import NETWORK, forward

GREEDY, SAMPLE = range(2)
"""Action rules: epsilon-greedy on values; a sample from the softmax of logits."""

_ONE = (
    "agents", "rows", "rule",  # K agents, B rows each, of `width` numbers; A = `choices` actions
    "weights", "into",  # [K, size]; work array for the layers of one agent
    "obs", "legal", "explore", "epsilon",  # [K, B, width], [K, B, A] or 0, [K, B], [K]
    "noise", "noise_agent", "noise_act", "noise_row",  # [K, acts, B, A] and the strides of its first axes, in elements
    "coin", "coin_agent", "coin_act", "coin_row",  # [K, acts, B] and its strides
    "action", "log_prob",  # [K, B] int64 and, with SAMPLE, [K, B] float32
)  # fmt: skip
ACT = np.dtype(NETWORK + [(name, np.int64) for name in _ONE])
"""Arguments of the act kernel: numbers and addresses."""


@compiled
def record(address: int) -> Any:
    """Return the ACT record at an address."""
    return record_at(address, ACT)


@compiled
def act(address: int, at: int) -> int:
    """Choose the actions of all rows of the ACT at an address, with the noise of act number `at`; return 0."""
    u = record(address)
    for k in range(u.agents):
        out = forward(u, u.obs + 4 * k * u.rows * u.width, u.rows, u.weights + 4 * k * u.size, u.into)
        for row in range(u.rows):
            if u.rule == GREEDY:
                greedy(u, k, row, at, numbers(out + 4 * row * u.choices, u.choices))
            else:
                sample(u, k, row, at, numbers(out + 4 * row * u.choices, u.choices))
    return 0


@functools.cache
def act_program() -> Any:
    """Return the compiled `act`, from the disk cache if it is there."""
    return program(act, ACT)


@compiled
def greedy(u: Any, k: int, row: int, at: int, values: Any) -> None:
    """Choose the best legal action; while exploring, with probability epsilon, a uniformly random legal action.

    The random action is the legal action of the highest noise.
    """
    i = k * u.rows + row
    if flags(u.explore, i + 1)[i]:
        coin = numbers(u.coin + 4 * (k * u.coin_agent + at * u.coin_act + row * u.coin_row), 1)[0]
        if coin < numbers(u.epsilon, u.agents)[k]:
            values = numbers(u.noise + 4 * (k * u.noise_agent + at * u.noise_act + row * u.noise_row), u.choices)
    wholes(u.action, i + 1)[i] = best(values, u.legal and u.legal + i * u.choices)


@compiled
def sample(u: Any, k: int, row: int, at: int, logits: Any) -> None:
    """Choose the most likely legal action; while exploring, a sample: the highest sum of logit and Gumbel noise."""
    i, legal = k * u.rows + row, u.legal and u.legal + (k * u.rows + row) * u.choices
    total = logsumexp(logits, legal)
    if flags(u.explore, i + 1)[i]:
        noise = numbers(u.noise + 4 * (k * u.noise_agent + at * u.noise_act + row * u.noise_row), u.choices)
        action = best_sum(logits, noise, legal)
    else:
        action = best(logits, legal)
    wholes(u.action, i + 1)[i] = action
    numbers(u.log_prob, i + 1)[i] = logits[action] - total


@compiled
def is_legal(legal: int, i: int) -> bool:
    """Return whether action i is legal by the mask at an address; without a mask (0) all actions are legal."""
    return legal == 0 or flags(legal, i + 1)[i]


@compiled
def best(values: Any, legal: int) -> int:
    """Return the first legal action of the highest value; 0 if no action is legal, as in rows without a turn."""
    found = 0
    for i in range(1, len(values)):
        if is_legal(legal, i) and (values[i] > values[found] or not is_legal(legal, found)):
            found = i
    return found


@compiled
def best_sum(values: Any, noise: Any, legal: int) -> int:
    """Return the first legal action of the highest sum of value and noise; see `best`."""
    found = 0
    for i in range(1, len(values)):
        higher = values[i] + noise[i] > values[found] + noise[found]
        if is_legal(legal, i) and (higher or not is_legal(legal, found)):
            found = i
    return found


@compiled
def logsumexp(values: Any, legal: int) -> float:
    """Return log(sum(exp(values))) over the legal actions."""
    top = values[best(values, legal)]
    total = float32(0.0)
    for i in range(len(values)):
        if is_legal(legal, i):
            total += math.exp(values[i] - top)
    return top + math.log(total)
