"""Gradient passes in compiled code: for which learners, and what the code is told."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from marltrain.addresses import address_of
from marltrain.compiling import compiled, kept, key_of, plain, reached
from marltrain.layout import Array
from marltrain.policies.algorithm import Algorithm, Phase
from marltrain.policies.native.learn import LEARN, METRICS, learn, learning, targets_follow
from marltrain.policies.native.move import LANES, RULES, SLOTS
from marltrain.policies.native.network import is_known, largest, tell, widths_of
from marltrain.policies.networks import Plan
from marltrain.policies.passes import Passes

LOSSES = {"q": False, "double_q": True}
"""What `Native.loss` may name, and whether the next action is chosen by the online network."""
LARGEST = 2**15
"""Weights of a network: larger ones are torch's, which may take several threads for them; this is a thread of one.

`benchmarks/kernels.py --widths 64 128 176 256` holds both beside each other on one.
"""
_COLUMNS = {"obs": np.float32, "action": np.int64, "reward": np.float32, "discount": np.float32, "weight": np.float32,
            "next_obs": np.float32, "next_legal": np.bool_}  # fmt: skip


def can_learn(algorithm: Algorithm, backend: Any, nets: Mapping[str, Any]) -> bool:
    """Say whether compiled code makes an algorithm's passes: where its class says so, for small networks on a CPU."""
    kind = algorithm.native() if "native" in vars(type(algorithm)) else None
    if kind is None or kind.loss is None or not (backend.jit_compile and backend.shares_memory):
        return False
    plan: Any = getattr(nets[kind.network], "plan", None)
    return backend.strategy is None and is_known(plan) and sum(p.size for p in plan.parameters) <= LARGEST


