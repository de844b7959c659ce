"""SMAX's env steps as JaxMARL makes them: recorded in `battles.npz`, by `python -m tests.envs.native.battles`.

JaxMARL is installed by `make third-party` only. The file holds the state before each env step, its actions, what chance
gives in it, in the native game's order, and rewards, global state and an observation after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from marltrain.core.layout import Array
from marltrain.envs.native.vector import NativeVectorEnv

FILE = Path(__file__).with_suffix(".npz")
NAME, NATIVE = "jaxmarl/smax", "marltrain/smax_v2"
RECORDED: dict[str, dict[str, Any]] = {"heuristic": {}, "players": {"enemy": "players"}}
"""Arguments of the recorded env steps."""
NEAR = 1e-4
"""Distance from a threshold within which float32 may decide otherwise."""
STARTS, STEPS = 80, 2
MOST_OUTCOMES = 8
"""Most outcomes of chance in a recorded env step."""
WORLD_STEPS, SECONDS, SIDE, STOP = 8, 1 / 16, 32.0, 4
FIELDS = ("place", "kind", "health", "cooldown", "doing", "marked", "goal", "steps")
TOLERANCE = 1e-5


class Taken(NamedTuple):
    """An env step: rewards [P], whether the episode ended, the global state, and what each player sees and may do."""

    reward: Array
    ended: bool
    state: Array
    seen: list[Array]
    legal: list[Array]

    def differs_from(self, other: Taken) -> str:
        """Return what differs, "" if nothing does."""
        named = [("reward", self.reward, other.reward), ("state", self.state, other.state)]
        named += [(f"observation {p}", *both) for p, both in enumerate(zip(self.seen, other.seen, strict=True))]
        found = [name for name, one, two in named if not np.allclose(two, one, rtol=TOLERANCE, atol=TOLERANCE)]
        found += ["end"] if self.ended != other.ended else []
        masks = zip(self.legal, other.legal, strict=True)
        return ", ".join(found + [f"legal actions {p}" for p, (one, two) in enumerate(masks) if (one != two).any()])


def taken_in_game(vector: NativeVectorEnv, fields: Mapping[str, Any], outcomes: Any, actions: Any) -> Taken:
    """Make an env step of the native game from a state, in which all outcomes are used; actions: by player."""
    spec, present = vector.spec, np.ones(len(actions), int)
    vector.batch.set_state(0, {**fields, "present": present, "turn": present})
    vector.batch.set_chances(0, outcomes)
    sent = tuple(np.zeros_like(part) for part in vector.batch.actions)
    for p, (g, row) in enumerate(spec.place):
        sent[g][row, 0] = actions[p]
    step = vector.step(sent)
    ended = bool(step.ended[0])
    assert ended or vector.batch.chances_left(0) == 0
    obs, legal = (step.final_obs, step.final_legal) if ended else (step.obs, step.legal)
    state = step.final_state if ended else step.state
    return Taken(
        step.reward[:, 0].copy(), ended, state[0].copy(),  # type: ignore[index]
        [np.asarray(obs[g])[row, 0].copy() for g, row in spec.place],
        [legal[g][row, 0].copy() for g, row in spec.place],  # type: ignore[index]
    )  # fmt: skip


def taken_in_original(env: Any, actions: Any) -> Taken:
    """Make an env step of JaxMARL's; actions: by player."""
    names = env.possible_agents
    obs, reward, over, *_ = env.step(dict(zip(names, actions, strict=True)))
    return Taken(
        np.array([reward[name] for name in names]), all(over.values()), env.state(),
        [obs[name]["observation"] for name in names], [obs[name]["action_mask"] == 1 for name in names],
    )  # fmt: skip


def busy(env: Any, rng: np.random.Generator) -> list[int]:
    """Return random legal actions of all players, who rather attack."""
    masks = [seen["action_mask"].astype(float) for seen in env._observed().values()]
    for mask in masks:
        mask[STOP + 1 :] *= 5
    return [int(rng.choice(len(mask), p=mask / mask.sum())) for mask in masks]


