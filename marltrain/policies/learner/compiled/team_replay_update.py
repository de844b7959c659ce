"""Planned updates of a team from a replay buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from marltrain.core.layout import Array
from marltrain.jit.views import address_of, entry
from marltrain.policies.compiled.team_replay_update_kernel import TEAM_UPDATE, team_update_program
from marltrain.policies.learner.compiled.planned_updates import CompiledUpdates, PlannedLearner
from marltrain.policies.learner.compiled.team_update import TeamStep, team_step_program
from marltrain.policies.learner.minibatches import shares_of
from marltrain.policies.learner.reward_scaling import RewardScaling
from marltrain.policies.learner.update_plan import MadeUpdates
from marltrain.policies.memory.compiled.replay_kernel import MOST_CELLS, Reading, function_of, reads
from marltrain.policies.memory.compiled.team_replay_kernel import TEAM_READING
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.states import OWN, GlobalStates
from marltrain.policies.memory.team_reader import TeamReader


def reads_team(reader: Reader) -> TypeGuard[TeamReader]:
    """Return whether compiled code supports the batch steps of a reader: single steps, vectors, players of one kind."""
    if type(reader) is not TeamReader or len(reader.members) > 1 or reader.others or not reader.one_reward:
        return False
    return reads(reader.ring, replace(reader.needs, state=None))


class TeamUpdates(CompiledUpdates):
    """The updates of a team with one member, a TeamReader and a TeamStep.

    They are planned while all players of the team act in every batch step of the memory, and the players whose seats
    learn now learned together in each of them: all or none.
    """

    def __init__(
        self, learner: PlannedLearner, step: TeamStep, reader: TeamReader, rewards: RewardScaling, batch_size: int
    ) -> None:
        """Write the constant fields of the arguments; learner: the member."""
        self.team_step, self._reader = step, reader
        super().__init__(learner, step, reader.ring, rewards, batch_size, TEAM_UPDATE, team_update_program)

    def resize(self, batch_size: int) -> None:
        """See `CompiledUpdates`."""
        self.batch_size = batch_size
        shape = self.team_step.agents, self.team_step.seats * batch_size
        self._rows: Any = self._reading.new_transitions(*shape)
        self._present = np.ones(shape, bool)
        self._drawn = TeamReading(self._reader, self._reading, batch_size, shape)
        self._record["reading"] = self._drawn.address

    def can_draw(self, learn: Array) -> bool:
        """See `CompiledUpdates`."""
        ring = self._ring
        few = ring.capacity * ring.num_envs < MOST_CELLS
        return few and self._drawn.is_complete() and bool((self._reader.size()[learn] > 0).all())

    @property
    def pending(self) -> bool:
        """See `CompiledUpdates`; the plan is dropped if a player of the team has not acted."""
        if not self._drawn.is_complete():
            self.drop_plan()
        return super().pending

    def _arrays(self, env_steps: Sequence[int], share: Array) -> Mapping[str, Array]:
        """Return the shares of the mixer: those of the agent with most updates, of the agents that learn."""
        return {"of_team": np.ascontiguousarray(share[:, self._lead])}

    def _shares(self, updates: Array, hyper: Mapping[str, Array]) -> Array:
        """See `CompiledUpdates`; agents that do not learn follow as in `JointLearner`."""
        algorithm, of_team = self.learner.algorithm, np.broadcast_to(updates[:, self._lead, None], updates.shape)
        settling = algorithm.settling_share(of_team, hyper)  # type: ignore[attr-defined]
        return np.where(self.learn, algorithm.target_share(updates, hyper), settling)

    @property
    def _lead(self) -> int:
        """The agent with most updates, of the agents that learn."""
        return int(np.where(self.learn, self.learner.updates, -1).argmax())

    def _set_rows(self, rngs: Sequence[np.random.Generator | None], gamma: Array) -> None:
        """See `CompiledUpdates`; batch steps are drawn with the first generator that is not None."""
        rows, drawn = self._rows, self._drawn
        self._reading.set_outputs(rows, gamma)
        if (rng := next((rng for rng in rngs if rng is not None), None)) is not None:
            drawn.set_generator(rng)  # without one, no agent learns yet: no round has updates
        self._learned = self._rows_learned()  # keeps them alive: compiled code has only addresses
        own = {
            "obs": rows.obs, "action": rows.action, "next_obs": rows.next_obs, "next_legal": rows.next_legal,
            "present": self._present, "next_present": drawn.next_present, "learned": self._learned,
        }  # fmt: skip
        self.team_step.set_batch(self.learn, own, drawn.columns)

    def _rows_learned(self) -> Array | None:
        """Return which rows the agents learn from, [K, S * B] bool: those of the seats that learn; None: all.

        In the batch steps that are drawn, all of these seats learned.
        """
        learns = self._ring.learning[np.stack(self._reader.members[0].seats)]
        if (learns | ~self.learn[:, None]).all():
            return None
        return np.repeat(learns, self.batch_size, 1)

    def prepare_call(self, steps: int) -> None:
        """See `CompiledUpdates`."""
        super().prepare_call(steps)
        if not self._record["make_step"][0]:
            self._record["make_step"] = entry(team_step_program(), 1)
        self._drawn.refresh()

    def take_results(self) -> MadeUpdates:
        """See `CompiledUpdates`; raises AgentError if the players' rewards, or the agents' discounts, differ."""
        if self._drawn.differs:
            self._drawn.check(self._hyper[int(self._record["round"][0]) - 1, self._gamma])
        return super().take_results()


class TeamReading:
    """Arguments of compiled code that draws and reads batch steps as a `TeamReader` with one member does.

    columns: those of the team, [1, B] and [1, B, S].  next_present: [K, S * B], that of the agents' rows.
    """

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
        self._times, self._envs = np.zeros(batch, np.int64), np.zeros(batch, np.int64)
        self.next_present = np.zeros(shape, bool)
        weight = np.ascontiguousarray(shares_of(np.ones((1, batch), np.float32)))
        self.columns: dict[str, Array | None] = {
            "reward": np.zeros_like(weight), "discount": np.zeros_like(weight), "weight": weight, "state": None,
            "next_state": None,
        }  # fmt: skip
        self.record = np.zeros(1, TEAM_READING)
        record, written = self.record[0], {"time": self._times, "env": self._envs, "next_present": self.next_present}
        if self._states is not None:
            for name in ("state", "next_state"):
                self.columns[name] = np.zeros((1, batch, self._states.size), np.float32)
            record["size"] = 4 * self._states.size
        written |= {name: array for name, array in self.columns.items() if array is not None and name != "weight"}
        for name, array in {**written, "player": self._players, "learner": self._learners}.items():
            record[name] = address_of(array)
        record["reading"], record["players"], record["batch"] = reading.address, len(self._players), batch
        self.address = address_of(self.record)

    def set_generator(self, rng: np.random.Generator) -> None:
        """Write the addresses of the generator that draws."""
        self._rng = rng  # keeps it alive: compiled code has only addresses
        record = self.record[0]
        record["generator"], record["draw"] = rng.bit_generator.ctypes.state_address, function_of(rng, "next_uint32")

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
