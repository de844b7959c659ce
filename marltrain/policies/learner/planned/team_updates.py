"""Planned updates of a team from a replay buffer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.compiling import compiled, program
from marltrain.jit.views import address_of, function_of
from marltrain.policies.batches.tensor_batch import shares_of
from marltrain.policies.compiled.reward_kernel import SCALING
from marltrain.policies.learner.planned.planned_updates import PlannedLearner, PlannedUpdates
from marltrain.policies.learner.planned.rounds_kernel import ROUNDS, of_round, rounds_at, scale_drawn
from marltrain.policies.learner.programs.program_steps import ProgramSteps
from marltrain.policies.learner.reward_scaling import RewardScaling
from marltrain.policies.learner.trained_team import ALONE, OF_TEAM, Columns
from marltrain.policies.learner.update_plan import MadeUpdates
from marltrain.policies.memory.compiled.replay_kernel import (
    MOST_CELLS,
    READING,
    Reading,
    reading_at,
    reads,
)
from marltrain.policies.memory.compiled.team_replay_kernel import TEAM_READING, draw_steps, read_steps, team_reading_at
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.states import OWN, GlobalStates
from marltrain.policies.memory.team_reader import TeamReader


def reads_team(reader: Reader) -> TypeGuard[TeamReader]:
    """Return whether compiled code supports the batch steps of a reader: vectors, players of one kind."""
    if type(reader) is not TeamReader or len(reader.members) > 1 or reader.others:
        return False
    return reads(reader.ring, replace(reader.needs, state=None, columns={}))


class TeamUpdates(PlannedUpdates):
    """The updates of a team with one member and a TeamReader.

    They are planned while all players of the team act in every batch step of the memory, and the players whose seats
    learn now learned together in each of them: all or none.

    batch_steps: those of a batch, B.
    """

    def __init__(
        self, learner: PlannedLearner, steps: ProgramSteps, reader: TeamReader, rewards: RewardScaling, batch_size: int,
        draw: Callable[[], Any] | None = None,
    ) -> None:  # fmt: skip
        """Write the constant fields of the arguments; learner: the member.  draw: see `PlannedUpdates`."""
        self._reader = reader
        super().__init__(learner, steps, reader, rewards, batch_size, draw or draw_program)

    def _batch_steps(self, batch_size: int) -> int:
        """Return the number of batch steps that are drawn for a batch."""
        return batch_size

    def resize(self, batch_size: int) -> None:
        """See `PlannedUpdates`."""
        super().resize(batch_size)
        (seats,) = self.steps.team.seats
        self.batch_steps = self._batch_steps(batch_size)
        shape = self.learner.num_agents, seats * self.batch_steps
        self._rows = self._reading.new_transitions(*shape)
        self._present = np.ones(shape, bool)
        self._drawn = TeamReading(self._reader, self._reading, self.batch_steps, shape)
        self._record["drawing"] = self._drawn.address

    def can_draw(self, learn: Array) -> bool:
        """See `PlannedUpdates`."""
        ring = self._ring
        few = ring.capacity * ring.num_envs < MOST_CELLS
        return few and self._drawn.is_complete() and bool((self._reader.size()[learn] > 0).all())

    @property
    def pending(self) -> bool:
        """See `PlannedUpdates`; the plan is dropped if a player of the team has not acted."""
        if not self._drawn.is_complete():
            self.drop_plan()
        return super().pending

    def _columns(self, learn: Array) -> Columns:
        """See `PlannedUpdates`."""
        rows, learned, read = self._rows, self._rows_learned(learn), self._read
        if read is not None and _same(learned, read[ALONE]["learned"]):
            return read
        weight = np.ones(self._present.shape, np.float32) if learned is None else learned.astype(np.float32)
        self._drawn.set_weight(weight)
        own = {name: getattr(rows, name) for name in rows.loss_columns} | {
            "present": self._present, "next_present": self._drawn.next_present, "learned": learned,
            "weight": np.ascontiguousarray(shares_of(weight)),
        }  # fmt: skip
        return {ALONE: own, OF_TEAM: {"others": None, "next_others": None, **self._drawn.columns}}

    def _shares(self, updates: Array, hyper: Mapping[str, Array]) -> Array:
        """See `PlannedUpdates`; agents that do not learn follow as in `JointLearner`.

        The networks of the team follow as those of the agent with most updates, of the agents that learn.
        """
        algorithm, lead = self.learner.algorithm, int(np.where(self.learn, self.learner.updates, -1).argmax())
        of_team = np.broadcast_to(updates[:, lead, None], updates.shape)
        settling = algorithm.settling_share(of_team, hyper)  # type: ignore[attr-defined]
        share = np.where(self.learn, algorithm.target_share(updates, hyper), settling)
        return np.column_stack([share, share[:, lead]])

    def _set_rows(self, rngs: Sequence[np.random.Generator | None], gamma: Array, env_steps: Sequence[int]) -> None:
        """See `PlannedUpdates`; batch steps are drawn with the first generator that is not None."""
        self._reading.set_outputs(self._rows, gamma)
        if (rng := next((rng for rng in rngs if rng is not None), None)) is not None:
            self._drawn.set_generator(rng)  # without one, no agent learns yet: no round has updates

    def _weight(self) -> Array | None:
        """See `PlannedUpdates`."""
        return self._drawn.weight

    def _rows_learned(self, learn: Array) -> Array | None:
        """Return which rows the agents that `learn` learn from, [K, S * B] bool: those of seats that learn; None: all.

        In the batch steps that are drawn, all of these seats learned.
        """
        learns = self._ring.learning[np.stack(self._reader.members[0].seats)]
        if (learns | ~learn[:, None]).all():
            return None
        return np.repeat(learns, self.batch_steps, 1)

    def prepare_call(self, steps: int) -> None:
        """See `PlannedUpdates`."""
        super().prepare_call(steps)
        self._drawn.refresh()

    def take_results(self) -> MadeUpdates:
        """See `PlannedUpdates`; raises AgentError if the players' rewards, or the agents' discounts, differ."""
        if self._drawn.differs:
            gamma = self._hyper[int(self._record["round"][0]) - 1, self._names.index("gamma")]
            self._drawn.check(gamma)
        return super().take_results()


@compiled
def draw_batch_steps(address: int, now: int) -> int:
    """Draw and read batch steps for the ROUNDS at an address; return 0 if rewards or discounts differ."""
    u = rounds_at(address)
    d = team_reading_at(u.drawing)
    r = reading_at(d.reading)
    r.gamma = of_round(u, u.gamma, 8 * u.agents)
    draw_steps(d, r, now)
    read_steps(d, r)
    if d.differs:
        return 0
    if d.one_reward:
        scale_drawn(u, d.reward, 0, 0, d.batch)
    else:
        scale_drawn(u, r.to_reward, d.weight, u.learns, r.rows)
    return 1


@functools.cache
def draw_program() -> Any:
    """Return the compiled `draw_batch_steps`, from the disk cache if it is there."""
    return program(draw_batch_steps, READING, ROUNDS, SCALING, TEAM_READING)


def _same(mask: Array | None, other: Array | None) -> bool:
    """Return whether two masks are equal; None: there is none."""
    return mask is other or (mask is not None and other is not None and np.array_equal(mask, other))


class TeamReading:
    """Arguments of compiled code that draws and reads batch steps as a `TeamReader` with one member does.

    columns: those of the team, [1, B] and [1, B, S].  next_present: [K, S * B], that of the agents' rows.
    weight: [K, S * B], the weights of the agents' rows, see `set_weight`.
    """

    weight: Array

    def __init__(self, reader: TeamReader, reading: Reading, batch: int, shape: tuple[int, int]) -> None:
        """Allocate the columns of `batch` batch steps; `refresh` writes the addresses of the memory.

        shape: (K, S * batch), of the columns of the agents' rows.
        """
        self._reader, self._ring, need = reader, reader.ring, reader.needs.state
        self._states: GlobalStates | None = None if need is None else self._ring.states[need.kind]
        self._players = np.concatenate(reader.members[0].seats)
        self._learners = np.zeros_like(self._players)
        self._learning = np.zeros(0, np.int64)  # the players whose seats learned in the last check
        self._checked = 0  # batch steps before this one have been checked by `is_complete`
        self._unfit = -1  # the last of them that does not fit
        self._times, self._envs, self._further = (np.zeros(batch, np.int64) for _ in range(3))
        self.next_present = np.zeros(shape, bool)
        weight = np.ascontiguousarray(shares_of(np.ones((1, batch), np.float32)))
        self.columns: dict[str, Array | None] = {
            "reward": np.zeros_like(weight), "discount": np.zeros_like(weight), "weight": weight, "state": None,
            "next_state": None,
        }  # fmt: skip
        self.record = np.zeros(1, TEAM_READING)
        record = self.record[0]
        written: dict[str, Array] = {"time": self._times, "env": self._envs, "further": self._further}
        if self._states is not None:
            for name in ("state", "next_state"):
                self.columns[name] = np.zeros((1, batch, self._states.size), np.float32)
            record["size"] = 4 * self._states.size
        written |= {name: array for name, array in self.columns.items() if array is not None and name != "weight"}
        written["next_present"] = self.next_present
        for name, array in {**written, "player": self._players, "learner": self._learners}.items():
            record[name] = address_of(array)
        record["reading"], record["players"], record["batch"] = reading.address, len(self._players), batch
        record["one_reward"] = reader.one_reward
        self.address = address_of(self.record)

    def set_generator(self, rng: np.random.Generator) -> None:
        """Write the addresses of the generator that draws."""
        self._rng = rng  # keeps it alive: compiled code has only addresses
        record = self.record[0]
        record["generator"], record["draw"] = rng.bit_generator.ctypes.state_address, function_of(rng, "next_uint32")

    def set_weight(self, weight: Array) -> None:
        """Write the address of the weights of the players' rows, [K, S * B] float32."""
        self.weight = weight  # keeps it alive
        self.record["weight"] = address_of(weight)

    def refresh(self) -> None:
        """Write the addresses of the memory's arrays, which change when it grows."""
        record, ring, states = self.record[0], self._ring, self._states
        record["oldest"], record["drawable_count"] = ring.oldest, address_of(ring.drawable_count)
        if states is not None:
            record["capacity"], record["last"] = states.capacity, address_of(states.ends.obs[OWN])
            record["values"], record["final"] = address_of(states.values), address_of(states.final)

    def is_complete(self) -> bool:
        """Return whether all players acted in every batch step that the ring holds, and act in the newest one.

        Also whether the players whose seats learn now learned together in each: all of them, or none.
        """
        ring, players = self._ring, self._players
        self._note_learners()
        first = max(self._checked, ring.oldest)
        slots = np.arange(first, ring.now) % ring.capacity
        learned = ring.learnable[self._learning[:, None], slots]
        fit = ring.acted[players[:, None], slots].all((0, 2)) & (learned.all(0) | ~learned.any(0))
        if not fit.all():
            self._unfit = first + int(np.flatnonzero(~fit)[-1])
        self._checked = max(first, ring.now)
        return self._unfit < ring.oldest and bool(ring.turn[players].all())

    def _note_learners(self) -> None:
        """Write the players whose seats learn now; if they have changed, all batch steps are checked again."""
        learning = self._players[self._ring.learning[self._players]]
        if np.array_equal(learning, self._learning):
            return
        self._learning, self._checked, self._unfit = learning, 0, -1
        self._learners[: len(learning)] = learning
        self.record["learners"] = len(learning)

    @property
    def differs(self) -> bool:
        """Whether the rewards or discounts of the batch steps that were drawn last are not equal."""
        return bool(self.record["differs"][0])

    def check(self, gamma: Array) -> None:
        """Raise AgentError if the batch steps that were drawn last have no common reward or discount; gamma: [K]."""
        self._reader.at(self._times, self._envs, gamma)
