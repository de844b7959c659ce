"""Replays of an evaluation's episodes: their seeds and actions in a folder, and how they are shown again.

replays/replays.json          format, schema, marltrain's version, environment, matches, checksums
replays/replays.safetensors   of match m: "m/episode", "m/seed", "m/length" [n] int64, "m/returns" [n, P] float64, and
                              for each group g of players "m/moves/g": the actions of all episodes, [T, P, ...]
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marltrain.core.errors import ConfigError, EnvError, SaveError, error_text
from marltrain.core.layout import Array
from marltrain.core.spec import EnvSpec, Step, empty_actions
from marltrain.envs import probe, resolve
from marltrain.envs.registry import imports_only_known
from marltrain.storage.files import complete_folder, read_arrays, replacing_folder, write_arrays
from marltrain.storage.json_files import to_json
from marltrain.storage.manifest import Manifest
from marltrain.trainer.playing.play import film_of
from marltrain.trainer.playing.stage import show_episodes

if TYPE_CHECKING:
    from marltrain.tools.evaluating.result import EvaluationResult, Match

FOLDER, ARRAYS = "replays", "replays.safetensors"
FILES = Manifest("marltrain-replays", 1, "replays", "replays.json", (ARRAYS,))


@dataclass(frozen=True, eq=False)
class Replay:
    """One episode.

    env, env_args: the environment.  agents: the competitor in each player's seat.  seed: of the reset.
    moves: per group of players, the actions [T, P, ...] of its env steps.  returns: [P] float64.
    """

    env: str
    env_args: dict[str, Any]
    agents: tuple[str, ...]
    seed: int
    moves: tuple[Array, ...]
    returns: Array


def write_replays(found: EvaluationResult, folder: Path) -> None:
    """Write the finished episodes of all matches into a folder inside `folder`."""
    arrays: dict[str, Array] = {}
    described = []
    for m, match in enumerate(found.matches):
        arrays |= {f"{m}/{name}": array for name, array in _arrays(match).items()}
        described.append({"env_args": to_json(dict(match.source.arguments)), "agents": list(match.agents)})
    with replacing_folder(folder / FOLDER) as beside:
        write_arrays(beside / ARRAYS, arrays)
        FILES.write(beside, {"env": found.matches[0].source.name, "matches": described})


def _arrays(match: Match) -> dict[str, Array]:
    log, result = match.log, match.result
    rows = [i for i, j in enumerate(log.numbers.tolist()) if j in log.episodes]
    played = [log.episodes[int(log.numbers[i])] for i in rows]
    groups = range(len(played[0].moves)) if played else ()
    return {
        "episode": log.numbers[rows], "seed": np.array([one.seed for one in played], np.int64),
        "length": np.array([len(one.moves[0]) for one in played], np.int64), "returns": result.returns[rows],
        **{f"moves/{g}": np.concatenate([one.moves[g] for one in played]) for g in groups},
    }  # fmt: skip


def read_replay(folder: str | Path, match: int = 0, episode: int = 0) -> Replay:
    """Return an episode that `evaluate(..., out=folder)` wrote.

    match, episode: as in the tables.  Raises SaveError for damaged files, ConfigError for an episode that is not there.
    """
    path = complete_folder(Path(folder) / FOLDER)
    data, arrays = FILES.read(path, {"env", "matches"}), read_arrays(path / ARRAYS)
    try:
        matches, env = list(data["matches"]), str(data["env"])
        if not 0 <= match < len(matches):
            raise ConfigError(f"match must be from 0 to {len(matches) - 1}, got {match}")
        own = {name.partition("/")[2]: array for name, array in arrays.items() if name.startswith(f"{match}/")}
        (rows,) = np.nonzero(own["episode"] == episode)
        if not len(rows):
            raise ConfigError(f"match {match} holds no episode {episode}; it holds {own['episode'].tolist()}")
        row, stops = int(rows[0]), np.cumsum(own["length"])
        part = slice(int(stops[row] - own["length"][row]), int(stops[row]))
        moves = tuple(own[f"moves/{g}"][part] for g in range(sum(name.startswith("moves/") for name in own)))
        agents, env_args = tuple(matches[match]["agents"]), dict(matches[match]["env_args"])
        return Replay(env, env_args, agents, int(own["seed"][row]), moves, own["returns"][row])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, ConfigError):
            raise
        raise SaveError(f"{path}: not the replays of an evaluation: {error_text(error)}") from error


def replay(
    folder: str | Path,
    match: int = 0,
    episode: int = 0,
    *,
    out: str | Path | None = None,
    env: Any = None,
    fps: float | None = None,
    text: bool = False,
) -> Array:
    """Show or film an episode that `evaluate(..., out=folder)` wrote, without agents; return the returns, [P] float64.

    match, episode: as in the tables.  out, fps, text: as for `play`.  env: the environment, if it is one of your own.
    A native game is shown as text, also without text=True: its original would begin its episodes otherwise.
    Raises EnvError if the environment gives other returns than before, since it does not repeat its episodes.
    """
    found, target = read_replay(folder, match, episode), film_of(out)
    if env is None and not imports_only_known(found.env):
        raise ConfigError(f"{folder}: the environment is {found.env!r}. No file may choose what code is run: if you "
                          "know this one, name it yourself with env=... (--env)")  # fmt: skip
    source = resolve(found.env if env is None else env, found.env_args)
    spec = probe(source)
    moves, text = _Moves(spec, found), text or source.game is not None
    returns = show_episodes(source, spec, moves, [found.seed], target=target, fps=fps, text=text)[0]
    if not np.allclose(returns, found.returns, rtol=1e-5, atol=1e-5):
        raise EnvError(f"environment {source.name!r} does not repeat episode {episode} of match {match}: its returns "
                       f"are {returns.tolist()}, and were {found.returns.tolist()}")  # fmt: skip
    return returns


class _Moves:
    """Plays the actions of a replay in order."""

    def __init__(self, spec: EnvSpec, played: Replay) -> None:
        """Check that the actions are those of this environment's players; raises SaveError."""
        self.actions = empty_actions(spec, 1)
        shapes = [array[:, 0].shape for array in self.actions]
        if [moves.shape[1:] for moves in played.moves] != shapes:
            raise SaveError(f"the replay's actions have the shapes {[m.shape[1:] for m in played.moves]}, and "
                            f"{spec.name} takes {shapes}")  # fmt: skip
        self._moves, self._at = played.moves, 0

    def decide(self, step: Step) -> None:
        """Take the actions of the next env step; raises EnvError after the last one."""
        if self._at == len(self._moves[0]):
            raise EnvError(f"the environment does not repeat the episode: it goes on after {self._at} env steps")
        for into, moves in zip(self.actions, self._moves, strict=True):
            into[:, 0] = moves[self._at]
        self._at += 1
