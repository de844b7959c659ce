"""The actor that acts for attached processes with the agents of a named run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from marltrain.core.encoding import encoded, exploring_rows, in_units
from marltrain.core.errors import AgentError, MarlTrainError
from marltrain.core.layout import Array, Obs, arrays_of, map_tree
from marltrain.core.legal import Legal
from marltrain.core.seeds import generator
from marltrain.core.spec import PlayerSpec
from marltrain.policies.batches.batch import ActInputs
from marltrain.policies.batches.player_one_hot import observed_by
from marltrain.processes.ray_actors import Served
from marltrain.trainer.cluster.acting_learner import ActingLearner
from marltrain.trainer.cluster.columns import Columns
from marltrain.trainer.cluster.messages import Acting, ActingTask
from marltrain.trainer.jobs.messages import Answer

TOGETHER = 0.001
"""Seconds in which calls for one agent are gathered for one act."""


@dataclass
class _Call:
    """One call of `act`: its rows, and its answer."""

    obs: Obs
    legal: Array | None
    carry: dict[str, Array] | None
    explore: Array
    batched: bool
    answer: asyncio.Future[Answer]

    @property
    def rows(self) -> int:
        return len(self.explore)


@dataclass
class _Seat:
    """A player, the row of a learner that acts for it, and the calls that wait."""

    player: PlayerSpec
    identity: tuple[str, ...]
    learner: ActingLearner
    row: int
    rng: np.random.Generator
    waiting: list[_Call] = field(default_factory=list)


class PolicyActor(Served):
    """Acts with the newest weights that the run has sent. Calls for one agent that come together are one act.

    All methods run in one thread: weights change between two acts.
    """

    def __init__(self, players: Sequence[PlayerSpec], tasks: Sequence[ActingTask], seed: int) -> None:
        """Build the networks; `load` sets their weights.

        players: all of the environment.  tasks: the learners that act.  seed: that of the run, for exploration.
        """
        self._learners = [ActingLearner(task, Columns(0, 1, 1)) for task in tasks]
        self._seats = {
            task.names[p]: _Seat(players[p], task.identity, learner, row, generator(seed, "serve", int(p)))
            for task, learner in zip(tasks, self._learners, strict=True)
            for row, seats in enumerate(task.players)
            for p in seats
        }
        self._updates, self._calls, self._acts = 0, 0, 0
        self._loaded = asyncio.Event()

    async def load(self, weights: Sequence[Acting], updates: int) -> None:
        """Take the weights of all learners, after so many updates of the run."""
        for learner, acting in zip(self._learners, weights, strict=True):
            learner.load(acting)
        self._updates = updates
        self._loaded.set()

    async def counts(self) -> tuple[int, int]:
        """Return the numbers of calls that were answered, and of acts."""
        return self._calls, self._acts

    async def act(self, player: str, observation: Any, legal: Any, carry: Any, explore: Any) -> Answer:
        """Return the action for one observation or a batch, the next carry, and the number of updates.

        See `Agent.act` and `LearningAgent.act_with_carry`.
        """
        await self._loaded.wait()
        try:
            seat = self._seats.get(player)
            if seat is None:
                raise AgentError(
                    f"the agent of {player!r} cannot be asked: only agents of marltrain's own algorithms over "
                    "NetworkSpecs are served"
                )
            call = _call(seat, observation, legal, carry, explore)
        except (MarlTrainError, TypeError, ValueError) as error:
            return Answer.of(error)
        seat.waiting.append(call)
        if len(seat.waiting) == 1:
            asyncio.get_running_loop().call_later(TOGETHER, self._answer, seat)
        return await call.answer

    def _answer(self, seat: _Seat) -> None:
        """Answer all calls that wait for an agent."""
        calls, seat.waiting = seat.waiting, []
        try:
            answers = [Answer(result) for result in self._act(seat, calls)]
        except Exception as error:
            answers = [Answer.of(error)] * len(calls)
        self._calls, self._acts = self._calls + len(calls), self._acts + 1
        for call, answer in zip(calls, answers, strict=True):
            call.answer.set_result(answer)

    def _act(self, seat: _Seat, calls: Sequence[_Call]) -> Iterator[tuple[Any, Any, int]]:
        """Yield what each call gets, by one act."""
        space = seat.player.action_space
        obs = _joined([call.obs for call in calls])
        legal = None
        if any(call.legal is not None for call in calls):
            legal = np.concatenate([_legal(call, space) for call in calls])
        carried = seat.learner.actor.carried
        carry = {
            name: np.concatenate([
                np.zeros((call.rows, *column.shape), column.dtype) if call.carry is None else call.carry[name]
                for call in calls
            ])[None]
            for name, column in carried.items()
        } or None  # fmt: skip
        explore = np.concatenate([call.explore for call in calls])
        mask = None if legal is None else legal[None]
        inputs = ActInputs(map_tree(lambda array: array[None], obs), mask, explore[None], carry)
        acted = seat.learner.actor.act_row(seat.row, inputs, seat.rng)
        actions, low = in_units(space, acted.action[0]), 0
        for call in calls:
            high = low + call.rows
            action = actions[low:high] if call.batched else actions[low]
            following = {name: array[0, low:high] for name, array in acted.carry.items()} if carried else None
            yield action, following, self._updates
            low = high


def _call(seat: _Seat, observation: Any, legal: Any, carry: Any, explore: Any) -> _Call:
    """Return a call with its arguments as arrays of rows; raises SpecError or AgentError for wrong ones."""
    player = seat.player
    obs, mask, batched = encoded(player.layout, observation, legal, player.action_space)
    rows, carried = len(arrays_of(obs)[0]), seat.learner.actor.carried
    obs = observed_by(player.name if seat.identity else None, seat.identity, player.layout, obs)
    if carry is not None:
        shapes = {name: (rows, *column.shape) for name, column in carried.items()}
        if not isinstance(carry, dict) or {name: np.shape(array) for name, array in carry.items()} != shapes:
            raise AgentError(f"the carry of the agent of {player.name!r} must be what the last act returned, or None")
    answer = asyncio.get_running_loop().create_future()
    return _Call(obs, mask, carry, exploring_rows(explore, rows), batched, answer)


def _legal(call: _Call, space: Any) -> Array:
    """Return the legal actions of a call, [rows, A]; all actions where none are given."""
    return np.ones((call.rows, Legal(space).width), bool) if call.legal is None else call.legal


def _joined(parts: Sequence[Obs]) -> Obs:
    """Return the rows of several observations [b, *O] as one."""
    by_name = [part if isinstance(part, dict) else {"": part} for part in parts]
    joined = {name: np.concatenate([part[name] for part in by_name]) for name in by_name[0]}
    return joined if isinstance(parts[0], dict) else joined[""]
