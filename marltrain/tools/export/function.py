"""The policy of an agent as a function of arrays, written with `ops`: what an exported file computes.

Its inputs have the environment's units, and one row B for each observation. The function encodes observations and
normalizes them, lets the agent's algorithm act, and scales actions, so that a file needs nothing beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.encoding import action_shape
from marltrain.core.errors import ConfigError
from marltrain.core.layout import VECTOR, Array, Part, distinct
from marltrain.core.legal import Legal
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.backends.base import Network
from marltrain.policies.batches.batch import ActInputs
from marltrain.policies.batches.normalization import CLIP, RunningStatistics
from marltrain.policies.distributions import Continuous, Sampling
from marltrain.policies.exploration.discrete import ACTION_COUNTS
from marltrain.policies.interface.algorithm import OBSERVATION
from marltrain.policies.interface.recurrence import carries_of
from marltrain.policies.memory.needs import Column
from marltrain.policies.networks.specs import Plan
from marltrain.policies.ops import FrameworkOps

ACTION, LEGAL, PLAYER, CARRY, UNIFORM = "action", "legal", "player", "carry", "uniform"
"""Names of inputs and outputs, beside `observation` and the numbers of `Algorithm.policy_numbers`."""
CRITIC = "critic"
"""Name of a network whose carries no action depends on."""
COIN = "coin"
"""Name of the noise that decides whether an action is random: below a share of at most 1."""


@dataclass(frozen=True)
class Port:
    """An input or output of a policy: its name, its shape without the leading axis B, and its dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def described(self) -> dict[str, Any]:
        """Return the port as JSON values."""
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}


