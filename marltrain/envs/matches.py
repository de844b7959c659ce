"""MatchesVectorEnv: environments divided among several matches, as one environment with the players of all matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from marltrain.core.layout import Array
from marltrain.core.spec import EnvSpec, Step
from marltrain.envs.population import spread
from marltrain.envs.vector import VectorEnv
from marltrain.envs.wrapper import VectorEnvWrapper


def match_spec(plain: EnvSpec, names: Sequence[str]) -> EnvSpec:
    """Return the specification of M matches: player p of match m has the index p * M + m.

    The first player of a match has the match's name, the others "<match>-<player>".
    """
    players = [
        replace(player, name=match if p == 0 else f"{match}-{player.name}")
        for p, player in enumerate(plain.players)
        for match in names
    ]
    return EnvSpec.of(plain.name, players, turn_based=plain.turn_based, reproducible=plain.reproducible)


class MatchesVectorEnv(VectorEnvWrapper):
    """M * E environments as E environments with the players of M matches: match m has the columns m * E to (m + 1) * E.

    Episodes of the matches end and begin independently: `terminated`, `truncated` and `final_*` report the ends,
    `ended` is False and `episode` always 0. `joined` tells them apart. A fault of an environment must be an error.

    envs: the M * E environments.  joined: their last Step.  names: of the matches.  matches: M.
    """

    def __init__(self, envs: VectorEnv, names: Sequence[str]) -> None:
        """Take the environments, which this object then owns; their number is a multiple of that of the names."""
        self.envs, self.names, self.source = envs, tuple(names), envs.source
        self.matches = len(names)
        self.num_envs = envs.num_envs // self.matches
        self.spec = match_spec(envs.spec, names)
        self.joined: Step
        self._shown: Step

    def reset(self, seed: int) -> Step:
        """See VectorEnv."""
        return self._spread(self.envs.reset(seed))

    def send(self, actions: tuple[Array, ...]) -> None:
        """See VectorEnv."""
        columns = self.envs.num_envs
        self.envs.send(tuple(own.reshape(-1, columns, *own.shape[2:]) for own in actions))

    def recv(self) -> Step:
        """See VectorEnv."""
        return self._spread(self.envs.recv())

    def restore(self, saved: Mapping[str, Array]) -> tuple[Step, list[tuple[int, str]]]:
        """See VectorEnv; the environments that start again are those of `joined`."""
        step, restarted = self.envs.restore(saved)
        return self._spread(step), restarted

    def _spread(self, step: Step) -> Step:
        """Return the views of a Step; most environments return the same object each time."""
        if step is not getattr(self, "joined", None):
            self.joined, self._shown = step, spread(step, self.matches, self.num_envs)
        return self._shown


def games_of(envs: VectorEnv) -> VectorEnv:
    """Return the environments themselves: those that are divided among matches, or `envs` as it is."""
    return envs.envs if isinstance(envs, MatchesVectorEnv) else envs


def joined_step(envs: VectorEnv, step: Step) -> Step:
    """Return the Step by environment, where the environments are divided among matches; else the same Step."""
    return envs.joined if isinstance(envs, MatchesVectorEnv) else step


def divided(envs: VectorEnv) -> int:
    """Return the number of matches among which environments are divided; 1 without."""
    return envs.matches if isinstance(envs, MatchesVectorEnv) else 1
