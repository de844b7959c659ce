"""FusedGames: the native games that a call of compiled code steps, with the rows and columns of the line-up."""

from __future__ import annotations

from marltrain.core.spec import Step
from marltrain.envs import VectorEnv
from marltrain.envs.matches import games_of, joined_step
from marltrain.envs.native.vector import NativeVectorEnv
from marltrain.envs.rotating import RotatingVectorEnv


def native_games(envs: VectorEnv) -> NativeVectorEnv | None:
    """Return the native games in environments whose players change seats, or that are divided among matches.

    None if they are no native games, or if compiled code cannot step them: fields of episodes are recorded by seats.
    """
    games = games_of(envs)
    if isinstance(games, RotatingVectorEnv):
        inside = games.envs
        return inside if isinstance(inside, NativeVectorEnv) and not inside.batch.records_fields else None
    return games if isinstance(games, NativeVectorEnv) else None


class FusedGames:
    """The games of a run: E environments for the line-up, `columns` of the games themselves (of M matches, M * E).

    batch: the games.  actions: those that the line-up writes, per group [P, E, ...].
    rotation: address of ROTATION, by which players change seats; 0: they do not.
    """

    def __init__(self, envs: VectorEnv) -> None:
        """Take environments; raises TypeError unless `native_games` finds native games in them."""
        games, native = games_of(envs), native_games(envs)
        if native is None:
            raise TypeError("only native games are stepped in compiled code: call `can_fuse` first")
        self._envs, self._native, self.batch, self.columns = envs, native, native.batch, native.num_envs
        self._rotating = games if isinstance(games, RotatingVectorEnv) else None
        self._table = None if self._rotating is None else self._rotating.compiled(self.batch.actions)
        sent = self.batch.actions if self._table is None else self._table.actions
        self.actions = tuple(each.reshape(-1, envs.num_envs, *each.shape[2:]) for each in sent)
        self.rotation = 0 if self._table is None else self._table.address

    def joined(self, step: Step) -> Step:
        """Return the Step of all environments of the games."""
        return joined_step(self._envs, step)

    def stepped(self, wrong: int) -> None:
        """Note steps of compiled code; wrong: the largest result of the game.

        Raises EnvError for an illegal action.
        """
        self.batch.check(wrong)
        if self._rotating is not None:
            self._rotating.follow()
        if self.batch.records_fields:
            self.batch.record_ends()
            self._native.recorded = self.batch.recorded
