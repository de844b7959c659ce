"""World: tag with food, forests that hide agents, and an adversaries' leader that sees all agents and sends messages.

The rules are those of MPE2's simple_world_comm_v3.
"""

from __future__ import annotations

from typing import Any

from marltrain.envs.native.arguments import truth, whole
from marltrain.envs.native.game import Game
from marltrain.envs.native.particle.chase import REACH, catchers, chase_rules, straying
from marltrain.envs.native.particle.world import (
    least_distance,
    move_agents,
    move_space,
    observation_space,
    place_at_random,
    read_message,
    see_all,
    see_self,
    set_forces,
    touching,
    world_fields,
    write_values,
)
from marltrain.jit.compiling import inner

LEADER, WORDS = 0, 4
CAUGHT, FED = 5.0, 2.0


class SimpleWorldComm(Game):
    """Adversaries are rewarded for touches, good agents for food; the distance to the targets is a penalty for both."""

    name = "simple_world_comm_v3"

    def __init__(
        self,
        num_good: int = 2,
        num_adversaries: int = 4,
        num_obstacles: int = 1,
        num_food: int = 2,
        max_cycles: int = 25,
        num_forests: int = 2,
        continuous_actions: bool = False,
    ) -> None:
        """Declare the game with the original's arguments, except those for rendering and infos.

        Without adversaries, the first good agent is the leader.
        """
        whole("num_good", num_good)
        agents = num_good + whole("num_adversaries", num_adversaries, 0)
        landmarks = whole("num_obstacles", num_obstacles, 0) + whole("num_food", num_food)
        landmarks += whole("num_forests", num_forests, 0)
        side, leaders = max(num_adversaries, 1), int(num_adversaries == 0)
        base = 4 + 2 * landmarks + 2 * (agents - 1) + num_forests
        heard = base + 2 * (num_good - leaders) + WORDS
        unheard = base + 2 * (num_good - 1)
        sizes = [heard] * side + [unheard] * (agents - side)
        names = ["leadadversary_0", *(f"adversary_{i}" for i in range(side - 1)),
                 *(f"agent_{i}" for i in range(leaders, num_good))]  # fmt: skip
        continuous = truth("continuous_actions", continuous_actions)
        action_spaces = [move_space(continuous, WORDS), *[move_space(continuous)] * (agents - 1)]
        others = [0.03] * num_food + [0.3] * num_forests
        super().__init__(
            {
                name: (observation_space(size), space)
                for name, size, space in zip(names, sizes, action_spaces, strict=True)
            },
            fields={**world_fields(agents, landmarks), "said": (float, WORDS)},
            rules={
                **chase_rules(num_adversaries, num_good, 0.045, num_obstacles, others),
                "food": agents + num_obstacles,
                "forest": agents + num_obstacles + num_food,
            },
            limit=whole("max_cycles", max_cycles),
            state_size=sum(sizes),
        )

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Place all entities at random in the square, at rest; landmarks keep a distance from the edges."""
        place_at_random(s, 0, len(s.vel), 1.0)
        place_at_random(s, len(s.vel), len(s.pos), REACH)
        s.said[:] = 0.0

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Move all agents, read the leader's message, and compute the rewards from touches and distances."""
        agents, adversaries = len(s.vel), rules.adversaries
        set_forces(s, rules, s.action)
        move_agents(s, rules)
        read_message(s.said, s.action, LEADER, True)
        touches = 0
        for a in range(adversaries, agents):
            caught = catchers(s, rules, a)
            s.reward[a] = -CAUGHT * caught - 2 * straying(s, a) + feeding(s, rules, a)
            touches += caught
        for a in range(adversaries):
            s.reward[a] = CAUGHT * touches - 0.1 * least_distance(s, a, adversaries, agents)

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write own velocity and position, relative positions of landmarks and others, and good agents' velocities.

        Also the forests that contain the agent (1 or -1) and, for adversaries, the leader's message. Agents hidden by a
        forest are zeros.
        """
        agents = len(s.vel)
        at = see_self(s, p, obs)
        at = see_all(s, p, agents, len(s.pos), obs, at)
        if p < max(rules.adversaries, 1):
            at = see_others(s, rules, p, obs, at, at + 2 * (agents - 1))
            write_values(s.said, obs, feel_forests(s, rules, p, obs, at))
        else:
            after = feel_forests(s, rules, p, obs, at + 2 * (agents - 1))
            see_others(s, rules, p, obs, at, after)


@inner
def feeding(s: Any, rules: Any, a: int) -> float:
    """Return agent `a`'s reward for touching food, minus its penalty for the distance to the nearest food."""
    gained = 0.0
    for food in range(rules.food, rules.forest):
        gained += FED * touching(s, rules, a, food)
    return gained - 0.05 * least_distance(s, a, rules.food, rules.forest)


@inner
def feel_forests(s: Any, rules: Any, a: int, obs: Any, at: int) -> int:
    """Write for each forest whether agent `a` is inside (1 or -1); return the next index."""
    for forest in range(rules.forest, len(s.pos)):
        obs[at] = 1.0 if touching(s, rules, a, forest) else -1.0
        at += 1
    return at


@inner
def see_others(s: Any, rules: Any, a: int, obs: Any, places: int, speeds: int) -> int:
    """Write others' relative positions from `places` on and good agents' velocities from `speeds` on.

    Returns the index after the velocities.
    """
    for other in range(len(s.vel)):
        if other == a:
            continue
        shown = visible(s, rules, a, other)
        for axis in range(2):
            obs[places + axis] = s.pos[other, axis] - s.pos[a, axis] if shown else 0.0
        places += 2
        if other >= rules.adversaries:
            for axis in range(2):
                obs[speeds + axis] = s.vel[other, axis] if shown else 0.0
            speeds += 2
    return speeds


@inner
def visible(s: Any, rules: Any, a: int, other: int) -> bool:
    """Return whether agent `a` sees another: both are in one forest, or neither is in any; the leader sees all."""
    inside = False
    for forest in range(rules.forest, len(s.pos)):
        here, there = touching(s, rules, a, forest), touching(s, rules, other, forest)
        if here and there:
            return True
        inside = inside or here or there
    return a == LEADER or not inside
