"""AlgorithmLearner: K agents of one algorithm, computed together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.core.seeds import MOST_SEED, generator, restored, state_of
from marltrain.policies.backends.base import Backend
from marltrain.policies.batches.batch import (
    Acted,
    ActInputs,
    AgentState,
    Batch,
    Rollout,
    SequenceTransitions,
    Transitions,
)
from marltrain.policies.batches.normalization import NORMALIZED, normalized_batch, observe
from marltrain.policies.batches.player_one_hot import players_of
from marltrain.policies.batches.row_draws import Draw, drawn_rows
from marltrain.policies.batches.tensor_batch import WholeBatch, shares_of
from marltrain.policies.hyperparameters.stacked import StackedHyperparameters
from marltrain.policies.interface.algorithm import REWARD, Algorithm, Networks
from marltrain.policies.interface.joint import JointAlgorithm, TeamNetworks
from marltrain.policies.interface.recurrence import check_draws, check_recurrent, sequence_columns
from marltrain.policies.learner.actor import Actor
from marltrain.policies.learner.copies import ActingCopies
from marltrain.policies.learner.gradient_steps import GradientSteps
from marltrain.policies.learner.learner import PURPOSES, BegunUpdate, Learner, UpdateSchedule
from marltrain.policies.learner.loading import TEAM, counts_of, load_arrays, load_weights
from marltrain.policies.learner.make_steps import make_gradient_steps
from marltrain.policies.learner.measurements import EFFECTIVE, Measurements
from marltrain.policies.learner.passes import MeanMetrics, Passes
from marltrain.policies.learner.phase_draws import PhaseDraws
from marltrain.policies.learner.reward_scaling import RewardScaling
from marltrain.policies.learner.row_errors import RowErrors, check_initial_errors
from marltrain.policies.learner.rows_on_device import gather_on_device
from marltrain.policies.learner.trained_team import ALONE, TrainedTeam
from marltrain.policies.learner.weights import Weights
from marltrain.policies.memory.goals import check_goals
from marltrain.policies.memory.memory_numbers import MemoryNumbers
from marltrain.policies.memory.needs import Needs
from marltrain.policies.memory.readers import Reader, UniformReader
from marltrain.policies.memory.reservoir import check_reservoir
from marltrain.policies.memory.streams import Streams
from marltrain.storage.state import State

if TYPE_CHECKING:
    from marltrain.policies.learner.planned.planned_updates import PlannedUpdates


class AlgorithmLearner(Learner):
    """K agents of one `Algorithm` on one backend, their networks stacked.

    team: the networks of the team of a `JointAlgorithm`, which other learners of the team share; else None.
    """

    actor: Actor
    measured: Measurements
    when_not_finite = "No weight was moved by it."

    def __init__(self, algorithm: Algorithm, backend: Backend, seeds: Sequence[int], *, draw: bool) -> None:
        """Build K = len(seeds) agents; `draw`: draw the initial weights, otherwise `load` sets them."""
        self.algorithm, self.backend, self.seeds = algorithm, backend, list(seeds)
        self._networks = algorithm.networks()
        check_recurrent(algorithm.name, self._networks, algorithm.recurrent, backend.strategy)
        check_draws(algorithm.name, algorithm.needs())
        check_reservoir(algorithm.name, algorithm.needs(), team=isinstance(algorithm, JointAlgorithm))
        self.num_agents = len(seeds)
        self.needs: Needs = replace(algorithm.needs(), identity=players_of(algorithm.layout))
        self._prioritized = algorithm.prioritized
        settings = algorithm.settings
        own: dict[str, Any] = {
            f.name: getattr(settings, f.name) for f in fields(UpdateSchedule) if hasattr(settings, f.name)
        }
        usual = algorithm.update_freq, algorithm.batch_size
        self.update_schedule = UpdateSchedule(**own, default_update_freq=usual[0], default_batch_size=usual[1])
        self.gradient_steps = np.zeros(self.num_agents, np.int64)
        self.updates = np.zeros(self.num_agents, np.int64)
        self._streams = {p: [generator(seed, p) for seed in seeds] for p in PURPOSES}
        self.draws = PhaseDraws(algorithm.phases, self._streams["update"])
        self._draws = bool(self.draws)
        self.weights = Weights(algorithm, backend, self.num_agents, seeds if draw else None)
        self.team: Weights | None = None
        if isinstance(algorithm, JointAlgorithm):
            if backend.strategy is not None:
                raise ConfigError(
                    f"{algorithm.name}: agents that learn together are trained without strategy=: leave it out"
                )
            self.team = Weights(TeamNetworks(algorithm), backend, 1, self.seeds[:1] if draw else None)
        statistics = self.weights.statistics
        self._observed = {name: statistics[name] for name in NORMALIZED if name in statistics}
        self.rewards = RewardScaling(self.num_agents, statistics.get(REWARD))
        self.hyper = StackedHyperparameters(settings, algorithm.name, self.num_agents, backend)
        replay = self.needs.replay
        self.memory = None if replay is None else MemoryNumbers(replay, algorithm.name, self.num_agents)
        if replay is not None:
            check_goals(algorithm.name, algorithm.layout, replay, reads_triplets=algorithm.reads_triplets)
        check_initial_errors(algorithm, custom=self.weights.custom)
        self.actor = Actor(algorithm, backend, self.hyper, backend.seeded if self.weights.custom else None)
        self.copies = ActingCopies(self.actor, self.weights)
        alone = TrainedTeam([self])
        self.steps = GradientSteps(alone, []) if self.team is not None else make_gradient_steps(alone)
        self.passes = Passes([self], self.steps)
        self._prepares = type(algorithm).prepare is not Algorithm.prepare
        self._adapts = type(algorithm).adapted is not Algorithm.adapted
        self.measured = Measurements(self.steps, backend, algorithm, self.memory, custom=self.weights.custom)
        rates = {f"learning_rate/{name}": algorithm.rate_name(name) for name in self.weights.optimizers}
        self.reported = rates | ({"epsilon": "epsilon"} if "epsilon" in self.hyper.names else {})

    # hyperparameters

    def set_hyper(self, row: int, name: str, value: Any) -> None:
        """Set one agent's hyperparameter to a value or a schedule.

        Raises ConfigError for a structural or unknown setting, or a value out of range.
        """
        self.copies.wait()
        if name in self.hyper.common:
            self.update_schedule = self.update_schedule.with_common(
                {name: self.hyper.checked(name, value)}, self.algorithm.name
            )
        self.hyper.set(row, name, value)

    def apply_schedules(self, env_steps: int) -> None:
        """Set all scheduled hyperparameters to their values after `env_steps` env steps."""
        self.hyper.apply_schedules(env_steps)
        if self.memory is not None and self.memory.parts:
            self.memory.apply_schedules(env_steps)

    def gammas(self) -> Array:
        """Return each agent's discount, [K]."""
        return self.hyper.values["gamma"]

    def reward_scales(self) -> Array | None:
        """Return each agent's `reward_scale`, [K]; None for algorithms without this setting."""
        return self.hyper.values.get("reward_scale")

    # acting

    def fork(self, who: str, wait: Callable[[], object]) -> ActingCopies:
        """See `Learner`."""
        if self.weights.custom or self.backend.strategy is not None:
            return super().fork(who, wait)
        self.copies.begin(wait)
        return self.copies

    def loop_state(self) -> State:
        """Return the weights of the acting copies; empty if it acts with the networks that it trains."""
        return self.copies.state()

    def restore_loop(self, state: State) -> None:
        """See `Learner`."""
        self.copies.restore(state)

    def rngs(self, purpose: str) -> list[np.random.Generator]:
        """Return K generators; those for "test" are reseeded at every call, so tests do not advance other streams."""
        if purpose == "test":
            return [generator(seed, "test") for seed in self.seeds]
        if purpose == "act":
            self.actor.noise.settle()
        if purpose == "update" and self._draws:
            self.draws.settle()
        return self._streams[purpose]

    def act(self, inputs: ActInputs, *, turn: Array, rngs: Any) -> Acted:
        """Choose actions for all rows; noise is drawn for every row, independent of `turn` and `inputs.explore`."""
        return self.actor.act(inputs, rngs)

    # learning

    def reader(self, streams: Streams, seats: Sequence[Sequence[int]]) -> Reader:
        """See `Learner`; compiled code reads transitions where it supports them."""
        from marltrain.policies.memory.compiled.replay_kernel import reader_of  # loads numba
        from marltrain.policies.memory.prioritized_rollouts import PrioritizedRolloutReader

        needs = self.needs
        make: Any = None
        if needs.on_policy and needs.replay is not None:
            make = partial(PrioritizedRolloutReader, numbers=self.memory)
        elif not needs.on_policy and not needs.sequence:
            make = partial(reader_of, numbers=self.memory)
        reader: Reader = streams.reader(seats, needs, make)
        if isinstance(reader, UniformReader) and needs.replay is not None and needs.replay.initial_errors:
            reader.rate_new_rows(RowErrors(self.algorithm, self.backend, self.weights, self.hyper))
        return reader

    def gather_on_device(self, reader: Reader, rows: int) -> str:
        """See `Learner`."""
        return gather_on_device([self], reader, rows)

    def update(self, batch: Batch, *, learn: Array, batch_size: int) -> dict[str, Array]:
        """Make one gradient pass (off-policy), or epochs x minibatches over a rollout (on-policy)."""
        return self.begin_update(batch, learn=learn, batch_size=batch_size).result()

    @property
    def begins_updates(self) -> bool:  # type: ignore[override]
        """See `Learner`."""
        return self.steps.whole is not None and self.backend.captures

    def begin_update(self, batch: Batch, *, learn: Array, batch_size: int) -> BegunUpdate:
        """See `Learner`; a captured pass over transitions is under way."""
        metrics, seen, nets = MeanMetrics(self.backend), batch, self.steps.networks(self.weights.nets)
        learn, observed = learn & batch.weight.any(1), self._observed
        if observed:
            batch = normalized_batch(observed, batch)
        with self.backend.seeded(self.rngs("update")[0]) if self.weights.custom else nullcontext():
            tensors = self._prepared(nets, batch)
            self._scale_rewards(tensors, batch.weight, learn)
            share = (
                learn * self.algorithm.target_share(self.updates + learn, self.hyper.values) if self.weights.target
                else np.zeros(len(learn))
            )  # fmt: skip
            self.steps.begin()
            columns = {ALONE: tensors.for_losses()}
            if not isinstance(batch, Rollout) or self.steps.solving or self._prioritized:  # minibatches get their own
                columns[ALONE] |= self._weighted(batch.weight, tensors.to_tensor)
            self.passes.solve(columns, learn, self.updates, metrics)
            if self.steps.whole is None:
                self.passes.run(batch, columns, learn, self.update_schedule, batch_size, metrics)
            else:
                self.passes.whole(self.steps.whole, columns, learn, share, metrics)
        if self._prioritized and isinstance(seen, Transitions):
            seen.errors = self.steps.errors()
        self.steps.end()
        if isinstance(seen, Rollout) and self.algorithm.row_errors is not None:
            with self.backend.no_gradient():
                errors = self.algorithm.row_errors(self.backend.ops, nets, tensors, self.hyper.tensors())
            seen.errors = np.where(seen.weight > 0, errors, 0.0).astype(np.float32)  # 0 for padding
        self._measure(nets, tensors, learn)
        self.updates += learn
        if self.steps.whole is None and np.count_nonzero(share):
            self.steps.update_targets(share)
        if observed:
            observe(observed, seen, learn)
        self.skipped = metrics.skipped(learn)
        settings = {name: self.hyper.values[own].copy() for name, own in self.reported.items()}
        added = tensors.metrics | settings
        return BegunUpdate(lambda: metrics.result() | added, self.skipped)

    def _prepared(self, nets: Networks, batch: Batch) -> WholeBatch:
        """Return the batch as tensors, prepared by the algorithm."""
        if not self._prepares:
            return self._whole(batch, every=self._adapts)
        with self.backend.no_gradient():
            tensors = self._whole(batch, every=True)
            return self.algorithm.prepare(self.backend.ops, nets, batch, tensors, self.hyper.tensors())

    def _scale_rewards(self, tensors: WholeBatch, weight: Array, learn: Array) -> None:
        """Scale the rewards of the losses, see `RewardScaling`; those of a reward model, if there is one."""
        scale = self.reward_scales()
        if scale is not None and self.rewards.changes(scale):
            reward = tensors.to_numpy(tensors.reward)
            tensors.reward = tensors.to_tensor(self.rewards(reward, weight, learn, scale))

    def _weighted(self, weight: Array, convert: Callable[[Any], Any]) -> dict[str, Any]:
        """Return the columns for the weights [K, B] of rows, whose sums are 1; see `importance` for `scale`."""
        if not self._prioritized:
            return {"weight": convert(shares_of(weight))}
        from marltrain.policies.memory.priorities import importance  # loads numba

        shares, scale = importance(weight)
        return {"weight": convert(shares), "scale": convert(scale)}

    def _measure(self, nets: Networks, tensors: WholeBatch, learn: Array) -> None:
        """Adapt numbers of the algorithm after the passes of an update; measure quantities that a callback needs."""
        if self._adapts:
            with self.backend.no_gradient():
                adapted = self.algorithm.adapted(self.backend.ops, nets, tensors, self.hyper.tensors())
            self.hyper.adapt(adapted, learn)
        if self.measured.effective:
            tensors.metrics[EFFECTIVE] = self.measured.effective_share(nets, tensors)

    def obstacle(self) -> str | None:
        """See `Learner`."""
        special = self.needs.on_policy or self._prepares or self._adapts
        return hindrance(self) if self.steps.plannable and not special else None

    def planned_updates(self, reader: Reader, batch_size: int) -> PlannedUpdates | None:
        """See `Learner`."""
        if self.obstacle() != "":
            return None
        from marltrain.policies.learner.planned.kinds import updates_of

        return updates_of(self, self.steps, reader, self.rewards, batch_size)

    def _whole(self, batch: Batch, *, every: bool) -> WholeBatch:
        """Return the batch as tensors, for `Algorithm.prepare` if `every` column may be read, else for losses alone.

        They are arguments if one call alone reads them. Also the columns of sequences, if a network is recurrent.
        """
        once = isinstance(batch, Transitions) and self.steps.read_once and not (every or self.measured.effective)
        convert = self.backend.argument if once else self.backend.tensor

        def rescale(network: str, head: int, scale: Array, shift: Array) -> None:
            self.weights.rescale(network, head, scale, shift)
            self.steps.outdated()

        def drawn(draw: Draw) -> Any:
            return self.backend.tensor(drawn_rows(draw, self.rngs("update"), batch.weight > 0))

        tensors = WholeBatch(batch, convert, self.backend.numpy, drawn, self.weights.statistics, rescale)
        if isinstance(batch, Rollout | SequenceTransitions) and self.actor.recurrent:
            columns = sequence_columns(batch, self._networks)
            tensors.carry, tensors.begins = map(convert, (columns["carry"], columns["begins"]))
        return tensors

    def close(self) -> None:
        """End the processes or threads that the gradient steps started."""
        self.steps.close()

    # saving

    def export(self, row: int) -> AgentState:
        """Return the complete state of one agent, as numpy arrays and JSON values."""
        self.copies.wait()
        info = {
            "seed": self.seeds[row],
            "updates": int(self.updates[row]),
            "gradient_steps": int(self.gradient_steps[row]),
            **self.hyper.export(row),
            "rngs": {purpose: state_of(self.rngs(purpose)[row]) for purpose in PURPOSES},
        }
        if self.memory is not None and self.memory.names:
            info["memory"] = self.memory.export(row)
        if self.actor.counts.size:
            info["action_counts"] = self.actor.counts[row].tolist()
        arrays = self.weights.export(row)
        if self.team is not None:
            arrays |= {f"{TEAM}{name}": array for name, array in self.team.export(0).items()}
        return AgentState(info, arrays)

    def load(self, row: int, state: AgentState) -> None:
        """Load an exported agent into one row; raises SaveError for an agent of another kind."""
        self.copies.wait()
        load_arrays(self, row, state.arrays)
        self.seeds[row] = state.count("seed", high=MOST_SEED)
        self.updates[row], self.gradient_steps[row] = state.count("updates"), state.count("gradient_steps")
        self.hyper.load(row, state)
        self.update_schedule = self.update_schedule.with_common(self.hyper.common, self.algorithm.name)
        if self.memory is not None and self.memory.names and "memory" in state.info:
            self.memory.load(row, state.part("memory"))
        if self.actor.counts.size:
            self.actor.counts[row] = counts_of(state, self.actor.counts.shape[1])
        rngs = state.part("rngs")
        for purpose in PURPOSES:
            self.rngs(purpose)[row] = restored(rngs.value(purpose, dict))
        self.steps.outdated()
        self.copies.sync()

    def load_weights(self, row: int, arrays: Mapping[str, Array]) -> None:
        """Load some of one agent's networks and statistics, see `loading.load_weights`."""
        load_weights(self, row, arrays)


def hindrance(learner: AlgorithmLearner) -> str:
    """Return why compiled code cannot make the updates between batch steps, "" if nothing hinders it."""
    if learner.needs.block and learner.draws:  # their number depends on the sequences that were drawn
        return "losses read random numbers for the rows of sequences"
    return "" if learner.memory is None else learner.memory.obstacle
