"""The players of a league from the folder of a run: learners at the end, their earlier versions, and other members."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from marltrain.core.errors import ConfigError, SaveError
from marltrain.core.layout import Array
from marltrain.core.remedies import written
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.files import DESCRIPTION, RUN_AGENTS, SavedAgents, read_agents
from marltrain.policies.agents.fixed import RandomAgent
from marltrain.policies.agents.mixed import MixedAgent
from marltrain.policies.agents.saving import restored_agents
from marltrain.policies.batches.batch import AgentState
from marltrain.rivals.league_pool import EXPLOITER, LEAGUE_EXPLOITER
from marltrain.rivals.league_results import LeagueResults
from marltrain.rivals.round_robin import Sides
from marltrain.rivals.standings import Standings
from marltrain.storage.files import complete_folder
from marltrain.storage.state import State
from marltrain.tools.saved_run import environment_of
from marltrain.trainer.reporting.config_file import CONFIG, read_config
from marltrain.trainer.reporting.history import EPISODES_FILE, TESTS_FILE
from marltrain.trainer.saving.checkpoint import FoundCheckpoint, all_of, find, newest

BEST, LAST = RUN_AGENTS
RANDOM = "random"
"""Name of the player that chooses its actions at random."""

EXPLOITERS = (EXPLOITER, LEAGUE_EXPLOITER)
Learners = Mapping[str, Sequence[int]]
"""Seats of learners by their names: one of each, or those of a team."""
FIXED = (MixedAgent.saved_as, "frozen", RANDOM)
"""Saved types of agents that never learn."""


@dataclass(frozen=True, eq=False)
class RatedPlayer:
    """A player of the round robin of a report.

    agents: one, or those of a team.
    learner: the learner that it is, or was; "" for others.  final: whether it is a learner at the end of training.
    exploits: whether this learner is an exploiter, which begins again, so that its earlier versions are no measure.
    env_steps: of the run, when the learner was like this; nan for others.  elo: its points in training; nan: not known.
    """

    name: str
    agents: tuple[Agent, ...]
    learner: str = ""
    final: bool = False
    exploits: bool = False
    env_steps: float = np.nan
    elo: float = np.nan

    @property
    def random(self) -> bool:
        """Whether it chooses its actions at random."""
        return all(isinstance(agent, RandomAgent) for agent in self.agents)

    @property
    def earlier(self) -> bool:
        """Whether it is an earlier version of a learner."""
        return bool(self.learner) and not self.final


@dataclass(frozen=True)
class SavedLeague:
    """The players of a run.

    name: of the run's folder.  source: the files of the learners at the end, in the folder.
    sides: the players of both teams, of a run with a pool of teams.
    players: the learners, then their earlier versions in order of time, then the others.
    """

    name: str
    source: str
    env: str
    env_args: dict[str, Any]
    sides: Sides | None
    players: list[RatedPlayer]


def read_league(
    run: str | Path,
    *,
    members: int,
    env: str | None = None,
    custom_objects: Mapping[Any, Any] | None = None,
    device: str | None = None,
) -> SavedLeague:
    """Read the players of a run; the run may have been killed, if it has a checkpoint.

    Earlier versions are those in the run's pools; of a run without a pool its checkpoints and its best agents.

    members: largest number of earlier versions, which are spread evenly over training; the first and the last are
        always among them.  env: see `tools.saved_run.open_run`.  custom_objects, device: see `marltrain.load`.
    Raises SaveError for a folder that is not a run's or has no agents yet, and ConfigError for a run without a learner.
    """
    folder = complete_folder(run)
    name, env_args = environment_of(folder, env)
    seats = _seats(folder)
    found = _newest(folder, seats)
    load = partial(restored_agents, custom_objects=custom_objects, backend=None, device=device)
    agents, learners = load(found.saved), _learners(found.saved, seats)
    if not learners:
        raise ConfigError(f"{folder}: no agent of this run learned, so it has no versions to compare")
    sets = {agent: seat for seat, agent in enumerate(agents) if isinstance(agent, MixedAgent)}
    pools: list[tuple[MixedAgent, ...]] = [(each,) for each in sets]
    sides: Sides | None = None
    if _is_team(sets, found.saved, learners):
        pools, learners = [tuple(sets)], {"+".join(learners): tuple(seat for own in learners.values() for seat in own)}
        own, others = ([seats[seat]["player"] for seat in side] for side in (*learners.values(), sets.values()))
        sides = (own, others)
    states = {each: found.saved.states[found.saved.seats[seat]] for each, seat in sets.items()}
    elo, versions, others = _of_pools(pools, states, learners) if pools else ({}, [], [])
    if not pools:
        versions = [version for kept in _kept(folder, seats) for version in _of_files(kept, load(kept.saved), learners)]
    versions = [player for player in versions if not player.env_steps >= found.env_steps]
    finals = [
        RatedPlayer(
            named("final", label, learners), tuple(agents[seat] for seat in own), label, final=True,
            env_steps=found.env_steps, exploits=label.rpartition("_")[0] in EXPLOITERS, elo=elo.get(label, np.nan),
        )
        for label, own in learners.items()
    ]  # fmt: skip
    players = all_players(finals, versions, others, members)
    return SavedLeague(folder.name, found.source, name, env_args, sides, players)


@dataclass(frozen=True)
class _Found:
    """Saved agents of all seats, and the env steps of the run; source: the files, in the run's folder."""

    saved: SavedAgents
    env_steps: float
    source: str
    best: bool = False


