"""`check_env`: a conformance test of the environment contract, which marltrain's own environments pass."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.config import check_flags
from marltrain.envs.python.adapter import Adapter
from marltrain.envs.python.check_wrappers import Findings, watch
from marltrain.envs.python.contract import Contract
from marltrain.envs.python.probe import adapter_of, probe
from marltrain.envs.registry import Source, resolve
from marltrain.errors import EnvError, MarlTrainError, error_text, printable
from marltrain.layout import Array, arrays_of
from marltrain.random import child_seed, generator
from marltrain.spec import MOST_STATE, EnvSpec, Step, empty_actions

LONGEST = 1000
"""Env steps after which a checked episode is stopped."""


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
    env: Any, env_args: Mapping[str, Any] | None = None, *, episodes: int = 3, seed: int = 0, strict: bool = True
) -> Report:
    """Play random episodes and report all violations of the contract.

    Checks spaces, shapes, dtypes, NaN, rewards of players after their end, players that return, and legal actions. Also
    checks that resets are pure and steps deterministic: compares all arrays of all steps of whole episodes.

    env, env_args: see `resolve`.  strict: whether to raise EnvError if there are problems.
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
            _compare(source, spec, report, seed)
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


def _compare(source: Source, spec: EnvSpec, report: Report, seed: int) -> None:
    """Play the same seed in two fresh objects and in a used object, and compare the episodes."""
    first, second = child_seed(seed, "check", 0), child_seed(seed, "check", 1)
    fresh = _Player(source, spec)
    reference = fresh.play(second, seed)
    again = _Player(source, spec)
    repeated = again.play(second, seed)
    used = _Player(source, spec)
    before = used.play(first, seed)
    after = used.play(second, seed)
    for player in (fresh, again, used):
        player.adapter.close()
    if difference := _difference(spec, reference, repeated):
        report.deterministic = report.pure = False
        if spec.reproducible:
            report.problems.append(
                f"two fresh objects with equal seeds and actions differ: {difference}. Draw every random number from a "
                'generator that reset(seed) makes, or set metadata["reproducible"] = False'
            )
        return
    if difference := _difference(spec, reference, after):
        report.pure = False
        text = f"a used object's episode differs from a fresh one's with the same seed: {difference}"
        if source.rebuild or not used.adapter.pure_reset:
            report.notes.append(f"{text}; it is rebuilt for every episode")
        else:
            report.problems.append(f'{text}. Correct reset, or set metadata["pure_reset"] = False to have it rebuilt')
    if not _difference(spec, before, reference):
        report.notes.append("two different seeds gave the same episode: the environment seems to use no randomness")


class _Player:
    """One environment object, played with random legal actions."""

    def __init__(self, source: Source, spec: EnvSpec, findings: Findings | None = None) -> None:
        env = source.make()
        self.adapter: Adapter = adapter_of(env)(env if findings is None else watch(env, findings), spec)
        self._spec = spec
        self._guard = Contract(spec)

    def play(self, seed: int, action_seed: int) -> list[dict[str, Array]]:
        """Play one episode; return the published arrays of all steps."""
        spec, rng = self._spec, generator(action_seed, "check actions")
        step = Step.empty(spec, 1)
        frames: list[dict[str, Array]] = []
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
        if isinstance(space, spaces.Discrete):
            weights = rng.random((group.size, num_envs, int(space.n)))
            chosen[...] = (weights if legal is None else weights * legal).argmax(-1)
        elif isinstance(space, spaces.MultiDiscrete):
            chosen[...] = rng.integers(0, space.nvec.reshape(-1), chosen.shape)
        else:
            chosen[...] = _within(space, rng, chosen.shape)
    return actions


def _within(space: Any, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Draw numbers: uniform between the bounds, or normal and clipped if a bound is infinite."""
    low, high = space.low.reshape(-1).astype(np.float64), space.high.reshape(-1).astype(np.float64)
    bounded = np.isfinite(low) & np.isfinite(high)
    uniform = rng.uniform(np.where(bounded, low, 0), np.where(bounded, high, 1), shape)
    return np.where(bounded, uniform, np.clip(rng.normal(size=shape), low, high)).astype(np.float32)


def _frame(spec: EnvSpec, step: Step) -> dict[str, Array]:
    """Return copies of a Step's arrays for each player, by name; arrays that are not valid are empty."""
    frame = {"ended": step.ended.copy()}
    for p, name in enumerate(spec.names):
        g, row = spec.place[p]
        over = step.terminated[p] | step.truncated[p]
        for label in ("reward", "terminated", "truncated"):
            frame[f"{label} of player {name!r}"] = getattr(step, label)[p].copy()
        for label in ("turn", "alive"):
            frame[f"{label} of player {name!r}"] = getattr(step, label)[g][row].copy()
        for label, valid in (("obs", step.turn[g][row] & ~step.ended), ("final_obs", over)):
            for i, array in enumerate(arrays_of(getattr(step, label)[g])):
                frame[f"{label} ({i}) of player {name!r}"] = array[row].copy() if valid[0] else np.zeros(0)
        legal = step.legal[g]
        if legal is not None:
            frame[f"legal of player {name!r}"] = legal[row].copy() if step.turn[g][row][0] else np.zeros(0)
    for f in fields(step):
        if f.name in ("state", "final_state") and getattr(step, f.name) is not None:
            frame[f.name] = getattr(step, f.name).copy()
    return frame


def _difference(spec: EnvSpec, one: list[dict[str, Array]], other: list[dict[str, Array]]) -> str:
    """Return the first difference of two episodes in words; empty if they are equal."""
    for number, (mine, yours) in enumerate(zip(one, other, strict=False)):
        for name, value in mine.items():
            if not np.array_equal(value, yours[name]):
                return f"{name} at step {number}"
    return "" if len(one) == len(other) else f"one lasts {len(one) - 1} steps and the other {len(other) - 1}"
