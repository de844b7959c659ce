"""The options `--algo` and `--set`: the algorithm of each player, and settings of the agents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any

from marltrain.cli.options import Parser, imported
from marltrain.core.errors import ConfigError, did_you_mean, nearest

AGENT_ARGUMENTS = ("device", "jit_compile", "strategy")
"""Arguments of every agent that `--set` accepts besides the settings of its algorithm."""
VALUES = """a VALUE is a Python literal, text, a schedule or a network:
  --set learning_rate=1e-3 --set 'epsilon=linear(1, 0.05, 20000)' --set 'network=MLP((128, 128))'
each player its own algorithm, and settings of some players:
  --algo wolf=dqn --algo 'hare_*=ppo' --set wolf.learning_starts=500 --set gamma=0.95
`marltrain settings ALGO` lists the settings of an algorithm."""
"""The end of the help of `train`."""
WIDTH = 22
"""Columns of the names in the table of settings."""


def settings_of_agents() -> list[str]:
    """Return the names that `--set` accepts, for all algorithms."""
    return [*dict.fromkeys(field.name for settings in _settings().values() for field in settings), *AGENT_ARGUMENTS]


def settings_table(algo: str) -> str:
    """Return the settings of an algorithm, a name or module:Class, with their documentation and defaults, as text.

    Raises ConfigError for an unknown algorithm.
    """
    from marltrain.policies.agents.registry import ALGORITHMS, agent_class

    if ":" not in algo and algo not in ALGORITHMS:
        raise ConfigError(
            f"no algorithm is called {algo!r}.{did_you_mean(algo, ALGORITHMS)} There are {', '.join(ALGORITHMS)}"
        )
    kind = imported("ALGO", algo) if ":" in algo else agent_class(algo)
    if not hasattr(getattr(kind, "algorithm_class", None), "Settings"):
        raise ConfigError(f"ALGO {algo} is not the class of a learning agent")
    lines = []
    for field in fields(kind.algorithm_class.Settings):
        default = "" if field.default is MISSING else f" (default: {_text(field.default)})"
        lines.append(f"{field.name:<{WIDTH}} {field.metadata.get('doc', '')}{default}")
    return "\n".join(lines)


def _settings() -> dict[str, tuple[Field[Any], ...]]:
    """Return the fields of the settings of every algorithm, by its name."""
    from marltrain.policies.agents.registry import ALGORITHMS, agent_class

    return {algo: fields(agent_class(algo).algorithm_class.Settings) for algo in ALGORITHMS}


def _text(value: Any) -> str:
    """Return a default as the user would write it."""
    describe = getattr(value, "describe", None)
    if describe is None:
        return str(value)
    described = dict(describe())
    kind = described.pop("kind", described.pop("type", type(value).__name__))
    return f"{kind}({', '.join(map(str, described.values()))})"


def algorithms_and_settings(texts: Sequence[str], settings: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the argument `name` of `make_agents`, with settings PLAYER.KEY in its entries, and the common settings."""
    one_for_all = len(texts) == 1 and "=" not in texts[0]
    entries = {} if one_for_all else _entries(texts)
    common: dict[str, Any] = {}
    for name, value in settings.items():
        player, dot, key = name.rpartition(".")
        _check_setting(name, key)
        if dot and player not in entries:
            hint = did_you_mean(player, entries) or f" Give one with --algo {player}=ALGO, or write --set {key}=..."
            raise ConfigError(f"--set {name}: no --algo is given for {player!r}.{hint}")
        (entries[player][1] if dot else common)[key] = value
    return _kind(texts[0]) if one_for_all else entries, common


def _kind(algo: str) -> Any:
    """Return the name of an algorithm, or the agent class that "module:Class" names."""
    return imported("--algo", algo) if ":" in algo else algo


def _entries(texts: Sequence[str]) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Parse PLAYER=ALGO texts; raises ConfigError for other texts and for a repeated player."""
    entries: dict[str, tuple[Any, dict[str, Any]]] = {}
    for text in texts:
        player, _, algo = text.rpartition("=")
        if not player or not algo:
            raise ConfigError(f"--algo takes one ALGO for all players, or PLAYER=ALGO for each, got {text!r}")
        if player in entries:
            raise ConfigError(f"--algo names {player!r} twice")
        entries[player] = (_kind(algo), {})
    return entries


def _check_setting(name: str, key: str) -> None:
    """Raise ConfigError if `--set` names a setting of the trainer instead of the agents."""
    from marltrain.trainer.settings import TrainerSettings

    of_agents, of_trainer = settings_of_agents(), [field.name for field in fields(TrainerSettings)]
    near = nearest(key, [*of_agents, *of_trainer])
    if near not in ("", *of_agents):
        option = "--" + near.replace("_", "-")
        raise ConfigError(f"--set {name}: no agent has this setting. Did you mean the trainer's option {option!r}?")


def custom_object_options(agents: Sequence[Any]) -> str:
    """Return the options `--custom-objects NAME=module:Class` with which other commands load these agents, as text."""
    from marltrain.policies.agents.registry import ALGORITHMS

    algorithms = {agent.algorithm.name: type(agent) for agent in agents if hasattr(agent, "algorithm")}
    own = {name: kind for name, kind in algorithms.items() if name not in ALGORITHMS}
    return "".join(f" --custom-objects {name}={kind.__module__}:{kind.__qualname__}" for name, kind in own.items())


def add_loading_arguments(parser: Parser) -> None:
    """Add the options of commands that load saved agents; see `loading_arguments`."""
    parser.add_argument("--custom-objects", action="append", metavar="NAME=MODULE:ATTRIBUTE",
                        help="class, model or function of your own that the saved agents name")  # fmt: skip
    parser.add_argument("--device", metavar="DEVICE", help="of the agents: cpu, cuda or cuda:1 (default: auto)")


def loading_arguments(options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments `custom_objects` and `device` of `load`, and remove their options."""
    return {"custom_objects": supplied(options.pop("custom_objects", [])), "device": options.pop("device", None)}


def supplied(texts: Sequence[str]) -> dict[str, Any]:
    """Return the argument `custom_objects` of `load` for texts NAME=module:attribute; else raises ConfigError."""
    parts = {}
    for text in texts:
        name, _, place = text.partition("=")
        if not name or ":" not in place:
            raise ConfigError(f"--custom-objects takes NAME=module:attribute, got {text!r}")
        parts[name] = imported("--custom-objects", place)
    return parts
