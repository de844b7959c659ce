"""Write the policy of an agent to a file that other programs run: `export`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marltrain.core.errors import ConfigError, SaveError, shown
from marltrain.core.settings import check_flags, checked_arguments, setting, validate
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.agents.fixed import FrozenAgent
from marltrain.storage.files import path_of, replacing, replacing_folder
from marltrain.tools.export.check import Checked, check_exported
from marltrain.tools.export.description import KEY, Where, describe
from marltrain.tools.export.function import PolicyFunction
from marltrain.tools.export.loading import ONNX, SAVED_MODEL, SUFFIXES, TORCH, load_exported, require

Write = Callable[[PolicyFunction, Mapping[str, Any], Path], None]


@dataclass(frozen=True, kw_only=True)
class _Settings:
    format: str = setting(ONNX, doc="kind of file", choices=tuple(SUFFIXES))
    observations: int = setting(1_000, doc="observations on which the file is compared with the agent", low=1)


@checked_arguments
def export(
    agent: Agent,
    path: str | Path,
    *,
    format: str = ONNX,
    sampling: bool = False,
    legal: bool | None = None,
    players: tuple[str, ...] = (),
    env: str | None = None,
    env_args: Mapping[str, Any] | None = None,
    observations: int = 1_000,
) -> Checked:
    """Write the policy of a learning agent to a file, and compare it with the agent; return the differences.

    The file holds everything that an act needs: encoding and normalization of observations, the networks, the mask of
    legal actions, the state of recurrent networks (as inputs and outputs), and the scale of actions. Agents of either
    framework go into every format, but for networks that are a model of your own.

    path: "x.onnx", "x.pt2" (torch), or a folder (saved_model).  format: "onnx", "torch" or "saved_model".
    sampling: actions are samples of a stochastic policy, made from an input of uniform numbers; False: the best ones.
    legal: whether a mask of legal actions is an input; None: if the agent was made for, or trained in, an environment
        that gives masks, in observations or in infos.
    players, env, env_args: kept in the description of the file.
    observations: number of random observations on which the file is compared with the agent.
    Raises ConfigError for an agent that is not a `LearningAgent`, for samples of a deterministic policy, for a network
    of another framework and for a missing package. Raises SaveError if the file cannot be written, or differs from the
    agent by more than 1e-5; then it is not kept.
    """
    settings = _Settings(format=format, observations=observations)
    validate(settings, "export")
    check_flags("export", sampling=sampling)
    own = _learning(agent)
    target = _target(path, settings.format)
    write = _writer(settings.format)
    function = PolicyFunction(own, sampling=sampling, legal=legal)
    description = describe(own, function, Where(tuple(players), env, env_args), sampling=sampling)
    with (replacing_folder if settings.format == SAVED_MODEL else replacing)(target) as beside:
        write(function, description, beside)
        return check_exported(own, function, load_exported(beside), settings.observations)


def _learning(agent: Agent) -> LearningAgent:
    """Return the agent with the networks; raises ConfigError for one that has none of marltrain's."""
    inner = agent.inner if isinstance(agent, FrozenAgent) else agent
    if not isinstance(inner, Agent):
        raise ConfigError(
            f"export: agent must be one agent, got {shown(inner)}: the agent comes first, then the path, as in "
            'mt.export(agents[0], "policy.onnx")'
        )
    if not isinstance(inner, LearningAgent):
        raise ConfigError(
            f"export: a {type(inner).__name__} computes its actions by code of its own: export the agents of "
            f"algorithms, and its model with the tools of its framework, got {shown(agent)}"
        )
    return inner


def _target(path: str | Path, format: str) -> Path:
    """Return the path; raises ConfigError for a name of another format, SaveError for a folder with other files."""
    target, suffix = path_of(path), SUFFIXES[format]
    others = [each for each in SUFFIXES.values() if each]
    if (suffix and target.suffix != suffix) or (not suffix and target.suffix in others):
        wanted = f"a file whose name ends in {suffix}" if suffix else "a folder"
        raise ConfigError(f"export: format={format!r} writes {wanted}, got {shown(str(path))}")
    if target.is_dir() and (suffix or (any(target.iterdir()) and not (target / f"{KEY}.json").is_file())):
        raise SaveError(f"{target}: is a folder that holds other things than an exported policy: name another path")
    return target


def _writer(format: str) -> Write:
    """Return the function that writes a format; raises ConfigError if its packages are missing."""
    if format == SAVED_MODEL:
        require("tensorflow", "writes SavedModels", extra="tensorflow")
        from marltrain.tools.export.saved_model import write_saved_model

        return write_saved_model
    from marltrain.tools.export.torch_formats import write_onnx, write_torch

    if format == TORCH:
        return write_torch
    for module, what in (
        ("onnx", "writes ONNX files"),
        ("onnxscript", "translates them"),
        ("onnxruntime", "runs them"),
    ):
        require(module, what)
    return write_onnx
