"""Spread: N agents cover N landmarks without collisions; the rules are those of MPE2's simple_spread_v3."""

from __future__ import annotations

from typing import Any

from marltrain.envs.native.arguments import number, truth, whole
from marltrain.envs.native.game import TERMINATED, Game
from marltrain.envs.native.particle.world import (
    least_distance,
    move_agents,
    move_space,
    nearest,
    observation_space,
    place_at_random,
    see_entities,
    see_self,
    set_forces,
    touching,
    world_fields,
)
from marltrain.jit.compiling import inner

RADIUS = 0.15
COVERED = 0.1
"""A landmark is covered if an agent is nearer than this distance."""


class SimpleSpread(Game):
    """All agents share a penalty for the landmarks' distances to the nearest agents; each pays for its collisions."""

    name = "simple_spread_v3"

    def __init__(
        self,
        N: int = 3,
        local_ratio: float = 0.5,
        max_cycles: int = 25,
        continuous_actions: bool = False,
        curriculum: bool = False,
        terminate_on_success: bool = False,
        num_agent_neighbors: int | None = None,
        num_landmark_neighbors: int | None = None,
    ) -> None:
        """Declare the game with the original's arguments, except those for rendering and infos.

        With `curriculum`, collisions have no penalty while the field `stage` is 0, its initial value.
        """
        whole("N", N)
        others = nearest("num_agent_neighbors", num_agent_neighbors)
        landmarks = nearest("num_landmark_neighbors", num_landmark_neighbors)
        size = 4 + 2 * (landmarks or N) + 4 * (others or N - 1)
        sides = (observation_space(size), move_space(truth("continuous_actions", continuous_actions)))
        super().__init__(
            {f"agent_{i}": sides for i in range(N)},
            fields={**world_fields(N, N), "stage": int},
            rules={
                "size": [RADIUS] * N + [0.05] * N,
                "solid": [True] * N + [False] * N,
                "accel": [5.0] * N,
                "top_speed": [0.0] * N,
                "local_ratio": number("local_ratio", local_ratio, 0.0, 1.0),
                "curriculum": truth("curriculum", curriculum),
                "terminate_on_success": truth("terminate_on_success", terminate_on_success),
                "others": others,
                "landmarks": landmarks,
            },
            limit=whole("max_cycles", max_cycles),
            state_size=size * N,
        )

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Place all entities at random in the square, at rest."""
        place_at_random(s, 0, len(s.pos), 1.0)

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Move all agents and compute the rewards from the landmarks' coverage and the collisions."""
        agents = len(s.vel)
        set_forces(s, rules, s.action)
        move_agents(s, rules)
        covered, shared = coverage(s)
        for a in range(agents):
            bumps = 0.0
            if not rules.curriculum or s.stage > 0:
                for b in range(agents):
                    if b != a and touching(s, rules, a, b):
                        bumps += 1.0
            s.reward[a] = shared * (1 - rules.local_ratio) - bumps * rules.local_ratio
        if rules.terminate_on_success and covered and s.steps < rules.limit:
            s.over[:] = TERMINATED

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write own velocity and position, relative positions of landmarks and others, and zeros for messages."""
        agents = len(s.vel)
        at = see_self(s, p, obs)
        at = see_entities(s, p, agents, len(s.pos), rules.landmarks, obs, at)
        at = see_entities(s, p, 0, agents, rules.others, obs, at)
        obs[at:] = 0.0


@inner
def coverage(s: Any) -> Any:
    """Return whether all landmarks are covered, and minus the sum of their distances to the nearest agents."""
    covered, shared = True, 0.0
    for landmark in range(len(s.vel), len(s.pos)):
        least = least_distance(s, landmark, 0, len(s.vel))
        shared -= least
        covered = covered and least < COVERED
    return covered, shared
