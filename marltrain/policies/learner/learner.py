"""Learner: K agents as one. It alone owns weights, targets, optimiser moments and random streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.checks import finite
from marltrain.config import check
from marltrain.errors import ConfigError, SaveError, did_you_mean
from marltrain.files import State, of_type
from marltrain.layout import Array, Obs
from marltrain.policies.algorithms.base import Algorithm, TensorBatch
from marltrain.policies.batch import Acted, AgentState, Batch, Needs, Rollout
from marltrain.policies.learner.actor import Actor
from marltrain.policies.learner.gradient_step import GradientStep, GradientSteps
from marltrain.policies.learner.minibatches import Minibatches, columns_of, shares_of
from marltrain.policies.learner.parallel.replicas import Replicas
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.streams import Streams
from marltrain.policies.schedules import Schedule
from marltrain.random import MOST_SEED, generator, restored, state_of

if TYPE_CHECKING:
    from marltrain.policies.compiled.acting import CompiledActing
    from marltrain.policies.compiled.replay_update import CompiledUpdates

PURPOSES = ("act", "sample", "update")
NO_ROWS = frozenset({"cells", "metrics", "to_numpy", "to_tensor", "weight"})
"""What a batch of transitions holds that a pass is not given as it is."""


@dataclass(frozen=True)
class Pace:
    """When a learner wants to learn, in env steps; None: the trainer's value.

    update_per_step, learning_starts: off-policy only: gradient passes an env step, and how long none are made.
    epochs, minibatches: on-policy only: passes over a rollout, and minibatches of each, in place of a batch size.
    least_rows: on-policy only: rows without which a minibatch cannot be learned from; an update waits for so many.
    """

    update_freq: int | None = None
    batch_size: int | None = None
    update_per_step: float = 1.0
    learning_starts: int = 0
    minibatches: int | None = None
    epochs: int = 1
    least_rows: int = 1


class Learner:
    """K agents computed together; row k is agent k. What the loop talks to.

    acts_ahead: whether an act can be taken back, and rows decide alike whatever the others are shown.
    needs: what it must be given to learn, or None when it never learns.
    gradient_steps: [K] int64, gradient passes so far.
    edition: changes whenever its agents' settings or random streams were set anew, other than by their schedules.
    """

    settings_version: int = 0
    num_agents: int = 1
    acts_ahead: bool = False
    needs: Needs | None = None
    pace: Pace = Pace()
    when_not_finite: str = "Its weights may have been moved by it."
    gradient_steps: Array

    def act(self, obs: Obs, legal: Array | None, carry: Any, *, turn: Array, explore: Array, rngs: Any) -> Acted:
        """Decide for [K, B, ...] observations; rows without `turn` [K, B] may be anything. explore: [K, B] bool."""
        raise TypeError(f"{type(self).__name__} must define act")

    def take_back(self) -> None:
        """Take the last act back: the next one draws the same noise. Only where it `acts_ahead`."""
        raise TypeError(f"{type(self).__name__} takes no act back")

    def native(self) -> CompiledActing | None:
        """Return acts of its agents for compiled code to make, or None where they are not of a kind that it knows."""
        return None

    def ready(self, acting: CompiledActing, rngs: Any) -> tuple[int, int]:
        """Get acts ready that compiled code makes: return the number of the next, and how many there may be."""
        raise TypeError(f"{type(self).__name__} does not act in compiled code")

    def acted(self, acts: int) -> None:
        """Take note that so many of them were made."""

    def native_updates(self, reader: Reader, batch_size: int) -> CompiledUpdates | None:
        """Return its updates for compiled code to make, or None where they are not of a kind that it knows."""
        return None

    def updated(self, learn: Array, updates: int) -> None:
        """Count updates of the agents that `learn` [K] bool, which compiled code has made."""
        raise TypeError(f"{type(self).__name__} does not learn in compiled code")

    def rngs(self, purpose: str) -> Any:
        """Return K generators for "act", "sample" or "update", or for "test": those start anew at every call."""
        return ()

    def gammas(self) -> Array:
        """Return each agent's discount a decision, [K] float64."""
        return np.full(self.num_agents, 0.99)

    def at(self, env_steps: int) -> None:
        """Set whatever follows a schedule to its value after `env_steps` env steps of the run."""

    def reader(self, streams: Streams, seats: Sequence[Sequence[int]]) -> Reader:
        """Return how it reads what happened; row k learns from the players `seats[k]`."""
        if self.needs is None:
            raise TypeError(f"{type(self).__name__} never learns: it needs no reader")
        return streams.reader(seats, self.needs)

    def update(self, batch: Any, *, learn: Array, batch_size: int) -> dict[str, Array]:
        """Learn from a batch [K, B, ...]; only rows where `learn` [K] change. Returns metrics [K]."""
        raise TypeError(f"{type(self).__name__} never learns")

    def act_with_copies(self, who: str, rest: Callable[[], object]) -> None:
        """Act with copies of what learns, so that another thread may learn meanwhile; ConfigError where it cannot.

        rest: waits for that thread; called before an agent is read or changed.
        """
        raise ConfigError(
            f'collect="overlap" needs agents of marltrain\'s own algorithms, over NetworkSpecs and without strategy=; '
            f"the agent of {who} is none"
        )

    def renew_copies(self) -> None:
        """Renew the copies that it acts with."""

    def act_directly(self) -> None:
        """Act with what learns, as it does from the start."""

    def loop_state(self) -> State:
        """Return what it keeps of the running loop, beside what its agents are; nothing, unless a kind of it does."""
        return State()

    def restore_loop(self, state: State) -> None:
        """Take back what `loop_state` returned."""

    def close(self) -> None:
        """End whatever it started; it is started anew where the learner learns again."""


