"""CentralCritic: an actor that reads its own observation, and a critic that reads the global state in training.

Centralised training with decentralised execution: Lowe et al. 2017 (arXiv:1706.02275), Yu et al. 2022
(arXiv:2103.01955).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from marltrain.config import setting
from marltrain.errors import ConfigError
from marltrain.layout import Layout, Space
from marltrain.policies.algorithms.actor_critic import ActorCritic
from marltrain.policies.algorithms.base import STATE
from marltrain.policies.batch import Needs, StateNeed
from marltrain.policies.networks import Head, NetworkDefinition, Recurrent

INPUTS = {"state": "state", "joint": "observations", "agent_specific": "state", "own": None}
"""The critic's input -> the kind of global state that it needs; see `StateNeed`."""
MOST_VALUES = 2**20
"""Largest number of values of a global state; it detects mistyped settings."""


@dataclass(frozen=True, kw_only=True)
class CentralCriticSettings:
    """Settings of a central critic, beside those of an `ActorCritic`; the field defaults of the latter stay."""

    critic_input: str = setting(
        "state", doc="state: the environment's global state (without one: joint); joint: the observations of all "
        "players; agent_specific: the state and the player's own observation; own: that observation alone",
        choices=tuple(INPUTS),
    )  # fmt: skip
    state_size: int | None = setting(
        None, doc="values of the global state; `make_agents` sets it", low=1, high=MOST_VALUES
    )

    @classmethod
    def state_kind(cls, given: Mapping[str, Any]) -> str | None:
        """Return the kind of state that the critic reads."""
        asked = given.get("critic_input", cls.critic_input)
        return INPUTS.get(asked) if isinstance(asked, str) else None  # the check of settings refuses other values


class CentralCritic(ActorCritic):
    """An `ActorCritic` whose critic reads the global state; a base beside an algorithm that defines `phases`.

    With `critic_input="own"`, it is the algorithm with independent critics. Else the critic has no memory: with a
    recurrent actor, its default is the actor's network without memory, because acts do not read the state.
    """

    def __init__(self, settings: Any, layout: Layout, action_space: Space) -> None:
        """See `ActorCritic`; raises ConfigError without the size of the state, and for a shared trunk."""
        self.central = INPUTS[settings.critic_input] is not None
        super().__init__(settings, layout, action_space)
        if self.central:
            self.recurrent = ("actor",)
        if self.central and settings.state_size is None:
            raise ConfigError(
                f"{self.name}: the critic reads a global state, whose number of values the agent must know: "
                f"make_agents({self.name!r}, env) gives it, or state_size= does"
            )
        if self.central and self.shared:
            raise ConfigError(
                f"{self.name}: shared_trunk=True gives policy and value the same input, and "
                f"critic_input={settings.critic_input!r} another one to the critic: leave one of them out"
            )

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the actor and the critic, whose inputs `critic_inputs` returns."""
        nets = super().networks()
        if self.central:
            own = self.layout if self.settings.critic_input == "agent_specific" else None
            spec = self.settings.critic_network or without_memory(self.settings.network)
            nets["critic"] = NetworkDefinition(spec, [Head(1)], own, vectors=(self.settings.state_size,))
        return nets

    def critic_inputs(self, obs: Any, state: Any) -> tuple[Any, ...]:
        """Return the own observation, the state, or both in this order."""
        if not self.central:
            return (obs,)
        return (obs, state) if self.settings.critic_input == "agent_specific" else (state,)

    def statistics(self) -> dict[str, int]:
        """Return those of the base and, with `normalize_observations`, of the state."""
        kept = super().statistics()
        return (
            kept | {STATE: self.settings.state_size} if self.central and self.settings.normalize_observations else kept
        )

    def needs(self) -> Needs:
        """Return those of the base, and the global state."""
        kind = INPUTS[self.settings.critic_input]
        return super().needs() if kind is None else replace(
            super().needs(), state=StateNeed(kind, self.settings.state_size)
        )  # fmt: skip


def without_memory(network: Any) -> Any:
    """Return a network's specification, of a recurrent one that without its memory."""
    return network.without_memory if isinstance(network, Recurrent) else network
