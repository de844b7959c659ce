"""Spread: as many agents as landmarks, which are to be covered without bumping; by MPE2's simple_spread_v3."""

from __future__ import annotations

from typing import Any

from marltrain.compiling import inner
from marltrain.envs.native.arguments import number, truth, whole
from marltrain.envs.native.game import TERMINATED, Game
from marltrain.envs.native.particle.world import (
    drift,
    least_distance,
    moves,
    nearest,
    press,
    scatter,
    see_all,
    see_nearest,
    see_self,
    seen,
    touching,
    world_fields,
)

RADIUS = 0.15
COVERED = 0.1
"""A landmark with an agent nearer than this is covered."""


class SimpleSpread(Game):
    """All are rewarded for landmarks that have an agent near; each pays for those that it bumps into."""

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
        """Declare the game with the original's arguments, less those that only its pictures and infos need.

        With `curriculum`, bumping costs nothing while the field `stage` is 0, as it is at first.
        """
        whole("N", N)
        others = nearest("num_agent_neighbors", num_agent_neighbors)
        landmarks = nearest("num_landmark_neighbors", num_landmark_neighbors)
        size = 4 + 2 * (landmarks or N) + 4 * (others or N - 1)
        sides = (seen(size), moves(truth("continuous_actions", continuous_actions)))
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
        """Put everything somewhere in the square, at rest."""
        scatter(s, 0, len(s.pos), 1.0)

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Move everybody, then share out how well the landmarks are covered."""
        agents = len(s.vel)
        press(s, rules, s.action)
        drift(s, rules)
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
        """Own velocity and position, landmarks and others as seen from there, and what the others say: nothing."""
        agents = len(s.vel)
        at = see_self(s, p, obs)
        if rules.landmarks > 0:
            at = see_nearest(s, p, agents, len(s.pos), rules.landmarks, obs, at)
        else:
            at = see_all(s, p, agents, len(s.pos), obs, at)
        if rules.others > 0:
            at = see_nearest(s, p, 0, agents, rules.others, obs, at)
        else:
            at = see_all(s, p, 0, agents, obs, at)
        obs[at:] = 0.0


@inner
def coverage(s: Any) -> Any:
    """Return whether every landmark is covered, and minus the distances to the agents nearest to them."""
    covered, shared = True, 0.0
    for landmark in range(len(s.vel), len(s.pos)):
        least = least_distance(s, landmark, 0, len(s.vel))
        shared -= least
        covered = covered and least < COVERED
    return covered, shared
