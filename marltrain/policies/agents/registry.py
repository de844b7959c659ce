"""The algorithms by name. The package reads this file when it is imported: it imports no other module at its top."""

TYPE_CHECKING = False  # true for type checkers

ALGORITHMS = {
    "a2c": ("marltrain.policies.algorithms.a2c", "A2C"),
    "acer": ("marltrain.policies.algorithms.acer", "ACER"),
    "bc": ("marltrain.policies.algorithms.bc", "BC"),
    "c51": ("marltrain.policies.algorithms.c51", "C51"),
    "coma": ("marltrain.policies.algorithms.coma", "COMA"),
    "ddpg": ("marltrain.policies.algorithms.ddpg", "DDPG"),
    "dqn": ("marltrain.policies.algorithms.dqn", "DQN"),
    "gail": ("marltrain.policies.algorithms.gail", "GAIL"),
    "maa2c": ("marltrain.policies.algorithms.maa2c", "MAA2C"),
    "maddpg": ("marltrain.policies.algorithms.maddpg", "MADDPG"),
    "mappo": ("marltrain.policies.algorithms.mappo", "MAPPO"),
    "masac": ("marltrain.policies.algorithms.masac", "MASAC"),
    "matd3": ("marltrain.policies.algorithms.matd3", "MATD3"),
    "mmd": ("marltrain.policies.algorithms.mmd", "MMD"),
    "nfsp": ("marltrain.policies.algorithms.nfsp", "NFSP"),
    "ppo": ("marltrain.policies.algorithms.ppo", "PPO"),
    "qmix": ("marltrain.policies.algorithms.qmix", "QMIX"),
    "rainbow": ("marltrain.policies.algorithms.rainbow", "Rainbow"),
    "sac": ("marltrain.policies.algorithms.sac", "SAC"),
    "seac": ("marltrain.policies.algorithms.seac", "SEAC"),
    "td3": ("marltrain.policies.algorithms.td3", "TD3"),
    "trl": ("marltrain.policies.algorithms.trl", "TRL"),
    "trpo": ("marltrain.policies.algorithms.trpo", "TRPO"),
    "vdac": ("marltrain.policies.algorithms.vdac", "VDAC"),
    "vdn": ("marltrain.policies.algorithms.vdn", "VDN"),
    "wqmix": ("marltrain.policies.algorithms.wqmix", "WQMIX"),
}
"""Algorithm name -> (module, agent class). Saved files store only the key, never a class path."""


def agent_class(name: str) -> "Any":
    """Return the agent class of a named algorithm; raises SaveError for an unknown one."""
    from importlib import import_module

    from marltrain.core.errors import SaveError, did_you_mean

    if name not in ALGORITHMS:
        raise SaveError(
            f"no algorithm is called {name!r}; there are {', '.join(ALGORITHMS)}.{did_you_mean(name, ALGORITHMS)}"
        )
    module, attribute = ALGORITHMS[name]
    return getattr(import_module(module), attribute)


def registered_name(kind: type) -> str | None:
    """Return the name of a registered agent class; None for another class, such as a subclass of the user's."""
    import sys

    for name, (module, attribute) in ALGORITHMS.items():
        if getattr(sys.modules.get(module), attribute, None) is kind:
            return name
    return None


if TYPE_CHECKING:
    from typing import Any
