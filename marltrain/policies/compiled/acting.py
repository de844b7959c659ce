"""Acting of K agents in compiled code: the act kernel (forward passes and action selection) and its arguments."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numba import float32

from marltrain.core.layout import Array
from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import address_of, bools, copy, entry, f32, f64, i64, record_at
from marltrain.policies.backends.base import StackedNetwork
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.compiled.network import NETWORK, forward, widths_of, write_network
from marltrain.policies.interface.algorithm import CompiledForm
from marltrain.policies.networks.specs import Head

GREEDY, SAMPLE, GAUSSIAN = range(3)
"""Action rules: epsilon-greedy on values; a sample from the softmax of logits; a sample of a normal distribution."""
RULES = {"epsilon_greedy": GREEDY, "categorical": SAMPLE, "gaussian": GAUSSIAN}
"""Action rules of `Algorithm.compiled_form` -> rules of the act kernel."""
NOISE = {GREEDY: ("choice", "coin"), SAMPLE: ("sample", ""), GAUSSIAN: ("sample", "")}
"""Names of an act's noise [K, B, A] and of its coins [K, B], by rule."""

_ONE = (
    "agents", "rows", "rule",  # K agents, B rows each, of `width` numbers; A = `choices` actions, or numbers of one
    "counts",  # [K] int64, rows of each agent that are computed, the first ones; 0: all
    "weights", "activations", "kept",  # [K, size]; work array for the layers of one agent, `kept` numbers of a row
    "obs", "legal", "explore", "epsilon",  # [K, B, width], [K, B, A] or 0, [K, B], [K]
    "narrow", "players",  # [K, B, width - players] or 0: observations to copy into `obs`, whose rows end with a one-hot
    "noise", "noise_agent", "noise_act", "noise_row",  # [K, acts, B, A] and the strides of its first axes, in elements
    "coin", "coin_agent", "coin_act", "coin_row",  # [K, acts, B] and its strides
    "action", "log_prob",  # [K, B] int64 or, with GAUSSIAN, [K, B, A] float32; with both samples, [K, B] float32
    "raw", "center", "reach", "low", "high",  # with GAUSSIAN: [K, B, A] float32; [A] float64, float64, float32, float32
)  # fmt: skip
NOTHING: Mapping[str, Array] = MappingProxyType({})
HALF_LOG_TWO_PI = np.float32(0.5 * math.log(2 * math.pi))
ACT = np.dtype(NETWORK + [(name, np.int64) for name in _ONE])
"""Arguments of the act kernel: numbers and addresses."""


@compiled
def act_at(address: int) -> Any:
    """Return the ACT record at an address."""
    return record_at(address, ACT)


@compiled
def act(address: int, at: int, low: int, high: int, envs: int) -> int:
    """Choose the actions in the environments `low` to `high` of `envs`, with the noise of act number `at`; return 0.

    address: of an ACT, whose rows [B] are [seats, envs].
    """
    u = act_at(address)
    if high - low == envs:
        act_rows(u, at, 0, u.rows)
    else:
        for first in range(0, u.rows, envs):
            act_rows(u, at, first + low, first + high)
    return 0


@compiled
def act_rows(u: Any, at: int, first: int, end: int) -> None:
    """Choose the actions of the rows `first` to `end`."""
    if u.narrow:
        fill_observations(u, first, end)
    for k in range(u.agents):
        last = min(end, i64(u.counts, u.agents)[k]) if u.counts else end
        obs, work = u.obs + 4 * (k * u.rows + first) * u.width, u.activations + 4 * first * u.kept
        out = forward(u, obs, last - first, u.weights + 4 * k * u.size, work)
        for row in range(first, last):
            choose(u, k, k, row, at, f32(out + 4 * (row - first) * u.choices, u.choices))


@compiled
def choose(u: Any, k: int, agent: int, row: int, at: int, outputs: Any) -> None:
    """Choose the action of a row of the arrays of agent k, by the outputs [A] and the numbers of `agent`."""
    if u.rule == GREEDY:
        greedy(u, k, row, at, outputs, f32(u.epsilon, u.agents)[agent])
    elif u.rule == SAMPLE:
        sample(u, k, row, at, outputs)
    else:
        gaussian(u, k, row, at, outputs)


@compiled
def fill_observations(u: Any, first: int, end: int) -> None:
    """Copy the observations without one-hots of the rows `first` to `end` into `obs`, before their one-hots."""
    size = 4 * (u.width - u.players)
    for k in range(u.agents):
        for i in range(k * u.rows + first, k * u.rows + end):
            copy(u.narrow + i * size, u.obs + 4 * i * u.width, size)


@functools.cache
def act_program() -> Any:
    """Return the compiled `act`, from the disk cache if it is there."""
    return program(act, ACT)