class Drawn(NamedTuple):
    """What chance gave in an env step of JaxMARL's.

    outcomes: in the order in which the native game draws.
    margin: the smallest distance from a threshold: of a range or sight, of a cooldown, of the rim, of two directions.
    """

    outcomes: list[float]
    margin: float


def battle_of(state: Any) -> Any:
    """Return the state of the battle, without the heuristic's."""
    return getattr(state, "state", state)


def fields_of(env: Any) -> dict[str, Array]:
    """Return the fields of the native game with the values of JaxMARL's environment."""
    now, original = battle_of(env.now), env.original
    moves = np.asarray(now.prev_movement_actions).round().astype(int)
    doing = np.asarray(now.prev_attack_actions).astype(int)
    for action, (east, north) in enumerate([(0, 1), (1, 0), (0, -1), (-1, 0), (0, 0)]):
        doing[(doing == 0) & (moves == (east, north)).all(-1)] = STOP if action == STOP else -1 - action
    doing = np.where(doing < 0, -1 - doing, doing)
    start = SIDE - np.asarray(now.unit_positions, float)[original.num_allies :]
    own: Any = getattr(env.now, "enemy_policy_state", None)
    begun = own is not None and int(now.step) > 0
    return {
        "place": np.asarray(now.unit_positions, float), "kind": np.asarray(now.unit_types).astype(int),
        "health": np.asarray(now.unit_health, float), "cooldown": np.asarray(now.unit_weapon_cooldowns, float),
        "doing": doing,
        "marked": np.asarray(own.last_attacked_enemy) if begun else np.full(original.num_enemies, -1),
        "goal": np.asarray(own.default_target, float) if begun else start,
        "steps": np.array(int(now.step)),
    }  # fmt: skip