class PolicyFunction:
    """The acts of one agent, greedy or sampled.

    inputs, outputs: in their order.  networks: those that acts call, by name; row: that of the agent in them.
    """

    def __init__(self, agent: LearningAgent, *, sampling: bool, legal: bool | None = None) -> None:
        """Find the inputs, the outputs and the networks.

        legal: whether a mask of legal actions is an input; None: as the agent knows, `LearningAgent.masked`.
        Raises ConfigError for samples of a deterministic policy, and for a mask of actions that are not Discrete.
        """
        self.algorithm, self.row, self.identity = agent.algorithm, agent.row, agent.identity
        self.layout, self.space = agent._seated()
        self._ports = observation_ports(self.layout.parts)
        self.parts = {port.name: part for port, part in zip(self._ports, self.layout.parts, strict=True)}
        self._sampling = _sampling_of(agent, sampling)
        self._masked = _masked(agent, legal)
        carries = carries_of(self.algorithm.networks())
        self._carries = {name: column for name, column in carries.items() if name != CRITIC}
        learner = agent.learner_
        statistics = learner.weights.statistics.get(OBSERVATION)
        self._statistics = None if statistics is None else statistics.row(self.row)
        self._hyper = {name: float(column[self.row, 0]) for name, column in learner.hyper.columns.items()}
        self._counts = learner.actor.counts[self.row].astype(np.float32)
        self._noise = {name: array.shape[2:] for name, array in self.algorithm.noise([_SOME], 1).items()}
        self.inputs = self._inputs()
        self.networks, self.outputs = self._tried(agent)

    def _inputs(self) -> tuple[Port, ...]:
        ports = list(self._ports)
        if self.identity:
            ports.append(Port(PLAYER, (), "int64"))
        if self._masked:
            ports.append(Port(LEGAL, (Legal(self.space).width,), "bool"))
        ports += [Port(self._carry_name(name), column.shape, "float32") for name, column in self._carries.items()]
        if self._sampling is not None:
            ports.append(Port(UNIFORM, (self._sampling.width,), "float32"))
        return tuple(ports)

    def _carry_name(self, network: str) -> str:
        return CARRY if len(self._carries) == 1 else f"{CARRY}_{network}"

    def _tried(self, agent: LearningAgent) -> tuple[dict[str, Network], tuple[Port, ...]]:
        """Act once in the agent's own framework; return the networks that were called, and the outputs."""
        called: dict[str, Network] = {}
        online = agent.learner_.weights.online

        def recording(name: str) -> Callable[..., Any]:
            def call(*inputs: Any) -> Any:
                called[name] = online[name]
                return online[name](*inputs, row=self.row)

            return call

        backend = agent.backend
        zeros = {port.name: np.zeros((2, *port.shape), port.dtype) for port in self.inputs}
        result = self.in_arrays(backend, {name: recording(name) for name in online}, zeros)
        ports = [Port(name, result[name].shape[1:], str(result[name].dtype)) for name in result]
        return called, tuple(ports)

    def weights_of(self, network: str) -> tuple[Plan, list[Array]] | None:
        """Return the plan of a network, and its weights [members, *shape]; None for a model of the user's own."""
        net: Any = self.networks[network]
        plan = getattr(net, "plan", None)
        return None if plan is None else (plan, net.members_of(net.numpy_weights(), self.row))

    def own_networks(self) -> dict[str, Callable[..., Any]]:
        """Return the networks of the agent, in its own framework, as functions."""
        return {name: partial(network, row=self.row) for name, network in self.networks.items()}

    def in_arrays(self, backend: Any, nets: Mapping[str, Callable[..., Any]], given: Mapping[str, Any]) -> Any:
        """Return the outputs for arrays [B, ...] in a backend's framework, as arrays [B, ...] by name."""
        with backend.no_gradient():
            result = self(backend.ops, nets, {name: backend.tensor(array[None]) for name, array in given.items()})
        shapes = self.shapes()
        return {
            name: (array := backend.numpy(value)[0]).reshape(len(array), *shapes.get(name, array.shape[1:]))
            for name, value in result.items()
        }

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the outputs whose shape is not the one of their arrays: actions of several axes."""
        return {ACTION: tuple(self.space.shape or ())}

    def __call__(
        self, ops: FrameworkOps, nets: Mapping[str, Callable[..., Any]], given: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the outputs [1, B, ...] for inputs [1, B, ...], tensors of the framework of `ops`; actions are flat.

        nets: name -> function of the inputs of a network; each network is computed once.
        """
        once = {name: _Once(net) for name, net in nets.items()}
        obs, zero = self._observed(ops, given)
        hyper = {name: ops.tensor_like(zero, [[value]]) for name, value in self._hyper.items()}
        if self._counts.size:
            hyper[ACTION_COUNTS] = ops.tensor_like(zero, [self._counts.tolist()])
        explore = zero[..., 0] > (0.0 if self._sampling is None else -1.0)  # nowhere, or everywhere
        noise = self._noises(ops, zero, given.get(UNIFORM))
        inputs = ActInputs(obs, given.get(LEGAL), explore, self._carry(ops, zero, given), noise, hyper)
        acted = self.algorithm.act(ops, once, inputs)
        known = self.algorithm.policy_numbers
        numbers = {} if known is None else known(ops, once, inputs)
        carries = {f"next_{self._carry_name(name)}": acted.carry[name] for name in self._carries}
        return {ACTION: self._in_units(ops, acted.action), **numbers, **carries}

    def _carry(self, ops: FrameworkOps, zero: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the carry of an act: that of recurrent networks, an input, and zeros for other values."""
        others = {
            name: self._zeros(ops, zero, column)
            for name, column in self.algorithm.carry().items()
            if name not in self.algorithm.networks()
        }
        return {**{name: given[self._carry_name(name)] for name in self._carries}, **others}

    def _observed(self, ops: FrameworkOps, given: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return the observations as the algorithm gets them, and zeros [1, B, 1]."""
        vectors = [_flat(ops, part, given[name]) for name, part in self.parts.items() if not part.image]
        if self.identity:
            vectors.append(_one_hot(ops, given[PLAYER], 0, len(self.identity)))
        images = {part.array: given[name] for name, part in self.parts.items() if part.image}
        arrays = {
            **({VECTOR: vectors[0] if len(vectors) == 1 else ops.concat(vectors, -1)} if vectors else {}),
            **images,
        }
        first = arrays[VECTOR] if vectors else ops.flag(ops.flatten(next(iter(images.values()))))
        zero = ops.zeros_like(first[..., :1])
        if self._statistics is not None:
            arrays[VECTOR] = self._normalized(ops, arrays[VECTOR], self._statistics)
        return (next(iter(arrays.values())) if len(arrays) == 1 else arrays), zero

    def _normalized(self, ops: FrameworkOps, vector: Any, statistics: RunningStatistics) -> Any:
        """Return normalized observations; the mean, a float64, is subtracted in two parts to keep its digits."""
        mean, deviation = statistics.mean[0], statistics.deviation[0]
        coarse = mean.astype(np.float32)
        rest = (mean - coarse).astype(np.float32)
        coarse, rest, deviation = (
            ops.tensor_like(vector, x.astype(np.float32).tolist()) for x in (coarse, rest, deviation)
        )
        return ops.clip((vector - coarse - rest) / deviation, -CLIP, CLIP)

    def _noises(self, ops: FrameworkOps, zero: Any, uniform: Any) -> dict[str, Any]:
        """Return the noise of an act: zeros, coins that choose no random action, and samples from uniform numbers."""
        noise = {name: self._zeros(ops, zero, Column(shape)) for name, shape in self._noise.items()}
        if COIN in noise:
            noise[COIN] = noise[COIN] + 1.0
        if self._sampling is not None:
            noise[self._sampling.name] = self._sampling.noise(ops, uniform)
        return noise

    def _zeros(self, ops: FrameworkOps, zero: Any, column: Column) -> Any:
        """Return zeros [1, B, *shape], made from zeros [1, B, 1]."""
        if not column.shape:
            return zero[..., 0]
        for _ in column.shape[1:]:
            zero = zero[..., None]
        return zero + ops.tensor_like(zero, np.zeros(column.shape).tolist())

    def _in_units(self, ops: FrameworkOps, action: Any) -> Any:
        """Return actions in the units of the environment, [1, B] or flat, [1, B, A]."""
        if isinstance(self.space, spaces.Box):
            box = Continuous(self.space)
            center, reach, low, high = (
                ops.tensor_like(action, x.astype(np.float32).tolist())
                for x in (box.center, box.reach, box.low, box.high)
            )
            return ops.minimum(ops.maximum(center + reach * action, low), high)
        start = np.asarray(self.space.start).reshape(-1) if action_shape(self.space) else self.space.start  # type: ignore[attr-defined]
        return action + ops.tensor_like(action, start.tolist()) if np.any(start) else action


_SOME = np.random.default_rng(0)
"""A generator for the shapes of noise."""


class _Once:
    """A network that is computed once for the same inputs."""

    def __init__(self, net: Callable[..., Any]) -> None:
        """Remember nothing yet."""
        self._net = net
        self._known: list[tuple[Sequence[Any], Any]] = []

    def __call__(self, *inputs: Any) -> Any:
        """Return the outputs of the network."""
        for known, outputs in self._known:
            if len(known) == len(inputs) and all(a is b for a, b in zip(known, inputs, strict=True)):
                return outputs
        outputs = self._net(*inputs)
        self._known.append((inputs, outputs))
        return outputs


def observation_ports(parts: Sequence[Part]) -> list[Port]:
    """Return the inputs of the parts of an observation, in order, in the environment's format.

    Their names have only letters and digits of ASCII and underscores, and differ by more than the case of letters.
    """
    plain = [f"observation_{re.sub('[^0-9A-Za-z]', '_', part.name)}" if part.name else "observation" for part in parts]
    names = distinct(plain, mark="_", fold=str.lower)
    return [Port(n, tuple(p.space.shape or ()), _dtype_of(p)) for n, p in zip(names, parts, strict=True)]


def _dtype_of(part: Part) -> str:
    """Return the dtype of a part in the environment's format, as files take it."""
    if part.image:
        return "uint8"
    return "int64" if isinstance(part.space, spaces.Discrete | spaces.MultiDiscrete) else "float32"


def _flat(ops: FrameworkOps, part: Part, value: Any) -> Any:
    """Return a part of the observation as its columns of the vector, [1, B, width]; see `layout.Layout`."""
    space = part.space
    if isinstance(space, spaces.Discrete):
        return _one_hot(ops, value, int(space.start), int(space.n))
    flat = ops.flatten(value) if space.shape else value[..., None]
    if not isinstance(space, spaces.MultiDiscrete):
        return flat
    starts, sizes = space.start.reshape(-1).tolist(), space.nvec.reshape(-1).tolist()
    hot = [_one_hot(ops, flat[..., i], start, n) for i, (start, n) in enumerate(zip(starts, sizes, strict=True))]
    return ops.concat(hot, -1)


def _one_hot(ops: FrameworkOps, value: Any, start: int, n: int) -> Any:
    """Return 1.0 at the value and 0.0 elsewhere, [..., n]; only 0.0 for a value out of range, as in a layout."""
    return ops.flag(value[..., None] == ops.tensor_like(value, list(range(start, start + n))))


def _sampling_of(agent: LearningAgent, sampling: bool) -> Sampling | None:
    if not sampling:
        return None
    if agent.algorithm.sampling is None:
        raise ConfigError(
            f"export: the policy of a {type(agent).__name__} is deterministic, and its exploration belongs to "
            "training: there is nothing to sample. Leave sampling out"
        )
    return agent.algorithm.sampling


def _masked(agent: LearningAgent, legal: bool | None) -> bool:
    """Return whether a mask is an input; raises ConfigError for a mask of actions that have none."""
    choices = isinstance(agent.action_space, spaces.Discrete | spaces.MultiDiscrete)
    if legal and not choices:
        raise ConfigError(
            f"export: legal=True is for Discrete and MultiDiscrete actions, got {agent.action_space}: leave it out"
        )
    if legal is not None:
        return legal
    return choices and agent.masked
