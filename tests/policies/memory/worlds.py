"""Steps written by hand, random worlds made of Steps, and a slow and obvious record to hold the streams to."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.layout import Layout, arrays_of, assign_obs
from marltrain.core.spec import EnvSpec, PlayerSpec, Step
from marltrain.policies.memory.needs import Needs

STACK = 3
VECTOR = spaces.Box(-np.inf, np.inf, (2,), np.float32)
IMAGES = spaces.Dict({"camera": spaces.Box(0, 255, (STACK, 2, 2), np.uint8), "speed": VECTOR})


def player(name, observation=VECTOR, actions=3, masked=True, stack=1):
    return PlayerSpec(name, observation, spaces.Discrete(actions), Layout(observation, stack), masked)


def one_group(names="abc", masked=True):
    """Players with equal spaces: vectors of 2, three actions."""
    return EnvSpec.of("world", [player(name, masked=masked) for name in names])


def two_groups():
    """Masked players a, c and unmasked players b, d: two groups whose players alternate in spec order."""
    kinds = {"masked": True, "actions": 3}, {"masked": False, "actions": 2}
    return EnvSpec.of("world", [player(name, **kinds[i % 2]) for i, name in enumerate("abcd")])


def seeing():
    """Two players that see a stack of images beside a vector."""
    return EnvSpec.of("world", [player(name, IMAGES, masked=False, stack=STACK) for name in "ab"])


def blank(spec, num_envs=1):
    """An empty Step."""
    return Step.empty(spec, num_envs)


def rollouts(streams, seats, columns=None):
    """The on-policy reader of seats."""
    return streams.reader(seats, Needs(True, columns or {}))


def uniform(streams, seats, columns=None, n_step=1):
    """The off-policy reader of seats."""
    return streams.reader(seats, Needs(False, columns or {}, n_step=n_step))


class Script:
    """One environment of the players of `one_group`, a Step at a time, by hand."""

    def __init__(self, spec):
        self.spec = spec
        self.step = blank(spec)

    def show(self, turn, reward=(0, 0, 0), ends=None, ended=False):
        """turn: player -> (value, legal); ends: player -> ("terminated" or "truncated", value, legal).

        A value v is seen as [v, -v]; what nobody is to read is NaN.
        """
        step = self.step
        step.obs[0][:], step.final_obs[0][:] = np.nan, np.nan
        for flags in (step.turn[0], step.legal[0], step.final_legal[0], step.terminated, step.truncated, step.ended):
            flags[:] = False
        step.reward[:, 0] = reward
        step.ended[0] = ended
        for p, (value, legal) in turn.items():
            step.turn[0][p], step.obs[0][p, 0], step.legal[0][p, 0] = True, (value, -value), legal
        for p, (how, value, legal) in (ends or {}).items():
            getattr(step, how)[p, 0] = True
            step.final_obs[0][p, 0], step.final_legal[0][p, 0] = (value, -value), legal
        return step


class World:
    """E random environments: players take turns at random, die, stay away for an episode, end and begin again.

    What is not valid in a Step is NaN, 99 or random, so that nothing of it may be read.
    """

    def __init__(self, spec, num_envs, seed, dense=False, end_chance=0.1):
        self.spec, self.num_envs, self.dense, self.end_chance = spec, num_envs, dense, end_chance
        self.rng = np.random.default_rng(seed)
        self.step = Step.empty(spec, num_envs)
        self.alive = np.zeros((len(spec.players), num_envs), bool)
        self.frames = {}
        self.count = 0

    def _see(self, p, e, last=False):
        """Return what player p sees now in environment e: numbered values, frames stacked over its own decisions."""
        self.count += 1
        seen = np.array([self.count, -self.count], np.float32)
        if self.spec.players[p].layout.single:
            return seen
        frame = self.rng.integers(0, 255, (2, 2), np.uint8)
        stack = self.frames.setdefault((p, e), deque([frame] * STACK, STACK))
        stack.append(frame)
        camera = np.stack(stack)
        if last:
            del self.frames[p, e]
        return {"vector": seen, "camera": camera}

    def next_step(self, first=False, anew=()):
        """`anew`: environments whose running episode was given up; what is rewarded there is nobody's."""
        step, rng, spec = self.step, self.rng, self.spec
        for g in range(len(spec.groups)):
            for obs in (*arrays_of(step.obs[g]), *arrays_of(step.final_obs[g])):
                obs[:] = np.nan if obs.dtype == np.float32 else 99
            for legal in (step.legal[g], step.final_legal[g]):
                if legal is not None:
                    legal[:] = rng.random(legal.shape) < 0.5
            step.turn[g][:] = False
        step.reward[:] = rng.integers(-8, 9, step.reward.shape) / 4
        step.terminated[:] = step.truncated[:] = False
        if first:
            self.alive[:] = False
            self.frames.clear()
        self.alive[:, list(anew)] = False
        self.frames = {(p, e): stack for (p, e), stack in self.frames.items() if e not in anew}
        for e in range(self.num_envs):
            self._advance(e, first or e in anew)
        step.ended[list(anew)] = True
        return step

    def _advance(self, e, first):
        step, rng = self.step, self.rng
        count = len(self.spec.players)
        ended = not first and rng.random() < self.end_chance
        step.ended[e] = ended
        for p in np.flatnonzero(self.alive[:, e]):
            dies = not self.dense and self.alive[:, e].sum() > 1 and rng.random() < 0.05
            if ended or dies:
                self.alive[p, e] = False
                terminated = rng.random() < 0.5
                step.terminated[p, e], step.truncated[p, e] = terminated, not terminated
                g, row = self.spec.place[p]
                assign_obs(step.final_obs[g], (row, e), self._see(p, e, last=True))
        if first or ended:
            self.alive[:, e] = True if self.dense else rng.random(count) < 0.8
            self.alive[rng.integers(count), e] = True
        living = np.flatnonzero(self.alive[:, e])
        moving = (
            living if self.dense or rng.random() < 0.3 else rng.choice(living, rng.integers(1, len(living) + 1), False)
        )
        for p in moving:
            g, row = self.spec.place[p]
            step.turn[g][row, e] = True
            assign_obs(step.obs[g], (row, e), self._see(p, e))

    def decide(self, group):
        """Return random actions and a numbered extra for every player of a group."""
        shape = (self.spec.groups[group].size, self.num_envs)
        log_prob = self.rng.random(shape).astype(np.float32)
        return self.rng.integers(0, 2, shape), {"log_prob": log_prob}


