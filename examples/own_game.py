"""A PettingZoo game of one's own: two players on a ring of nine fields, rewarded for standing on the same one."""

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

FIELDS, STEPS = 9, 20


class Rendezvous(ParallelEnv):
    metadata = {"name": "rendezvous"}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.possible_agents = ["anna", "ben"]
        self.observation_spaces = {name: Box(0, 1, (2 * FIELDS,), np.float32) for name in self.possible_agents}
        self.action_spaces = {name: Discrete(3) for name in self.possible_agents}

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def reset(self, seed=None, options=None):
        self.agents, self.steps = list(self.possible_agents), 0
        self.places = np.random.default_rng(seed).integers(FIELDS, size=2)
        return self._observations(), {name: {} for name in self.agents}

    def step(self, actions):
        moves = np.array([actions[name] - 1 for name in self.possible_agents])
        self.places = (self.places + moves) % FIELDS
        self.steps += 1
        names, over, reward = list(self.agents), self.steps >= STEPS, float(self.places[0] == self.places[1])
        self.agents = [] if over else names
        ended, cut = dict.fromkeys(names, False), dict.fromkeys(names, over)
        return self._observations(), dict.fromkeys(names, reward), ended, cut, {name: {} for name in names}

    def _observations(self):
        where = np.eye(FIELDS, dtype=np.float32)[self.places]
        return {"anna": where.reshape(-1), "ben": where[::-1].reshape(-1)}
