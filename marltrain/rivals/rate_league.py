"""Rate a league: a round robin of learners, their earlier versions and others, and the report of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marltrain.core.errors import ConfigError, shown
from marltrain.envs.registry import resolve
from marltrain.policies.agents.agent import Agent
from marltrain.rivals.league_report import LeagueReport
from marltrain.rivals.round_robin import RoundRobin, round_robin
from marltrain.rivals.saved_league import RatedPlayer, SavedLeague, read_league

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.95


def league_report(
    run: str | Path | Sequence[str | Path],
    *,
    members: int = 12,
    episodes: int = 100,
    sampled: bool = True,
    players: Mapping[str, Agent | Sequence[Agent]] | None = None,
    num_test_envs: int = 16,
    env: Any = None,
    custom_objects: Mapping[Any, Any] | None = None,
    device: str | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> LeagueReport:
    """Return the ratings of a run's learners and of their earlier versions, by a round robin of all of them.

    Earlier versions are those in the run's pools (`OpponentPool`); without a pool those in its checkpoints, and the
    best agents. The other members of pools and a random player play, too. The run may have ended or been killed.

    run: folder of a run, or of several in one environment: all their players meet, so their ratings can be compared,
        for example those of a run with a pool and of the same run without one.
    members: largest number of earlier versions of each run, spread evenly over training.
    episodes, sampled, num_test_envs, seed: see `round_robin`.  players: further players by name, or teams.
    env: the environment's name or class, for a run of an environment of the user's own.
    custom_objects, device: see `marltrain.load`.  resamples: of the bootstrap intervals.

    Raises SaveError for a folder without saved agents, and ConfigError for runs of different environments, for a run
    without a learner, and for a game other than of two players of equal spaces, or of two teams in a run with a pool of
    teams.
    """
    folders = [run] if isinstance(run, str | Path) else list(run)
    if not folders or members < 2:
        raise ConfigError(
            f"league_report: expected a run and at least 2 members, got {shown(folders)} and members={members}"
        )
    leagues = [
        read_league(each, members=members, env=env, custom_objects=custom_objects, device=device) for each in folders
    ]
    first = leagues[0]
    for league in leagues[1:]:
        if (league.env, league.env_args, league.sides) != (first.env, first.env_args, first.sides):
            raise ConfigError(
                f"league_report: runs of one environment and of equal teams are compared; {first.name} is of "
                f"{first.env} {first.env_args}{_of_teams(first)}, and {league.name} of {league.env} "
                f"{league.env_args}{_of_teams(league)}"
            )
    met = _together(leagues, players or {})
    results = round_robin(
        {player.name: player.agents for _, player in met}, first.env, first.env_args, sides=first.sides,
        episodes=episodes, sampled=sampled, num_test_envs=num_test_envs, seed=seed,
    )  # fmt: skip
    runs = "; ".join(f"{league.name} ({league.source})" for league in leagues)
    text = (
        f"Environment: {resolve(first.env, first.env_args).name}. {runs}. {2 * episodes} games of each pair, half of "
        f"them from each seat, with {'actions sampled as in training' if sampled else 'greedy actions'}."
    )
    return report_of(results, met, text, resamples=resamples, seed=seed)


def report_of(
    results: RoundRobin, met: Sequence[tuple[str, RatedPlayer]], subject: str, *, resamples: int, seed: int
) -> LeagueReport:
    """Return the report of a round robin; met: the run ("" for none) and the player, for each name of the results."""
    import pandas as pd

    names = pd.Index([player.name for _, player in met], name="player")
    about = pd.DataFrame(
        {
            "run": [run for run, _ in met], "learner": [player.learner for _, player in met],
            "env_steps": [player.env_steps for _, player in met],
        },
        index=names,
    )  # fmt: skip
    rated = results.ratings(resamples=resamples, level=LEVEL, seed=seed)
    elo = pd.Series([player.elo for _, player in met], names, dtype=float)
    known = elo.notna()
    shift = (rated["rating"].reindex(names)[known] - elo[known]).mean() if known.any() else 0.0
    ratings = about.join(rated).assign(elo=elo + shift).loc[rated.index]
    history = ratings[ratings["learner"] != ""].sort_values(["run", "learner", "env_steps"], kind="stable")
    return LeagueReport(
        results, ratings, results.payoffs(),
        history.reset_index()[["run", "learner", "env_steps", "player", "rating", "low", "high", "elo"]],
        _regressions(results, met), results.cycles(LEVEL), subject,
    )  # fmt: skip


def _regressions(results: RoundRobin, met: Sequence[tuple[str, RatedPlayer]]) -> pd.DataFrame:
    """Return the table of each learner at the end against the earlier versions of its run."""
    import pandas as pd

    tables = []
    for run, final in met:
        earlier = [player.name for of, player in met if of == run and player.earlier]
        if final.final and not final.exploits and earlier:
            table = results.regressions(final.name, earlier, LEVEL).reset_index()
            tables.append(table.assign(run=run, final=final.name))
    columns = ["run", "final", "player", "games", "wins", "draws", "losses", "score", "high", "regresses"]
    return pd.concat(tables, ignore_index=True)[columns] if tables else pd.DataFrame(columns=columns)


def _of_teams(league: SavedLeague) -> str:
    return "" if league.sides is None else f" with the teams {league.sides}"


def _together(
    leagues: Sequence[SavedLeague], more: Mapping[str, Agent | Sequence[Agent]]
) -> list[tuple[str, RatedPlayer]]:
    """Return the run and the player of all players, whose names begin with the run's if there are several.

    The random player is there once. Raises ConfigError for names that occur twice.
    """
    several = len(leagues) > 1
    found: dict[str, tuple[str, RatedPlayer]] = {}
    for league in leagues:
        for player in league.players:
            common = player.random
            name = f"{league.name} {player.name}" if several and not common else player.name
            if name in found and not common:
                raise ConfigError(f"league_report: two players are called {name!r}: runs need folders of other names")
            found[name] = ("" if common else league.name, replace(player, name=name))
    for name, agent in more.items():
        if name in found:
            raise ConfigError(f"league_report: players= has {name!r}, which is the name of a player of the run")
        found[name] = ("", RatedPlayer(name, (agent,) if isinstance(agent, Agent) else tuple(agent)))
    return list(found.values())
