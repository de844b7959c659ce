"""Exclusive use: one thread and one call of `train` at a time for each trainer and agent."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from marltrain.core.errors import AgentError, ConfigError, MarlTrainError
from marltrain.policies.agents.agent import Agent
from marltrain.policies.backends.modes import modes_kept

_GUARD = threading.Lock()
_AT_WORK: dict[int, tuple[int, str]] = {}
"""Object id -> (thread that uses the object, "training" or "playing")."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_AT_WORK.clear)  # objects of a child are copies, not in use there


@contextmanager
def at_work(trainer: object, agents: Any, *, training: bool) -> Iterator[None]:
    """Reserve a trainer and a list of agents for this thread; other objects in the list are ignored.

    trainer: None if there is none.
    training: reserve them for one call of `train`. With False, hooks of `train` may test or show the agents.
    The modes of frameworks are afterwards as they were, see `modes_kept`.
    Raises ConfigError for a trainer in use, and AgentError, naming its place, for an agent in use.
    """
    me, work = threading.get_ident(), "training" if training else "playing"
    named: dict[int, tuple[str, type[MarlTrainError]]] = {}
    if training and trainer is not None:
        named[id(trainer)] = ("this trainer", ConfigError)
    for i, agent in enumerate(agents if isinstance(agents, list | tuple) else ()):  # checked by `Seating`
        if isinstance(agent, Agent):
            named.setdefault(id(agent), (f"agent {i} of this call", AgentError))
    with _GUARD:
        before = {key: _AT_WORK[key] for key in named if key in _AT_WORK}
        for key, (thread, its_work) in before.items():
            if training or thread != me:
                name, error = named[key]
                where = "this thread, by the call that this one is made in" if thread == me else "another thread"
                raise error(f"{name} is {its_work} already, in {where}. Make or load another one for this call")
        _AT_WORK.update({key: (me, work) for key in named if key not in before})
    try:
        with modes_kept(gradients=training):
            yield
    finally:
        with _GUARD:
            for key in named.keys() - before.keys():
                _AT_WORK.pop(key, None)
