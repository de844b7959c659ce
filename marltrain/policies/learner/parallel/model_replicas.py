"""The gradient steps of a user's model and losses (`CustomAgent`): in this process, or in those of a strategy."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import CodeType
from typing import Any

import numpy as np

from marltrain.core.errors import AgentError, ConfigError
from marltrain.core.layout import Array, map_tree
from marltrain.policies.backends import make_backend
from marltrain.policies.backends.base import Backend
from marltrain.policies.backends.frameworks import framework_of
from marltrain.policies.backends.own import OwnModel, check_mean
from marltrain.policies.backends.randomness import drawn_seed
from marltrain.policies.backends.strategies import ParameterServerStrategy, Strategy, chosen, parts_differ
from marltrain.policies.learner.parallel.replica import drawing
from marltrain.policies.learner.parallel.replicas import Team
from marltrain.policies.memory.config import Replay, Rollouts

After = Callable[[Any], Any]
"""(model), called after every gradient pass."""


class ModelSteps:
    """The gradient steps of a user's model in this process, on one device or on those of a strategy."""

    def __init__(self, own: OwnModel, after_update: After | None, strategy: Strategy | None = None) -> None:
        """Store the model, the function that is called after every pass, and the strategy."""
        self.own, self.after_update, self.strategy = own, after_update, strategy
        self._checked = strategy is None

    def begin(self) -> None:
        """Prepare the gradient steps of an update."""

    def step(self, columns: Mapping[str, Any]) -> dict[str, float]:
        """Make a gradient pass over the rows of columns [B, ...]; return metrics.

        Raises AgentError for a loss that is no mean over rows, which a strategy needs.
        """
        if not self._checked and len(columns["reward"]) > 1:
            check_mean(self.own, columns, str(self.strategy))
            self._checked = True
        return self._made(columns)

    def end(self, *, finite: bool) -> None:
        """Finish an update; finite: whether all its metrics are."""

    def close(self) -> None:
        """End the started processes; a later update starts them again."""

    def _made(self, columns: Mapping[str, Any]) -> dict[str, float]:
        metrics = self.own.step({name: self.own.tensors(value) for name, value in columns.items()})
        if self.after_update is not None:
            self.after_update(self.own.model)
        return metrics


class ModelReplicas(ModelSteps):
    """The gradient steps of a user's model in the processes of a strategy, which the first update starts.

    Each process holds a replica of model, losses and optimizers. All replicas make the same steps by the sums of
    gradients; after an update the model takes their state.
    """

    def __init__(self, own: OwnModel, after_update: After | None, strategy: Strategy, backend: Backend) -> None:
        """Prepare the processes without starting them.

        Raises ConfigError if the model cannot be pickled, AgentError for functions that use models of their own.
        """
        super().__init__(own, after_update, strategy)
        for phase in own.phases:
            check_captured(f"loss {phase.name!r}", phase.loss, strategy)
        if after_update is not None:
            check_captured("after_update", after_update, strategy)
        what = f"CustomAgent: model {type(own.model).__name__} with its losses and optimizers"
        self.team = Team(strategy, backend, partial(ModelReplica, own.sent(), after_update), what)
        self._known: tuple[Any, dict[str, Array]] | None = None

    def begin(self) -> None:
        """Start the processes; send the model's state if it differs from that of the replicas."""
        self.team.start()
        state = self._state()
        if self.team.outdated or self._known is None or not _equal(state, self._known):
            self.team.ask_all("load", *state)
            self.team.outdated, self._known = False, state

    def end(self, *, finite: bool) -> None:
        """Take the state of the first replica; the model keeps its own if a metric is not finite."""
        if finite:
            state = self.team.ask([("state",)])[0]
            self.own.load(*state)
            self._known = state
        else:
            self.team.outdated = True

    def close(self) -> None:
        """End the processes."""
        self.team.close()

    def _state(self) -> tuple[Any, dict[str, Array]]:
        arrays: dict[str, Array] = {}
        return self.own.state(arrays), arrays

    def _made(self, columns: Mapping[str, Any]) -> dict[str, float]:
        count, seed = self.team.strategy.learning(), drawn_seed()
        orders = [("step", *part_of_rows(columns, i, count), seed) for i in range(count)]
        metrics: dict[str, float] = self.team.ask(orders)[0]
        return metrics