class Chance:
    """What chance gives in env steps of an environment of JaxMARL, computed from its random keys."""

    def __init__(self, env: Any) -> None:
        import jax

        self._original = env.original
        self._game = getattr(env.original, "_env", env.original)
        self._draws = jax.jit(self._drawn)

    def __call__(self, key: Any, before: Any, actions: Mapping[str, int]) -> Drawn:
        """Return what chance gave in the step with this key, from the state before it."""
        import jax

        after, given, seen, near = jax.tree.map(np.asarray, self._draws(key, before, dict(actions)))
        battle = jax.tree.map(np.asarray, battle_of(before))
        drawn, margins = (
            ([], [np.inf]) if before is battle_of(before) else self._by_heuristic(before, battle, seen, near)
        )
        states = [battle, *(jax.tree.map(lambda array, w=w: array[w], after) for w in range(WORLD_STEPS))]
        for one, other, values in zip(states, states[1:], given, strict=False):
            attacked = (other.unit_weapon_cooldowns > one.unit_weapon_cooldowns) & one.unit_alive
            drawn += values[attacked].tolist()
            margins.append(margin_in_world_step(self._game, one, other))
        return Drawn(drawn, float(min(*margins, margin_of_sight(self._game, states[-1]))))

    def _drawn(self, key: Any, before: Any, actions: Any) -> Any:
        """Return states after each world step, deviations of cooldowns, and units that enemies follow or attack [E]."""
        import jax

        game, battle = self._game, battle_of(before)
        follow, own = jax.random.split(key)
        after = self._original.step_env(key, before, actions, True)
        given = []
        for _ in range(WORLD_STEPS):
            follow, world = jax.random.split(follow)
            keys = jax.random.split(world, game.num_agents)
            given.append(jax.vmap(lambda one: jax.random.uniform(one, minval=-SECONDS, maxval=2 * SECONDS))(keys))
        pairs = jax.vmap(jax.random.split)(jax.random.split(own, game.num_enemies))
        place, kinds = battle.unit_positions, battle.unit_types[game.num_allies :]
        apart = place[: game.num_allies][::-1] - place[game.num_allies :, None]
        distance = jax.numpy.linalg.norm(apart, axis=-1)
        living = battle.unit_alive[: game.num_allies][::-1]
        chosen = []
        for table, which in ((game.unit_type_sight_ranges, 0), (game.unit_type_attack_ranges, 1)):
            mask = living & (distance < table[kinds][:, None])
            odds = mask / mask.sum(-1, keepdims=True)
            chosen.append(jax.vmap(lambda one, p: jax.random.choice(one, game.num_allies, p=p))(pairs[:, which], odds))
        return after, jax.numpy.stack(given), *chosen

    def _by_heuristic(self, before: Any, now: Any, follows: Array, attacks: Array) -> tuple[list[Any], list[Any]]:
        """Return the ranks of the units that the heuristic chose at random, and distances from other choices."""
        game = self._game
        outcomes: list[Any] = []
        margins: list[Any] = [np.inf]
        allies, place = game.num_allies, now.unit_positions
        living = now.unit_alive[:allies][::-1]
        marks, goals = (
            np.asarray(part)
            for part in (before.enemy_policy_state.last_attacked_enemy, before.enemy_policy_state.default_target)
        )
        for e in np.flatnonzero(now.unit_alive[allies:]):
            i = allies + e
            apart = (place[:allies] - place[i])[::-1]
            distance = np.linalg.norm(apart, axis=-1)
            sight, reach = (
                float(table[now.unit_types[i]]) for table in (game.unit_type_sight_ranges, game.unit_type_attack_ranges)
            )
            seen, near = living & (distance < sight), living & (distance < reach)
            margins += [*np.abs(distance - sight)[living], *np.abs(distance - reach)[living]]
            if near.any() and (marks[e] < 0 or not near[marks[e]]):
                if self._original.attack_mode == "random":
                    outcomes.append(int(near[: attacks[e]].sum()))
                elif near.sum() > 1:
                    margins.append(np.diff(np.sort(distance[near]))[0])
            if not (near.any() and self._original.enemy_shoots):
                way = (goals[e] if int(now.step) else SIDE - place[i]) - place[i]
                if seen.any():
                    outcomes.append(int(seen[: follows[e]].sum()))
                    way = apart[follows[e]]
                margins.append(abs(abs(way[0]) - abs(way[1])))
        return outcomes, margins


def margin_in_world_step(game: Any, one: Any, other: Any) -> float:
    """Return the distance from a threshold of attacks and of deaths at the rim; one: before it, other: after it."""
    margins: list[Any] = [np.inf]
    for i in np.flatnonzero(one.unit_alive):
        move, kind = other.prev_movement_actions[i], one.unit_types[i]
        moved = one.unit_positions[i] + move * float(game.unit_type_velocities[kind]) * SECONDS
        margins += [*np.abs(moved), *np.abs(moved - SIDE)]
        action = int(other.prev_attack_actions[i]) - STOP - 1
        if action >= 0:
            j = game.num_allies + action if i < game.num_allies else game.num_allies - 1 - action
            distance = np.linalg.norm(one.unit_positions[i] - one.unit_positions[j])
            margins.append(abs(distance - float(game.unit_type_attack_ranges[kind])))
            if one.unit_weapon_cooldowns[i] != 0:
                margins.append(abs(one.unit_weapon_cooldowns[i]))
    return float(min(margins))


def margin_of_sight(game: Any, now: Any) -> float:
    """Return the distance from a threshold of sights and ranges: of what is observed and legal."""
    living = np.flatnonzero(now.unit_alive)
    place, kinds = now.unit_positions[living], now.unit_types[living]
    distance = np.linalg.norm(place[:, None] - place, axis=-1) + np.where(np.eye(len(living)), np.inf, 0)
    tables = (np.asarray(game.unit_type_sight_ranges), np.asarray(game.unit_type_attack_ranges))
    return float(min(np.abs(distance - table[kinds][:, None]).min(initial=np.inf) for table in tables))


class Compared(NamedTuple):
    """An env step of JaxMARL's, with what the native game needs to make it, too."""

    fields: dict[str, Array]
    actions: list[int]
    drawn: Drawn
    taken: Taken