def _seats(folder: Path) -> list[dict[str, Any]]:
    """Return the entries of config.json about the seats: "player", "agent_index" and "learns" of each."""
    kinds = {"player": str, "agent_index": int, "learns": bool}
    config = State(read_config(folder / CONFIG), {}, str(folder / CONFIG))
    found = [State(seat, {}, config.place("seats")) for seat in config.values("seats", dict)]
    return [{key: seat.value(key, kind) for key, kind in kinds.items()} for seat in found]


def _newest(folder: Path, seats: Sequence[Mapping[str, Any]]) -> _Found:
    """Return the newest agents of a run: those of its end, or of a checkpoint that was written later."""
    last, checkpoint = folder / LAST / DESCRIPTION, newest(folder)
    if checkpoint is not None and not _older(checkpoint, last):
        return _in_checkpoint(folder, find(checkpoint), seats)
    if not last.is_file():
        raise SaveError(
            f"{folder}: has no agents of the end of training and no checkpoint: let the run end, or train with "
            f"{written('callbacks=[mt.Checkpoint(...)]', '--checkpoint STEPS')}"
        )
    saved = read_agents(folder / LAST)
    return _Found(saved, _env_steps(folder, saved), f"{LAST}/")


def _older(checkpoint: Path, last: Path) -> bool:
    return last.is_file() and checkpoint.stat().st_mtime < last.stat().st_mtime


def _in_checkpoint(folder: Path, found: FoundCheckpoint | None, seats: Sequence[Mapping[str, Any]]) -> _Found:
    """Return the agents in a checkpoint; each is there once, under the number of its first seat."""
    if found is None:
        raise SaveError(f"{folder}: its checkpoint was removed meanwhile")
    indices = [seat["agent_index"] for seat in seats]
    agents = list(dict.fromkeys(indices))
    with found.taken():
        held = found.state.part("agents").part("agents")
        parts = [held.part(str(indices.index(agent))) for agent in agents]
    states = [AgentState(part.info, part.arrays, part.name) for part in parts]
    players = [seat["player"] for seat in seats]
    saved = SavedAgents(found.path, states, [agents.index(index) for index in indices], players, False)
    return _Found(saved, float(found.manifest["env_steps"]), found.path.relative_to(folder).as_posix())


def _kept(folder: Path, seats: Sequence[Mapping[str, Any]]) -> list[_Found]:
    """Return the agents in all checkpoints of a run, and its best agents.

    Best agents that an earlier version of marltrain has saved have no env step, and are left out.
    """
    found = [_in_checkpoint(folder, find(path), seats) for path in all_of(folder)]
    if (folder / BEST / DESCRIPTION).is_file():
        best = read_agents(folder / BEST)
        if best.env_steps is not None:
            found.append(_Found(best, float(best.env_steps), f"{BEST}/", best=True))
    return found


def _env_steps(folder: Path, saved: SavedAgents) -> float:
    """Return the env steps at the end of a run, by its tables, checkpoints and pools; nan if none has them."""
    import pandas as pd

    tables = [folder / name for name in (TESTS_FILE, EPISODES_FILE) if (folder / name).is_file()]
    last = [pd.read_parquet(path, columns=["env_steps"])["env_steps"].tolist()[-1:] for path in tables]
    steps = [float(number) for numbers in last for number in numbers]
    steps += [float(path.name) for path in all_of(folder)]
    steps += [float(np.ravel(state.info["counted"])[0]) for state in saved.states if "counted" in state.info]
    return max(steps, default=np.nan)


def _learners(saved: SavedAgents, seats: Sequence[Mapping[str, Any]]) -> Learners:
    """Return the first seat of each agent that learns, by the names of its players."""
    found: dict[int, list[int]] = {}
    for i, (index, seat) in enumerate(zip(saved.seats, seats, strict=True)):
        if seat["learns"] and saved.states[index].info.get("type") not in FIXED:
            found.setdefault(index, []).append(i)
    return {"+".join(seats[i]["player"] for i in held): held[:1] for held in found.values()}


