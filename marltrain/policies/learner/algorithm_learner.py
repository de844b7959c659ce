"""AlgorithmLearner: K agents of one algorithm, computed together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.checks import finite
from marltrain.errors import ConfigError
from marltrain.layout import Array, Obs
from marltrain.policies.algorithms.base import Algorithm, WholeBatch
from marltrain.policies.backends.base import Backend
from marltrain.policies.backends.shapes import rounded_up
from marltrain.policies.batch import Acted, AgentState, Batch, Rollout
from marltrain.policies.learner.actor import Actor
from marltrain.policies.learner.gradient_step import GradientStep, GradientSteps, MeanMetrics
from marltrain.policies.learner.hyperparameters import StackedHyperparameters
from marltrain.policies.learner.learner import PURPOSES, Learner, Pace
from marltrain.policies.learner.minibatches import Minibatches, shares_of
from marltrain.policies.learner.parallel.replicas import Replicas
from marltrain.policies.learner.weights import Weights
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.streams import Streams
from marltrain.random import MOST_SEED, generator, restored, state_of
from marltrain.state import State

if TYPE_CHECKING:
    from marltrain.policies.compiled.acting import CompiledActing
    from marltrain.policies.compiled.replay_update import CompiledUpdates


class AlgorithmLearner(Learner):
    """K agents of one `Algorithm` on one backend, their networks stacked."""

    when_not_finite = "No weight was moved by it."

    def __init__(self, algorithm: Algorithm, backend: Backend, seeds: Sequence[int], *, draw: bool) -> None:
        """Build K = len(seeds) agents; `draw`: draw the initial weights, otherwise `load` sets them."""
        self.algorithm, self.backend, self.seeds = algorithm, backend, list(seeds)
        self.num_agents = len(seeds)
        self.needs = algorithm.needs()
        settings = algorithm.settings
        self.pace = Pace(**{f.name: getattr(settings, f.name) for f in fields(Pace) if hasattr(settings, f.name)})
        self.gradient_steps = np.zeros(self.num_agents, np.int64)
        self.updates = np.zeros(self.num_agents, np.int64)
        self._streams = {p: [generator(seed, p) for seed in seeds] for p in PURPOSES}
        self.weights = Weights(algorithm, backend, self.num_agents, seeds if draw else None)
        self.hyper = StackedHyperparameters(algorithm, backend, self.num_agents)
        self._prepares = type(algorithm).prepare is not Algorithm.prepare
        seeded = backend.seeded if self.weights.custom else None
        self.actor = Actor(algorithm, backend, self.hyper, seeded)
        self.acts_ahead = self.actor.noise is not None
        self.act_directly()
        self.passes = self._make_passes()

    def _make_passes(self) -> GradientSteps:
        strategy = self.backend.strategy
        if strategy is not None and self.weights.custom:
            raise ConfigError(
                f"{self.algorithm.name}: {strategy} needs networks that are NetworkSpecs (MLP(...), CNN(...)). A model "
                "of your own may keep what parts of a minibatch cannot share, such as statistics of the batch; it is "
                "trained without strategy="
            )
        if strategy is not None and strategy.members():
            return Replicas(strategy, self.algorithm, self.backend, self.num_agents)
        parts = self.algorithm, self.backend, self.weights.nets, self.weights.optimisers
        if self.backend.jit_compile:
            from marltrain.policies.compiled.gradient_steps import compiled_steps  # loads numba

            native = compiled_steps(*parts)
            if native is not None:
                return native
        return GradientSteps([GradientStep(phase, *parts) for phase in self.algorithm.phases])

    # hyperparameters

    @property
    def settings_version(self) -> int:  # type: ignore[override]
        """See `Learner`."""
        return self.hyper.version

    def set_hyper(self, row: int, name: str, value: Any) -> None:
        """Set one agent's hyperparameter to a value or a schedule.

        Raises ConfigError for a structural or unknown setting, or a value out of range.
        """
        self._rest()
        self.hyper.set(row, name, value)

    def at(self, env_steps: int) -> None:
        """Set all scheduled hyperparameters to their values after `env_steps` env steps."""
        self.hyper.at(env_steps)

    def gammas(self) -> Array:
        """Return each agent's discount, [K]."""
        return self.hyper.values["gamma"]

    # acting

    def act_with_copies(self, who: str, rest: Callable[[], object]) -> None:
        """See `Learner`."""
        if self.weights.custom or self.backend.strategy is not None:
            super().act_with_copies(who, rest)
        self.actor.use({name: net.copy() for name, net in self.weights.nets.items()})
        self._rest = rest

    def renew_copies(self) -> None:
        """See `Learner`."""
        for name, net in self.actor.nets.items():
            if net is not self.weights.nets[name]:
                net.assign(self.weights.nets[name].flat)
                net.discard_copies()

    def act_directly(self) -> None:
        """See `Learner`."""
        self.actor.use(self.weights.nets)
        self._rest = _no_thread

    def loop_state(self) -> State:
        """Return the weights of the acting copies; empty if it acts with the networks that it trains."""
        acting = {} if self.actor.nets is self.weights.nets else self.actor.nets
        return State({}, {name: self.backend.numpy(net.flat) for name, net in acting.items()})

    def restore_loop(self, state: State) -> None:
        """See `Learner`."""
        for name, net in ({} if self.actor.nets is self.weights.nets else self.actor.nets).items():
            now = self.backend.numpy(net.flat)
            net.assign(self.backend.tensor(finite(state.place(name), state.array(name, now.dtype, now.shape))))
            net.discard_copies()

    def native(self) -> CompiledActing | None:
        """See `Learner`."""
        return self.actor.native()

    def ready(self, acting: CompiledActing, rngs: Any) -> tuple[int, int]:
        """See `Learner`."""
        if self.actor.noise is None:
            return super().ready(acting, rngs)
        noise, first, left = self.actor.noise.ahead(rngs, acting.rows)
        acting.refresh(noise, self.hyper.columns)
        return first, left

    def acted(self, acts: int) -> None:
        """See `Learner`."""
        if self.actor.noise is not None:
            self.actor.noise.skip(acts)

    def take_back(self) -> None:
        """See `Learner`."""
        if self.actor.noise is None:
            super().take_back()
        else:
            self.actor.noise.skip(-1)

    def rngs(self, purpose: str) -> list[np.random.Generator]:
        """Return K generators; those for "test" are reseeded at every call, so tests do not advance other streams."""
        if purpose == "test":
            return [generator(seed, "test") for seed in self.seeds]
        if purpose == "act":
            self._settle()
        return self._streams[purpose]

    def _settle(self) -> None:
        """Reset the generators to the position after the last act, because noise may be drawn ahead."""
        if self.actor.noise is not None:
            self.actor.noise.settle()

    def act(self, obs: Obs, legal: Array | None, carry: Any, *, turn: Array, explore: Array, rngs: Any) -> Acted:
        """Choose actions for all rows; noise is drawn for every row, independent of `turn` and `explore`."""
        return self.actor.act(obs, legal, explore, rngs)

    def act_row(self, row: int, obs: Obs, legal: Array | None, explore: Array, rng: np.random.Generator) -> Acted:
        """Choose actions for one agent only, [1, B, ...]."""
        return self.actor.act_row(row, obs, legal, explore, rng)

    # learning

    def reader(self, streams: Streams, seats: Sequence[Sequence[int]]) -> Reader:
        """See `Learner`; compiled code reads transitions where it supports them."""
        from marltrain.policies.compiled.replay_kernel import reader_of

        needs = self.algorithm.needs()
        return streams.reader(seats, needs, None if needs.on_policy else reader_of)

    def update(self, batch: Batch, *, learn: Array, batch_size: int) -> dict[str, Array]:
        """Make one gradient pass (off-policy), or epochs x minibatches over a rollout (on-policy)."""
        metrics = MeanMetrics(self.backend)
        tensors = WholeBatch(batch, self.backend.tensor, self.backend.numpy)
        learn = learn & (batch.weight.sum(1) > 0)
        self.passes.begin(self.weights)
        with self._custom_randomness(self.rngs("update")[0]):
            if self._prepares:
                with self.backend.no_gradient():
                    nets = self.passes.networks(self.weights.nets)
                    tensors = self.algorithm.prepare(self.backend.ops, nets, batch, tensors, self.hyper.tensors())
            if isinstance(batch, Rollout):
                self._learn_rollout(batch, tensors.for_losses(), learn, self.pace.batch_size or batch_size, metrics)
            else:
                weight = self.backend.tensor(shares_of(batch.weight))
                self._pass({**tensors.for_losses(), "weight": weight}, learn, metrics)
        self.passes.end(self.weights)
        self.updates += learn
        self._follow(learn)
        told = {name: self.hyper.values[own].copy() for name, own in self.reported().items()}
        return {**metrics.result(), **tensors.metrics, **told}

    def native_updates(self, reader: Reader, batch_size: int) -> CompiledUpdates | None:
        """See `Learner`."""
        if not self.passes.native:
            return None
        from marltrain.policies.compiled.replay_kernel import CompiledReader
        from marltrain.policies.compiled.replay_update import CompiledUpdates

        (moves,) = self.passes
        return CompiledUpdates(self, moves, reader, batch_size) if isinstance(reader, CompiledReader) else None

    def updated(self, learn: Array, updates: int) -> None:
        """See `Learner`."""
        self.updates += learn * updates
        self.gradient_steps += learn * updates

    def shares(self, learn: Array, hyper: Array) -> Array:
        """Return the share by which the target networks move after each of the next updates, [U, K].

        learn: [K] bool.  hyper: [U, H, K], the hyperparameters at each update.
        """
        updates = self.updates + learn * np.arange(1, len(hyper) + 1)[:, None]
        numbers = {name: hyper[:, i] for i, name in enumerate(self.hyper.names)}
        return np.broadcast_to(learn * self.algorithm.target_share(updates, numbers), updates.shape)

    def _learn_rollout(
        self, batch: Rollout, rows: Mapping[str, Any], learn: Array, batch_size: int, metrics: MeanMetrics
    ) -> None:
        """Make epochs x minibatches gradient passes over a prepared rollout."""
        pace, rngs = self.pace, self.rngs("update")
        width = rounded_up if self.backend.jit_compile and not self.passes.at_once else int
        cut = Minibatches(batch.weight, pace.minibatches, batch_size, width=width)
        if not self.passes.at_once:
            for columns, present in cut.epochs(pace.epochs, rngs, rows, self.backend):
                self._pass(columns, learn & present, metrics)
            return
        (one,), dealt = self.passes, cut.dealt(pace.epochs, rngs)
        due = dealt.present & learn
        measured = one(rows, dealt, self.hyper.stacked(), due)
        for values, active in zip(measured, due, strict=True):
            if np.count_nonzero(active):
                metrics.add(one, self.backend.tensor(values), active)
        self.gradient_steps += due.sum(0)

    def _pass(self, columns: Mapping[str, Any], active: Array, metrics: MeanMetrics) -> None:
        """Make one gradient pass: all due phases, in order."""
        if not np.count_nonzero(active):
            return
        for one in self.passes:
            due = active if one.phase.every == 1 else active & (self.gradient_steps % one.phase.every == 0)
            if np.count_nonzero(due):
                metrics.add(one, one(columns, self.hyper.stacked(), due), due)
        self.gradient_steps += active

    def _follow(self, learn: Array) -> None:
        if not self.weights.target:
            return
        share = learn * self.algorithm.target_share(self.updates, self.hyper.values)
        if np.count_nonzero(share):
            self.passes.follow(self.weights, share)

    def close(self) -> None:
        """End the processes or threads that the gradient passes started."""
        self.passes.close()

    def reported(self) -> dict[str, str]:
        """Return the hyperparameters reported with the metrics: metric name -> hyperparameter name."""
        rates = {f"learning_rate/{name}": self.algorithm.rate_name(name) for name in self.weights.online}
        return {**rates, **({"epsilon": "epsilon"} if "epsilon" in self.hyper.names else {})}

    def _custom_randomness(self, rng: np.random.Generator) -> Any:
        """Return a context that seeds the framework's global generator if a custom model may draw from it."""
        return self.backend.seeded(rng) if self.weights.custom else nullcontext()

    # saving

    def export(self, row: int) -> AgentState:
        """Return the complete state of one agent, as numpy arrays and JSON values."""
        self._rest()
        self._settle()
        info = {
            "seed": self.seeds[row],
            "updates": int(self.updates[row]),
            "gradient_steps": int(self.gradient_steps[row]),
            **self.hyper.export(row),
            "rngs": {purpose: state_of(rngs[row]) for purpose, rngs in self._streams.items()},
        }
        return AgentState(info, self.weights.export(row))

    def load(self, row: int, state: AgentState) -> None:
        """Load an exported agent into one row; raises SaveError for an agent of another kind."""
        self._rest()
        self._settle()
        self.weights.load(row, state.arrays)
        self.seeds[row] = state.count("seed", high=MOST_SEED)
        self.updates[row], self.gradient_steps[row] = state.count("updates"), state.count("gradient_steps")
        self.hyper.load(row, state)
        rngs = state.part("rngs")
        for purpose in PURPOSES:
            self._streams[purpose][row] = restored(rngs.value(purpose, dict))
        self.passes.outdated()
        self.renew_copies()


def _no_thread() -> None:
    """Do nothing: there is no learner thread."""
