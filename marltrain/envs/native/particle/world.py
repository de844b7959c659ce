"""The physics of MPE2's particle worlds (Mordatch and Abbeel 2017; Lowe et al. 2017): discs that push and bounce.

A game's record has `pos` [agents + landmarks, 2], `vel` and `force` [agents, 2]; its rules have, one entry an entity,
`size` and `solid` (whether others bounce off it), and, one entry an agent, `accel` and `top_speed` (0: none). Agents
come first. Everything has mass 1; landmarks never move, and neither do agents without `accel` that nothing bumps into.

An agent may also say one of some words, or, where actions are continuous, each of them with a loudness from 0 to 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.compiling import inner
from marltrain.envs.native.arguments import whole
from marltrain.envs.native.chance import uniform
from marltrain.layout import Space

INTERVAL, DAMPING, STIFFNESS, SOFTNESS = 0.1, 0.25, 100.0, 1e-3
MOVES = 5
"""Discrete: stay, left, right, down, up. Continuous: how hard each is pressed, from 0 to 1; the first does nothing."""
NEGLIGIBLE = -45.0
"""Two discs this many SOFTNESSes apart push each other with less than 1e-20, which no sum of forces near 1 holds."""


def world_fields(agents: int, landmarks: int) -> dict[str, Any]:
    """Return the fields that the physics needs.

    A saved state may hold any numbers there, nan and infinite ones, too: they are no index, and no loop waits for them.
    """
    return {"pos": (float, (agents + landmarks, 2)), "vel": (float, (agents, 2)), "force": (float, (agents, 2))}


def seen(size: int) -> Space:
    """Return the observation space of an agent that sees `size` numbers."""
    return spaces.Box(-np.float32(np.inf), np.float32(np.inf), (size,), np.float32)


def moves(continuous: bool, words: int = 0) -> Space:
    """Return the action space of an agent that moves and, where there are words, says one of them at the same time."""
    return spaces.Box(0, 1, (MOVES + words,)) if continuous else spaces.Discrete(MOVES * max(words, 1))


def talks(continuous: bool, words: int) -> Space:
    """Return the action space of an agent that stays where it is and says one of so many words."""
    return spaces.Box(0, 1, (words,)) if continuous else spaces.Discrete(words)


def nearest(name: str, given: Any) -> int:
    """Return how many of the nearest an agent sees, checked; 0, for None: all, in their own order."""
    return 0 if given is None else whole(name, given)


@inner
def scatter(s: Any, low: int, high: int, far: float) -> None:
    """Put the entities `low` to `high` anywhere in the square from `-far` to `far`, and bring everybody to rest."""
    for entity in range(low, high):
        s.pos[entity, 0] = uniform(s, -far, far)
        s.pos[entity, 1] = uniform(s, -far, far)
    s.vel[:, :] = 0.0


@inner
def press(s: Any, rules: Any, action: Any) -> None:
    """Set the forces from `s.action`, handed over by itself so that only the branch of its kind is compiled.

    Discrete actions beyond the moves say something, too: their remainder is the move.
    """
    for a in range(len(s.vel)):
        for axis in range(2):
            if action.ndim == 1:
                move = action[a] % MOVES - 2 * axis
                push = 1.0 if move == 2 else (-1.0 if move == 1 else 0.0)
            else:
                push = float(clipped(action[a, 2 + 2 * axis]) - clipped(action[a, 1 + 2 * axis]))
            s.force[a, axis] = push * rules.accel[a]


@inner
def clipped(value: Any) -> Any:
    """Return a number of a continuous action as it counts: from 0 to 1."""
    return min(max(value, np.float32(0)), np.float32(1))


@inner
def say(said: Any, action: Any, a: int, moving: bool) -> None:
    """Write what agent `a` says into `said` [words]; `action` is `s.action`, handed over by itself as for `press`.

    moving: whether the agent's action is a move, too.
    """
    for word in range(len(said)):
        if action.ndim == 1:
            said[word] = 1.0 if word == (action[a] // MOVES if moving else action[a]) else 0.0
        else:
            said[word] = clipped(action[a, word + (MOVES if moving else 0)])


@inner
def drift(s: Any, rules: Any) -> None:
    """Let everything that touches bounce, and move all agents for one interval."""
    for a in range(len(s.vel)):
        for b in range(a + 1, len(s.pos)):
            if rules.solid[a] and rules.solid[b]:
                bounce(s, rules, a, b)
    for a in range(len(s.vel)):
        for axis in range(2):
            s.pos[a, axis] += s.vel[a, axis] * INTERVAL
            s.vel[a, axis] = s.vel[a, axis] * (1 - DAMPING) + s.force[a, axis] * INTERVAL
        if rules.top_speed[a] > 0.0:
            slow_down(s, a, rules.top_speed[a])


@inner
def slow_down(s: Any, a: int, top_speed: float) -> None:
    """Bring agent `a` down to a speed, if it is faster."""
    speed = math.sqrt(s.vel[a, 0] ** 2 + s.vel[a, 1] ** 2)
    if speed > top_speed:
        for axis in range(2):
            s.vel[a, axis] = s.vel[a, axis] / speed * top_speed


@inner
def bounce(s: Any, rules: Any, a: int, b: int) -> None:
    """Push agent `a` and entity `b` apart, softly where they hardly touch."""
    x, y = s.pos[a, 0] - s.pos[b, 0], s.pos[a, 1] - s.pos[b, 1]
    far = math.sqrt(x * x + y * y)
    depth = -(far - (rules.size[a] + rules.size[b])) / SOFTNESS
    if depth < NEGLIGIBLE:
        return
    depth = SOFTNESS * (math.log1p(math.exp(depth)) if depth < 0.0 else depth + math.log1p(math.exp(-depth)))
    x, y = STIFFNESS * x / far * depth, STIFFNESS * y / far * depth
    s.force[a, 0] += x
    s.force[a, 1] += y
    if b < len(s.vel):
        s.force[b, 0] -= x
        s.force[b, 1] -= y


@inner
def distance(s: Any, a: int, b: int) -> float:
    """Return how far two entities are apart."""
    x, y = s.pos[a, 0] - s.pos[b, 0], s.pos[a, 1] - s.pos[b, 1]
    return math.sqrt(x * x + y * y)


@inner
def least_distance(s: Any, a: int, low: int, high: int) -> float:
    """Return how far entity `a` is from the nearest of the entities `low` to `high`."""
    least = math.inf
    for b in range(low, high):
        least = min(least, distance(s, a, b))
    return least


@inner
def touching(s: Any, rules: Any, a: int, b: int) -> bool:
    """Return whether two entities overlap."""
    return distance(s, a, b) < rules.size[a] + rules.size[b]


@inner
def see_velocity(s: Any, a: int, obs: Any, at: int) -> int:
    """Write how agent `a` moves; return where the observation goes on."""
    obs[at], obs[at + 1] = s.vel[a, 0], s.vel[a, 1]
    return at + 2


@inner
def see_self(s: Any, a: int, obs: Any) -> int:
    """Begin an observation with how agent `a` moves and where it is; return where it goes on."""
    obs[0], obs[1], obs[2], obs[3] = s.vel[a, 0], s.vel[a, 1], s.pos[a, 0], s.pos[a, 1]
    return 4


@inner
def see(s: Any, a: int, b: int, obs: Any, at: int) -> int:
    """Write where entity `b` is, as agent `a` sees it; return where the observation goes on."""
    obs[at], obs[at + 1] = s.pos[b, 0] - s.pos[a, 0], s.pos[b, 1] - s.pos[a, 1]
    return at + 2


@inner
def see_all(s: Any, a: int, low: int, high: int, obs: Any, at: int) -> int:
    """Write where the entities `low` to `high` are, without agent `a` itself; return where the observation goes on."""
    for b in range(low, high):
        if b != a:
            at = see(s, a, b, obs, at)
    return at


@inner
def see_nearest(s: Any, a: int, low: int, high: int, most: int, obs: Any, at: int) -> int:
    """Write where the nearest `most` of the entities `low` to `high` are, nearest first, and zeros for those missing.

    Without agent `a` itself. Returns where the observation goes on.
    """
    b = a
    for _ in range(most):
        b = next_nearest(s, a, b, low, high)
        if b < 0:
            obs[at] = obs[at + 1] = 0.0
            at += 2
        else:
            at = see(s, a, b, obs, at)
    return at


@inner
def next_nearest(s: Any, a: int, last: int, low: int, high: int) -> int:
    """Return which of the entities `low` to `high` is the next after `last`, as they lie farther and farther from `a`.

    From `a` itself on, which is never returned; of equally near ones, the lower number goes first. -1: no more, and
    then, as `last`, none after it either.
    """
    if last < 0:
        return -1
    behind = -1.0 if last == a else distance(s, a, last)
    least, found = math.inf, -1
    for b in range(low, high):
        far = distance(s, a, b)
        if b != a and (far > behind or (far == behind and b > last)) and far < least:
            least, found = far, b
    return found


@inner
def tell(values: Any, obs: Any, at: int) -> int:
    """Write an array into the observation; return where it goes on."""
    for value in values:
        obs[at] = value
        at += 1
    return at


@inner
def colour(which: int, plain: float, bright: float, obs: Any, at: int, channels: int) -> int:
    """Write a colour that is bright in one channel; return where the observation goes on."""
    for channel in range(channels):
        obs[at] = bright if channel == which else plain
        at += 1
    return at
