"""Holds a native game against its original: the same start states, the same actions, and every step compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from marltrain.core.layout import Array, arrays_of
from marltrain.core.spec import EnvSpec, Step
from marltrain.envs import DummyVectorEnv, make_vector, resolve
from marltrain.envs.native.vector import NativeVectorEnv
from marltrain.envs.python.check_env import random_actions
from tests.tiers import rounds

TOLERANCE = 1e-5
Copy = Callable[[Any], Mapping[str, Any]]
"""From the original, unwrapped, to the fields of the native game's record, in float64."""
Choose = Callable[[EnvSpec, Step, np.random.Generator], tuple[Array, ...]]
Chances = Callable[[Any], Sequence[float]]
"""From the original, unwrapped, to what chance gives in its running episode, from the start, in the game's order."""


def hold(
    original: Any,
    native: str,
    copy: Copy,
    original_args: Any = None,
    native_args: Any = None,
    *,
    episodes: int = rounds(50, 200),
    choose: Choose = random_actions,
    chances: Chances | None = None,
    drawn: Chances | None = None,
) -> int:
    """Play whole episodes in both from the original's start states; raise AssertionError where they differ.

    native_args: as `original_args`, unless given.  choose: the players; random legal actions unless given.
    chances: replayed in the native game from its reset on; what `copy` returns is set after that.
    drawn: what chance gave in the original's last step, for games whose draws depend on the actions.
    Returns how many parts of players were terminated.
    """
    theirs = DummyVectorEnv(resolve(original, original_args), 1, with_state=True)
    ours = NativeVectorEnv(native, 1, original_args if native_args is None else native_args, with_state=True)
    assert_same_spec(theirs.spec, ours.spec)
    spec, rng = theirs.spec, np.random.default_rng(0)
    one, other = theirs.reset(0), ours.reset(0)
    env = theirs._chunk._adapters[0].env.unwrapped
    begin(ours, env, copy, chances)
    assert_same_now(spec, one, other, "start")
    finished = steps = terminated = 0
    while finished < episodes:
        actions = choose(spec, one, rng)
        one = theirs.step(actions)
        if drawn is not None:
            ours.batch.set_chances(0, drawn(env))
        other = ours.step(actions)
        steps += 1
        where = f"episode {finished}, step {steps}"
        assert_same_events(spec, one, other, where)
        terminated += int(one.terminated.sum())
        if one.ended[0]:
            finished, steps = finished + 1, 0
            begin(ours, env, copy, chances)
        assert_same_now(spec, one, other, where)
    theirs.close()
    return terminated


def begin(ours: NativeVectorEnv, env: Any, copy: Copy, chances: Chances | None) -> None:
    """Start the native game's episode as the original has started its own."""
    if chances is not None:
        ours.batch.set_chances(0, chances(env))
        ours.batch.begin(0, 0)
    ours.batch.set_state(0, copy(env))


def assert_same_spec(one: EnvSpec, other: EnvSpec) -> None:
    """Players, spaces, masks, groups, turns and the size of the state."""
    assert one.names == other.names
    assert [player.kind for player in one.players] == [player.kind for player in other.players]
    assert (one.turn_based, one.state_shape) == (other.turn_based, other.state_shape)


def assert_same_events(spec: EnvSpec, one: Step, other: Step, where: str) -> None:
    """What a Step says of the step that was taken."""
    exactly("ended", one.ended, other.ended, where)
    for p, name in enumerate(spec.names):
        g, row = spec.place[p]
        closely(f"reward of {name}", one.reward[p], other.reward[p], where)
        exactly(f"terminated of {name}", one.terminated[p], other.terminated[p], where)
        exactly(f"truncated of {name}", one.truncated[p], other.truncated[p], where)
        if one.terminated[p, 0] or one.truncated[p, 0]:
            _seen(name, one.final_obs[g], other.final_obs[g], one.final_legal[g], other.final_legal[g], row, where)
    if one.ended[0] and one.final_state is not None:
        closely("final_state", one.final_state, other.final_state, where)


def assert_same_now(spec: EnvSpec, one: Step, other: Step, where: str) -> None:
    """What a Step says of now."""
    exactly("episode", one.episode, other.episode, where)
    for p, name in enumerate(spec.names):
        g, row = spec.place[p]
        exactly(f"turn of {name}", one.turn[g][row], other.turn[g][row], where)
        exactly(f"alive of {name}", one.alive[g][row], other.alive[g][row], where)
        if one.turn[g][row, 0]:
            _seen(name, one.obs[g], other.obs[g], one.legal[g], other.legal[g], row, where)
    if one.state is not None:
        closely("state", one.state, other.state, where)


def _seen(name: str, one: Any, other: Any, legal: Any, other_legal: Any, row: int, where: str) -> None:
    for mine, yours in zip(arrays_of(one), arrays_of(other), strict=True):
        closely(f"observation of {name}", mine[row], yours[row], where)
    if legal is not None:
        exactly(f"legal moves of {name}", legal[row], other_legal[row], where)


def closely(what: str, one: Array, other: Any, where: str) -> None:
    """Compare floats; numpy's own assertion, which takes fifty times as long, words the difference."""
    if one.shape != other.shape or not (np.abs(other - one) <= TOLERANCE + TOLERANCE * np.abs(one)).all():
        np.testing.assert_allclose(other, one, rtol=TOLERANCE, atol=TOLERANCE, err_msg=f"{what}, {where}")


def exactly(what: str, one: Array, other: Array, where: str) -> None:
    """Compare whole numbers and truth values, as `closely` does."""
    if one.shape != other.shape or not (other == one).all():
        np.testing.assert_array_equal(other, one, err_msg=f"{what}, {where}")


def assert_same_starts(original: Any, native: str, env_args: Any = None, *, count: int = 2000) -> None:
    """Compare the distributions of every number that is first seen (Kolmogorov and Smirnov's test, at 0.0001)."""
    ours = make_vector(native, env_args, count)
    first, found = ours.reset(1), []
    with make_vector(original, env_args, 1) as theirs:
        for seed in range(count):
            step = theirs.reset(seed)
            found.append([np.asarray(obs)[turn].copy() for obs, turn in zip(step.obs, step.turn, strict=True)])
    for g, (obs, turn) in enumerate(zip(first.obs, first.turn, strict=True)):
        mine = np.asarray(obs).swapaxes(0, 1)[turn.T].reshape(count, -1)
        yours = np.stack([start[g].reshape(-1) for start in found])
        assert mine.shape == yours.shape
        for column in range(mine.shape[1]):
            a, b = np.sort(mine[:, column]), np.sort(yours[:, column])
            both = np.concatenate([a, b])
            gap = np.abs(np.searchsorted(a, both, "right") - np.searchsorted(b, both, "right")).max() / count
            assert gap < 2.225 * np.sqrt(2 / count), f"group {g}, entry {column}: distributions differ by {gap}"
