"""CentralCritic: an actor that reads its own observation, and a critic that reads the global state in training.

Centralized training with decentralized execution: Lowe et al. 2017 (arXiv:1706.02275), Yu et al. 2022
(arXiv:2103.01955).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from marltrain.core.errors import ConfigError
from marltrain.core.layout import Layout, Space
from marltrain.core.settings import setting
from marltrain.core.spec import MOST_STATE
from marltrain.policies.algorithms.actor_critic import ActorCritic
from marltrain.policies.interface.algorithm import STATE
from marltrain.policies.memory.needs import Needs, StateNeed
from marltrain.policies.networks.specs import Head, NetworkDefinition, Recurrent

INPUTS = {"state": "state", "joint": "observations", "agent_specific": "state", "own": None}
"""The critic's input -> the kind of global state that it needs; see `StateNeed`."""
MOST_VALUES = 2**20
"""Largest number of values of all players' actions; it detects mistyped settings."""


@dataclass(frozen=True, kw_only=True)
class CentralCriticSettings:
    """Settings of a central critic, beside those of an `ActorCritic`; the field defaults of the latter stay."""

    critic_input: str = setting(
        "state", doc="state: the environment's global state (without one: joint); joint: the observations of all "
        "players; agent_specific: the state and the player's own observation; own: that observation alone",
        choices=tuple(INPUTS),
    )  # fmt: skip
    state_size: int | None = setting(
        None, doc="values of the global state; `make_agents` sets it", low=1, high=MOST_STATE
    )

    @classmethod
    def state_kind(cls, given: Mapping[str, Any]) -> str | None:
        """Return the kind of state that the critic reads."""
        asked = given.get("critic_input", cls.critic_input)
        return INPUTS.get(asked) if isinstance(asked, str) else None  # the check of settings refuses other values


class CentralInput:
    """The input of a central critic: the global state, the own observation, or both.

    central: whether it has the state.  need: the state that the memory stores; None without.
    """

    def __init__(self, name: str, settings: Any, layout: Layout) -> None:
        """Read the settings; raises ConfigError without the size of the state.  name: of the algorithm."""
        kind, self.size = INPUTS[settings.critic_input], settings.state_size
        self.central = kind is not None
        if self.central and self.size is None:
            raise ConfigError(
                f"{name}: the critic reads a global state, whose number of values the agent must know: "
                f"make_agents({name!r}, env) gives it, or state_size= does"
            )
        self.need = None if kind is None else StateNeed(kind, self.size)
        self._own = layout if settings.critic_input in ("own", "agent_specific") else None

    def network(self, spec: Any, heads: Sequence[Head], more: tuple[int, ...] = ()) -> NetworkDefinition:
        """Return the definition of a critic that reads this input, and vectors of `more` values after it."""
        states = (self.size,) if self.central else ()
        return NetworkDefinition(spec, heads, self._own, vectors=(*states, *more))

    def of(self, obs: Any, state: Any) -> tuple[Any, ...]:
        """Return the own observation, the state, or both in this order."""
        return (*(() if self._own is None else (obs,)), *((state,) if self.central else ()))

    def statistics(self, settings: Any) -> dict[str, int]:
        """Return the running statistics of the state, if the settings ask for normalized observations."""
        return {STATE: self.size} if self.central and settings.normalize_observations else {}


class CentralCritic(ActorCritic):
    """An `ActorCritic` whose critic reads the global state; a base beside an algorithm that defines `phases`.

    With `critic_input="own"`, it is the algorithm with independent critics. Else the critic has no memory: with a
    recurrent actor, its default is the actor's network without memory, because acts do not read the state.
    """

    def __init__(self, settings: Any, layout: Layout, action_space: Space) -> None:
        """See `ActorCritic`; raises ConfigError without the size of the state, and for a shared trunk."""
        self.input = CentralInput(self.name, settings, layout)
        super().__init__(settings, layout, action_space)
        if self.input.central:
            self.recurrent = ("actor",)
        if self.input.central and self.shared:
            raise ConfigError(
                f"{self.name}: shared_trunk=True gives policy and value the same input, and "
                f"critic_input={settings.critic_input!r} another one to the critic: leave one of them out"
            )

    def networks(self) -> dict[str, NetworkDefinition]:
        """Return the actor and the critic, whose inputs `critic_inputs` returns."""
        nets = super().networks()
        if self.input.central:
            spec = self.settings.critic_network or without_memory(self.settings.network)
            nets["critic"] = self.input.network(spec, [Head(1)])
        return nets

    def critic_inputs(self, obs: Any, state: Any) -> tuple[Any, ...]:
        """Return the own observation, the state, or both in this order."""
        return self.input.of(obs, state)

    def statistics(self) -> dict[str, int]:
        """Return those of the base and, with `normalize_observations`, of the state."""
        return super().statistics() | self.input.statistics(self.settings)

    def needs(self) -> Needs:
        """Return those of the base, and the global state."""
        return replace(super().needs(), state=self.input.need)


def without_memory(network: Any) -> Any:
    """Return a network's specification, of a recurrent one that without its memory."""
    return network.without_memory if isinstance(network, Recurrent) else network
