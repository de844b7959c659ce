"""Small native games with what the shipped ones lack: players who die, are absent and arrive, a state of their own."""

from gymnasium import spaces

from marltrain.envs.native.chance import integer, uniform
from marltrain.envs.native.game import TERMINATED, TRUNCATED, Game

SEES = spaces.Box(-99, 99, (2,))


class Crowd(Game):
    """The first of three dies in step 2, the last arrives in step 3, the second plays until the limit of 4.

    A player sees the step and its own name; an action is its reward; the state is the step.
    """

    name = "crowd_v0"

    def __init__(self) -> None:
        super().__init__(
            {name: (SEES, spaces.Discrete(3, start=5)) for name in ("a", "b", "c")},
            fields={"count": int},
            limit=4,
            state_size=1,
        )

    @staticmethod
    def reset(s, rules):
        s.count = 0
        s.present[2] = s.turn[2] = 0

    @staticmethod
    def step(s, rules):
        s.count += 1
        for p in range(3):
            if s.turn[p]:
                s.reward[p] = s.action[p]
        if s.count == 2:
            s.over[0] = TERMINATED
        if s.count == 3:
            s.present[2] = s.turn[2] = 1

    @staticmethod
    def observe(s, rules, p, obs):
        obs[0], obs[1] = s.count, p

    @staticmethod
    def state(s, rules, out):
        out[0] = s.count


class Relay(Game):
    """Three players in turn; an action is given to everybody else; who has moved twice is truncated, the last one, too.

    Box actions of different widths; a fall of the dice decides who begins.
    """

    name = "relay_v0"
    api = "turns"

    def __init__(self) -> None:
        super().__init__(
            {name: (SEES, spaces.Box(-1, 1, (width,))) for name, width in (("a", 1), ("b", 2), ("c", 2))},
            fields={"moves": int, "first": int},
        )

    @staticmethod
    def reset(s, rules):
        s.moves = 0
        s.first = integer(s, 3)
        s.turn[:] = 0
        s.turn[s.first] = 1

    @staticmethod
    def step(s, rules):
        mover = (s.first + s.moves) % 3
        s.moves += 1
        for p in range(3):
            if p != mover and s.present[p]:
                s.reward[p] += s.action[mover, 0]
        s.turn[mover], s.turn[(mover + 1) % 3] = 0, 1
        if s.moves > 3:
            s.over[mover] = TRUNCATED

    @staticmethod
    def observe(s, rules, p, obs):
        obs[0], obs[1] = s.moves, s.turn[p]


class Dice(Game):
    """One player; every step is all kinds of chance."""

    name = "dice_v0"

    def __init__(self, n: int = 6) -> None:
        super().__init__({"a": (SEES, spaces.Discrete(2))}, {"place": float, "face": int}, {"n": n}, limit=1000)

    @staticmethod
    def reset(s, rules):
        s.place = uniform(s, -1.0, 3.0)
        s.face = 0

    @staticmethod
    def step(s, rules):
        s.face = integer(s, rules.n)
        s.place = uniform(s, -1.0, 3.0)

    @staticmethod
    def observe(s, rules, p, obs):
        obs[0], obs[1] = s.place, s.face
