"""The algorithms by name."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from marltrain.errors import SaveError, did_you_mean

ALGORITHMS = {
    "dqn": ("marltrain.policies.algorithms.dqn", "DQN"),
    "ppo": ("marltrain.policies.algorithms.ppo", "PPO"),
}
"""Algorithm name -> (module, agent class). Saved files store only the key, never a class path."""


def agent_class(name: str) -> Any:
    """Return the agent class of a named algorithm; raises SaveError for an unknown one."""
    if name not in ALGORITHMS:
        raise SaveError(
            f"no algorithm is called {name!r}; there are {', '.join(ALGORITHMS)}.{did_you_mean(name, ALGORITHMS)}"
        )
    module, attribute = ALGORITHMS[name]
    return getattr(import_module(module), attribute)
