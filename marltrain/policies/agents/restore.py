"""Build agents from saved states."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib import import_module
from itertools import pairwise
from typing import Any

from marltrain.core.errors import AgentError, SaveError
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.custom_objects import EXTERNAL
from marltrain.policies.agents.fixed import FrozenAgent, RandomAgent
from marltrain.policies.agents.mixed import MixedAgent
from marltrain.policies.agents.registry import ALGORITHMS, agent_class
from marltrain.policies.batches.batch import AgentState


def restore(
    state: AgentState,
    *,
    custom_objects: Mapping[str, Any] | None = None,
    backend: str | None = None,
    device: str | None = None,
) -> Agent:
    """Build an agent from a state of `Agent.state`; raises SaveError if the type is unknown or the state is invalid.

    custom_objects: class name -> custom agent class or model; files store only the names of custom code.
    backend, device: see `load`.
    """
    kind, custom_objects = state.info.get("type"), custom_objects or {}
    if kind == "frozen":
        inner = AgentState(state.info["inner"], state.arrays)
        return FrozenAgent(restore(inner, custom_objects=custom_objects, backend=backend, device=device))
    if kind == "random":
        return RandomAgent.from_state(state)
    if kind == MixedAgent.saved_as:
        return MixedAgent.from_state(
            state, lambda member: restore(member, custom_objects=custom_objects, backend=backend, device=device)
        )
    if isinstance(kind, str) and kind in custom_objects:
        return _supplied(custom_objects[kind], state, custom_objects, backend, device)
    if isinstance(kind, str) and kind in ALGORITHMS:
        _check_widths(state)
        return agent_class(kind).from_state(state, custom_objects, backend, device)
    if isinstance(kind, str) and kind in EXTERNAL:
        module, attribute = EXTERNAL[kind]
        return getattr(import_module(module), attribute).from_state(state, custom_objects, backend)
    raise SaveError(
        f"a saved agent is of type {kind!r}, which is none of marltrain's: give its class with custom_objects="
    )


def check_place(info: Any, backend: str | None, device: str | None) -> None:
    """Raise AgentError if an agent's custom model belongs to another framework, or if a device is given for it."""
    info = info.get("inner") if isinstance(info, dict) and info.get("type") == "frozen" else info
    if not isinstance(info, dict) or str(info.get("type")) not in EXTERNAL:
        return
    saved, name = info.get("backend", "torch"), info.get("model", info.get("algorithm"))
    if device is not None:
        raise AgentError(f"device={device!r}: {name} is code of your own, which computes on the device of the model "
                         "that you give. Leave device= out, or load the other agents apart")  # fmt: skip
    if backend is not None and backend != saved:
        raise AgentError(f"backend={backend!r}: {name} is code of your own for {saved!r}, which computes with no other "
                         "framework. Leave backend= out, or load the other agents apart")  # fmt: skip


def _check_widths(state: AgentState) -> None:
    """Raise SaveError if a described layer has more weights than the file holds; called before networks are built."""
    network = state.info["settings"].get("network")
    described = network.get("network", {}) if isinstance(network, dict) else {}
    layers = [*pairwise(described.get("hidden", ())), *((c, k * k) for c, k, _ in described.get("filters", ()))]
    held = sum(array.size for array in state.arrays.values())
    for rows, columns in layers:
        if rows * columns > held:
            raise SaveError(f"a layer of {rows} x {columns} weights is described, and the file holds {held:,} numbers")


def _supplied(
    given: Any, state: AgentState, custom_objects: Mapping[str, Any], backend: str | None, device: str | None
) -> Agent:
    """Return the agent from a supplied agent, a class with `from_state`, or a function that makes an agent."""
    result, reads = given, getattr(given, "from_state", None)
    if reads is not None and isinstance(given, type):
        takes = "device" in inspect.signature(reads).parameters
        if device is not None and not takes:
            raise AgentError(
                f"device={device!r}: {given.__name__}.from_state takes no device. Leave device= out, or give it one"
            )
        result = reads(state, custom_objects, backend, **({"device": device} if takes else {}))
    elif not isinstance(given, Agent) and callable(given):
        result = given()
    if not isinstance(result, Agent):
        raise SaveError(
            f"custom_objects[{state.info['type']!r}] must be an Agent or make one, got {type(result).__name__}"
        )
    return result