class AlgorithmLearner(Learner):
    """K agents of one `Algorithm` on one backend, their networks stacked."""

    when_not_finite = "No weight was moved by it."

    def __init__(self, algorithm: Algorithm, backend: Any, seeds: Sequence[int], *, draw: bool) -> None:
        """Build for K = len(seeds) agents; `draw` initial weights, or leave them to `load`."""
        self.algorithm, self.backend, self.seeds = algorithm, backend, list(seeds)
        self.num_agents = len(seeds)
        self.needs = algorithm.needs()
        settings = algorithm.settings
        self.pace = Pace(**{f.name: getattr(settings, f.name) for f in fields(Pace) if hasattr(settings, f.name)})
        self.gradient_steps = np.zeros(self.num_agents, np.int64)
        self.updates = np.zeros(self.num_agents, np.int64)
        self._streams = {p: [generator(seed, p) for seed in seeds] for p in PURPOSES}
        self._columns: dict[str, Array] = {}
        self._build_networks(draw)
        self._per_row = {f.name: f for f in fields(settings) if f.name in algorithm.numbers()}
        self._hyper = {name: np.zeros(self.num_agents) for name in self._per_row}
        self._numbers: Any = None
        self.schedules: list[dict[str, Schedule]] = [{} for _ in seeds]
        for row in range(self.num_agents):
            for name in self._per_row:
                self.set_hyper(row, name, getattr(settings, name))

    def _build_networks(self, draw: bool) -> None:
        make, layout = self.backend.network, self.algorithm.layout
        self.online, self.target = {}, {}
        for name, (spec, heads) in self.algorithm.networks().items():
            rngs = [generator(seed, "weights", name) for seed in self.seeds] if draw else None
            self.online[name] = make(spec, layout, heads, rngs, self.num_agents)
        for name in self.algorithm.targets():
            self.target[name] = self.online[name].copy()
        self.nets = {**self.online, **{f"target_{name}": net for name, net in self.target.items()}}
        settings, epsilon = self.algorithm.settings, self.algorithm.optimizer_epsilon
        self._foreign = any(self.backend.is_module(spec) for spec, _ in self.algorithm.networks().values())
        self._prepares = type(self.algorithm).prepare is not Algorithm.prepare
        seeded = self.backend.seeded if self._foreign else None
        self.actor = Actor(self.algorithm, self.backend, self._columns, self.hyper, seeded)
        self.acts_ahead = self.actor.noise is not None
        self.act_directly()
        self.optimisers = {
            n: self.backend.optimiser(settings.optimizer, net, epsilon) for n, net in self.online.items()
        }
        self.passes = self._make_passes()

    def _make_passes(self) -> GradientSteps:
        strategy = self.backend.strategy
        if strategy is not None and self._foreign:
            raise ConfigError(
                f"{self.algorithm.name}: {strategy} needs networks that are NetworkSpecs (MLP(...), CNN(...)). A model "
                "of your own may keep what parts of a minibatch cannot share, such as statistics of the batch; it is "
                "trained without strategy="
            )
        if strategy is not None and strategy.members():
            return Replicas(strategy, self.algorithm, self.backend, self.num_agents)
        parts = self.algorithm, self.backend, self.nets, self.optimisers
        if self.backend.jit_compile:
            from marltrain.policies.compiled.gradient_steps import compiled_steps  # loads numba

            native = compiled_steps(*parts)
            if native is not None:
                return native
        return GradientSteps([GradientStep(phase, *parts) for phase in self.algorithm.phases])

    # numbers that may differ between rows

    def hyper_names(self) -> tuple[str, ...]:
        """Return the names of the numbers that may be set for each agent."""
        return tuple(self._per_row)

    def get_hyper(self, row: int, name: str) -> float | None:
        """Return the present value of one agent's number; None where it is switched off."""
        self._known(name)
        return None if getattr(self.algorithm.settings, name) is None else float(self._hyper[name][row])

    def set_hyper(self, row: int, name: str, value: Any) -> None:
        """Set one agent's number, or the schedule it follows; raises ConfigError for what may not change or be."""
        self._rest()
        self._known(name)
        settings, rule = self.algorithm.settings, self._per_row[name]
        check(rule, value, type(settings), self.algorithm.name)
        if (value is None) != (getattr(settings, name) is None):
            made = "without it (None)" if value is not None else f"with {name}={getattr(settings, name)!r}"
            raise ConfigError(
                f"{self.algorithm.name}: {name} cannot become {value!r}: the agent was made {made}. Make a new agent"
            )
        if isinstance(value, Schedule):
            for end in (value.start, value.stop):
                check(rule, end, type(settings), self.algorithm.name)
            self.schedules[row][name] = value
            value = value(0)
        else:
            self.schedules[row].pop(name, None)
        self._hyper[name][row] = np.inf if value is None else value  # an infinite limit limits nothing
        self.settings_version += 1
        self._changed(name)

    def _known(self, name: str) -> None:
        if name in self._per_row:
            return
        fixed = [f.name for f in fields(self.algorithm.settings)]
        why = (
            "is structural: make a new agent to change it" if name in fixed
            else f"does not exist.{did_you_mean(name, self._per_row)}"
        )  # fmt: skip
        raise ConfigError(f"{self.algorithm.name}: setting {name!r} {why} (numbers: {', '.join(self._per_row)})")

    def at(self, env_steps: int) -> None:
        """Evaluate the schedules."""
        changed = set()
        for row, schedules in enumerate(self.schedules):
            for name, schedule in schedules.items():
                value = schedule(env_steps)
                if value != self._hyper[name][row]:
                    self._hyper[name][row] = value
                    changed.add(name)
        for name in changed:
            self._changed(name)

    def gammas(self) -> Array:
        """Return each agent's discount, [K]."""
        return self._hyper["gamma"]

    def hyper_at(self, env_steps: Sequence[int]) -> Array:
        """Return every number as it will be after env steps [R] of the run: [R, H, K] float64."""
        made = np.repeat(np.stack(list(self._hyper.values()))[None], len(env_steps), 0)
        places = {name: i for i, name in enumerate(self._hyper)}
        for row, schedules in enumerate(self.schedules):
            for name, schedule in schedules.items():
                made[:, places[name], row] = [schedule(steps) for steps in env_steps]
        return made

    def hyper(self) -> dict[str, Any]:
        """Return every number as a tensor [K, 1]."""
        return dict(zip(self._columns, self.backend.ops.unstack(self.numbers()), strict=True))

    def numbers(self) -> Any:
        """Return every number in one tensor, [H, K, 1], in the order of `Algorithm.numbers`."""
        if self._numbers is None:
            self._numbers = self.backend.tensor(np.stack([self._columns[name] for name in self._per_row]))
        return self._numbers

    def _changed(self, name: str) -> None:
        """Make a number's column [K, 1] anew, for acting in numpy."""
        self._columns[name] = self._hyper[name].astype(np.float32)[:, None]
        self._numbers = None

    # acting

    def act_with_copies(self, who: str, rest: Callable[[], object]) -> None:
        """See `Learner`."""
        if self._foreign or self.backend.strategy is not None:
            super().act_with_copies(who, rest)
        self.actor.use({name: net.copy() for name, net in self.nets.items()})
        self._rest = rest

    def renew_copies(self) -> None:
        """See `Learner`."""
        for name, net in self.actor.nets.items():
            if net is not self.nets[name]:
                net.assign(self.nets[name].flat)
                net.moved()

    def act_directly(self) -> None:
        """See `Learner`."""
        self.actor.use(self.nets)
        self._rest = _nobody

    def loop_state(self) -> State:
        """Return the weights that it acts with, where they are not those that it learns."""
        acting = {} if self.actor.nets is self.nets else self.actor.nets
        return State({}, {name: self.backend.numpy(net.flat) for name, net in acting.items()})

    def restore_loop(self, state: State) -> None:
        """See `Learner`."""
        for name, net in ({} if self.actor.nets is self.nets else self.actor.nets).items():
            now = self.backend.numpy(net.flat)
            net.assign(self.backend.tensor(finite(state.place(name), state.array(name, now.dtype, now.shape))))
            net.moved()

    def native(self) -> CompiledActing | None:
        """See `Learner`."""
        return self.actor.native()

    def ready(self, acting: CompiledActing, rngs: Any) -> tuple[int, int]:
        """See `Learner`."""
        if self.actor.noise is None:
            return super().ready(acting, rngs)
        noise, first, left = self.actor.noise.ahead(rngs, acting.rows)
        acting.refresh(noise, self._columns)
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
        """Return K generators; those for "test" start anew at every call, so testing moves no other stream."""
        if purpose == "test":
            return [generator(seed, "test") for seed in self.seeds]
        if purpose == "act":
            self._settle()
        return self._streams[purpose]

    def _settle(self) -> None:
        """Put the generators where the acts so far have left them: noise may be drawn ahead."""
        if self.actor.noise is not None:
            self.actor.noise.settle()

    def act(self, obs: Obs, legal: Array | None, carry: Any, *, turn: Array, explore: Array, rngs: Any) -> Acted:
        """Decide for all rows; noise is drawn for every row, whatever `turn` and `explore` say."""
        return self.actor.act(obs, legal, explore, rngs)

    def act_row(self, row: int, obs: Obs, legal: Array | None, explore: Array, rng: np.random.Generator) -> Acted:
        """Decide for one agent only: [1, B, ...]."""
        return self.actor.act_row(row, obs, legal, explore, rng)

    # learning

    def reader(self, streams: Streams, seats: Sequence[Sequence[int]]) -> Reader:
        """See `Learner`; transitions are read in compiled code, where it can."""
        from marltrain.policies.compiled.replay_kernel import reader_of

        needs = self.algorithm.needs()
        return streams.reader(seats, needs, None if needs.on_policy else reader_of)

    def update(self, batch: Batch, *, learn: Array, batch_size: int) -> dict[str, Array]:
        """Learn: one gradient pass off-policy, epochs x minibatches of a whole rollout on-policy."""
        metrics = _Means(self.backend)
        tensors = self._tensors_of(batch)
        learn = learn & (batch.weight.sum(1) > 0)
        self.passes.begin(self)
        with self._foreign_randomness(self.rngs("update")[0]):
            if self._prepares:
                with self.backend.no_gradient():
                    nets = self.passes.networks(self.nets)
                    tensors = self.algorithm.prepare(self.backend.ops, nets, batch, tensors, self.hyper())
            if isinstance(batch, Rollout):
                self._learn_rollout(batch, tensors, learn, self.pace.batch_size or batch_size, metrics)
            else:
                rows = {name: value for name, value in vars(tensors).items() if name not in NO_ROWS}
                self._pass({**rows, "weight": self.backend.tensor(shares_of(batch.weight))}, learn, metrics)
        self.passes.end(self)
        self.updates += learn
        self._follow(learn)
        told = {name: self._hyper[own].copy() for name, own in self.reported().items()}
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
        """Return by how much the targets follow after each of the next updates, [U, K].

        learn: [K] bool.  hyper: [U, H, K], every number as it is then.
        """
        updates = self.updates + learn * np.arange(1, len(hyper) + 1)[:, None]
        numbers = {name: hyper[:, i] for i, name in enumerate(self._hyper)}
        return np.broadcast_to(learn * self.algorithm.target_share(updates, numbers), updates.shape)

    def _tensors_of(self, batch: Batch) -> TensorBatch:
        tensors = {name: self.backend.tensor(value) for name, value in vars(batch).items()}
        return TensorBatch(**tensors, metrics={}, to_numpy=self.backend.numpy, to_tensor=self.backend.tensor)

    def _learn_rollout(
        self, batch: Rollout, tensors: TensorBatch, learn: Array, batch_size: int, metrics: _Means
    ) -> None:
        """Make epochs x minibatches passes over a prepared rollout."""
        pace, rngs = self.pace, self.rngs("update")
        width = int if self.passes.at_once else self.backend.width
        cut = Minibatches(batch.weight, pace.minibatches, batch_size, width=width)
        if not self.passes.at_once:
            for columns, present in cut.epochs(pace.epochs, rngs, tensors, self.backend):
                self._pass(columns, learn & present, metrics)
            return
        (one,), dealt = self.passes, cut.dealt(pace.epochs, rngs)
        due = dealt.present & learn
        measured = one(columns_of(tensors), dealt, self.numbers(), due)
        for values, active in zip(measured, due, strict=True):
            if np.count_nonzero(active):
                metrics.add(one, self.backend.tensor(values), active)
        self.gradient_steps += due.sum(0)

    def _pass(self, columns: Mapping[str, Any], active: Array, metrics: _Means) -> None:
        """One gradient pass: every phase whose turn it is, in order."""
        if not np.count_nonzero(active):
            return
        for one in self.passes:
            due = active if one.phase.every == 1 else active & (self.gradient_steps % one.phase.every == 0)
            if np.count_nonzero(due):
                metrics.add(one, one(columns, self.numbers(), due), due)
        self.gradient_steps += active

    def _follow(self, learn: Array) -> None:
        if not self.target:
            return
        share = learn * self.algorithm.target_share(self.updates, self._hyper)
        if np.count_nonzero(share):
            self.passes.follow(self, share)

    def follow(self, share: Array) -> None:
        """Move the targets by their `share` [K] towards the networks they follow."""
        moved = self.backend.tensor(share.astype(np.float32))
        for name, target in self.target.items():
            target.follow(self.online[name], moved)

    def moved(self, *, targets: bool = False) -> dict[str, Array]:
        """Return what passes move: weights, moments and step counts of all agents, [K, ...]; with `targets`, theirs."""
        nets = self.nets if targets else self.online
        made = {f"net/{name}": self.backend.numpy(net.flat) for name, net in nets.items()}
        for name, optimiser in self.optimisers.items():
            for slot, value in optimiser.state().items():
                made[f"optimiser/{name}/{slot}"] = self.backend.numpy(value)
        return made

    def become(self, arrays: Mapping[str, Array]) -> None:
        """Take over what another learner's `moved` returned."""
        for kind, held in _grouped(arrays).items():
            group, _, name = kind.partition("/")
            if group == "net":
                self.nets[name].assign(self.backend.tensor(held[""]))
                self.nets[name].moved()
            else:
                for slot, value in self.optimisers[name].state().items():
                    self.backend.overwrite(value, held[slot])

    def close(self) -> None:
        """End the processes or threads that its passes started."""
        self.passes.close()

    def reported(self) -> dict[str, str]:
        """Return what is told with the metrics: its name there -> the number's own."""
        rates = {f"learning_rate/{name}": self.algorithm.rate_name(name) for name in self.online}
        return {**rates, **({"epsilon": "epsilon"} if "epsilon" in self._hyper else {})}

    def _foreign_randomness(self, rng: np.random.Generator) -> Any:
        """Seed the framework's global generator around a user's own model, which may draw from it."""
        return self.backend.seeded(rng) if self._foreign else nullcontext()

    # saving

    def export(self, row: int) -> AgentState:
        """Return everything that one agent is, as numpy arrays and JSON values."""
        self._rest()
        self._settle()
        arrays: dict[str, Array] = {}
        for name, net in self.nets.items():
            arrays.update({f"net/{name}/{key}": value for key, value in net.arrays(row).items()})
        for name, optimiser in self.optimisers.items():
            arrays.update({f"optimiser/{name}/{key}": value for key, value in optimiser.arrays(row).items()})
        info = {
            "seed": self.seeds[row],
            "updates": int(self.updates[row]),
            "gradient_steps": int(self.gradient_steps[row]),
            "hyper": {name: self.get_hyper(row, name) for name in self._per_row},
            "schedules": {name: schedule.describe() for name, schedule in self.schedules[row].items()},
            "rngs": {purpose: state_of(rngs[row]) for purpose, rngs in self._streams.items()},
        }
        return AgentState(info, arrays)

    def load(self, row: int, state: AgentState) -> None:
        """Become, in one row, the agent that was exported; raises SaveError when it is of another kind."""
        self._rest()
        self._settle()
        groups = _grouped(state.arrays)
        expected = {*(f"net/{n}" for n in self.nets), *(f"optimiser/{n}" for n in self.optimisers)}
        if set(groups) != expected:
            raise SaveError(f"saved agent holds {sorted(groups)}, a {self.algorithm.name} agent {sorted(expected)}")
        for name, net in self.nets.items():
            net.load(row, groups[f"net/{name}"])
        for name, optimiser in self.optimisers.items():
            optimiser.load(row, groups[f"optimiser/{name}"])
        self.seeds[row] = state.count("seed", high=MOST_SEED)
        self.updates[row], self.gradient_steps[row] = state.count("updates"), state.count("gradient_steps")
        hyper, rngs = state.value("hyper", dict), state.part("rngs")
        if set(hyper) != set(self._per_row):
            raise SaveError(f"{state.place('hyper')} holds {sorted(hyper)}, expected {sorted(self._per_row)}")
        for name, value in hyper.items():
            self.set_hyper(row, name, value)
        for name, schedule in state.value("schedules", dict).items():
            self.set_hyper(row, name, Schedule(**of_type(f"the schedule of {name}", schedule, dict)))
            self._hyper[name][row] = hyper[name]
            self._changed(name)
        for purpose in PURPOSES:
            self._streams[purpose][row] = restored(rngs.value(purpose, dict))
        self.settings_version += 1
        self.passes.outdated()
        self.renew_copies()