@dataclass
class Row:
    """One decision in the slow record; `end` is what followed when the part ended: (terminated, obs, legal)."""

    time: int
    env: int
    obs: object
    legal: object
    before: Row | None
    action: object = None
    log_prob: object = None
    reward: float = 0.0
    next: Row | None = None
    end: tuple | None = None
    closed_at: int | None = None
    decided: bool = False
    learnable: bool = True


@dataclass
class Record:
    """The streams again, with lists: rows[player] in order of time; nothing is ever forgotten."""

    spec: EnvSpec
    num_envs: int
    now: int = -1
    learning: Any = None
    rows: dict = field(default_factory=dict)
    open: dict = field(default_factory=dict)

    def record_step(self, step):
        self.now += 1
        for p in range(len(self.spec.players)):
            for e in range(self.num_envs):
                self._arrived(step, p, e)

    def _arrived(self, step, p, e):
        g, row = self.spec.place[p]
        waiting = self.open.get((p, e))
        if waiting is not None:
            waiting.reward += step.reward[p, e]
        if step.terminated[p, e] or step.truncated[p, e]:
            if waiting is not None:
                waiting.end = (bool(step.terminated[p, e]), *self._seen(step.final_obs[g], step.final_legal[g], row, e))
                waiting.closed_at = self.now
            self.open.pop((p, e), None)
            waiting = None
        if step.turn[g][row, e]:
            obs, legal = self._seen(step.obs[g], step.legal[g], row, e)
            begun = Row(self.now, e, obs, legal, before=waiting)
            if waiting is not None:
                waiting.next, waiting.closed_at = begun, self.now
                del self.open[p, e]
            self.rows.setdefault(p, []).append(begun)

    @staticmethod
    def _seen(obs, legal, row, e):
        copied = {n: a[row, e].copy() for n, a in obs.items()} if isinstance(obs, dict) else obs[row, e].copy()
        return copied, None if legal is None else legal[row, e].copy()

    def record_actions(self, group, action, extras):
        for row, p in enumerate(self.spec.groups[group].players):
            for begun in self.rows.get(p, []):
                if begun.time == self.now:
                    begun.action, begun.log_prob = action[row, begun.env], extras["log_prob"][row, begun.env]
                    begun.decided = True
                    begun.learnable = self.learning is None or bool(self.learning[p])
                    self.open[p, begun.env] = begun

    def abandon(self, envs=None):
        self.open = {(p, e): row for (p, e), row in self.open.items() if envs is not None and e not in envs}

    def closed(self, p, oldest=0):
        """Rows of player p that are closed and, with STACK frames, all there since batch step `oldest`."""
        return [row for row in self.rows.get(p, []) if row.closed_at is not None and self.there(row, oldest)]

    def drawable(self, p, oldest=0):
        """Rows of player p that are closed and were decided while its seat learned."""
        return [row for row in self.closed(p, oldest) if row.learnable]

    def there(self, row, oldest):
        depth = 1 if self.spec.players[0].layout.single else STACK
        for _ in range(depth):
            if row is None:
                return True
            if row.time < oldest:
                return False
            row = row.before
        return True


def drive(world, streams, record, on_step, steps, resets=(), cuts=(), masks=()):
    """Run both records side by side; `on_step(t)` runs when row t has begun and is not decided.

    At each of `resets` the environments begin anew: what was open is abandoned, the row before was never decided. With
    each of `cuts`, (t, environments), some do: what was decided there is abandoned. From each of `masks`, (t, [P] bool)
    on, transitions are drawn from the decisions of these players only.
    """
    for t in range(steps):
        if t in resets:
            streams.abandon()
            record.abandon()
        anew = dict(cuts).get(t, ())
        if anew:
            streams.abandon(np.array(anew))
            record.abandon(anew)
        step = world.next_step(first=t == 0 or t in resets, anew=anew)
        streams.record_step(step)
        record.record_step(step)
        on_step(t)
        if t in dict(masks):
            record.learning = np.array(dict(masks)[t])
            streams.learning(record.learning)
        for g in streams.rings if t + 1 not in resets else ():
            action, extras = world.decide(g)
            streams.record_actions(g, action, extras)
            record.record_actions(g, action, extras)


def same(left, right):
    """Whether two observations (arrays or mappings) are equal in every value; None equals None."""
    if left is None or right is None:
        return left is right
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(np.array_equal(left[n], right[n]) for n in left)
    return np.array_equal(left, right)


def at(obs, *index):
    """One observation of a batch of them."""
    return None if obs is None else {n: a[index] for n, a in obs.items()} if isinstance(obs, dict) else obs[index]
