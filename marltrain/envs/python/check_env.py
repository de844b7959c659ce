"""`check_env`: a conformance test of the environment contract, which marltrain's own environments pass."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import EnvError, MarlTrainError, error_text, printable
from marltrain.core.layout import Array
from marltrain.core.legal import Legal
from marltrain.core.seeds import child_seed, generator
from marltrain.core.settings import check_flags
from marltrain.core.spec import BY_ENV, MOST_STATE, EnvSpec, Step, empty_actions
from marltrain.envs.python.adapter import Adapter
from marltrain.envs.python.check_wrappers import Findings, watch
from marltrain.envs.python.contract import Contract
from marltrain.envs.python.probe import adapter_of, probe
from marltrain.envs.registry import Source, resolve

LONGEST = 1000
"""Env steps after which a checked episode is stopped."""
MOST_STEPS = 10_000
"""Env steps after which no more episodes are compared."""
Frame = dict[str, tuple[int, ...]]
"""Hashes of the rows of a Step's arrays, by the array's name."""
_NOT_COMPARED = frozenset({"episode", "final_legal"})


@dataclass
class Report:
    """The result of `check_env`.

    problems: defects that break training or make it wrong.  notes: harmless oddities.
    pure: whether a used object gives, after a reset, the same episode as a fresh object.
    deterministic: whether equal seeds and actions give equal episodes.
    """

    name: str
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    pure: bool = True
    deterministic: bool = True
    episodes: int = 0
    steps: int = 0

    @property
    def ok(self) -> bool:
        """Whether there are no problems in the report."""
        return not self.problems

    def __str__(self) -> str:
        """Return the report as text."""
        verdict = "keeps its contract" if self.ok else f"{len(self.problems)} problem(s)"
        lines = [f"{self.name}: {verdict} ({self.episodes} episodes, {self.steps} env steps)"]
        lines += [f"  problem: {problem}" for problem in self.problems]
        lines += [f"  note: {note}" for note in self.notes]
        return printable("\n".join(lines))


def check_env(
    env: Any,
    env_args: Mapping[str, Any] | None = None,
    *,
    episodes: int = 3,
    resets: int = 60,
    seed: int = 0,
    strict: bool = True,
) -> Report:
    """Play random episodes and report all violations of the contract.

    Checks spaces, shapes, dtypes, NaN, rewards of players after their end, players that return, and legal actions. Also
    checks that resets are pure and steps deterministic: compares all arrays of all steps of whole episodes.

    env, env_args: see `resolve`.  episodes: number of those whose values are checked one by one.
    resets: number of resets of a used object, whose episodes are compared with those of fresh objects. The comparison
      ends earlier after MOST_STEPS env steps.
    strict: whether to raise EnvError if there are problems.
    """
    check_flags("check_env", strict=strict)
    source = resolve(env, env_args)
    report = Report(source.name)
    findings = Findings(report.problems, report.notes)
    try:
        spec = probe(source, with_state=True)
        _note_of_state(spec, findings)
        _play_watched(source, spec, report, findings, episodes, seed)
        if not report.problems:
            _compare(source, spec, report, resets, seed)
    except MarlTrainError as error:
        findings.problem(str(error))
    if strict and report.problems:
        raise EnvError(str(report))
    return report


def _note_of_state(spec: EnvSpec, findings: Findings) -> None:
    size = math.prod(spec.state_shape or ())
    if spec.state_shape is not None and size > MOST_STATE:
        findings.note(
            f"the global state has {size:,} values, and agents with a central critic accept at most {MOST_STATE:,}; "
            "other agents do not read it"
        )


def _play_watched(source: Source, spec: EnvSpec, report: Report, findings: Findings, episodes: int, seed: int) -> None:
    player = _Player(source, spec, findings)
    for episode in range(episodes):
        if episode and source.rebuild:
            player = _Player(source, spec, findings)
        episode_seed = child_seed(seed, "check", episode)
        steps = len(player.play(episode_seed, action_seed=episode_seed)) - 1
        report.episodes += 1
        report.steps += steps
        if steps == LONGEST:
            findings.note(f"an episode did not end within {LONGEST} env steps")
    player.adapter.close()


def _compare(source: Source, spec: EnvSpec, report: Report, resets: int, seed: int) -> None:
    """Play episodes in fresh objects and the same ones in a used object, and compare them."""
    compared = _Compared(source, spec, seed)
    try:
        if difference := compared.of_fresh_objects(1):
            report.deterministic = report.pure = False
            if spec.reproducible:
                report.problems.append(_RANDOM.format(difference))
            return
        if not _difference(spec, compared.reference(0), compared.reference(1)):
            report.notes.append("two different seeds gave the same episode: the environment seems to use no randomness")
        rebuilt = source.rebuild or not compared.used.adapter.pure_reset
        for number in range(1, 2 if rebuilt else 1 + resets):
            if difference := compared.of_used_object(number):
                report.pure = False
                if again := compared.of_fresh_objects(number):
                    report.deterministic = False
                    report.problems.append(_RANDOM.format(again))
                    return
                place = "" if number == 1 else f" of the episode after {number} others"
                text = f"a used object's episode differs from a fresh one's with the same seed: {difference}{place}"
                if rebuilt:
                    report.notes.append(f"{text}; it is rebuilt for every episode")
                else:
                    report.problems.append(f"{text}. {_PURE}")
                return
            if compared.steps > MOST_STEPS:
                return
    finally:
        compared.close()


_RANDOM = (
    "two fresh objects with equal seeds and actions differ: {}. Draw every random number from a generator that "
    'reset(seed) makes, or set metadata["reproducible"] = False'
)
_PURE = 'Correct reset, or set metadata["pure_reset"] = False to have it rebuilt'


class _Compared:
    """Episodes of fresh objects, and of one object that plays them all, one after another.

    used: that object, which has played episode 0.  steps: env steps of all objects so far.
    """

    def __init__(self, source: Source, spec: EnvSpec, seed: int) -> None:
        self._source, self._spec, self._seed = source, spec, seed
        self.steps = 0
        self.used = _Player(source, spec)
        self._first = self._play(self.used, 0)
        self._reference: tuple[int, list[Frame]] = (-1, [])

    def reference(self, number: int) -> list[Frame]:
        """Return the episode of a number in a fresh object."""
        if number == 0:
            return self._first
        if self._reference[0] != number:
            self._reference = number, self._play_fresh(number)
        return self._reference[1]

    def of_fresh_objects(self, number: int) -> str:
        """Return the difference of an episode in two fresh objects; see `_difference`."""
        return _difference(self._spec, self.reference(number), self._play_fresh(number))

    def of_used_object(self, number: int) -> str:
        """Return the difference of an episode in a fresh object and in the used one, which plays it next."""
        return _difference(self._spec, self.reference(number), self._play(self.used, number))

    def close(self) -> None:
        """Close the objects."""
        self.used.adapter.close()

    def _play_fresh(self, number: int) -> list[Frame]:
        player = _Player(self._source, self._spec)
        frames = self._play(player, number)
        player.adapter.close()
        return frames

    def _play(self, player: _Player, number: int) -> list[Frame]:
        frames = player.play(child_seed(self._seed, "check", number), self._seed)
        self.steps += len(frames)
        return frames


class _Player:
    """One environment object, played with random legal actions."""

    def __init__(self, source: Source, spec: EnvSpec, findings: Findings | None = None) -> None:
        env = source.make()
        self.adapter: Adapter = adapter_of(env)(env if findings is None else watch(env, findings), spec)
        self._spec = spec
        self._guard = Contract(spec)

    def play(self, seed: int, action_seed: int) -> list[Frame]:
        """Play one episode; return the frames of all steps."""
        spec, rng = self._spec, generator(action_seed, "check actions")
        step = Step.empty(spec, 1)
        frames: list[Frame] = []
        self._call("reset", 0, self.adapter.reset, seed, step, 0)
        frames.append(_frame(spec, step))
        while not step.ended[0] and len(frames) <= LONGEST:
            actions = random_actions(spec, step, rng)
            step.reward[...] = 0
            step.terminated[...] = step.truncated[...] = False
            step.ended[0] = self._call("step", len(frames), self.adapter.step, actions, step, 0)
            if fault := self._guard.published(step):
                raise EnvError(f"step {len(frames)}: {fault.message}")
            frames.append(_frame(spec, step))
        return frames

    def _call(self, what: str, number: int, function: Any, *args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            raise EnvError(f"{what} {number or ''}: {error_text(error)}".replace(" :", ":")) from error


def random_actions(spec: EnvSpec, step: Step, rng: np.random.Generator) -> tuple[Array, ...]:
    """Draw random actions for all players, legal if legal actions are given; shapes as in `empty_actions`."""
    num_envs = len(step.ended)
    actions = empty_actions(spec, num_envs)
    for group, chosen, legal in zip(spec.groups, actions, step.legal, strict=True):
        space = group.action_space
        if isinstance(space, spaces.Box):
            chosen[...] = _within(space, rng, chosen.shape)
        elif isinstance(space, spaces.MultiDiscrete) and legal is None:
            chosen[...] = rng.integers(0, space.nvec.reshape(-1), chosen.shape)
        else:
            choices = Legal(space)
            weights = rng.random((group.size, num_envs, choices.width))
            chosen[...] = choices.best(weights if legal is None else weights * legal)
    return actions


def _within(space: Any, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw numbers: uniform between the bounds, or normal and clipped if a bound is infinite."""
    low, high = space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)
    bounded = np.isfinite(low) & np.isfinite(high)
    uniform = rng.uniform(np.where(bounded, low, 0), np.where(bounded, high, 1), shape)
    return np.where(bounded, uniform, np.clip(rng.normal(size=shape), low, high)).astype(np.float32)


