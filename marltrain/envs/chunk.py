"""n environments in one process: autoreset, episode seeds, rebuilding, checks. Every vector environment drives these.

Environment i of a run plays episode k on a seed of its own, whatever process it lives in:
`child_seed(seed, "episode", role, i, k)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from marltrain.envs.adapter import Adapter, describe, metadata_of
from marltrain.envs.frame_stack import remembers
from marltrain.envs.guard import Fault, Guard
from marltrain.envs.moves import Moves
from marltrain.envs.parallel import LoneAdapter, ParallelAdapter
from marltrain.envs.registry import Source, api_of, resolve
from marltrain.envs.turns import TurnAdapter
from marltrain.errors import EnvError, MarlTrainError
from marltrain.layout import Array
from marltrain.random import child_seed
from marltrain.spec import EnvSpec, Step

ADAPTERS: dict[str, type[Adapter]] = {"parallel": ParallelAdapter, "turns": TurnAdapter, "gymnasium": LoneAdapter}
NOT_REPRODUCIBLE = "marked as not reproducible, so that no episode can be played again"


def probe(env: Any, env_args: Mapping[str, Any] | None = None, *, with_state: bool = False) -> EnvSpec:
    """Return what an environment is, by building one object, resetting it once and closing it.

    env, env_args: see `resolve`.  with_state: whether to publish the shape of its global state, where it has one.

    Raises ConfigError for what cannot be resolved, EnvError when it cannot be built or reset, SpecError for spaces that
    marltrain cannot represent.
    """
    source = resolve(env, env_args)
    if source.game is not None:
        return source.game(**source.arguments).spec(source.name, with_state=with_state)
    built = _make(source, f"environment {source.name!r}")
    adapter = ADAPTERS[api_of(built)]
    try:
        reproducible = source.reproducible and metadata_of(built).get("reproducible", True) and not remembers(built)
        return describe(adapter, built, source.name, reproducible=reproducible, with_state=with_state)
    except MarlTrainError:
        raise
    except Exception as error:
        raise EnvError(f"environment {source.name!r} cannot be reset: {_words(error)}") from error
    finally:
        built.close()


def _make(source: Source, who: str, render_mode: str | None = None) -> Any:
    try:
        return source.make(render_mode)
    except MarlTrainError:
        raise
    except Exception as error:
        raise EnvError(f"{who} cannot be built: {_words(error)}") from error


class Chunk:
    """Environments `first_index` to `first_index + num_envs` of a run, written into `out` (their columns only)."""

    def __init__(
        self,
        source: Source,
        spec: EnvSpec,
        out: Step,
        *,
        num_envs: int,
        first_index: int = 0,
        role: str = "train",
        render_mode: str | None = None,
        recording: bool = False,
    ) -> None:
        """Build the environments; raises EnvError when one cannot be built.

        recording: whether to keep the moves of the running episodes, which `snapshot` needs.
        """
        self._source = source
        self._spec = spec
        self._out = out
        self._first = first_index
        self._role = role
        self._render_mode = render_mode
        self._guard = Guard(spec)
        self._moves = Moves(spec, num_envs) if recording else None
        self._seed = 0
        self._episode = [0] * num_envs
        self._episode_seed = [0] * num_envs
        self._length = [0] * num_envs
        self._last_length = [0] * num_envs
        self._used = [False] * num_envs
        self._adapters: list[Adapter] = []
        for i in range(num_envs):
            self._adapters.append(self._build(i))

    def reset(self, seed: int) -> None:
        """Start episode 0 everywhere."""
        out = self._out
        self._seed = seed
        out.reward[...] = 0
        out.terminated[...] = out.truncated[...] = False
        out.ended[...] = False
        for e in range(len(self._adapters)):
            self._start(e, 0)
        self._raise(self._guard.published(out))

    def step(self, actions: tuple[Array, ...]) -> None:
        """Take one env step everywhere; environments whose episode ended start the next one at once."""
        out = self._out
        self._raise(self._guard.sent(actions, out))
        if self._moves is not None:
            self._moves.add(actions)
        out.reward[...] = 0
        out.terminated[...] = out.truncated[...] = False
        for e, adapter in enumerate(self._adapters):
            self._length[e] += 1
            try:
                ended = adapter.step(actions, out, e)
            except Exception as error:
                raise self._failure(e, error) from error
            out.ended[e] = ended
            if ended:
                self._last_length[e] = self._length[e]
                self._start(e, self._episode[e] + 1)
        self._raise(self._guard.published(out))

    def snapshot(self) -> dict[str, Array]:
        """Return what is needed to play the running episodes again.

        seed, episode, length: [n] int64, the length being the env steps taken so far.  moves/<group>: [sum of lengths,
        P, ...], environment after environment. So the snapshots of several chunks are joined along axis 0.
        """
        if self._moves is None:
            raise RuntimeError("a snapshot was asked of environments whose moves were not recorded: recording=True")
        n = len(self._adapters)
        played = [self._moves.of(e) for e in range(n)]
        return {
            "seed": np.full(n, self._seed, np.int64),
            "episode": np.array(self._episode, np.int64),
            "length": np.array(self._length, np.int64),
            **{f"moves/{g}": np.concatenate([moves[g] for moves in played]) for g in range(len(self._spec.groups))},
        }

    def restore(self, saved: Mapping[str, Array]) -> list[tuple[int, str]]:
        """Play the episodes of a snapshot of all environments again, up to the step that `out` holds the columns of.

        An environment that then shows something else than `out` did begins its episode anew. Return these, with what
        was found. Where equal seeds are not said to give equal episodes, every environment begins anew.
        """
        self._seed = int(saved["seed"][0])
        expected = {name: array.copy() for name, array in self._out.arrays().items()}
        stops = np.cumsum(saved["length"])
        lost, played = [], []
        for e in range(len(self._adapters)):
            i = self._first + e
            rows = slice(stops[i] - saved["length"][i], stops[i])
            moves = tuple(saved[f"moves/{g}"][rows] for g in range(len(self._spec.groups)))
            episode = int(saved["episode"][i])
            found = self._replay(e, episode, moves, expected) if self._spec.reproducible else NOT_REPRODUCIBLE
            if found:
                lost.append((i, f"{self._where(e)}: {found}"))
                self._start(e, episode)
                self._clear(e)
                self._out.ended[e] = True  # whoever carries something from step to step forgets it
            played.append(tuple(one[:0] for one in moves) if found else moves)
        if self._moves is not None:
            self._moves.restore(played)
        return lost

    def _replay(self, e: int, episode: int, moves: tuple[Array, ...], expected: Mapping[str, Array]) -> str:
        """Play an episode up to where it was; return what is not as it was then, or an empty string."""
        self._start(e, episode)
        n = len(self._adapters)
        for t in range(len(moves[0])):
            self._clear(e)
            self._length[e] = t + 1
            sent = tuple(np.broadcast_to(one[t][:, None], (one.shape[1], n, *one.shape[2:])) for one in moves)
            try:
                ended = self._adapters[e].step(sent, self._out, e)
            except Exception as error:
                return f"played again, it raised {_words(error)}"
            if ended:
                return "played again, the episode ends here, and did not before"
        return self._difference(e, expected)

    def _difference(self, e: int, expected: Mapping[str, Array]) -> str:
        """Compare what players see in column `e`, where they are to act, with what they saw."""
        out = self._out
        for g, group in enumerate(self._spec.groups):
            turn = out.turn[g][:, e]
            alive = out.alive[g][:, e]
            if (turn != expected[f"turn/{g}"][:, e]).any() or (alive != expected[f"alive/{g}"][:, e]).any():
                return "played again, other players are alive or have the turn"
            kinds = f"obs/{g}/", f"legal/{g}/"
            seen = {name: array for name, array in out.arrays().items() if f"{name}/".startswith(kinds)}
            for row in np.flatnonzero(turn):
                for name, array in seen.items():
                    if not np.array_equal(array[row, e], expected[name][row, e]):
                        player, what = self._spec.names[group.players[row]], name.partition("/")[0]
                        told = "is shown another observation" if what == "obs" else "has other legal moves"
                        return f"played again, player {player!r} {told}"
        return ""

    def _clear(self, e: int) -> None:
        """Tell of no reward and no event in column `e`."""
        out = self._out
        for events in (out.reward, out.terminated, out.truncated):
            events[:, e] = 0
        out.ended[e] = False

    def render(self, e: int = 0) -> Any:
        """Return or show one frame of environment `e` of this chunk."""
        return self._adapters[e].render()

    def close(self) -> None:
        """Close every environment."""
        adapters, self._adapters = self._adapters, []
        for adapter in adapters:
            adapter.close()

    def _start(self, e: int, episode: int) -> None:
        seed = child_seed(self._seed, "episode", self._role, self._first + e, episode)
        self._episode[e], self._episode_seed[e], self._length[e] = episode, seed, 0
        self._out.episode[e] = episode
        if self._moves is not None:
            self._moves.begin(e)
        if self._used[e] and self._impure(self._adapters[e]):
            self._adapters[e].close()
            self._adapters[e] = self._build(e)
        self._used[e] = True
        try:
            self._adapters[e].reset(seed, self._out, e)
        except Exception as error:
            raise self._failure(e, error) from error

    def _impure(self, adapter: Adapter) -> bool:
        return self._source.rebuild or not metadata_of(adapter.env).get("pure_reset", True)

    def _build(self, e: int) -> Adapter:
        env = _make(self._source, f"environment {self._first + e} ({self._source.name})", self._render_mode)
        return ADAPTERS[api_of(env)](env, self._spec)

    def _failure(self, e: int, error: Exception) -> EnvError:
        return EnvError(f"{self._where(e)}: {_words(error)}")

    def _raise(self, fault: Fault | None) -> None:
        if fault is not None:
            raise EnvError(f"{self._where(fault.column, past=fault.past)}: {fault.message}")

    def _where(self, e: int, *, past: bool = False) -> str:
        """Which environment, episode, seed and step; `past`: of the episode that ended with this step."""
        episode, length, seed = self._episode[e], self._length[e], self._episode_seed[e]
        if past and self._out.ended[e]:
            episode, length = episode - 1, self._last_length[e]
            seed = child_seed(self._seed, "episode", self._role, self._first + e, episode)
        kind = "test environment" if self._role == "test" else "environment"
        return f"{kind} {self._first + e} ({self._source.name}), episode {episode} (seed {seed}), step {length}"


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, EnvError) else f"{type(error).__name__}: {error}"
