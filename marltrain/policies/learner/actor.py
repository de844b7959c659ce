"""Acting of K agents of one algorithm: in compiled code, by a program, in numpy or in tensors, with their noise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import error_text
from marltrain.core.layout import Array
from marltrain.core.legal import Legal
from marltrain.jit.notices import tell
from marltrain.policies.backends import numpy_ops
from marltrain.policies.backends.base import Backend, Forward, Network
from marltrain.policies.backends.started import Started
from marltrain.policies.batches.batch import Acted, ActInputs
from marltrain.policies.batches.normalization import RunningStatistics, normalized_observations
from marltrain.policies.exploration.discrete import ACTION_COUNTS
from marltrain.policies.hyperparameters.stacked import StackedHyperparameters
from marltrain.policies.interface.algorithm import OBSERVATION, Algorithm
from marltrain.policies.interface.recurrence import carries_of, column_of
from marltrain.policies.learner.noise import Noise, Rngs

if TYPE_CHECKING:
    from marltrain.policies.compiled.acting import CompiledActing
    from marltrain.policies.learner.programs.act_program import ActProgram
    from marltrain.policies.learner.programs.act_table import ActTables

_READ = ("obs", "legal", "explore", "carry", "noise")
"""The inputs of an act that are arrays."""


class Actor:
    """Acting of K agents with the networks set by `use`, without changing the networks.

    nets: name -> network used for acting.
    counts: [K, A] int64, how often exploring seats chose each action in training; A = 0 without counts.
    hyper: the agents' settings.
    settings: [H, K, 1] float32, the same settings in the order of `hyper.names`, which compiled acts read; planned
      updates write those of their rounds there.
    carried: name -> column of the state that acts carry from decision to decision; usually empty.
    recurrent: those of recurrent networks, by network; each act returns them as extras, too.
    noise: noise of the acts. A custom model is seeded from the same stream at every act, so its noise is not drawn
      ahead; nor is that of an algorithm without `noise_by_rows` or `noise_by_acts`.
    """

    nets: Mapping[str, Network]

    def __init__(
        self,
        algorithm: Algorithm,
        backend: Backend,
        hyper: StackedHyperparameters,
        seeded: Callable[[np.random.Generator], AbstractContextManager[None]] | None,
    ) -> None:
        """Store the parts that acting needs.

        hyper: the agents' settings.  seeded: function that returns the seeding context of a custom model, or None.
        """
        self.algorithm, self.backend, self.hyper, self._seeded = algorithm, backend, hyper, seeded
        by_rows, by_acts = (declares(algorithm, "noise", flag) for flag in ("noise_by_rows", "noise_by_acts"))
        self.noise = Noise(algorithm.noise, ahead=seeded is None and (by_rows or by_acts), by_rows=by_rows)
        self.carried, self.recurrent = dict(algorithm.carry()), carries_of(algorithm.networks())
        self.counts = np.zeros((len(hyper.schedules), algorithm.counted_actions), np.int64)
        self.settings = np.zeros((len(hyper.names), len(hyper.schedules), 1), np.float32)
        self._seen = -1  # changes of the settings that it has
        self._read: dict[str, Array] = dict(zip(hyper.names, self.settings, strict=True))
        if self.counts.size:
            self._read[ACTION_COUNTS] = np.zeros(self.counts.shape, np.float32)
        self._in_numpy: Mapping[str, Forward] | None = None
        self._compiled: dict[int | None, CompiledActing | ActProgram | None] = {}
        self._functions: dict[tuple[int | None, bool], Callable[..., Any]] = {}  # of an agent, in training
        self._tables: ActTables | None = None
        self._recordable = backend.runs_programs and seeded is None and declares(algorithm, "act", "acts_in_numpy")

    def use(self, nets: Mapping[str, Network], statistics: Mapping[str, RunningStatistics]) -> None:
        """Set the networks and the running statistics used for acting."""
        self._observed = statistics.get(OBSERVATION)
        views = {name: view for name, net in nets.items() if (view := net.in_numpy()) is not None}
        in_numpy = len(views) == len(nets) and declares(self.algorithm, "act", "acts_in_numpy")
        self.nets, self._in_numpy = nets, views if in_numpy else None
        self._compiled, self._functions = {}, {}

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU computes the acts, with noise that may be drawn ahead."""
        return self.noise.ahead and self.backend.on_gpu

    def compiled(self, row: int | None = None) -> CompiledActing | ActProgram | None:
        """Return compiled acting of one agent or of all: by the kernel, else by a program; None if unsupported."""
        kernel = self._kernel(row)
        return self._program(row) if kernel is None and self._recordable else kernel

    def _kernel(self, row: int | None) -> CompiledActing | None:
        supported = self.noise.ahead and self._in_numpy is not None and self._observed is None
        supported = supported and not self.carried
        form = self.algorithm.compiled_form() if supported else None
        if form is None or form.rule is None or "compiled_form" not in vars(type(self.algorithm)):
            return None  # a subclass that does not define compiled_form may act differently
        from marltrain.policies.compiled.acting import CompiledActing  # loads numba
        from marltrain.policies.compiled.network import is_known

        network = self.nets[form.network]
        return CompiledActing(form, network, row) if is_known(network, free=form.rule == "gaussian") else None

    def _program(self, row: int | None) -> ActProgram | None:
        """Return acting by a program; None if `Algorithm.act` cannot be recorded, which a notice tells once."""
        from marltrain.policies.learner.programs.act_program import ActProgram  # loads numba
        from marltrain.policies.learner.programs.act_table import ActTables

        plans: dict[str, Any] = {name: getattr(net, "plan", None) for name, net in self.nets.items()}
        if type(self.algorithm).to_units is not Algorithm.to_units or None in plans.values():
            return None
        try:
            if self._tables is None:
                self._tables = ActTables(self._call, plans, self.algorithm.units)
            return ActProgram(self._tables, self.nets, self._observed, self._sample(), row)
        except Exception as error:  # of functions of the user, too; nothing has been changed
            tell(f"{self.algorithm.name}: {self.backend.name} computes the acts, which cannot be recorded: "
                 f"{error_text(error)}")  # fmt: skip
            self._recordable = False
            return None

    def _sample(self) -> dict[str, Any]:
        """Return inputs of an act of one row, with a mask if there can be one, by the names of `act_table`."""
        algorithm, width = self.algorithm, Legal(self.algorithm.action_space).width
        drawn = algorithm.noise([np.random.default_rng(0)], 1)
        return {
            "obs": algorithm.layout.empty((1, 1)), "player": None,
            "legal": np.ones((1, 1, width), np.bool_) if width else None,
            "explore": np.zeros((1, 1), np.bool_), "noise": drawn, "hyper": self._read,
            "carry": {name: np.zeros((1, 1, *column.shape), column.dtype) for name, column in self.carried.items()},
        }  # fmt: skip

    def prepare(self, acting: CompiledActing | ActProgram, rngs: Rngs) -> tuple[int, int]:
        """Prepare acts of compiled code; return the index of the next act and the number of prepared acts.

        The caller counts the acts made with `made`.
        """
        noise, first, left = self.noise.prepared(rngs, acting.rows)
        acting.refresh(noise, self.refreshed())
        return first, left

    def refreshed(self) -> Mapping[str, Array]:
        """Return the present settings, name -> [K, 1], and the counts of actions; the same arrays in each call."""
        if (changes := self.hyper.changes) != self._seen:
            for name, own in zip(self.hyper.names, self.settings, strict=True):
                own[...] = self.hyper.columns[name]
            self._seen = changes
        if self.counts.size:
            self._read[ACTION_COUNTS][...] = self.counts
        return self._read

    def made(self, acts: int) -> None:
        """Count acts that compiled code has made after `prepare`."""
        self.noise.skip(acts)

    def act(self, inputs: ActInputs, rngs: Rngs) -> Acted:
        """Choose actions for all agents; noise is drawn for every row, independent of `inputs.explore`."""
        rows = inputs.explore.shape[1]
        if (compiled := self._acting(None)) is None:
            return self._decided(None, inputs, self.noise.next(rngs, rows), rngs[0]).result()
        noise, at, _ = self.noise.prepared(rngs, rows)
        acted = compiled.act(inputs, noise, at, self.refreshed())
        self.noise.skip(1)
        return acted

    def start(self, inputs: ActInputs, rngs: Rngs) -> StartedAct:
        """Start the same choice; on a GPU, the operations may be under way when this returns.

        Other acts may be started before the decisions are read. Weights that change in between have no effect.
        """
        if self._acting(None) is not None:
            return StartedAct(self.act(inputs, rngs))
        return self.start_with(inputs, self.noise.next(rngs, inputs.explore.shape[1]), rngs[0])

    def start_with(self, inputs: ActInputs, noise: Mapping[str, Array], rng: np.random.Generator) -> StartedAct:
        """Start the choice with given noise, as by `start`, in an agent's framework."""
        return self._decided(None, inputs, noise, rng)

    def act_dealt(
        self, inputs: ActInputs, noise: Mapping[str, Array], rng: np.random.Generator, counts: Array
    ) -> Acted:
        """Choose actions with given noise; counts: [K] int64, rows of each agent that count, the first ones."""
        if (compiled := self._acting(None)) is None:
            return self._decided(None, inputs, noise, rng).result()
        return compiled.act(inputs, _as_one_act(noise), 0, self.refreshed(), counts)

    def count(self, actions: Array, explored: Array) -> None:
        """Count actions [K, B] of training; explored: [K, B] bool, the rows that acted and explored."""
        for own, chosen, rows in zip(self.counts, actions, explored, strict=True):
            own += np.bincount(chosen[rows], minlength=len(own))

    def act_row(self, row: int, inputs: ActInputs, rng: np.random.Generator) -> Acted:
        """Choose actions for one agent only, [1, B, ...]."""
        noise = self.algorithm.noise([rng], inputs.explore.shape[1])
        if (compiled := self._acting(row)) is None:
            return self._decided(row, inputs, noise, rng).result()
        return compiled.act(inputs, _as_one_act(noise), 0, self.refreshed())

    def _acting(self, row: int | None) -> CompiledActing | ActProgram | None:
        """Return the compiled acting of single acts, the same in each call."""
        if row not in self._compiled:
            self._compiled[row] = self.compiled(row)
        return self._compiled[row]

    def policy_numbers_of_row(self, row: int, inputs: ActInputs) -> dict[str, Array]:
        """Return `Algorithm.policy_numbers` of one agent, by the start of an episode, [1, B, A]; {} without them."""
        numbers, backend, rng = self.algorithm.policy_numbers, self.backend, np.random.default_rng(0)
        if numbers is None:
            return {}
        drawn = self.algorithm.noise([rng], inputs.explore.shape[1])
        silent = {name: np.zeros_like(array) for name, array in drawn.items()}
        given = replace(inputs, carry=self._started(inputs), noise=silent)
        if self._observed is not None:
            given.obs = normalized_observations(self._observed.row(row), inputs.obs)
        with backend.no_gradient(), nullcontext() if self._seeded is None else self._seeded(rng):
            found = numbers(backend.ops, _of_row(self.nets, row), self._tensors(row, given))
        return {name: backend.numpy(value) for name, value in found.items()}

    def _decided(
        self, row: int | None, inputs: ActInputs, noise: Mapping[str, Array], rng: np.random.Generator
    ) -> StartedAct:
        """Choose actions for one agent or for all agents: in numpy, else in tensors."""
        given = ActInputs(
            inputs.obs, inputs.legal, inputs.explore, self._started(inputs), noise, training=inputs.training,
            member=inputs.member,
        )  # fmt: skip
        if self._observed is not None:
            observed = self._observed if row is None else self._observed.row(row)
            given.obs = normalized_observations(observed, inputs.obs)
        if self._in_numpy is not None:
            given.hyper = self._numbers(row, self.hyper.columns, np.asarray)
            acted = self._call(numpy_ops, _of_row(self._in_numpy, row), given)
            acted.action = self.algorithm.to_units(acted.action)
            return StartedAct(acted)
        with nullcontext() if self._seeded is None else self._seeded(rng):
            return self._in_tensors(row, given)

    def _started(self, inputs: ActInputs) -> dict[str, Array]:
        """Return the carry of the previous decision, zeros at the start; empty for an algorithm without a carry."""
        if not self.carried or inputs.carry is not None:
            return dict(inputs.carry or {})
        rows = inputs.explore.shape
        return {name: np.zeros((*rows, *column.shape), column.dtype) for name, column in self.carried.items()}

    def _numbers(self, row: int | None, numbers: Mapping[str, Any], convert: Callable[[Array], Any]) -> dict[str, Any]:
        """Return the settings of one agent or of all agents, name -> [K, 1], with the counts of their actions."""
        rows = slice(None) if row is None else slice(row, row + 1)
        result = dict(numbers) if row is None else {name: column[rows] for name, column in numbers.items()}
        if self.counts.size:
            result[ACTION_COUNTS] = convert(self.counts[rows].astype(np.float32))
        return result

    def _call(self, ops: Any, nets: Any, given: ActInputs) -> Acted:
        """Return the decisions of the algorithm; the extras hold the carries with which recurrent networks decided."""
        acted = self.algorithm.act(ops, nets, given)
        read = {column_of(name, column): given.carry[name] for name, column in self.recurrent.items()}
        return Acted(acted.action, acted.carry if self.carried else None, {**acted.extras, **read})

    def _in_tensors(self, row: int | None, given: ActInputs) -> StartedAct:
        """Start the decisions of the algorithm in the framework."""
        which = row, given.training
        if which not in self._functions:
            self._functions[which] = self.backend.starting(partial(self._acted, *which))
        arrays = {name: getattr(given, name) for name in _READ}
        if self.counts.size:
            arrays[ACTION_COUNTS] = self.counts[slice(None) if row is None else slice(row, row + 1)].astype(np.float32)
        started = self._functions[which](self.backend.argument(arrays), self.hyper.stacked())
        return StartedAct(started, self.algorithm.to_units)

    def _acted(self, row: int | None, training: bool, given: dict[str, Any], stacked: Any) -> dict[str, Any]:
        """Return the decisions of the algorithm as a function of tensors.  stacked: see `hyper`."""
        inputs, ops = dict(given), self.backend.ops
        counts = inputs.pop(ACTION_COUNTS, None)
        settings = dict(zip(self.hyper.names, ops.unstack(stacked), strict=True))
        inputs["hyper"] = self._numbers(row, settings, lambda _: counts)
        with self.backend.no_gradient():
            return vars(self._call(ops, _of_row(self.nets, row), ActInputs(**inputs, training=training)))

    def _tensors(self, row: int | None, given: ActInputs) -> ActInputs:
        """Return inputs as tensors of the framework, with the settings of one agent or of all agents."""
        tensor = self.backend.tensor
        sent = tensor({name: getattr(given, name) for name in _READ})
        return ActInputs(**sent, hyper=self._numbers(row, self.hyper.tensors(), tensor), training=given.training)


