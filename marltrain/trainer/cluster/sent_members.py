"""Members of sets of policies, as runners get them: each once, with the first order after it has entered."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import cloudpickle

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Array
from marltrain.core.seeds import state_of
from marltrain.policies.agents.fixed import FrozenAgent
from marltrain.policies.agents.members import Members
from marltrain.policies.agents.parts import AgentPart, Rngs, StackPart
from marltrain.policies.learner.learner import Learner
from marltrain.storage.state import State
from marltrain.trainer.cluster.messages import MembersNews, PartTask, packed
from marltrain.trainer.seats.seats import LearnerSeats


class SentMembers:
    """The members of a set in the driver, and those that each runner holds."""

    def __init__(self, members: Members, learners: Sequence[LearnerSeats], who: str) -> None:
        """Take the members.

        learners: those that act, in the order of the runners' learners.  who: the set's players in messages.
        Raises ConfigError for members that runners cannot act with.
        """
        self._members, self._learners, self._who = members, learners, who
        self._held: dict[int, dict[str, dict[int, int]]] = {}  # runner -> part -> {number of a member: row}
        for part in members.parts.values():
            self._task(part)

    def news(self, w: int, *, fresh: bool) -> MembersNews | None:
        """Return the members that runner w lacks, and record them as sent; None if it lacks none.

        fresh: the runner has no members.
        """
        parts = self._members.parts
        rows = {name: dict(part.rows) for name, part in parts.items()}
        held = {} if fresh else self._held.get(w, {})
        if rows == held:
            return None
        self._held[w] = rows
        arrived: dict[str, dict[int, tuple[dict[str, Any], dict[str, Array]]]] = {}
        for name, part in parts.items():
            if isinstance(part, StackPart):
                new = [row for number, row in part.rows.items() if number not in held.get(name, {})]
                states = [(row, part.stack.export(row)) for row in new]
                arrived[name] = {row: (state.info, state.arrays) for row, state in states}
        sizes = {name: part.stack.size for name, part in parts.items() if isinstance(part, StackPart)}
        tasks = {name: self._task(part) for name, part in parts.items() if name not in held}
        return MembersNews(tasks, rows, sizes, arrived)

    def _task(self, part: StackPart | AgentPart) -> PartTask:
        """Return the message from which a runner makes a part; raises ConfigError if it cannot."""
        if isinstance(part, StackPart):
            return PartTask(packed(part.template.algorithm, self._who), part.template.backend.name)
        if part.number < 0:
            inner: Any = part.inner
            learner = next(i for i, seated in enumerate(self._learners) if seated.learner is inner.learner_)
            return PartTask(packed(inner.algorithm, self._who), inner.backend.name, learner, inner.row)
        inner = part.inner.inner if isinstance(part.inner, FrozenAgent) else part.inner
        if inner.learns:
            raise ConfigError(
                "runners: expected members of marltrain's own algorithms over NetworkSpecs, or agents that never "
                f"learn, in the set of {self._who}, got a {type(inner).__name__}. Leave it or runners out"
            )
        try:
            return PartTask(bytes(cloudpickle.dumps(part.inner)))
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"a member of the set of {self._who}, a {type(inner).__name__}, cannot be sent to Ray actors: {error}"
            ) from error


def generators(learner: Learner) -> Any:
    """Return the states of the generators of a learner's acts: K of them, or those of the parts of a set."""
    rngs = learner.rngs("act")
    return rngs.state() if isinstance(rngs, Rngs) else [state_of(rng) for rng in rngs]


def set_generators(learner: Learner, states: Any) -> None:
    """Set the generators to states that `generators` returned."""
    rngs = learner.rngs("act")
    if isinstance(rngs, Rngs):
        rngs.restore(State(states))
        return
    for rng, state in zip(rngs, states, strict=True):
        rng.bit_generator.state = state