def model_steps(own: OwnModel, after_update: After | None, given: Any, memory: Replay | Rollouts) -> ModelSteps:
    """Return the gradient steps of a user's model with the argument `strategy=` of its agent.

    Raises ConfigError for a strategy that cannot train it, AgentError for functions that use other models.
    """
    strategy = chosen(given, own.framework)
    if strategy is None:
        return ModelSteps(own, after_update)
    kind = f"CustomAgent: model {type(own.model).__name__}"
    if own.jit_compile:
        raise ConfigError("CustomAgent: jit_compile=True goes with no strategy: leave one out")
    if isinstance(memory, Replay) and memory.prioritized is not None:
        raise ConfigError(
            f"CustomAgent: a prioritized memory needs the errors of all rows of a batch, which {strategy} splits: "
            "leave out strategy= or prioritized="
        )
    if isinstance(strategy, ParameterServerStrategy):
        raise ConfigError(
            f"{kind} has its variables, and the servers of {strategy} make those that they hold: take "
            "MultiWorkerMirroredStrategy"
        )
    if (couples := own.statistics()) is not None:
        raise ConfigError(parts_differ(kind, couples, strategy))
    if strategy.shares_variables and own.draws:
        raise ConfigError(
            f"{kind} draws random numbers (dropout and the like), whose state the devices of {strategy} would share: "
            "take MultiWorkerMirroredStrategy, or leave strategy= out"
        )
    backend = make_backend(own.framework, str(own.device).rpartition("device:")[2], strategy=strategy)
    if strategy.members():
        return ModelReplicas(own, after_update, strategy, backend)
    own.sums = backend
    return ModelSteps(own, after_update, strategy)


class ModelReplica:
    """A replica of a user's model, its losses and its optimizers."""

    def __init__(
        self, sent: Callable[[], OwnModel], after_update: After | None, backend: Backend, index: int
    ) -> None:  # fmt: skip
        """Make the model; see `OwnModel.sent`."""
        self.own, self.after_update, self.backend, self.index = sent(), after_update, backend, index
        self.own.sums = backend

    def load(self, info: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
        """Set weights and the states of the optimizers."""
        self.own.load(info, arrays)

    def step(self, columns: Mapping[str, Any], share: float, seed: int) -> dict[str, float] | None:
        """Make a gradient pass with the other members; return metrics on member 0.

        share: this part's share of all rows.  seed: of random numbers; each member draws others.
        """
        own = self.own
        with drawing(self.backend, seed, self.index), own.learning():
            metrics = own.step({name: own.tensors(value) for name, value in columns.items()}, share)
            if self.after_update is not None:
                self.after_update(own.model)
        return metrics if self.index == 0 else None

    def state(self) -> tuple[Any, dict[str, Array]]:
        """Return weights and the states of the optimizers."""
        arrays: dict[str, Array] = {}
        return self.own.state(arrays), arrays


def part_of_rows(columns: Mapping[str, Any], part: int, parts: int) -> tuple[dict[str, Any], float]:
    """Return part `part` of the rows of columns [B, ...] and its share of all rows; at least a row, of share 0."""
    rows = len(columns["reward"])
    start, stop = part * rows // parts, (part + 1) * rows // parts
    first = min(start, rows - 1)
    index = slice(first, max(stop, first + 1))
    return {name: map_tree(lambda array: array[index], value) for name, value in columns.items()}, (stop - start) / rows


def check_captured(what: str, function: Any, strategy: Strategy) -> None:
    """Raise AgentError for a function that uses a model other than the one it is called with.

    Each process would have a copy of such a model, which nothing keeps equal.
    """
    for name, value in _captured(function):
        kind = framework_of(value)
        weights = "parameters" if kind == "torch" else "variables"
        if kind is None or isinstance(value, type) or not hasattr(value, weights) or not callable(value):
            continue
        held = getattr(value, weights)
        if any(True for _ in (held() if callable(held) else held)):
            raise AgentError(
                f"CustomAgent: {what} uses {name!r} ({type(value).__name__}) beside the model that it is called with, "
                f"and the processes of {strategy} only get the model: make {name} a part of the model, such as "
                f"self.{name}, and use it from there"
            )


def _captured(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield name and value of what a Python function takes from outside; nothing for other callables."""
    while isinstance(function, partial):
        yield from ((str(i), value) for i, value in enumerate(function.args))
        yield from function.keywords.items()
        function = function.func
    function = inspect.unwrap(getattr(function, "__func__", function))
    if inspect.isfunction(function):
        yield from inspect.getclosurevars(function).nonlocals.items()
        yield from (
            (name, function.__globals__[name]) for name in _globals(function.__code__) & {*function.__globals__}
        )


def _globals(code: CodeType) -> set[str]:
    """Return the names of the globals that a function and the functions inside it read."""
    names = {each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL"}
    return names.union(*(_globals(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def _equal(one: tuple[Any, dict[str, Array]], other: tuple[Any, dict[str, Array]]) -> bool:
    (info, arrays), (known, held) = one, other
    return (
        info == known
        and arrays.keys() == held.keys()
        and all(np.array_equal(array, held[name]) for name, array in arrays.items())
    )
