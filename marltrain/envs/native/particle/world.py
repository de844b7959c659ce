"""The physics of MPE2's particle environments (Mordatch and Abbeel 2017; Lowe et al. 2017): moving, colliding discs.

A game's record has `pos` [agents + landmarks, 2], `vel` and `force` [agents, 2]. Its rules have, per entity, `size` and
`solid` (whether it collides), and, per agent, `accel` and `top_speed` (0: no limit). Entities are agents, then
landmarks. All masses are 1. Landmarks never move; agents without `accel` move only by collisions.

An agent may also send a message: one of several words or, with continuous actions, a weight from 0 to 1 for each word.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.layout import Space
from marltrain.envs.native.arguments import whole
from marltrain.envs.native.chance import uniform
from marltrain.jit.compiling import inner

INTERVAL, DAMPING, STIFFNESS, SOFTNESS = 0.1, 0.25, 100.0, 1e-3
MOVES = 5
"""Discrete: stay, left, right, down, up. Continuous: the strength of each, from 0 to 1; the first has no effect."""
NEGLIGIBLE = -45.0
"""Depth of contact, in units of SOFTNESS, below which the force is under 1e-20: too small to change a sum near 1."""


def world_fields(agents: int, landmarks: int) -> dict[str, Any]:
    """Return the fields that the physics needs.

    They have no bounds, so a saved state may hold nan or infinity: no index and no loop depends on them.
    """
    return {"pos": (float, (agents + landmarks, 2)), "vel": (float, (agents, 2)), "force": (float, (agents, 2))}


def observation_space(size: int) -> Space:
    """Return the observation space of an agent that observes `size` numbers."""
    return spaces.Box(-np.float32(np.inf), np.float32(np.inf), (size,), np.float32)


def move_space(continuous: bool, words: int = 0) -> Space:
    """Return the action space of an agent that moves and, if `words` > 0, sends a message in the same step."""
    return spaces.Box(0, 1, (MOVES + words,)) if continuous else spaces.Discrete(MOVES * max(words, 1))


def message_space(continuous: bool, words: int) -> Space:
    """Return the action space of an agent that does not move and sends a message of `words` words."""
    return spaces.Box(0, 1, (words,)) if continuous else spaces.Discrete(words)


def nearest(name: str, given: Any) -> int:
    """Return the checked number of nearest entities that an agent observes; None gives 0: all, in their own order."""
    return 0 if given is None else whole(name, given)


@inner
def place_at_random(s: Any, low: int, high: int, far: float) -> None:
    """Place the entities `low` to `high` at random in the square from `-far` to `far`; set all velocities to 0."""
    for entity in range(low, high):
        s.pos[entity, 0] = uniform(s, -far, far)
        s.pos[entity, 1] = uniform(s, -far, far)
    s.vel[:, :] = 0.0


@inner
def set_forces(s: Any, rules: Any, action: Any) -> None:
    """Set the forces from `s.action`, a separate argument so that only the branch for its rank is compiled.

    Discrete actions may combine a word and a move: the move is the remainder of the division by MOVES.
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
    """Return an entry of a continuous action, clipped to 0 to 1."""
    return min(max(value, np.float32(0)), np.float32(1))


@inner
def read_message(said: Any, action: Any, a: int, moving: bool) -> None:
    """Write agent `a`'s message into `said` [words]; `action` is `s.action`, a separate argument as in `set_forces`.

    moving: whether the agent's action also holds a move.
    """
    for word in range(len(said)):
        if action.ndim == 1:
            said[word] = 1.0 if word == (action[a] // MOVES if moving else action[a]) else 0.0
        else:
            said[word] = clipped(action[a, word + (MOVES if moving else 0)])


@inner
def move_agents(s: Any, rules: Any) -> None:
    """Add the collision forces and move all agents for one interval."""
    for a in range(len(s.vel)):
        for b in range(a + 1, len(s.pos)):
            if rules.solid[a] and rules.solid[b]:
                collide(s, rules, a, b)
    for a in range(len(s.vel)):
        for axis in range(2):
            s.pos[a, axis] += s.vel[a, axis] * INTERVAL
            s.vel[a, axis] = s.vel[a, axis] * (1 - DAMPING) + s.force[a, axis] * INTERVAL
        if rules.top_speed[a] > 0.0:
            slow_down(s, a, rules.top_speed[a])


@inner
def slow_down(s: Any, a: int, top_speed: float) -> None:
    """Reduce the speed of agent `a` to `top_speed` if it is higher."""
    speed = math.sqrt(s.vel[a, 0] ** 2 + s.vel[a, 1] ** 2)
    if speed > top_speed:
        for axis in range(2):
            s.vel[a, axis] = s.vel[a, axis] / speed * top_speed


@inner
def collide(s: Any, rules: Any, a: int, b: int) -> None:
    """Add the collision force of agent `a` and entity `b`; the force is soft at light contact."""
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
    """Return the distance of two entities."""
    x, y = s.pos[a, 0] - s.pos[b, 0], s.pos[a, 1] - s.pos[b, 1]
    return math.sqrt(x * x + y * y)


@inner
def least_distance(s: Any, a: int, low: int, high: int) -> float:
    """Return the distance of entity `a` to the nearest of the entities `low` to `high`."""
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
    """Write agent `a`'s velocity into the observation; return the next index."""
    obs[at], obs[at + 1] = s.vel[a, 0], s.vel[a, 1]
    return at + 2


@inner
def see_self(s: Any, a: int, obs: Any) -> int:
    """Write agent `a`'s velocity and position at the start of the observation; return the next index."""
    obs[0], obs[1], obs[2], obs[3] = s.vel[a, 0], s.vel[a, 1], s.pos[a, 0], s.pos[a, 1]
    return 4


@inner
def see(s: Any, a: int, b: int, obs: Any, at: int) -> int:
    """Write the position of entity `b` relative to agent `a`; return the next index."""
    obs[at], obs[at + 1] = s.pos[b, 0] - s.pos[a, 0], s.pos[b, 1] - s.pos[a, 1]
    return at + 2


@inner
def see_all(s: Any, a: int, low: int, high: int, obs: Any, at: int) -> int:
    """Write the relative positions of the entities `low` to `high` without agent `a`; return the next index."""
    for b in range(low, high):
        if b != a:
            at = see(s, a, b, obs, at)
    return at


@inner
def see_entities(s: Any, a: int, low: int, high: int, most: int, obs: Any, at: int) -> int:
    """Write as `see_nearest` does; `most = 0`: as `see_all` does."""
    return see_nearest(s, a, low, high, most, obs, at) if most > 0 else see_all(s, a, low, high, obs, at)


@inner
def see_nearest(s: Any, a: int, low: int, high: int, most: int, obs: Any, at: int) -> int:
    """Write the relative positions of the `most` nearest of the entities `low` to `high`, nearest first.

    Agent `a` itself is excluded. Missing entities are zeros. Returns the next index.
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
    """Return the entity after `last` in the order of distance from `a`, among the entities `low` to `high`.

    `last = a` gives the nearest entity; `a` itself is never returned. At equal distance the lower number comes first.
    Returns -1 if there are no more entities, also for `last = -1`.
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
def write_values(values: Any, obs: Any, at: int) -> int:
    """Write an array into the observation; return the next index."""
    for value in values:
        obs[at] = value
        at += 1
    return at


@inner
def write_color(which: int, plain: float, bright: float, obs: Any, at: int, channels: int) -> int:
    """Write a color with the value `bright` in channel `which` and `plain` in the others; return the next index."""
    for channel in range(channels):
        obs[at] = bright if channel == which else plain
        at += 1
    return at
