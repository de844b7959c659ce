"""Two cars approach a crossing. Both want to pass, and must not meet in the middle."""

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

LENGTH, MIDDLE, STEPS = 7, 3, 20


class Crossing(ParallelEnv):
    metadata = {"name": "crossing", "render_modes": ["rgb_array"], "render_fps": 3}

    def __init__(self, render_mode=None):
        self.render_mode = render_mode
        self.possible_agents = ["east", "north"]
        self.spaces = Box(0, 1, (2 * LENGTH,), np.float32), Discrete(2)  # wait or drive

    def observation_space(self, agent):
        return self.spaces[0]

    def action_space(self, agent):
        return self.spaces[1]

    def reset(self, seed=None, options=None):
        self.agents, self.steps = list(self.possible_agents), 0
        start = np.random.default_rng(seed).integers(MIDDLE, size=2)
        self.place = dict(zip(self.agents, start.tolist(), strict=True))
        return self._observations(), {name: {} for name in self.agents}

    def step(self, actions):
        names, self.steps = list(self.agents), self.steps + 1
        for name in names:
            self.place[name] += int(actions[name])
        crash = self.place["east"] == self.place["north"] == MIDDLE
        passed = {name: self.place[name] == LENGTH - 1 for name in names}
        rewards = {name: -1.0 if crash else passed[name] - 0.05 for name in names}
        ended = {name: crash or passed[name] for name in names}
        cut = dict.fromkeys(names, self.steps == STEPS)
        observations = self._observations()
        self.agents = [name for name in names if not (ended[name] or cut[name])]
        return observations, rewards, ended, cut, {name: {} for name in names}

    def render(self):
        board = np.full((LENGTH, LENGTH, 3), 235, np.uint8)
        board[MIDDLE] = board[:, MIDDLE] = 150
        board[MIDDLE, self.place["east"]] = 200, 60, 40
        board[LENGTH - 1 - self.place["north"], MIDDLE] = 40, 90, 200
        return board.repeat(16, 0).repeat(16, 1)

    def _observations(self):
        east, north = np.eye(LENGTH, dtype=np.float32)[list(self.place.values())]
        seen = {"east": np.concatenate([east, north]), "north": np.concatenate([north, east])}
        return {name: seen[name] for name in self.agents}
