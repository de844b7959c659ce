"""Arguments and threads of the compiled PPO update."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import address_of, record_at
from marltrain.policies.backends.base import Backend, Forward, Network, Optimizer, StackedNetwork
from marltrain.policies.compiled.array_checks import check_places, place_of
from marltrain.policies.compiled.optimizers import RULES
from marltrain.policies.compiled.ppo_kernel import BLOCK, METRICS, NORM, PART, PPO_UPDATE, WORK, evaluate, update
from marltrain.policies.compiled.trained_network import TrainedNetwork, allocate
from marltrain.policies.interface.algorithm import Algorithm
from marltrain.policies.learner.gradient_noise import noise_names, noise_rows
from marltrain.policies.learner.gradient_steps import GradientSteps
from marltrain.policies.learner.minibatches import Dealt
from marltrain.policies.optimizers import OPTIMIZER_NUMBERS

SETTINGS = ("clip", "value_clip", "entropy_coef", "value_coef")
"""Hyperparameters of an algorithm whose loss is "clipped", beside `max_grad_norm` and the learning rates."""
_ROLLOUT = {"legal": np.bool_, "action": np.int64, "log_prob": np.float32, "advantage": np.float32,
            "trace": np.float32, "target": np.float32, "value": np.float32}  # fmt: skip


def give_way() -> int:
    """Return the address of `sched_yield`, by which a waiting thread lets other threads run; 0 except on POSIX."""
    if os.name != "posix":
        return 0
    return ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value or 0


class WorkArrays:
    """Work arrays of threads, [threads] WORK at an address, large enough for each of some networks."""

    def __init__(self, parts: Sequence[TrainedNetwork]) -> None:
        """Compute the sizes of one thread's arrays."""
        sizes = [{"x": BLOCK * part.widths[0], **part.work_sizes(BLOCK)} for part in parts]
        self._sizes = {name: max(each[name] for each in sizes) for name in sizes[0]}
        self._arrays: list[Array] = []
        self._record = np.zeros(0, WORK)

    def of(self, threads: int) -> int:
        """Return the address of the work arrays of at least `threads` threads."""
        if len(self._record) < threads:
            self._record, self._arrays = np.zeros(threads, WORK), []
            for record in self._record:
                self._arrays += allocate(record, self._sizes)
        return address_of(self._record)


