"""n Python environments in one process, for all vector environments: autoreset, seeds, rebuilding, checks, faults.

Environment i of a run plays episode k with its own seed, independent of the process:
`child_seed(seed, "episode", role, i, k)`.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from marltrain.core.errors import EnvError, MarlTrainError, SpecError, clean, traceback_of
from marltrain.core.layout import Array
from marltrain.core.seeds import child_seed
from marltrain.core.spec import EnvSpec, Step
from marltrain.envs.faults import CONTRACT, EXCEPTION, Fault, FaultPolicy, location
from marltrain.envs.python.action_log import ActionLog
from marltrain.envs.python.adapter import Adapter
from marltrain.envs.python.contract import Contract, Violation
from marltrain.envs.python.probe import adapter_of, fault_text, make_env
from marltrain.envs.recorded import Recorded, values_of
from marltrain.envs.registry import Source

NOT_REPRODUCIBLE = "marked as not reproducible, so that no episode can be played again"


@dataclass(eq=False)
class Track:
    """Progress of environments, written during their steps into memory that may outlive their process.

    length: [n] int64, env steps of the running episode.
    at: of length 1, the index within the chunk of the environment in its step or reset; -1 for none. A memoryview or a
      list, because writing to these is faster than writing to an array.
    """

    length: Array
    at: MutableSequence[int] | memoryview


class Chunk:
    """Environments `first_index` to `first_index + num_envs` of a run, written into `out` (their columns only).

    faults: the faults survived in the last call.  recorded: the values recorded in the last step.
    """

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
        fault_policy: FaultPolicy | None = None,
        track: Track | None = None,
        record: Sequence[str] = (),
    ) -> None:
        """Build the environments; raises EnvError if one cannot be built.

        recording: whether to record the actions of the running episodes, which `snapshot` needs.
        fault_policy: which faults are survived (default: none).  track: the target for the environments' progress.
        record: attributes of the environments that are recorded when an episode ends.
        """
        self._source = source
        self._spec = spec
        self._out = out
        self._first = first_index
        self._role = role
        self._render_mode = render_mode
        self._contract = Contract(spec)
        self._log = ActionLog(spec, num_envs) if recording else None
        self._fault_policy = fault_policy or FaultPolicy()
        self._track = track or Track(np.zeros(num_envs, np.int64), [-1])
        self._track.at[0] = -1
        self.faults: list[Fault] = []
        self.recorded: list[Recorded] = []
        self._record = record
        self._seed = 0
        self._episode = [0] * num_envs
        self._episode_seed = [0] * num_envs
        self._last = [(0, 0)] * num_envs  # number and length of the previous episode
        self._used = [False] * num_envs
        self._proven = [False] * num_envs  # has finished an episode
        self._broken = [False] * num_envs
        self._adapters: list[Adapter] = []
        for i in range(num_envs):
            self._adapters.append(self._build(i))

    def reset(self, seed: int, episodes: Sequence[int] | None = None) -> None:
        """Start an episode in all environments: number 0, or the numbers in `episodes` after earlier episodes."""
        out = self._out
        self.faults = []
        self._seed = seed
        out.reward[...] = 0
        out.terminated[...] = out.truncated[...] = False
        out.ended[...] = False
        for e in range(len(self._adapters)):
            self._track.at[0] = e
            first = 0 if episodes is None else int(episodes[e])
            self._proven[e] |= first > 0
            self._begin(e, first)
        self._check_published()

    def step(self, actions: tuple[Array, ...]) -> None:
        """Take one env step in all environments; an environment whose episode ends starts the next one at once.

        An environment whose running episode is abandoned also starts the next one. It reports no reward and no event
        except `ended`.
        """
        out, length, at = self._out, self._track.length, self._track.at
        if violation := self._contract.sent(actions, out):  # not a fault of the environment
            raise EnvError(f"{self._location(violation.column)}: {violation.message}")
        self.faults, self.recorded = [], []
        if self._log is not None:
            self._log.add(actions)
        out.reward[...] = 0
        out.terminated[...] = out.truncated[...] = False
        length += 1
        for e, adapter in enumerate(self._adapters):
            at[0] = e
            try:
                ended = adapter.step(actions, out, e)
                if ended and self._record:
                    self.recorded.append((self._first + e, values_of(adapter.env, self._record)))
            except Exception as error:
                self._survive_or_raise(e, error, cut=True)
                self._abandon(e)
                continue
            out.ended[e] = ended
            if ended:
                self._last[e] = self._episode[e], int(length[e])
                self._proven[e] = True
                self._begin(e, self._episode[e] + 1)
        self._check_published()

    def snapshot(self) -> dict[str, Array]:
        """Return the data to replay the running episodes.

        seed, episode, length: [n] int64; the length counts the env steps so far.  moves/<group>: the actions [sum of
        lengths, P, ...], environment after environment. Snapshots of several chunks can be joined along axis 0.
        """
        if self._log is None:
            raise RuntimeError("a snapshot was asked of environments whose moves were not recorded: recording=True")
        n = len(self._adapters)
        played = [self._log.of(e) for e in range(n)]
        return {
            "seed": np.full(n, self._seed, np.int64),
            "episode": np.array(self._episode, np.int64),
            "length": self._track.length.copy(),
            **{f"moves/{g}": np.concatenate([moves[g] for moves in played]) for g in range(len(self._spec.groups))},
        }

    def restore(self, saved: Mapping[str, Array]) -> list[tuple[int, str]]:
        """Replay the episodes of a snapshot of all environments, up to the step whose columns `out` holds.

        If the result differs from `out`, the environment starts its episode again. Return these environments with the
        differences. If the specification is not reproducible, all environments start their episode again.
        """
        self.faults = []
        self._seed = int(saved["seed"][0])
        expected = {name: array.copy() for name, array in self._out.arrays().items()}
        stops = np.cumsum(saved["length"])
        restarted, played = [], []
        for e in range(len(self._adapters)):
            self._track.at[0] = e
            i = self._first + e
            rows = slice(stops[i] - saved["length"][i], stops[i])
            moves = tuple(saved[f"moves/{g}"][rows] for g in range(len(self._spec.groups)))
            self._episode[e] = episode = int(saved["episode"][i])
            self._proven[e] = episode > 0
            found = self._replay(e, episode, moves, expected) if self._spec.reproducible else NOT_REPRODUCIBLE
            if found:
                restarted.append((i, f"{self._location(e)}: {found}"))
                self.restart(e)
            played.append(tuple(one[:0] for one in moves) if found else moves)
        if self._log is not None:
            self._log.restore(played)
        self._track.at[0] = -1
        return restarted

    def restart(self, e: int) -> None:
        """Start the running episode of environment `e` again; its column reports no reward and no event but `ended`."""
        self._begin(e, self._episode[e])
        self._clear(e)
        self._out.ended[e] = True  # state carried from step to step must be cleared

    def _replay(self, e: int, episode: int, moves: tuple[Array, ...], expected: Mapping[str, Array]) -> str:
        """Replay an episode up to its saved step; return the difference in words, or an empty string."""
        n, own = len(self._adapters), self._out.part(e, e + 1)
        try:
            self._start(e, episode)
            for t in range(len(moves[0])):
                if violation := self._contract.sent(tuple(one[t][:, None] for one in moves), own):
                    return f"played again, {violation.message}"
                self._clear(e)
                self._track.length[e] = t + 1
                sent = tuple(np.broadcast_to(one[t][:, None], (one.shape[1], n, *one.shape[2:])) for one in moves)
                if self._adapters[e].step(sent, self._out, e):
                    return "played again, the episode ends here, and did not before"
        except Exception as error:
            self._broken[e] = True
            return f"played again, it raised {fault_text(error)}"
        return self._difference(e, expected)

    def _difference(self, e: int, expected: Mapping[str, Array]) -> str:
        """Compare column `e` with the expected one: turns, presence, observations and legal actions.

        Observations and legal actions are compared only for players that must act.
        """
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
                        differs = "is shown another observation" if what == "obs" else "has other legal moves"
                        return f"played again, player {player!r} {differs}"
        return ""

    def _clear(self, e: int) -> None:
        """Clear the rewards and events in column `e`."""
        out = self._out
        for events in (out.reward, out.terminated, out.truncated):
            events[:, e] = 0
        out.ended[e] = False

    def render(self, e: int = 0) -> Any:
        """Return or show one frame of environment `e` of this chunk."""
        return self._adapters[e].render()

    def close(self) -> None:
        """Close all environments, even if the `close` of one fails; raises the first error."""
        adapters, self._adapters = self._adapters, []
        with ExitStack() as closing:
            for adapter, broken in reversed(list(zip(adapters, self._broken, strict=False))):
                closing.callback(_close, adapter, broken=broken)

    def _begin(self, e: int, episode: int) -> None:
        """Start an episode; after a survived fault, start the following one with its own seed.

        Stops after more faults than are survived: the vector environment then raises an error.
        """
        while not self._fault_policy.too_many(len(self.faults)):
            try:
                self._start(e, episode)
            except Exception as error:
                self._survive_or_raise(e, error)
                episode += 1
            else:
                return

    def _start(self, e: int, episode: int) -> None:
        seed = child_seed(self._seed, "episode", self._role, self._first + e, episode)
        self._episode[e], self._episode_seed[e], self._track.length[e] = episode, seed, 0
        self._out.episode[e] = episode
        if self._log is not None:
            self._log.begin(e)
        impure = self._source.rebuild or not self._adapters[e].pure_reset
        if self._broken[e] or (self._used[e] and impure):
            _close(self._adapters[e], broken=self._broken[e])
            self._adapters[e] = self._build(e)
            self._broken[e] = False
        self._used[e] = True
        self._adapters[e].reset(seed, self._out, e)

    def _abandon(self, e: int) -> None:
        """Abandon the running episode and start the next one; the trainer drops its rows in `Run.collect`."""
        self._clear(e)
        if self._out.final_state is not None:
            self._out.final_state[e] = 0  # the state may be the invalid value
        self._out.ended[e] = True
        self._begin(e, self._episode[e] + 1)

    def _check_published(self) -> None:
        """Check the published arrays; an environment that violates the contract starts a new episode."""
        out = self._out
        while violation := self._contract.published(out):
            e = self._track.at[0] = violation.column
            previous_episode = violation.past and bool(out.ended[e])
            cut = previous_episode or bool(self._track.length[e])
            self._survive_or_raise(e, violation, cut=cut, previous_episode=previous_episode)
            if self._fault_policy.too_many(len(self.faults)):
                break
            if cut:
                self._abandon(e)
            else:
                self._begin(e, self._episode[e] + 1)
        self._track.at[0] = -1

    def _survive_or_raise(
        self, e: int, what: Exception | Violation, *, cut: bool = False, previous_episode: bool = False
    ) -> None:
        """Record a fault of environment `e`, or raise it as an EnvError if it is not survived.

        A SpecError is never survived: the specification is wrong for the whole run.
        cut: the running episode is abandoned.  previous_episode: the fault is in the episode that ended with this step.
        """
        error, words = (None, what.message) if isinstance(what, Violation) else (what, fault_text(what))
        message = f"{self._location(e, previous_episode=previous_episode)}: {clean(words)}"
        kind = CONTRACT if error is None or isinstance(error, MarlTrainError) else EXCEPTION
        if isinstance(error, SpecError) or not self._fault_policy.survives(kind, proven=self._proven[e]):
            raise EnvError(message) from error
        episode, seed, step = self._progress(e, previous_episode=previous_episode)
        traceback = "" if error is None else traceback_of(error)
        i = self._first + e
        self.faults.append(Fault(kind, i, episode, seed, step, message, traceback, (i,) if cut else ()))
        self._broken[e] = True

    def _build(self, e: int) -> Adapter:
        env = make_env(self._source, f"environment {self._first + e} ({self._source.name})", self._render_mode)
        return adapter_of(env)(env, self._spec)

    def _progress(self, e: int, *, previous_episode: bool = False) -> tuple[int, int, int]:
        """Return the number, the seed and the step of the running or the previous episode."""
        if not previous_episode:
            return self._episode[e], self._episode_seed[e], int(self._track.length[e])
        episode, length = self._last[e]
        return episode, child_seed(self._seed, "episode", self._role, self._first + e, episode), length

    def _location(self, e: int, *, previous_episode: bool = False) -> str:
        """Return the environment, episode, seed and step in words."""
        return location(
            self._source.name, self._role, self._first + e, *self._progress(e, previous_episode=previous_episode)
        )


def _close(adapter: Adapter, *, broken: bool) -> None:
    """Close an environment; errors of a broken environment are ignored."""
    with suppress(Exception) if broken else nullcontext():
        adapter.close()