def steps_of(
    env: Any, chance: Chance, rng: np.random.Generator, starts: int, steps: int, *, shuffled: bool
) -> Iterator[Compared]:
    """Make env steps of JaxMARL's; steps: of each start at most.  shuffled: from random states."""
    for seed in range(starts):
        env.reset(seed=seed)
        if shuffled:
            shuffle(env, rng)
        for _ in range(steps):
            fields, before, actions = fields_of(env), env.now, busy(env, rng)
            taken = taken_in_original(env, actions)
            yield Compared(
                fields, actions, chance(env.key, before, dict(zip(env.possible_agents, actions, strict=True))), taken
            )
            if taken.ended:
                break


def shuffle(env: Any, rng: np.random.Generator) -> None:
    """Put units of random types, health and cooldown near each other; some are dead, and a team is nearly defeated."""
    import jax.numpy as jnp

    now = battle_of(env.now)
    units = len(now.unit_types)
    kinds = rng.integers(0, 6, units)
    health = rng.uniform(0, 1, units) * (rng.random(units) < 0.85) * np.asarray(env.original.unit_type_health)[kinds]
    weak = slice(None, 3) if rng.random() < 0.5 else slice(-3, None)
    health[weak] = rng.uniform(0, 9, 3) * [1, rng.integers(2), rng.integers(2)]
    near = SIDE - np.abs(SIDE - np.abs(rng.uniform(0, SIDE, 2) + rng.normal(0, 2, (units, 2)) * np.sqrt(units / 6)))
    mixed = now.replace(
        unit_types=jnp.asarray(kinds, jnp.uint8), unit_health=jnp.asarray(health, jnp.float32),
        unit_alive=jnp.asarray(health > 0), unit_positions=jnp.asarray(near, jnp.float32),
        unit_weapon_cooldowns=jnp.asarray(rng.uniform(-0.3, 0.5, units), jnp.float32),
        step=jnp.asarray(rng.choice([1, 50, 99, 100])),
    )  # fmt: skip
    if now is env.now:
        env.now = mixed
        return
    own = env.now.enemy_policy_state
    goals = jnp.asarray(rng.uniform(0, SIDE, own.default_target.shape), jnp.float32)
    marks = jnp.asarray(rng.integers(-1, env.original.num_allies, len(goals)), jnp.int32)
    env.now = env.now.replace(
        state=mixed, enemy_policy_state=own.replace(default_target=goals, last_attacked_enemy=marks)
    )


def record() -> None:
    """Play from random states, and write the file without the steps that are near a threshold."""
    from marltrain.envs.jaxmarl import jaxmarl_env

    kept: dict[str, Array] = {}
    for name, arguments in RECORDED.items():
        rng = np.random.default_rng(0)
        rows: list[dict[str, Any]] = []
        near = 0
        env = jaxmarl_env("smax", **arguments)
        for step in steps_of(env, Chance(env), rng, STARTS, STEPS, shuffled=True):
            near += step.drawn.margin <= NEAR
            if step.drawn.margin > NEAR:
                p = len(rows) % len(step.actions)
                outcomes = np.full(MOST_OUTCOMES, np.nan)
                outcomes[: len(step.drawn.outcomes)] = step.drawn.outcomes
                rows.append({
                    **step.fields, "action": step.actions, "outcomes": outcomes, "reward": step.taken.reward,
                    "ended": step.taken.ended, "state": step.taken.state, "seen": step.taken.seen[p],
                    "legal": step.taken.legal[p],
                })  # fmt: skip
        print(name, len(rows), "env steps; left out:", near)
        for field in rows[0]:
            values = np.array([row[field] for row in rows])
            kept[f"{name}/{field}"] = values.astype({"f": np.float32, "i": np.int8, "b": bool}[values.dtype.kind])
    np.savez_compressed(FILE, **kept)  # type: ignore[arg-type]


if __name__ == "__main__":
    record()