class PPOUpdate:
    """A `GradientStep` of an actor and a critic in compiled code, on the arrays of the framework.

    One call makes all gradient steps of an update, in at most as many threads as the framework may use.
    metrics: the names of the metrics.
    """

    def __init__(
        self, algorithm: Algorithm, backend: Backend, nets: Mapping[str, StackedNetwork],
        optimizers: Mapping[str, Optimizer],
    ) -> None:  # fmt: skip
        """Write the constant fields for a phase that trains an actor and a critic; see `gradient_steps.can_learn`."""
        (self.phase,), self.backend = algorithm.phases, backend
        phase = self.phase
        rule, names, settings = algorithm.settings.optimizer, algorithm.numbers(), algorithm.settings
        self.metrics: tuple[str, ...] = (
            "loss/actor", "loss/critic", "loss/total", "entropy", "approx_kl", "clip_share",
            *(f"{what}/{name}" for name in phase.trains for what in ("grad_norm", "grad_norm_clipped")),
        )  # fmt: skip
        self.measures = False
        self._parts = np.zeros(2, PART)
        self._networks = {
            name: TrainedNetwork(record, nets[name], optimizers[name], rule, backend)
            for name, record in zip(phase.trains, self._parts, strict=True)
        }
        actor, _ = self._networks.values()
        self.agents, self._choices = actor.agents, actor.widths[-1]
        for record, name in zip(self._parts, phase.trains, strict=True):
            plan = nets[name].plan
            record["state_width"] = sum(plan.definition.vectors)
            record["obs_width"] = plan.vector_width - record["state_width"]
        self._work = WorkArrays(list(self._networks.values()))
        self._pool: ThreadPoolExecutor | None = None
        self._others: list[Future[int]] = []
        self._held: tuple[Any, ...] = ()  # arrays that compiled code reads and writes during a call
        self._settings = {name: names.index(name) for name in SETTINGS} | {"limit": names.index("max_grad_norm")}
        extra = {name: names.index(name) for name in OPTIMIZER_NUMBERS}
        self._places = [{"rate": names.index(algorithm.rate_name(name)), **extra} for name in phase.trains]
        self._counts = np.zeros((2, self.agents), np.int64)
        self._tickets = np.zeros(1, np.int64)
        self.record = np.zeros(1, PPO_UPDATE)
        record = self.record[0]
        record["agents"], record["rule"] = self.agents, RULES[rule]
        record["normalize"], record["clipped"] = settings.normalize_advantage, settings.value_clip is not None
        record["gaussian"] = self._gaussian = bool(self._parts[0]["free"])
        record["parts"], record["tickets"] = map(address_of, (self._parts, self._tickets))
        (record["done"], record["moved"]), record["give_way"] = map(address_of, self._counts), give_way()
        self.address = address_of(self.record)

    def __call__(self, columns: Mapping[str, Any], dealt: Dealt, numbers: Any, due: Array) -> Array:
        """Make the P gradient steps of a rollout, for the agents that are `due` [P, K] bool; return metrics [P, M, K].

        columns: the rollout's arrays, [K, R, ...].  dealt: the rows of each minibatch.
        numbers: [H, K, 1], the agents' hyperparameters.
        """
        wait(self._others)  # empty, unless a second Ctrl-C interrupted the wait at the end of the last call
        self._others.clear()
        record, hyper = self.record[0], self.backend.numpy(numbers)
        rollout, passes, (epochs, _, rows) = self._place(columns), len(due), dealt.index.shape
        measured = np.zeros((passes, METRICS, self.agents), np.float32)
        check_places("rows", dealt.index, int(record["of"]))
        given: dict[str, tuple[Array, Any, tuple[int, ...]]] = {
            "index": (dealt.index, np.int64, (epochs, self.agents, rows)),
            "share": (dealt.weight, np.float32, (epochs, self.agents, rows)),
            **{name: (getattr(dealt, name), np.int64, (passes,)) for name in ("start", "stop", "epoch")},
            "due": (due, np.bool_, (passes, self.agents)),
            "metrics": (measured, np.float32, measured.shape),
            **{name: (hyper[place], np.float32, (self.agents, 1)) for name, place in self._settings.items()},
        }
        for name, column in given.items():
            record[name] = place_of(name, *column)
        for part, places in zip(self._parts, self._places, strict=True):
            for field, place in places.items():
                part[field] = address_of(hyper[place])
        record["passes"], record["columns"] = passes, rows
        products = np.zeros((2, passes, 2, self.agents))
        self._parts["products"] = [address_of(product) for product in products]
        self._tickets[:] = 0
        self._counts[...] = 0
        self._held = rollout, given, hyper, products
        self._run()
        self._held = ()
        return self._with_noise(measured, products, dealt) if self.measures else measured

    def measure_noise(self, *, on: bool) -> None:
        """See `GradientStep`."""
        self.measures = on
        self._part_gradients = [np.zeros((self.agents, int(part["size"])), np.float32) for part in self._parts]
        self._parts["part"] = [address_of(grads) if on else 0 for grads in self._part_gradients]
        self.metrics = (*self.metrics[:METRICS], *noise_names(self._networks if on else []))

    def _with_noise(self, measured: Array, products: Array, dealt: Dealt) -> Array:
        """Return the metrics [P, M, K] with those of `measure_noise`; products: [2, P, 2, K]."""
        norms, each = measured[:, NORM::2], products.swapaxes(0, 1)
        parts = [(weight[:, ::2], weight[:, 1::2]) for weight in dealt.weights()]
        added = [noise_rows(*given) for given in zip(parts, each, norms, strict=True)]
        return np.concatenate([measured, np.stack(added)], 1)

    def _run(self) -> None:
        """Make the gradient steps in this thread and in the threads of the pool."""
        threads = min(self.backend.threads(), 2 * self.agents)
        self.record["work"] = self._work.of(threads)
        if threads > 1 and self._pool is None:
            self._pool = ThreadPoolExecutor(2 * self.agents - 1, thread_name_prefix="marltrain-passes")
        try:
            for thread in range(1, threads):
                self._others.append(self._pool.submit(_update(), self.address, thread))  # type: ignore[union-attr]
            _update()(self.address, 0)
        finally:
            wait(self._others)  # after Ctrl-C too: the threads write to the arrays in `_held`
        for other in self._others:
            other.result()
        self._others.clear()

    def close(self) -> None:
        """End the threads; the next update starts new threads."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def evaluate(self, name: str, *inputs: Any) -> list[Any]:
        """Return the outputs of a network for its inputs [K, B, ...] as a list of one tensor [K, B, outputs]."""
        part, given = self._networks[name], [self.backend.numpy(each) for each in inputs]
        seen = np.ascontiguousarray(given[0] if len(given) == 1 else np.concatenate(given, -1))
        rows = seen.shape[1]
        outputs = np.empty((self.agents, rows, part.widths[-1]), np.float32)
        x = place_of("inputs", seen, np.float32, (self.agents, rows, part.widths[0]))
        _evaluate()(address_of(part.record), self._work.of(1), self.agents, x, rows, address_of(outputs))
        if free := int(part.record["free"]):
            constants = part.weights[:, None, -free:]
            outputs = np.concatenate([outputs, np.broadcast_to(constants, (self.agents, rows, free))], 2)
        return [self.backend.tensor(outputs)]

    def _place(self, columns: Mapping[str, Any]) -> list[Array | None]:
        """Write the addresses of the rollout's arrays; return the arrays, which the caller must keep."""
        record, given = self.record[0], {name: columns.get(name) for name in _ROLLOUT}
        arrays = {name: None if value is None else self.backend.numpy(value) for name, value in given.items()}
        target = arrays["target"]
        rows = 0 if target is None or target.ndim != 2 else target.shape[1]
        place_of("target", target, np.float32, (self.agents, rows))  # the number of rows that the others must have
        inputs = self._place_inputs(columns, rows)
        axes = {"legal": (self._choices,)}
        kinds = dict(_ROLLOUT)
        if self._gaussian:
            axes["action"], kinds["action"] = (self._choices,), np.float32
        for name, array in arrays.items():
            optional = name in ("legal", "trace") or (name == "value" and not record["clipped"])
            shape = (self.agents, rows, *axes.get(name, ()))
            record[name] = 0 if array is None and optional else place_of(name, array, kinds[name], shape)
        if not self._gaussian:
            check_places("actions", arrays["action"], self._choices)
        record["of"] = rows
        return [*inputs, *arrays.values()]

    def _place_inputs(self, columns: Mapping[str, Any], rows: int) -> list[Array | None]:
        """Write the addresses of the networks' inputs; return the arrays, which the caller must keep."""
        kept: list[Array | None] = []
        for name in ("obs", "state"):
            value = columns.get(name)
            array = None if value is None else self.backend.numpy(value)
            for part in self._parts:
                if width := int(part[f"{name}_width"]):
                    part[name] = place_of(name, array, np.float32, (self.agents, rows, width))
            kept.append(array)
        return kept


class PPOUpdates(GradientSteps):
    """The gradient steps of an update over a rollout, made in one call of compiled code."""

    at_once = True
    steps: list[PPOUpdate]

    def networks(self, nets: Mapping[str, Network]) -> dict[str, Forward]:
        """See `GradientSteps`."""
        (one,) = self.steps
        return {**nets, **{name: functools.partial(one.evaluate, name) for name in one.phase.trains}}

    def close(self) -> None:
        """See `GradientSteps`."""
        self.steps[0].close()


@compiled
def evaluate_agents(network: int, work: int, agents: int, x: int, rows: int, outputs: int) -> None:
    """Write the outputs of each agent's network for x [K, rows, width] to `outputs` [K, rows, choices]."""
    n, own = record_at(network, PART), record_at(work, WORK)
    for k in range(agents):
        evaluate(n, own, k, x + 4 * k * rows * n.width, rows, outputs + 4 * k * rows * n.choices)


@functools.cache
def _update() -> Any:
    return program(update, PPO_UPDATE, PART, WORK)


@functools.cache
def _evaluate() -> Any:
    return program(evaluate_agents, PART, WORK)