def _frame(spec: EnvSpec, step: Step) -> Frame:
    """Return the hashes of the rows of a Step's arrays, by the array's name; values that are not valid count as 0."""
    frame: Frame = {}
    over = step.terminated | step.truncated
    for name, array in step.arrays().items():
        kind, _, group = name.partition("/")
        if kind in _NOT_COMPARED:
            continue
        valid = None
        if kind in ("obs", "legal", "final_obs"):
            g = int(group.partition("/")[0])
            valid = over[list(spec.groups[g].players)] if kind == "final_obs" else step.turn[g] & ~step.ended
        frame[name] = tuple(
            hash((row + 0).tobytes()) if valid is None or valid[p].any() else 0 for p, row in enumerate(array)
        )
    return frame


def _difference(spec: EnvSpec, one: list[Frame], other: list[Frame]) -> str:
    """Return the first difference of two episodes in words; empty if they are equal."""
    for number, (mine, yours) in enumerate(zip(one, other, strict=False)):
        if mine == yours:
            continue
        for name, rows in mine.items():
            for row, value in enumerate(rows):
                if value != yours[name][row]:
                    return f"{_words(spec, name, row, list(mine))} at step {number}"
    return "" if len(one) == len(other) else f"one lasts {len(one) - 1} steps and the other {len(other) - 1}"


def _words(spec: EnvSpec, name: str, row: int, names: list[str]) -> str:
    """Return the name of a row of an array of a Step, with its player."""
    if name in BY_ENV:
        return name
    kind, _, group = name.partition("/")
    if not group:
        return f"{kind} of player {spec.names[row]!r}"
    g, _, part = group.partition("/")
    player = spec.names[spec.groups[int(g)].players[row]]
    if kind not in ("obs", "final_obs"):
        return f"{kind} of player {player!r}"
    parts = [one for one in names if one.startswith(f"{kind}/{g}/")]
    return f"{kind} ({parts.index(name) if part else 0}) of player {player!r}"