@compiled
def greedy(u: Any, k: int, row: int, at: int, values: Any, epsilon: float) -> None:
    """Choose the best legal action; while exploring, with probability epsilon, a uniformly random legal action.

    The random action is the legal action of the highest noise.
    """
    i = k * u.rows + row
    if bools(u.explore, i + 1)[i]:
        coin = f32(u.coin + 4 * (k * u.coin_agent + at * u.coin_act + row * u.coin_row), 1)[0]
        if coin < epsilon:
            values = f32(u.noise + 4 * (k * u.noise_agent + at * u.noise_act + row * u.noise_row), u.choices)
    i64(u.action, i + 1)[i] = best(values, u.legal and u.legal + i * u.choices)


@compiled
def sample(u: Any, k: int, row: int, at: int, logits: Any) -> None:
    """Choose the most likely legal action; while exploring, a sample: the highest sum of logit and Gumbel noise."""
    i, legal = k * u.rows + row, u.legal and u.legal + (k * u.rows + row) * u.choices
    total = logsumexp(logits, legal)
    if bools(u.explore, i + 1)[i]:
        noise = f32(u.noise + 4 * (k * u.noise_agent + at * u.noise_act + row * u.noise_row), u.choices)
        action = best_sum(logits, noise, legal)
    else:
        action = best(logits, legal)
    i64(u.action, i + 1)[i] = action
    f32(u.log_prob, i + 1)[i] = logits[action] - total


@compiled
def gaussian(u: Any, k: int, row: int, at: int, means: Any) -> None:
    """Choose the means; while exploring, a sample. Write it, its log-density, and the action in its units."""
    i = k * u.rows + row
    log_std = f32(u.weights + 4 * (k * u.size + u.size - u.choices), u.choices)
    noise = f32(u.noise + 4 * (k * u.noise_agent + at * u.noise_act + row * u.noise_row), u.choices)
    raw, action = f32(u.raw + 4 * i * u.choices, u.choices), f32(u.action + 4 * i * u.choices, u.choices)
    center, reach = f64(u.center, u.choices), f64(u.reach, u.choices)
    low, high = f32(u.low, u.choices), f32(u.high, u.choices)
    exploring, density = bools(u.explore, i + 1)[i], float32(0.0)
    for j in range(u.choices):
        raw[j] = means[j] + math.exp(log_std[j]) * noise[j] if exploring else means[j]
        z = (raw[j] - means[j]) * math.exp(-log_std[j])
        density -= float32(0.5) * z * z + log_std[j] + HALF_LOG_TWO_PI
        scaled = float32(center[j] + reach[j] * raw[j])
        action[j] = low[j] if scaled < low[j] else high[j] if scaled > high[j] else scaled  # keeps NaN
    f32(u.log_prob, i + 1)[i] = density


@compiled
def is_legal(legal: int, i: int) -> bool:
    """Return whether action i is legal by the mask at an address; without a mask (0) all actions are legal."""
    return legal == 0 or bools(legal, i + 1)[i]


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