class NativePass:
    """What `PhasePass` is, for Q-values in compiled code: it moves the very arrays that the framework has.

    told: [1] LEARN.  limit, rate: the places of the largest norm and the learning rate among the agents' settings.
    metrics: the names of what it measures.
    """

    def __init__(
        self, phase: Phase, algorithm: Algorithm, backend: Any, nets: Mapping[str, Any], optimisers: Mapping[str, Any]
    ) -> None:
        """Lay down what does not change, of a learner that `can_learn`."""
        kind = algorithm.native()
        if kind is None or kind.loss not in LOSSES:
            raise TypeError(f"Native(loss=...): compiled code knows {' and '.join(map(repr, LOSSES))}, not {kind}")
        self.phase, self.backend = phase, backend
        self.names, name = algorithm.numbers(), kind.network
        self.metrics = ("loss/total", "q_mean", f"grad_norm/{name}", f"grad_norm_clipped/{name}")
        network, optimiser, rule = nets[kind.network], optimisers[kind.network], algorithm.settings.optimizer
        plan: Plan = network.plan
        self.agents, self.rows = network.num_agents, 0
        moments = {name: backend.numpy(value) for name, value in optimiser.state().items()}
        weights, target = network.numbers(), nets[f"target_{kind.network}"].numbers()
        self._kept = weights, target, *moments.values()  # which must live on
        self.limit, self.rate = map(self.names.index, ("max_grad_norm", algorithm.rate_name(kind.network)))
        self._epsilon = np.array([optimiser.epsilon])
        self._measured = np.zeros((METRICS, self.agents), np.float32)
        self._due = np.ones(self.agents, bool)
        self._widths = [plan.layout.vector_size, *widths_of(plan)]
        self._room: list[Array] = []
        self.told = np.zeros(1, LEARN)
        told = self.told[0]
        tell(told, plan)
        told["agents"], told["double"], told["rule"] = self.agents, LOSSES[kind.loss], RULES[rule]
        told["weights"], told["target"] = address_of(weights), address_of(target)
        for name in (*SLOTS[rule], "count"):
            told[name] = address_of(moments[name])
        told["epsilon"], told["due"] = address_of(self._epsilon), address_of(self._due)
        self.address = address_of(self.told)

    def __call__(self, columns: Mapping[str, Any], numbers: Any, due: Array) -> Any:
        """See `PhasePass`."""
        arrays = {n: None if columns[n] is None else self.backend.numpy(columns[n]) for n in _COLUMNS}
        hyper, action, choices = self.backend.numpy(numbers), arrays["action"], self._widths[-1]
        self.place(due, **arrays)
        if action is not None and (action.min() < 0 or action.max() >= choices):
            raise TypeError(f"actions must lie in [0, {choices}); they are {action.min()} to {action.max()}")
        told = self.told[0]
        told["limit"], told["rate"] = address_of(hyper[self.limit]), address_of(hyper[self.rate])
        told["metrics"] = address_of(self._measured)
        _learn()(self.address)
        return self.backend.tensor(self._measured.copy())

    def place(self, due: Array, **columns: Array | None) -> None:
        """Say who learns, [K] bool, and where the rows to learn from are, [K, B, ...]."""
        rows = self._fitting(columns)
        if rows != self.rows:
            self._make_room(rows)
        self._due[...] = due
        for name, array in columns.items():
            self.told["share" if name == "weight" else name] = 0 if array is None else address_of(array)

    def follow(self, share: Array) -> None:
        """Move the targets by their share [K] towards the networks."""
        shares = share.astype(np.float32)
        _follow()(self.address, address_of(shares))

    def _fitting(self, columns: Mapping[str, Array | None]) -> int:
        """Return the rows of columns; raises TypeError for what compiled code would not read aright."""
        reward = columns["reward"]
        rows = 0 if reward is None or reward.ndim != 2 else reward.shape[1]
        axes = {"obs": self._widths[:1], "next_obs": self._widths[:1], "next_legal": self._widths[-1:]}
        for name, array in {"reward": reward, **columns}.items():
            if array is None and name == "next_legal":
                continue
            kind, shape = np.dtype(_COLUMNS[name]), (self.agents, rows, *axes.get(name, ()))
            if array is None or array.dtype != kind or array.shape != shape or not array.flags.c_contiguous:
                came = "nothing" if array is None else f"{array.dtype} {array.shape} with strides {array.strides}"
                raise TypeError(f"column {name!r} must be {kind} {shape} in one piece; it is {came}")
        return rows

    def _make_room(self, rows: int) -> None:
        widths, size = self._widths, plain(largest)  # to compile it for this would take longer
        most = max(size(rows, *pair) for pair in itertools.pairwise(widths))
        sizes = {
            "into": rows * sum(widths[1:]), "following": rows * sum(widths[1:]),
            "gradient": int(self.told[0]["size"]), "aims": rows, "zeros": max(widths), "aside": max(LANES, 2 * most),
        }  # fmt: skip
        made = {name: np.zeros(size, np.float32) for name, size in sizes.items()}
        self._room, self.rows = list(made.values()), rows
        self.told["rows"] = rows
        for name, array in made.items():
            self.told[name] = address_of(array)


class NativePasses(Passes):
    """The one pass of a learner in compiled code, which moves the targets too."""

    native = True
    made: list[NativePass]

    def follow(self, learner: Any, share: Array) -> None:
        """See `Passes`."""
        self.made[0].follow(share)


@compiled
def learn_once(address: int) -> None:
    """Make one pass."""
    learn(learning(address))


@compiled
def follow_once(address: int, shares: int) -> None:
    """Have the targets follow."""
    targets_follow(learning(address), shares)


@functools.cache
def _learn() -> Any:
    function = learn_once.py_func  # type: ignore[attr-defined]
    return kept(function, key_of(repr(LEARN), *reached(function)))


@functools.cache
def _follow() -> Any:
    function = follow_once.py_func  # type: ignore[attr-defined]
    return kept(function, key_of(repr(LEARN), *reached(function)))
