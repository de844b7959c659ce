"""Tag: slow adversaries chase fast good agents among obstacles; the rules are those of MPE2's simple_tag_v3."""

from __future__ import annotations

from typing import Any

import numpy as np

from marltrain.envs.native.arguments import truth, whole
from marltrain.envs.native.game import TERMINATED, Game
from marltrain.envs.native.particle.chase import GOOD_TOP_SPEED, REACH, catchers, chase_rules, straying
from marltrain.envs.native.particle.world import (
    move_agents,
    move_space,
    nearest,
    next_nearest,
    observation_space,
    place_at_random,
    see_entities,
    see_self,
    see_velocity,
    set_forces,
    slow_down,
    world_fields,
)
from marltrain.jit.compiling import inner

PACE = np.array([0.5, 0.75, 1.0])
"""Factor of the good agents' speed in each stage of the curriculum."""
CAUGHT = 10.0


class SimpleTag(Game):
    """All adversaries are rewarded for every touch; good agents pay for touches and for positions too far out."""

    name = "simple_tag_v3"

    def __init__(
        self,
        num_good: int = 1,
        num_adversaries: int = 3,
        num_obstacles: int = 2,
        max_cycles: int = 25,
        continuous_actions: bool = False,
        curriculum: bool = False,
        terminate_on_success: bool = False,
        num_agent_neighbors: int | None = None,
        num_landmark_neighbors: int | None = None,
    ) -> None:
        """Declare the game with the original's arguments, except those for rendering and infos.

        With `curriculum`, the field `stage` (0, its initial value, to 2) at a reset selects the good agents' speed. Any
        integer is allowed and is clipped to this range.
        """
        whole("num_adversaries", num_adversaries, 0)
        whole("num_good", num_good, 0 if num_adversaries else 1)
        whole("num_obstacles", num_obstacles, 0)
        agents = num_adversaries + num_good
        others = nearest("num_agent_neighbors", num_agent_neighbors)
        landmarks = nearest("num_landmark_neighbors", num_landmark_neighbors)
        base = 4 + 2 * (landmarks or num_obstacles) + 2 * (others or agents - 1)
        sizes = [base + 2 * (others or num_good)] * num_adversaries + [base + 2 * (others or num_good - 1)] * num_good
        names = [f"adversary_{i}" for i in range(num_adversaries)] + [f"agent_{i}" for i in range(num_good)]
        action_space = move_space(truth("continuous_actions", continuous_actions))
        super().__init__(
            {name: (observation_space(size), action_space) for name, size in zip(names, sizes, strict=True)},
            fields={"stage": int, "pace": float, **world_fields(agents, num_obstacles)},
            rules={
                **chase_rules(num_adversaries, num_good, 0.05, num_obstacles, []),
                "curriculum": truth("curriculum", curriculum),
                "terminate_on_success": truth("terminate_on_success", terminate_on_success),
                "others": others,
                "landmarks": landmarks,
            },
            limit=whole("max_cycles", max_cycles),
            state_size=sum(sizes),
        )

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Place all entities at random in the square, at rest; obstacles keep a distance from the edges."""
        agents = len(s.vel)
        place_at_random(s, 0, agents, 1.0)
        place_at_random(s, agents, len(s.pos), REACH)
        s.pace = PACE[min(max(s.stage, 0), len(PACE) - 1)] if rules.curriculum else 1.0

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Move all agents and compute the rewards from the touches."""
        agents = len(s.vel)
        set_forces(s, rules, s.action)
        for a in range(rules.adversaries, agents):
            s.force[a, 0] *= s.pace
            s.force[a, 1] *= s.pace
        move_agents(s, rules)
        touches, at_large = 0, 0
        for a in range(rules.adversaries, agents):
            slow_down(s, a, GOOD_TOP_SPEED * s.pace)
            caught = catchers(s, rules, a)
            s.reward[a] = -CAUGHT * caught - straying(s, a)
            touches += caught
            at_large += caught == 0
        s.reward[: rules.adversaries] = CAUGHT * touches
        if rules.terminate_on_success and at_large == 0 and s.steps < rules.limit:
            s.over[:] = TERMINATED

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write own velocity and position, relative positions of obstacles and others, and good agents' velocities."""
        agents = len(s.vel)
        at = see_self(s, p, obs)
        at = see_entities(s, p, agents, len(s.pos), rules.landmarks, obs, at)
        at = see_entities(s, p, 0, agents, rules.others, obs, at)
        if rules.others > 0:
            see_nearest_velocities(s, rules, p, obs, at)
        else:
            for other in range(rules.adversaries, agents):
                if other != p:
                    at = see_velocity(s, other, obs, at)


@inner
def see_nearest_velocities(s: Any, rules: Any, p: int, obs: Any, at: int) -> None:
    """Write the velocities of the nearest others, nearest first; zeros for adversaries and missing agents."""
    other = p
    for _ in range(rules.others):
        other = next_nearest(s, p, other, 0, len(s.vel))
        if other >= rules.adversaries:
            at = see_velocity(s, other, obs, at)
        else:
            obs[at] = obs[at + 1] = 0.0
            at += 2
