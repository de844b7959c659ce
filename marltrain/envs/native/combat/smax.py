"""SMAX, with the rules of JaxMARL 0.2.0 (Rutherford et al. 2023): combat after SMAC (Samvelyan et al. 2019)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from marltrain.core.errors import ConfigError, shown
from marltrain.envs.native.arguments import number, truth, whole
from marltrain.envs.native.combat.battle import fight, living, push_away, strength
from marltrain.envs.native.combat.heuristic import command
from marltrain.envs.native.combat.scenarios import scenario_of
from marltrain.envs.native.combat.starts import GROUPS, oppose, scatter
from marltrain.envs.native.combat.text import battle_text
from marltrain.envs.native.combat.units import ATTACK, HEALTH, NONE, SIDE, STOP, TYPES, WORLD_STEPS
from marltrain.envs.native.combat.views import IN_STATE, allow, see, see_all, view_size
from marltrain.envs.native.game import TERMINATED, Game
from marltrain.jit.compiling import inner

ENEMIES = ("heuristic", "players")
MODES = ("closest", "random")


class Smax(Game):
    """A team of units fights another team, which a heuristic plays, or players do.

    Actions: up (0), right, down, left, stop (4), and attacks of the units of the other team, from 5 on: of allies in
    the order of the enemies, of enemies from the last ally to the first. A unit that is out of range or not ready is
    not attacked, without a move instead. An env step is 8 world steps of 1/16 s with the same actions.

    The reward of all units of a team is the mean share of health that the other team lost, plus 1 for a victory. Dead
    units stay in the episode: they observe zeros, may only stop, and earn their team's rewards. An episode ends with a
    team's last unit, or after `max_steps + 1` env steps, as in the original by a termination.

    won: the field that holds whether the allies won; `record=["won"]` reports it. With the heuristic enemy, an
    episode's return is 2 for a victory, and at most 1 otherwise.
    """

    name = "smax_v2"

    def __init__(
        self,
        scenario: str = "3m",
        enemy: str = "heuristic",
        enemy_shoots: bool = True,
        attack_mode: str = "closest",
        see_enemy_actions: bool = True,
        walls_cause_death: bool = True,
        use_self_play_reward: bool = False,
        won_battle_bonus: float = 1.0,
        max_steps: int = 100,
    ) -> None:
        """Declare the game with the original's arguments; `scenario` is its name, such as "2s3z".

        enemy: "heuristic", or "players": the enemies are players too, after the allies.
        enemy_shoots, attack_mode: whether the heuristic attacks, and which unit: the "closest", or a "random" one.
        see_enemy_actions: observations hold the last actions of the other team's units, too.
        walls_cause_death: a unit at the rim of the map dies.
        use_self_play_reward: rewards are only of victory and defeat, `won_battle_bonus` and its negative.

        Observations are the original's lists of units; the global state is its `world_state`. Raises ConfigError.
        """
        units = scenario_of(scenario)
        allies, enemies = len(units.allies), len(units.enemies)
        count = allies + enemies
        chosen, mode = one_of("enemy", enemy, ENEMIES), one_of("attack_mode", attack_mode, MODES)
        names = [f"ally_{i}" for i in range(allies)]
        if chosen == ENEMIES.index("players"):
            names += [f"enemy_{i}" for i in range(enemies)]
        foes = [enemies] * allies + [allies] * enemies
        self.actions = ("up", "right", "down", "left", "stop", *(f"attack_{k}" for k in range(max(foes[: len(names)]))))
        super().__init__(
            {name: _sides(count, ATTACK + foes[i]) for i, name in enumerate(names)},
            fields={
                "place": (float, (count, 2)), "kind": (int, count, (0, len(TYPES) - 1)),
                "health": (float, count, (0, HEALTH.max())), "cooldown": (float, count),
                "doing": (int, count, (0, [STOP + most for most in foes])),
                "marked": (int, enemies, (NONE, allies - 1)), "goal": (float, (enemies, 2)), "won": bool,
                "hits": (float, count), "push": (float, (count, 2)), "way": (float, GROUPS),
            },
            rules={
                "allies": allies, "kinds": units.kinds, "random": units.random, "heuristic": len(names) == allies,
                "shoots": truth("enemy_shoots", enemy_shoots), "picks_randomly": mode == MODES.index("random"),
                "sees_actions": truth("see_enemy_actions", see_enemy_actions),
                "walls": truth("walls_cause_death", walls_cause_death),
                "only_outcome": truth("use_self_play_reward", use_self_play_reward),
                "bonus": number("won_battle_bonus", won_battle_bonus), "steps": whole("max_steps", max_steps),
            },
            state_size=IN_STATE * count,
        )  # fmt: skip

    def text(self, state: Mapping[str, Any], viewers: Collection[int] | None) -> str:
        """Return the whole battle, also what is out of the viewers' sight; see `battle_text`."""
        text = battle_text(state, int(self.rules["allies"][0]))
        return f"{text}\nA>b: A attacks b; step {int(state['steps'])} of {int(self.rules['steps'][0])}"

    @staticmethod
    def reset(s: Any, rules: Any) -> None:
        """Put the units to their places, with full health."""
        if rules.random:
            scatter(s, rules)
        else:
            oppose(s, rules)
        for i in range(len(s.kind)):
            s.health[i] = HEALTH[s.kind[i]]
            s.cooldown[i] = 0.0
            s.doing[i] = STOP
        push_away(s)
        for e in range(len(s.goal)):
            s.marked[e] = NONE
            s.goal[e, 0], s.goal[e, 1] = SIDE - s.place[rules.allies + e, 0], SIDE - s.place[rules.allies + e, 1]
        s.won = 0

    @staticmethod
    def step(s: Any, rules: Any) -> None:
        """Take the actions, fight, and reward both teams."""
        allies, units = rules.allies, len(s.health)
        for p in range(len(s.action)):
            s.doing[p] = s.action[p]
        if rules.heuristic:
            command(s, rules)
        ally_health, enemy_health = strength(s, 0, allies), strength(s, allies, units)
        for _ in range(WORLD_STEPS):
            fight(s, rules)
        lost, won = living(s, 0, allies) == 0, living(s, allies, units) == 0
        s.won = won and not lost
        gain = reward(rules, enemy_health - strength(s, allies, units), won, lost)
        enemy_gain = reward(rules, ally_health - strength(s, 0, allies), lost, won)
        for p in range(len(s.action)):
            s.reward[p] = gain if p < allies else enemy_gain
        if won or lost or s.steps > rules.steps:  # as the original, one step late
            s.over[:] = TERMINATED

    @staticmethod
    def observe(s: Any, rules: Any, p: int, obs: Any) -> None:
        """Write the units that unit p sees, then the unit itself."""
        see(s, rules, p, obs)

    @staticmethod
    def legal(s: Any, rules: Any, p: int, mask: Any) -> None:
        """Write the legal actions of unit p."""
        allow(s, rules, p, mask)

    @staticmethod
    def state(s: Any, rules: Any, out: Any) -> None:
        """Write all units."""
        see_all(s, rules, out)


@inner
def reward(rules: Any, damage: float, won: bool, lost: bool) -> float:
    """Return a team's reward; damage: the mean share of health that the other team lost. A draw is not a victory."""
    gain = 0.0 if rules.only_outcome else damage
    if won and not lost:
        return gain + rules.bonus
    if lost and not won and rules.only_outcome:
        return gain - rules.bonus
    return gain


def one_of(name: str, given: Any, known: tuple[str, ...]) -> int:
    """Return the index of a word among the known ones; raises ConfigError."""
    if given not in known:
        raise ConfigError(f"{name} must be one of {', '.join(known)}, got {shown(given)}")
    return known.index(given)


def _sides(units: int, actions: int) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    seen = spaces.Box(-np.inf, np.inf, (view_size(units),), np.float32)
    mask = spaces.Box(0, 1, (actions,), np.int8)
    return spaces.Dict({"observation": seen, "action_mask": mask}), spaces.Discrete(actions)