def _nobody() -> None:
    """Wait for nobody: nothing learns in another thread."""


def _grouped(arrays: Mapping[str, Array]) -> dict[str, dict[str, Array]]:
    """Split names "kind/network/key" into {"kind/network": {key: array}}."""
    groups: dict[str, dict[str, Array]] = {}
    for name, array in arrays.items():
        kind, network, key = (*name.split("/", 2), "", "")[:3]
        groups.setdefault(f"{kind}/{network}", {})[key] = array
    return groups


class _Means:
    """Running means of metrics [K] over gradient passes, each row over the passes it took part in."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.seen: dict[GradientStep, list[tuple[Any, Array]]] = {}

    def add(self, made_by: GradientStep, values: Any, active: Array) -> None:
        """Note what one pass measured, [M, K], where it was `active` [K]."""
        self.seen.setdefault(made_by, []).append((values, active))

    def result(self) -> dict[str, Array]:
        """Return the means [K]; NaN for a row that took part in no pass."""
        made: dict[str, Array] = {}
        for one, seen in self.seen.items():
            if len(seen) == 1 and np.count_nonzero(seen[0][1]) == len(seen[0][1]):  # off-policy, as a rule
                made.update(zip(one.metrics, self.backend.numpy(seen[0][0]).astype(np.float64), strict=True))
                continue
            values = np.stack([self.backend.numpy(value) for value, _ in seen]).astype(np.float64)
            active = np.stack([active for _, active in seen])[:, None]
            total, count = np.where(active, values, 0.0).sum(0), active.sum(0)
            means = np.where(count > 0, total / np.maximum(count, 1), np.nan)
            made.update(zip(one.metrics, means, strict=True))
        return made
