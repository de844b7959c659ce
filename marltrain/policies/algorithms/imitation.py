"""Parts of algorithms that learn from demonstrations: their check, their random rows, and actions as vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import AgentError, ConfigError, shown
from marltrain.core.layout import Layout, Space, map_tree, size_of
from marltrain.core.settings import Unsaved
from marltrain.policies.backends import numpy_ops
from marltrain.policies.batches.player_one_hot import players_of
from marltrain.policies.demonstrations.demonstrations import Demonstrations
from marltrain.policies.distributions import Continuous
from marltrain.policies.interface.algorithm import NORMALIZE
from marltrain.policies.ops import Ops


class Expert:
    """The demonstrations of an agent: random rows for gradient passes."""

    def __init__(
        self, who: str, settings: Any, layout: Layout, action_space: Space, *, as_vectors: bool = False
    ) -> None:
        """Check the setting `demonstrations`; `as_vectors`: draw actions as `action_vector`, computed here once.

        Raises ConfigError if it is missing or observations are normalized, SaveError for a folder without
        demonstrations, AgentError for demonstrations of other spaces.
        """
        given = settings.demonstrations
        self.who, self.given = who, Demonstrations.load(given) if isinstance(given, str | Path) else given
        if not isinstance(self.given, Demonstrations | Unsaved):
            raise ConfigError(
                f"{who}: demonstrations must be marltrain.Demonstrations, as marltrain.demonstrations(env, agents) "
                f"returns, or a folder that holds them, got {shown(self.given)}"
            )
        if players := players_of(layout):
            raise ConfigError(
                f"{who}: demonstrations do not tell which of the players {', '.join(players)} observed: make agents "
                "without identity"
            )
        if getattr(settings, NORMALIZE, False):
            raise ConfigError(f"{who}: demonstrations are not normalized: leave {NORMALIZE}=True out")
        if isinstance(self.given, Demonstrations):
            try:
                self.given.check_fits(layout.space, action_space, layout.stack)
            except AgentError as error:
                raise AgentError(f"{who}: {error}") from None
            action = self.given.action
            self._action = action_vector(numpy_ops, action_space, action) if as_vectors else action

    def draw(self, rngs: Sequence[np.random.Generator], rows: int) -> dict[str, Any]:
        """Draw decisions uniformly, with replacement: `expert_obs`, `expert_action`, `expert_legal`, [K, rows, ...].

        Raises AgentError for a loaded agent, whose demonstrations are not saved with it.
        """
        held = self.given
        if isinstance(held, Unsaved):
            raise AgentError(
                f"{self.who}: the agent's demonstrations are not saved with it: to train it further, load it with "
                "custom_objects={'demonstrations': ...}"
            )
        index = np.stack([rng.integers(len(held), size=rows) for rng in rngs])
        drawn = {"expert_obs": map_tree(lambda array: array[index], held.obs), "expert_action": self._action[index]}
        return drawn if held.legal is None else {**drawn, "expert_legal": held.legal[index]}


def width_of(space: Space) -> int:
    """Return the width of `action_vector`."""
    width = size_of(space)
    if width is None:
        raise ConfigError(f"actions of {space} have no vector; marltrain takes Discrete, MultiDiscrete and Box")
    return width


def action_vector(ops: Ops, space: Any, action: Any) -> Any:
    """Return actions as vectors [K, B, width]: one-hot, or a Box's numbers scaled to [-1, 1].

    action: in the arrays of the training loop.
    """
    if isinstance(space, spaces.Discrete):
        return ops.one_hot(action, int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        sizes = map(int, space.nvec.reshape(-1))
        return ops.concat([ops.one_hot(action[..., i], size) for i, size in enumerate(sizes)], -1)
    return Continuous(space).scaled(ops, action)