class StartedAct:
    """Decisions that an actor has started, see `Actor.start`."""

    def __init__(self, made: Acted | Started, to_units: Callable[[Array], Array] | None = None) -> None:
        """Take the decisions; or the call that makes them, and the conversion of its actions."""
        self._made, self._to_units = made, to_units

    def result(self) -> Acted:
        """Wait for the decisions and return them; call it once."""
        if isinstance(self._made, Acted):
            return self._made
        acted = Acted(**self._made.result())
        acted.action = acted.action if self._to_units is None else self._to_units(acted.action)
        return acted


def _as_one_act(noise: Mapping[str, Array]) -> dict[str, Array]:
    """Return the noise of an act [K, B, ...] as that of several acts, [K, 1, B, ...]."""
    return {name: drawn[:, None] for name, drawn in noise.items()}


def declares(algorithm: Algorithm, method: str, flag: str) -> bool:
    """Return whether the class that defines `method` also sets `flag` to True.

    A subclass that overrides the method without the flag does not inherit the flag.
    """
    definer = next(cls for cls in type(algorithm).__mro__ if method in vars(cls))
    return bool(vars(definer).get(flag, False))


def _of_row(nets: Mapping[str, Forward], row: int | None) -> Mapping[str, Forward]:
    """Return the networks of all agents, or those of one agent if `row` is given."""
    return nets if row is None else {name: partial(net, row=row) for name, net in nets.items()}