class CompiledActing:
    """K agents with networks of one plan that act in compiled code.

    record: [1] ACT, the arguments of the kernel.  address: of the record.  entry: of the kernel.
    extras: names of the outputs beside the action -> their shapes.
    """

    reads_other_rows = False

    def __init__(self, form: CompiledForm, network: StackedNetwork, row: int | None = None) -> None:
        """Write the constant fields of `record`; `is_known` must hold for the network.

        row: act for this agent only.
        """
        plan = network.plan
        if form.rule not in RULES:
            raise TypeError(f"CompiledForm(rule={form.rule!r}): compiled code knows {', '.join(map(repr, RULES))}")
        self.network, self.rule = network, RULES[form.rule]
        self._shape: tuple[int, ...] = (plan.heads[0].width,) if self.rule == GAUSSIAN else ()
        self.extras: dict[str, tuple[int, ...]] = {} if self.rule == GREEDY else {"log_prob": ()}
        self._rows = slice(None) if row is None else slice(row, row + 1)
        self.agents = network.num_agents if row is None else 1
        self.record = np.zeros(1, ACT)
        record = self.record[0]
        write_network(record, plan)
        record["agents"], record["rule"] = self.agents, self.rule
        self.choices = int(record["choices"])
        if self.rule == GAUSSIAN:
            self.extras["raw"] = self._shape
            self._bounds = _bounds(form, plan.heads[0])
            for name, array in self._bounds.items():
                record[name] = address_of(array)
        self._outputs = sum(widths_of(plan))
        self._activations = np.empty(0, np.float32)
        self._unkept: dict[str, Array] = {}
        self._kept: tuple[Any, ...] = (None, None, None)  # noise, weights, epsilon
        self.address, self.entry = address_of(self.record), entry(act_program(), 5)

    def set_arrays(
        self, *, obs: Array, legal: Array | None, explore: Array, action: Array, player: Array | None = None,
        extras: Mapping[str, Array] = NOTHING, counts: Array | None = None,
    ) -> None:  # fmt: skip
        """Read and write these arrays from the next act on, [K, rows, ...] each.

        player: one-hots [K, rows, P] of the players that observe, which are not in `obs`; None: they are, if any.
        extras: those that are not given are written to arrays of its own.  counts: see `act`.
        """
        record, rows = self.record[0], explore.shape[1]
        if record["rows"] != rows:
            self._activations = np.empty(rows * self._outputs, np.float32)
            record["rows"], record["activations"], record["kept"] = rows, address_of(self._activations), self._outputs
            self._unkept = {n: np.empty((self.agents, rows, *s), np.float32) for n, s in self.extras.items()}
        if player is not None:
            record["players"], record["narrow"] = player.shape[-1], address_of(obs)
            obs = self._observed = np.concatenate([obs, player], -1)
        given = {"obs": obs, "legal": legal, "explore": explore, "action": action, "counts": counts}
        arrays = {**given, **self._unkept, **extras}
        for name, array in arrays.items():
            record[name] = 0 if array is None else address_of(array)

    def start_from(self, carry: None, counts: Array) -> None:
        """Do nothing: no rule of the kernel carries a state on, or counts actions."""

    def divide(self, parts: int) -> None:
        """Do nothing: parts of an act have rows of their own in the work array."""

    def carried(self) -> None:
        """Return None, see `start_from`."""

    def refresh(self, noise: Mapping[str, Array], hyper: Mapping[str, Array], *, shared: bool = False) -> None:
        """Write the addresses of the noise of several acts [K, acts, rows, ...], the weights, and epsilon [K, 1].

        shared: whether all agents read the same noise, [1, acts, rows, ...] or, without regard to the row, [1, acts, 1,
            ...].
        """
        record, weights = self.record[0], self.network.numbers()
        epsilon = hyper["epsilon"] if self.rule == GREEDY else None
        before, self._kept = self._kept, (noise, weights, epsilon)
        if weights is not before[1]:
            record["weights"] = address_of(weights[self._rows])
        if epsilon is not None and epsilon is not before[2]:
            record["epsilon"] = address_of(epsilon[self._rows])
        if noise is not before[0]:
            self._set_noise(noise, shared=shared)

    def _set_noise(self, noise: Mapping[str, Array], *, shared: bool) -> None:
        record = self.record[0]
        for kind, name, last in zip(("noise", "coin"), NOISE[self.rule], ((self.choices,), ()), strict=True):
            if name:
                _, acts, rows = noise[name].shape[:3]
                expected = (1, acts, 1 if rows == 1 else self.rows) if shared else (self.agents, acts, self.rows)
                array = _fitting(name, noise[name], (*expected, *last))
                record[kind] = address_of(array)
                for axis, size in zip(("agent", "act", "row"), array.strides, strict=False):
                    record[f"{kind}_{axis}"] = size // 4
                if rows == 1:
                    record[f"{kind}_row"] = 0

    def act(
        self, inputs: ActInputs, noise: Mapping[str, Array], at: int, hyper: Mapping[str, Array],
        counts: Array | None = None,
    ) -> Acted:  # fmt: skip
        """Choose actions [K, B, ...]; equivalent to `Algorithm.act` and `Algorithm.to_units`.

        noise, hyper: see `refresh`.  at: number of the act among those of the noise.
        counts: [K] int64, rows of each agent that are computed, the first ones; None: all.
        """
        seen, explore = np.ascontiguousarray(inputs.obs, np.float32), inputs.explore
        mask = None if inputs.legal is None else np.ascontiguousarray(inputs.legal)
        exploring = np.ascontiguousarray(explore)
        action = np.empty((*explore.shape, *self._shape), np.float32 if self._shape else np.int64)
        extras = {name: np.empty((*explore.shape, *shape), np.float32) for name, shape in self.extras.items()}
        self.set_arrays(obs=seen, legal=mask, explore=exploring, action=action, extras=extras, counts=counts)
        self.refresh(noise, hyper)
        act_program()(self.address, at, 0, self.rows, self.rows)
        return Acted(action, None, extras)

    @property
    def rows(self) -> int:
        """Number of rows of an act."""
        return int(self.record["rows"][0])


def _bounds(form: CompiledForm, head: Head) -> dict[str, Array]:
    """Return the scale and the bounds [A] of actions; raises TypeError if they are missing, or not those of a head."""
    if form.actions is None or not head.width == head.free == form.actions.dims:
        raise TypeError(
            f"CompiledForm(rule='gaussian') needs actions=, and a head with a mean and a trained constant for each of "
            f"their dimensions; got {form} for {head}"
        )
    kinds = {"center": np.float64, "reach": np.float64, "low": np.float32, "high": np.float32}
    return {name: np.ascontiguousarray(getattr(form.actions, name), kind) for name, kind in kinds.items()}


def _fitting(name: str, noise: Array, shape: tuple[int, ...]) -> Array:
    """Return the noise; raises TypeError unless it is float32, of this shape, and contiguous in its last axis."""
    if noise.dtype != np.float32 or noise.shape != shape or not noise[0, 0, 0].flags.c_contiguous:
        raise TypeError(
            f"noise {name!r} of acts in compiled code must be float32 {shape}, its last axis in one piece; it is "
            f"{noise.dtype} {noise.shape} with strides {noise.strides}"
        )
    return noise
