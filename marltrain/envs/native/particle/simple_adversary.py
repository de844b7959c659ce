"""Adversary: good agents know the goal landmark and hide it from an adversary; rules of MPE2's simple_adversary_v3."""

from __future__ import annotations

from typing import Any

from marltrain.envs.native.arguments import truth, whole
from marltrain.envs.native.chance import integer
from marltrain.envs.native.game import Game
from marltrain.envs.native.particle.world import (
    distance,
    least_distance,
    move_agents,
    move_space,
    nearest,
    observation_space,
    place_at_random,
    see,
    see_entities,
    set_forces,
    world_fields,
)


class SimpleAdversary(Game):
    """Good agents keep an adversary, the first player, away from the goal.

    Their common reward is the adversary's distance to the goal minus the distance of the nearest good agent. The
    adversary's reward is minus its own distance.
    """

    name = "simple_adversary_v3"

    def __init__(
        self,
        N: int = 2,
        max_cycles: int = 25,
        continuous_actions: bool = False,
        num_agent_neighbors: int | None = None,
        num_landmark_neighbors: int | None = None,
    ) -> None:
        """Declare the game with the original's arguments, except those for rendering and infos."""
        agents = whole("N", N) + 1
        others = nearest("num_agent_neighbors", num_agent_neighbors)
        landmarks = nearest("num_landmark_neighbors", num_landmark_neighbors)
        size = 2 * (landmarks or N) + 2 * (others or N)
        action_space = move_space(truth("continuous_actions", continuous_actions))
        super().__init__(
            {
                "adversary_0": (observation_space(size), action_space),
                **{f"agent_{i}": (observation_space(size + 2), action_space) for i in range(N)},
            },
            fields={**world_fields(agents, N), "goal": (int, (), (agents, agents + N - 1))},
            rules={
                "size": [0.15] * agents + [0.08] * N,
                "solid": [False] * (agents + N),
                "accel": [5.0] * agents,
                "top_speed": [0.0] * agents,
                "others": others,
                "landmarks": landmarks,
            },
            limit=whole("max_cycles", max_cycles),
            state_size=size * agents + 2 * N,
        )

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Draw the goal, and place all entities at random in the square, at rest."""
        agents, entities = len(s.vel), len(s.pos)
        s.goal = agents + integer(s, entities - agents)
        place_at_random(s, 0, entities, 1.0)

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Move all agents and compute the rewards from the distances to the goal."""
        set_forces(s, rules, s.action)
        move_agents(s, rules)
        adversary = distance(s, 0, s.goal)
        s.reward[:] = adversary - least_distance(s, s.goal, 1, len(s.vel))
        s.reward[0] = -adversary

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write the relative positions of the goal (not for the adversary), the landmarks and the other agents."""
        agents = len(s.vel)
        at = see(s, p, s.goal, obs, 0) if p > 0 else 0
        at = see_entities(s, p, agents, len(s.pos), rules.landmarks, obs, at)
        see_entities(s, p, 0, agents, rules.others, obs, at)
