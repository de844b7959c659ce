"""Action probabilities of agents with Discrete actions, as arrays [B, A] float64."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import AgentError
from marltrain.core.layout import Array, Space


def number_of_actions(who: str, space: Space) -> int:
    """Return the number of actions of a Discrete space; raises AgentError for another space."""
    if not isinstance(space, spaces.Discrete):
        raise AgentError(f"{who}: probabilities are those of Discrete actions, got {space}")
    return int(space.n)


def one_hot(who: str, space: Space, action: Any) -> Array:
    """Return probability 1 for each action of `act`, [A] or [B, A]; raises AgentError unless actions are Discrete."""
    count = number_of_actions(who, space)
    places = np.asarray(action, np.int64) - int(space.start)  # type: ignore[attr-defined]
    return (places[..., None] == np.arange(count)).astype(np.float64)


def of_repeated_acts(who: str, space: Space, act: Callable[[], Any]) -> Array:
    """Return probability 1 for the action of `act`, called twice; raises AgentError if the two actions differ."""
    chosen, again = np.asarray(act()), np.asarray(act())
    if not np.array_equal(chosen, again):
        raise AgentError(
            f"{who} chose different actions for the same observations, so its probabilities are unknown: define "
            "probabilities(observation, legal=None, explore=True) in a subclass of Agent"
        )
    return one_hot(who, space, chosen)


def legal_shares(weights: Array, legal: Array | None) -> Array:
    """Return non-negative weights [B, A] as probabilities of the legal actions, [B, A] float64."""
    shares = np.asarray(weights, np.float64) * (1.0 if legal is None else legal)
    return shares / shares.sum(-1, keepdims=True)


def check_no_memory(who: str, recurrent: Collection[str]) -> None:
    """Raise AgentError for an agent with recurrent networks."""
    if recurrent:
        raise AgentError(
            f"{who}: its recurrent network chooses by earlier observations, too, and probabilities are those for one "
            "observation: use a network without memory, such as MLP"
        )


def policy_shares(who: str, space: Space, numbers: Mapping[str, Array], legal: Array | None) -> Array:
    """Return the probabilities [B, A] of a stochastic policy by its numbers [1, B, A]; see `Algorithm.policy_numbers`.

    Raises AgentError for a policy without probabilities, and unless actions are Discrete.
    """
    number_of_actions(who, space)
    if "probabilities" not in numbers:
        raise AgentError(
            f"{who} has no action probabilities: it chooses by the values of actions, and its exploration belongs to "
            "training. Set explore=False for the actions that it plays in tests"
        )
    return legal_shares(numbers["probabilities"][0], legal)
