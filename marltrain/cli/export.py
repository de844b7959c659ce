"""`marltrain export`: the policies of a run's agents as files of ONNX, torch.export or SavedModel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from marltrain.cli.agents import add_loading_arguments
from marltrain.cli.options import Parser, integer
from marltrain.cli.output import say
from marltrain.cli.runs import opened_run
from marltrain.core.errors import ConfigError, did_you_mean


def add_export_arguments(parser: Parser) -> None:
    """Add the arguments of `marltrain export`."""
    parser.add_argument("run", metavar="RUN", help="folder of a run")
    parser.add_argument("--format", metavar="FORMAT", help="onnx, torch or saved_model (default: onnx)")
    parser.add_argument("--player", action="append", metavar="PLAYER", help="of this player only; may be repeated")
    parser.add_argument("--out", metavar="FOLDER", help="where the files go (default: RUN/export)")
    parser.add_argument("--sampling", action="store_true", help="actions are samples of the policy, not the best ones")
    parser.add_argument(
        "--agents", choices=("best", "last"), help="which of its agents (default: best; last where no test was played)"
    )
    parser.add_argument("--observations", type=integer, metavar="INT",
                        help="on how many random ones a file is compared with its agent (default: 1000)")  # fmt: skip
    parser.add_argument("--env", help="namespace/name or module:attribute, for a run of an environment of your own")
    add_loading_arguments(parser)


def export(options: dict[str, Any]) -> None:
    """Write a file for each agent of a run, and print how far each is from its agent.

    Without --player, agents without a network of marltrain's are left out.
    """
    from marltrain.envs import probe, resolve
    from marltrain.policies.agents.algorithm_agent import LearningAgent
    from marltrain.policies.agents.fixed import FrozenAgent
    from marltrain.tools.export.export import export as export_agent
    from marltrain.tools.export.loading import SUFFIXES

    folder = Path(options["run"])
    run = opened_run(options)
    spec = probe(resolve(run.env, run.env_args))
    chosen, out = options.pop("player", []), Path(options.pop("out", folder / "export"))
    for name in chosen:
        if name not in spec.names:
            raise ConfigError(f"--player: {run.env} has no player {name!r}.{did_you_mean(name, spec.names)}"
                              f" There are {', '.join(spec.names)}")  # fmt: skip
    seats: dict[int, list[int]] = {}
    for seat, agent in enumerate(run.agents):
        name, inner = spec.names[seat], agent.inner if isinstance(agent, FrozenAgent) else agent
        if name in chosen or (not chosen and isinstance(inner, LearningAgent)):
            seats.setdefault(id(agent), []).append(seat)
        elif not chosen:
            say(f"{name}: left out, a {type(inner).__name__} has no network to export")
    if not seats:
        raise ConfigError(f"export: no agent of {folder} has a network to export")
    suffix = SUFFIXES.get(options.get("format", "onnx"), "")
    for own in seats.values():
        players = tuple(spec.names[seat] for seat in own)
        path = out / f"{players[0]}{suffix}"
        checked = export_agent(
            run.agents[own[0]], path, legal=spec.players[own[0]].masked, players=players, env=run.env,
            env_args=run.env_args, **options,
        )  # fmt: skip
        say(f"{path} ({', '.join(players)}): {checked}")