def _is_team(sets: Mapping[MixedAgent, int], saved: SavedAgents, learners: Learners) -> bool:
    """Return whether the sets, with the seat of each, are the seats of one pool of teams, one for each learner.

    One of them holds the results of all.
    """
    keep = ["standings" in saved.states[saved.seats[seat]].info for seat in sets.values()]
    numbers = [[member.number for member in each.members] for each in sets]
    return len(learners) == len(sets) > 1 and sum(keep) == 1 and all(own == numbers[0] for own in numbers)


def named(what: str, learner: str, learners: Collection[str]) -> str:
    """Return the name of a learner, or of a version: without that of the learner if it is alone."""
    return what if len(learners) == 1 else f"{learner} {what}"


def _of_files(kept: _Found, agents: Sequence[Agent], learners: Learners) -> list[RatedPlayer]:
    """Return the learners in a checkpoint, or among the best agents; agents: those in the files, by seat."""
    what, steps = "best" if kept.best else "at", kept.env_steps
    return [
        RatedPlayer(
            f"{named(what, label, learners)} {steps:.0f}", tuple(agents[seat] for seat in own), label, env_steps=steps
        )
        for label, own in learners.items()
    ]


def _of_pools(
    pools: Sequence[tuple[MixedAgent, ...]], states: Mapping[MixedAgent, State], learners: Collection[str]
) -> tuple[dict[str, float], list[RatedPlayer], list[RatedPlayer]]:
    """Return the learners' Elo points, the versions and the other members of pools.

    pools: the sets of each pool, one for each seat of a team.
    With several pools, the learners' points of one are not those of another, and none are returned.
    """
    elos = [_elo([states[each] for each in pool], list(learners)) for pool in pools]
    players = [one for pool, elo in zip(pools, elos, strict=True) for one in pool_members(pool, elo[1], learners)]
    versions, others = [one for one in players if one.learner], [one for one in players if not one.learner]
    return elos[0][0] if len(pools) == 1 else {}, versions, others


def _elo(states: Sequence[State], learners: Sequence[str]) -> tuple[dict[str, float], Array | None]:
    """Return the Elo points in the states of a pool's sets: of the learners by name, and of members by number.

    None: none of the sets keeps results.
    """
    state = next((state for state in states if "standings" in state.info), None)
    if state is None:
        return {}, None
    results, members = state.part("standings"), state.part("pool").count("next")
    if "learners" in state.info:  # the pool of a league
        names = state.names("learners")
        league = LeagueResults(len(names), 1.0)
        league.restore(results, members)
        return dict(zip(names, league.ratings.tolist(), strict=False)), league.ratings[len(names) :]
    standings = Standings(1.0)
    standings.restore(results, members)
    return dict.fromkeys(learners, standings.learners), standings.rating


def pool_members(pool: Sequence[MixedAgent], elo: Array | None, learners: Collection[str]) -> list[RatedPlayer]:
    """Return the members of a pool, which has a set for each seat; elo: points of the members by number, if known.

    Versions of its agents are those of the learner if it is alone.
    """
    players = []
    for member in pool[0].members:
        points = np.nan if elo is None else float(elo[member.number])
        agents = tuple(each.member(member.number) for each in pool)
        if member.given:
            players.append(RatedPlayer(member.name, agents, elo=points))
            continue
        learner = next(iter(learners)) if len(learners) == 1 else member.name.partition(" at ")[0]
        players.append(RatedPlayer(member.name, agents, learner, env_steps=float(member.env_steps), elo=points))
    return players


def all_players(
    finals: Sequence[RatedPlayer], versions: Sequence[RatedPlayer], others: Sequence[RatedPlayer], members: int
) -> list[RatedPlayer]:
    """Return all that play: learners, at most `members` versions, others, and a random player; names differ."""
    return _unique([*finals, *_spread(versions, members), *others])


def _spread(versions: Sequence[RatedPlayer], most: int) -> list[RatedPlayer]:
    """Return at most `most` versions in order of time: equally many of each learner, evenly from the first to the last.

    Of each learner two are returned in any case.
    """
    of: dict[str, list[RatedPlayer]] = {}
    for player in sorted(versions, key=lambda player: player.env_steps):
        of.setdefault(player.learner, []).append(player)
    chosen = []
    for own in of.values():
        number = min(len(own), max(2, most // len(of)))
        chosen += [own[round(place)] for place in np.linspace(0, len(own) - 1, number)]
    return sorted(chosen, key=lambda player: player.env_steps)


def _unique(players: Sequence[RatedPlayer]) -> list[RatedPlayer]:
    """Return the players with different names: a number is added to names that occur again; and one random player."""
    if not any(player.random for player in players):
        players = [*players, RatedPlayer(RANDOM, tuple(RandomAgent() for _ in players[0].agents))]
    names: dict[str, int] = {}
    result = []
    for player in players:
        names[player.name] = number = names.get(player.name, 0) + 1
        result.append(player if number == 1 else replace(player, name=f"{player.name} ({number})"))
    return result
