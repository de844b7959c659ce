"""Small environments whose every number can be worked out by hand."""

from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import BaseWrapper

# Turn-based -----------------------------------------------------------------------------------------------------------


class Relay(AECEnv):
    """Three players move in a circle, `length` moves an episode; nothing is random.

    Move t by a player with action a (0, 1 or 2; 2 is legal only when t is even):
      the mover receives a; everybody else in the game receives 10 (ann moved), 20 (bob) or 30 (cat).
      Move 5 also kills bob, if he is there and not the mover: he terminates and receives -1000.
      The last move also gives everybody left 500, 501, 502 (ann, bob, cat), and ends the game for all of them:
      they terminate, or are truncated if `truncate`.
    An observation is [t, the player's place, the action before (-1: none)], its mask says which actions are legal at t.
    When the episode's seed is odd and `absences`, bob is not there: ann and cat alternate.

    ann 0, bob 1, cat 2, ann 3, bob 4, cat 5 (bob dies), ann 6, cat 7 (the end).
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "relay", "render_modes": ["rgb_array"]}

    def __init__(
        self, truncate: bool = False, absences: bool = True, length: int = 8, render_mode: str | None = None
    ) -> None:
        self.truncate, self.absences, self.length, self.render_mode = truncate, absences, length, render_mode
        self.possible_agents = ["ann", "bob", "cat"]
        seen = spaces.Dict(
            {"observation": spaces.Box(-1, 1000, (3,), np.float32), "action_mask": spaces.Box(0, 1, (3,), np.int8)}
        )
        self._seen = dict.fromkeys(self.possible_agents, seen)
        self._acts = {name: spaces.Discrete(3) for name in self.possible_agents}

    def observation_space(self, agent):
        return self._seen[agent]

    def action_space(self, agent):
        return self._acts[agent]

    def reset(self, seed=None, options=None):
        odd = self.absences and seed is not None and seed % 2 == 1
        self.agents = [name for name in self.possible_agents if not (odd and name == "bob")]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {name: {} for name in self.agents}
        self.t, self.before = 0, -1
        self.agent_selection = self.agents[0]
        self._skip_agent_selection = None

    def observe(self, agent):
        seen = np.array([self.t, self.possible_agents.index(agent), self.before], np.float32)
        return {"observation": seen, "action_mask": np.array([1, 1, self.t % 2 == 0], np.int8)}

    def step(self, action):
        mover = self.agent_selection
        if self.terminations[mover] or self.truncations[mover]:
            self._was_dead_step(action)
            return
        given = 10.0 * (self.possible_agents.index(mover) + 1)
        self.rewards = {name: float(action) if name == mover else given for name in self.agents}
        living = list(self.agents)
        if self.t == 5 and "bob" in living and mover != "bob":
            self.rewards["bob"] -= 1000.0
            self.terminations["bob"] = True
            living.remove("bob")
        self.t, self.before = self.t + 1, int(action)
        if self.t == self.length:
            for name in living:
                self.rewards[name] += 500.0 + self.possible_agents.index(name)
                (self.truncations if self.truncate else self.terminations)[name] = True
        self.agent_selection = living[(living.index(mover) + 1) % len(living)]
        self._cumulative_rewards[mover] = 0.0
        self._accumulate_rewards()
        self._deads_step_first()

    def render(self):
        return np.full((4, 4, 3), self.t, np.uint8)


class Inn(AECEnv):
    """Guests come and go by a fixed script of eight moves; actions (2) and seeds change nothing.

    `SCRIPT`: of each move the mover, the rewards, who joins with it and who dies of it. ann and bob are there from the
    start, with rewards of 7000 and 5000 already. dan dies before his first turn. bob dies, returns, and dies again
    before his next turn. An observation is [moves made, the player's place].
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "inn", "render_modes": ["rgb_array"]}
    START: ClassVar[dict[str, float]] = {"ann": 7000.0, "bob": 5000.0}
    SCRIPT: ClassVar[list[tuple[str, dict[str, float], str, str]]] = [
        ("ann", {"ann": 1, "bob": 10}, "", ""),
        ("bob", {"ann": 20, "bob": 2, "cat": 30}, "cat", ""),
        ("ann", {"bob": 40, "cat": 50, "dan": 60}, "dan", ""),
        ("bob", {"ann": 70, "cat": 80, "dan": 90}, "", "dan"),
        ("cat", {"ann": 100, "cat": 3}, "", "bob"),
        ("ann", {"cat": 5, "bob": 400}, "bob", ""),
        ("cat", {"ann": 7, "bob": 600}, "", "bob"),
        ("ann", {"ann": 9, "cat": 11}, "", "ann cat"),
    ]
    RETURNS = (7207.0, 6052.0, 179.0, 150.0)
    """Sums of all that the script gives to ann, bob, cat and dan, and of what was there at the start."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.possible_agents = ["ann", "bob", "cat", "dan"]
        self._seen, self._acts = spaces.Box(0, 8, (2,), np.float32), spaces.Discrete(2)

    def observation_space(self, agent):
        return self._seen

    def action_space(self, agent):
        return self._acts

    def reset(self, seed=None, options=None):
        self.agents: list[str] = []
        self.rewards, self._cumulative_rewards, self.infos = {}, {}, {}
        self.terminations, self.truncations = {}, {}
        self._admit("ann bob")
        self.rewards.update(self.START)
        self._accumulate_rewards()
        self.t, self.agent_selection, self._skip_agent_selection = 0, "ann", None

    def _admit(self, names):
        for name in names.split():
            self.agents.append(name)
            self.rewards[name] = self._cumulative_rewards[name] = 0.0
            self.terminations[name] = self.truncations[name] = False
            self.infos[name] = {}

    def observe(self, agent):
        return np.array([self.t, self.possible_agents.index(agent)], np.float32)

    def step(self, action):
        if self.terminations[self.agent_selection]:
            self._was_dead_step(action)
            return
        mover, given, joining, dying = self.SCRIPT[self.t]
        assert self.agent_selection == mover
        self._admit(joining)
        self.rewards = {name: float(given.get(name, 0.0)) for name in self.agents}
        self.terminations.update(dict.fromkeys(dying.split(), True))
        self.t += 1
        self.agent_selection = self.SCRIPT[self.t % len(self.SCRIPT)][0]
        self._cumulative_rewards[mover] = 0.0
        self._accumulate_rewards()
        self._deads_step_first()

    def render(self):
        return np.full((4, 4, 3), self.t, np.uint8)


class Doubled(BaseWrapper):
    """Doubles all rewards, as SuperSuit's `reward_lambda_v0` does: its sums hide the inner ones from its first step on.

    Until then it shows the inner ones, or those of its last episode, and adds to them what is there after the reset.
    """

    def reset(self, seed=None, options=None):
        super().reset(seed=seed, options=options)
        self._double()
        self._sums = dict.fromkeys(self.possible_agents, 0.0)
        self._accumulate_rewards()

    def step(self, action):
        mover = self.env.agent_selection
        super().step(action)
        self._double()
        self._sums[mover] = 0.0
        self._cumulative_rewards = self._sums
        self._accumulate_rewards()

    def _double(self):
        self.rewards = {name: 2 * reward for name, reward in self.env.rewards.items()}


# Simultaneous ---------------------------------------------------------------------------------------------------------


class Crowd(ParallelEnv):
    """Three players of two kinds; nothing is random. red_0 and red_1: Box(2), Discrete(3). blue: Box(3), 5 or 6.

    Step t (from 0) with action a: red_0 and red_1 receive a, blue receives 10 a. An observation is [t, place] for the
    reds, and [t, 2, the sum of the reds' actions before] for blue.
    red_1 terminates with step 1 and is gone. With step `length` - 1 (default 4) the rest end: truncated, or terminated
    if not `truncate`. When the episode's seed is odd, blue is absent.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "crowd"}

    def __init__(self, length: int = 4, truncate: bool = True) -> None:
        self.length, self.truncate = length, truncate
        self.possible_agents = ["red_0", "blue", "red_1"]
        red, blue = spaces.Box(0, 100, (2,), np.float32), spaces.Box(0, 100, (3,), np.float32)
        self._seen = {"red_0": red, "red_1": red, "blue": blue}
        self._acts = {"red_0": spaces.Discrete(3), "red_1": spaces.Discrete(3), "blue": spaces.Discrete(2, start=5)}
        self.state_space = spaces.Box(0, 100, (2,), np.float32)

    def observation_space(self, agent):
        return self._seen[agent]

    def action_space(self, agent):
        return self._acts[agent]

    def reset(self, seed=None, options=None):
        self.agents = [n for n in self.possible_agents if not (n == "blue" and seed is not None and seed % 2 == 1)]
        self.t, self.reds = 0, 0
        return self._observations(self.agents), {name: {} for name in self.agents}

    def step(self, actions):
        acting = list(self.agents)
        self.reds = sum(int(a) for name, a in actions.items() if name != "blue")
        rewards = {name: 10.0 * actions[name] if name == "blue" else float(actions[name]) for name in acting}
        self.t += 1
        over = self.t == self.length
        terminated = {n: (n == "red_1" and self.t == 2) or (over and not self.truncate) for n in acting}
        truncated = dict.fromkeys(acting, over and self.truncate)
        observations = self._observations(acting)
        self.agents = [n for n in acting if not terminated[n] and not truncated[n]]
        return observations, rewards, terminated, truncated, {n: {} for n in acting}

    def state(self):
        return np.array([self.t, self.reds], np.float32)

    def _observations(self, names):
        own = {"red_0": [self.t, 0], "blue": [self.t, 2, self.reds], "red_1": [self.t, 1]}
        return {name: np.array(own[name], np.float32) for name in names}


class Identity(ParallelEnv):
    """Every player sees a random symbol and receives 1 for naming it; `length` steps, then truncation."""

    metadata: ClassVar[dict[str, Any]] = {"name": "identity"}

    def __init__(self, players: int = 2, choices: int = 3, length: int = 10) -> None:
        self.choices, self.length = choices, length
        self.possible_agents = [f"player_{i}" for i in range(players)]
        self._space = spaces.Discrete(choices)

    def observation_space(self, agent):
        return self._space

    def action_space(self, agent):
        return self._space

    def reset(self, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        self.agents, self.t = list(self.possible_agents), 0
        return self._draw(), {name: {} for name in self.agents}

    def step(self, actions):
        rewards = {name: float(actions[name] == self.symbols[name]) for name in self.agents}
        self.t += 1
        names, over = self.agents, self.t == self.length
        self.agents = [] if over else names
        observations = self._draw(names)
        return observations, rewards, dict.fromkeys(names, False), dict.fromkeys(names, over), {n: {} for n in names}

    def _draw(self, names=None):
        self.symbols = {name: int(self.rng.integers(self.choices)) for name in names or self.agents}
        return dict(self.symbols)


class Motley(ParallelEnv):
    """Every kind of space. `mixed` sees a picture beside other things and moves three wheels; `steered` has a Box.

    Rewards: `mixed` receives the sum of its wheels (they count from 1), `steered` the sum of its levers.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "motley"}

    def __init__(self, length: int = 5) -> None:
        self.length = length
        self.possible_agents = ["mixed", "steered"]
        tail = spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3])))
        self._seen: dict[str, Any] = {
            "mixed": spaces.Dict(
                {"screen": spaces.Box(0, 255, (4, 5), np.uint8), "digit": spaces.Discrete(3, start=-1), "tail": tail}
            ),
            "steered": spaces.Box(-1, 1, (2, 2), np.float64),
        }
        self._acts: dict[str, Any] = {
            "mixed": spaces.MultiDiscrete([2, 3, 4], start=[1, 1, 1]),
            "steered": spaces.Box(-2, 2, (2, 1), np.float32),
        }

    def observation_space(self, agent):
        return self._seen[agent]

    def action_space(self, agent):
        return self._acts[agent]

    def reset(self, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        self.agents, self.t = list(self.possible_agents), 0
        return self._observations(), {name: {} for name in self.agents}

    def step(self, actions):
        assert all(self._acts[name].contains(action) for name, action in actions.items()), actions
        self.t += 1
        rewards = {name: float(np.sum(action)) for name, action in actions.items()}
        observations, names = self._observations(), self.agents
        self.agents = [] if self.t == self.length else names
        over = self.t == self.length
        return observations, rewards, dict.fromkeys(names, over), dict.fromkeys(names, False), {n: {} for n in names}

    def _observations(self):
        mixed = {
            "screen": np.full((4, 5), 10 + self.t, np.uint8),
            "digit": self.t % 3 - 1,
            "tail": (np.array([1, 0], np.int8), np.array([self.t % 2, self.t % 3])),
        }
        return {"mixed": mixed, "steered": self.rng.uniform(-1, 1, (2, 2))}


class Auction(ParallelEnv):
    """Three players bid 0 to 4; the highest bid takes 1 from each of the others. 1 or 2 steps, by the seed's parity.

    Each sees its own place. In the game's log: the seed of every episode started.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "auction"}
    started: ClassVar[list[Any]] = []

    def __init__(self, players: int = 3) -> None:
        self._space, self._bids = spaces.Box(0, 9, (1,), np.float32), spaces.Discrete(5)
        self.possible_agents = [f"bidder_{i}" for i in range(players)]

    def observation_space(self, agent):
        return self._space

    def action_space(self, agent):
        return self._bids

    def reset(self, seed=None, options=None):
        Auction.started.append(seed)
        self.agents, self.left = list(self.possible_agents), 1 + seed % 2
        return self._seen(), {name: {} for name in self.agents}

    def step(self, actions):
        self.left -= 1
        best = max(actions, key=actions.__getitem__)
        rewards = {name: len(actions) - 1.0 if name == best else -1.0 for name in actions}
        over = dict.fromkeys(self.agents, self.left == 0)
        self.agents = [] if self.left == 0 else self.agents
        return self._seen(), rewards, over, dict.fromkeys(over, False), {name: {} for name in over}

    def _seen(self):
        return {name: np.array([i], np.float32) for i, name in enumerate(self.possible_agents)}
