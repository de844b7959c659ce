"""evaluate: play a run's agents over a grid of environment arguments and opponents."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marltrain.core.errors import ConfigError, shown
from marltrain.core.seeds import chosen_seed
from marltrain.core.settings import validate
from marltrain.core.spec import EnvSpec
from marltrain.envs import VectorEnv, make_vector, probe, resolve
from marltrain.envs.make import record_names
from marltrain.envs.python.probe import closed
from marltrain.envs.registry import Source
from marltrain.storage.files import made_folder
from marltrain.tools.evaluating.files import write_evaluation
from marltrain.tools.evaluating.line_ups import (
    Competitor,
    are_agents,
    check_seats,
    line_ups,
    name_of,
    opponents,
    sides_of,
)
from marltrain.tools.evaluating.result import EvaluationResult, Match
from marltrain.tools.evaluating.tables import tables_of
from marltrain.tools.saved_run import open_run
from marltrain.trainer.evaluating.episode_log import EpisodeLog
from marltrain.trainer.evaluating.evaluation import Evaluation
from marltrain.trainer.seats.by_player import Agents, in_seats
from marltrain.trainer.seats.in_use import at_work
from marltrain.trainer.seats.seats import Seating
from marltrain.trainer.settings import TEST_STEPS, TestSettings

EPISODES, NUM_ENVS = 64, 16


@dataclass(frozen=True)
class _Cell:
    """A point of the grid: the values of its arguments, and the environment with all arguments."""

    values: dict[str, Any]
    source: Source
    spec: EnvSpec


@dataclass(frozen=True)
class _Played:
    """The agents that are evaluated, and their environment."""

    name: str
    agents: Agents
    env: Any
    env_args: dict[str, Any]


def evaluate(
    run: str | Path | Agents,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    against: Sequence[Any] | Mapping[str, Any] = (),
    sides: Sequence[str] | None = None,
    episodes: int = EPISODES,
    sampled: bool = False,
    record: Sequence[str] = (),
    seed: int | None = 0,
    agents: str | None = None,
    env: Any = None,
    env_args: Mapping[str, Any] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    device: str | None = None,
    vector: str = "dummy",
    num_workers: int | None = None,
    num_envs: int = NUM_ENVS,
    max_steps: int | None = TEST_STEPS,
    out: str | Path | None = None,
) -> EvaluationResult:
    """Play test episodes with a run's agents, in every cell of a grid and against every opponent.

    run: folder of a run, or agents: one per player, or by player's name or pattern.
    agents: "best" or "last" of the run (default: best).
        Runs among the opponents play with their best agents.
    grid: {argument of the environment: values}; all combinations are played. Arguments that change the players or their
        spaces are refused before anything is played.
    against: opponents, each "random", the folder of a run, or agents: a list of opponents, or {name: opponent}. With
        opponents, every pair of competitors plays: one of them holds a side, the other one all other seats.
    sides: a player's name or pattern for each side, such as ["adversary_*"]; by default each player is a side.
    episodes: of each line-up in each cell. All play on equal seeds.
    sampled: all agents, those of opponents too, act as they explore in training, see `DecentralizedTrainer.test`.
        False: without exploration.
    record: attributes of the environment (fields of a native game) recorded at the end of episodes.
    env, env_args: the environment of a list of agents; for a run, its environment's name, which environments of your
        own need, and arguments to change.  custom_objects, device: see `load`.
    vector, num_workers, num_envs: environments in this process or in worker processes.
    max_steps: env steps after which a line-up's test in a cell is cut; None: no limit.
    out: folder for the tables (CSV and Parquet), pictures, and the episodes' seeds and actions; None: no files.

    Raises ConfigError for wrong arguments, and if agents cannot play a cell: with the argument, the expected and the
    actual space.
    """
    validate(TestSettings(episodes=episodes, sampled=sampled), "evaluate")
    record, seed = record_names(record), chosen_seed(seed, "evaluate")
    played = _played(run, agents, env, env_args, custom_objects, device)
    cells = _cells(played, grid or {})
    first = cells[0].spec
    own = Competitor(played.name, in_seats(played.agents, first))
    competitors = [own, *opponents(against, first, played.name, custom_objects, device)]
    sides_ = sides_of(first, sides)
    if len(competitors) > 1 and len(sides_) < 2:
        raise ConfigError(
            f"against: {first.name} has one side ({', '.join(first.names)}), and opponents need a second side: leave "
            "the opponents out, or give two sides"
        )
    for cell in cells:
        check_seats(cell.spec, competitors, _text(cell.values))
        if cell.spec.names != first.names:
            raise ConfigError(
                f"grid: with {_text(cell.values)} the players are {', '.join(cell.spec.names)}, with other values "
                f"{', '.join(first.names)}: evaluate over arguments that keep the players"
            )
    if out is not None:
        made_folder(out, "out")
    matches = []
    everyone = [agent for competitor in competitors for agent in competitor.agents or ()]
    with at_work(None, everyone, training=False):
        for cell in cells:
            with _envs(cell, episodes, num_envs, vector, num_workers, record) as envs:
                for line_up in line_ups(competitors, sides_):
                    log = EpisodeLog()
                    learners = Seating(envs.spec, line_up.agents, seed, stack=False).learners
                    result = Evaluation(envs, seed, max_steps).play(learners, episodes, sampled=sampled, log=log)
                    names = tuple(seat.name for seat in line_up.seats)
                    matches.append(Match(cell.values, cell.source, names, result, log))
    found = EvaluationResult(
        tuple(grid or ()), first.names, tuple(one.name for one in competitors),
        tuple(tuple(first.names[p] for p in side) for side in sides_), *tables_of(matches), matches, seed, sampled,
    )  # fmt: skip
    if out is not None:
        write_evaluation(found, out)
    return found


def _played(run: Any, agents: str | None, env: Any, env_args: Any, custom_objects: Any, device: str | None) -> _Played:
    if isinstance(run, str | Path):
        saved = open_run(run, env=env, agents=agents, custom_objects=custom_objects, device=device)
        return _Played(name_of(run), saved.agents, saved.env, {**saved.env_args, **(env_args or {})})
    if not are_agents(run):
        raise ConfigError(
            "run must be the folder of a run, or agents, a list with one agent per player or a mapping by player, got "
            f"{shown(run)}"
        )
    if env is None:
        raise ConfigError("a list of agents needs the environment to play in: env=...")
    if agents is not None:
        raise ConfigError(f"agents={agents!r} chooses among a run's agents, and a list of agents is given")
    return _Played("agents", run, env, dict(env_args or {}))


def _cells(played: _Played, grid: Mapping[str, Sequence[Any]]) -> list[_Cell]:
    """Return all cells; raises ConfigError for wrong values and unknown arguments."""
    for name, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
            raise ConfigError(
                f"grid: {name} must be a list of values, such as {{{name!r}: [3, 5]}}, got {shown(values)}"
            )
        if any(value in values[:i] for i, value in enumerate(values)):
            raise ConfigError(f"grid: {name} names a value twice, got {shown(values)}")
    cells = []
    for values in itertools.product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        source = resolve(played.env, {**played.env_args, **chosen})
        cells.append(_Cell(chosen, source, probe(source)))
    return cells


def _text(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={shown(value)}" for name, value in values.items())


@contextmanager
def _envs(
    cell: _Cell, episodes: int, num_envs: int, vector: str, num_workers: int | None, record: Sequence[str]
) -> Iterator[VectorEnv]:
    number = min(num_envs, episodes)
    workers = None if num_workers is None else min(num_workers, number)
    result = make_vector(
        cell.source, None, number, vector=vector, num_workers=workers, role="test", on_fault=None, record=record
    )
    with closed(result, cell.source.name) as envs:
        yield envs
