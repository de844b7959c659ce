"""SMAX: recorded env steps of JaxMARL's, starts, rules by hand.

`tests/envs/test_jaxmarl.py` plays it beside JaxMARL's environment, where that is installed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from marltrain.core.errors import ConfigError
from marltrain.envs.native.combat.scenarios import SCENARIOS
from marltrain.envs.native.combat.smax import Smax
from marltrain.envs.native.vector import NativeVectorEnv
from tests.envs.native.battles import FIELDS, FILE, NATIVE, RECORDED, Taken, taken_in_game

STOP, ATTACK = 4, 5
MARINE, ZEALOT = 0, 3


def battle(**arguments: Any) -> NativeVectorEnv:
    """One environment at its start."""
    vector = NativeVectorEnv(NATIVE, 1, arguments, with_state=True)
    vector.reset(0)
    return vector


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_steps_of_jaxmarl(name):
    with np.load(FILE) as held:
        rows: dict[str, Any] = {key.split("/")[1]: held[key] for key in held.files if key.startswith(f"{name}/")}
    vector = battle(**RECORDED[name])
    assert len(rows["reward"]) >= 100 and rows["ended"].any() and (rows["reward"] > 1).any()
    for t, actions in enumerate(rows["action"]):
        outcomes, p = rows["outcomes"][t], t % len(actions)
        fields = {field: rows[field][t] for field in FIELDS}
        mine = taken_in_game(vector, fields, outcomes[~np.isnan(outcomes)], actions)
        theirs = Taken(rows["reward"][t], rows["ended"][t], rows["state"][t], [rows["seen"][t]], [rows["legal"][t]])
        assert theirs.differs_from(mine._replace(seen=[mine.seen[p]], legal=[mine.legal[p]])) == "", f"row {t}"


# Starts ---------------------------------------------------------------------------------------------------------------


def test_starts_are_reproducible_and_as_the_scenario_says():
    vector = NativeVectorEnv(NATIVE, 500)
    vector.reset(1)
    records = vector.batch.records
    place, middle = records["place"], np.array([[8, 16]] * 3 + [[24, 16]] * 3)
    assert (np.abs(place - middle) < 3).all() and np.allclose(place.mean(0), middle, atol=0.3)
    assert (records["health"] == 45).all() and (records["goal"] == 32 - place[:, 3:]).all()
    apart = np.linalg.norm(place[:, :, None] - place[:, None], axis=-1) + 9 * np.eye(6)
    assert np.sort(apart.reshape(500, -1).min(-1))[100] > 0.5  # of 0.75: units overlap a little after a push


def test_random_units_are_equal_in_both_teams_and_reflected_or_surrounded():
    vector = NativeVectorEnv(NATIVE, 1000, {"scenario": "smacv2_5_units"})
    vector.reset(0)
    records = vector.batch.records
    kinds, place = records["kind"], records["place"]
    assert (kinds[:, :5] == kinds[:, 5:]).all()
    assert np.allclose(np.bincount(kinds[:, :5].reshape(-1), minlength=6) / 5000, 1 / 6, atol=0.03)
    in_middle = (np.abs(place - 16) < 3.5).all(-1)
    inside = np.stack([in_middle[:, :5].all(-1), in_middle[:, 5:].all(-1)])
    assert np.allclose(inside.mean(-1), 0.25, atol=0.05)
    reflected = ~inside.any(0)
    assert (place[reflected, :5, 0] < 17).all() and (place[reflected, 5:, 0] > 15).all()


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios_declare_their_units(name):
    allies, enemies, _ = SCENARIOS[name]
    one, both = (Smax(scenario=name, enemy=enemy) for enemy in ("heuristic", "players"))
    units = len(allies + enemies)
    assert (len(one.players), len(both.players)) == (len(allies), units)
    choices: list[Any] = [player.action_space for player in both.players]
    assert [space.n for space in choices] == [5 + len(enemies)] * len(allies) + [5 + len(allies)] * len(enemies)
    assert one.players[0].layout.vector_size == 13 * (units - 1) + 10
    assert one.state_size == 12 * units


# Rules by hand --------------------------------------------------------------------------------------------------------

FAR = [[4, 4], [4, 8], [4, 12], [28, 4], [28, 8], [28, 12]]
"""Places at which no unit sees one of the other team."""


def stepped(
    actions: list[int], outcomes: Any = (), arguments: Any = None, **fields: Any
) -> tuple[Taken, dict[str, Any]]:
    """Make an env step of 3m; return what is seen, and the fields after it."""
    vector = battle(**(arguments or {}))
    state = vector.batch.get_state(0)
    given = {"place": FAR, "goal": [[0, 4], [0, 8], [0, 12]], **fields}
    taken = taken_in_game(
        vector, {name: np.asarray(given.get(name, state[name])) for name in FIELDS}, outcomes, actions
    )
    return taken, vector.batch.get_state(0)


def test_units_move_by_their_speed_and_enemies_cross_the_map():
    _, after = stepped([0, 1, 2], kind=[ZEALOT, MARINE, 2, MARINE, MARINE, MARINE])
    moved = after["place"] - FAR
    assert np.allclose(moved[:3], [[0, 3.15 / 2], [3.15 / 2, 0], [0, -4.13 / 2]])
    assert np.allclose(moved[3:], [[-3.15 / 2, 0]] * 3)


def test_a_unit_dies_at_the_rim():
    place = [[1, 4], *FAR[1:]]
    taken, after = stepped([3, STOP, STOP], place=place)
    assert after["health"][0] == 0 and not taken.seen[0].any() and taken.reward.tolist() == [0, 0, 0]
    assert taken.legal[0].tolist() == [False] * 4 + [True] + [False] * 3
    _, after = stepped([3, STOP, STOP], place=place, arguments={"walls_cause_death": False})
    assert (after["health"][0], after["place"][0, 0]) == (45, 0)


def test_attacks_hit_at_once_and_wait_for_the_cooldown():
    """Both in range: each hits once; a second attack is 0.61 s later, after the env step."""
    place = [[10, 10], *FAR[1:3], [14, 10], *FAR[4:]]
    taken, after = stepped([ATTACK, STOP, STOP], [0.0, 0.0], place=place)
    assert after["health"].tolist() == [36, 45, 45, 36, 45, 45]
    assert np.allclose(after["cooldown"][[0, 3]], 0.61 - 7 / 16)
    assert np.allclose(taken.reward, 9 / 45 / 3)
    _, after = stepped(
        [ATTACK, STOP, STOP], [0.0], place=place, health=[9, 45, 45, 9, 45, 45], cooldown=[0.1, 0, 0, 0, 0, 0]
    )
    assert after["health"][[0, 3]].tolist() == [0, 9]  # it was dead before it was ready


def test_cooldowns_deviate_as_in_the_original():
    vector = NativeVectorEnv(NATIVE, 500)
    vector.reset(0)
    vector.batch.records["place"][:] = [[10, 10], *FAR[1:3], [14, 10], *FAR[4:]]
    vector.step((np.full((3, 500), STOP),))
    deviations = vector.batch.records["cooldown"][:, 3] - (0.61 - 7 / 16)
    assert np.allclose([deviations.min(), deviations.mean(), deviations.max()], [-1 / 16, 1 / 32, 2 / 16], atol=0.01)


@pytest.mark.parametrize(
    ("health", "reward"),
    [([45, 0, 0, 9, 0, 0], 9 / 45 / 3 + 1), ([9, 0, 0, 9, 0, 0], 9 / 45 / 3), ([9, 0, 0, 10, 0, 0], 9 / 45 / 3)],
)
def test_victory_draw_and_defeat(health, reward):
    taken, _ = stepped([ATTACK, STOP, STOP], [0.0, 0.0], place=[[10, 10], *FAR[1:3], [14, 10], *FAR[4:]], health=health)
    assert taken.ended and np.allclose(taken.reward, reward)


def test_the_heuristic_follows_who_it_sees_and_marks_the_nearest():
    place = [[10, 10], [10, 11], [4, 12], [10, 18], [14.5, 10], [28, 12]]
    _, after = stepped([STOP] * 3, [1.0, 0.0], place=place, cooldown=[0, 0, 0, 0, 0, 0])
    assert after["doing"][3:].tolist() == [2, ATTACK + 2, 3]  # it counts allies from the last
    assert after["marked"].tolist() == [-1, 2, -1]
    _, after = stepped([STOP] * 3, [1.0, 0.0], place=place, marked=[-1, 1, -1])
    assert after["doing"][4] == ATTACK + 1


def test_an_episode_ends_a_step_after_the_limit_as_in_the_original():
    ended = [stepped([STOP] * 3, steps=steps, arguments={"max_steps": 30})[0].ended for steps in (29, 30)]
    assert ended == [False, True]


def test_victories_are_recorded():
    vector = NativeVectorEnv(NATIVE, 1, {}, record=["won"])
    vector.reset(0)
    health = [45, 0, 0, 9, 0, 0]
    vector.batch.set_state(0, {"place": [[10, 10], *FAR[1:3], [14, 10], *FAR[4:]], "health": health})
    vector.step((np.array([[ATTACK], [STOP], [STOP]]),))
    assert vector.batch.recorded == [(0, {"won": 1})]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"scenario": "3s5z_vs_3s6"}, r"scenario must be one of 3m, .* Did you mean '3s5z_vs_3s6z'\?"),
        ({"scenario": 3}, "scenario must be one of .*, got 3"),
        ({"enemy": "random"}, "enemy must be one of heuristic, players, got 'random'"),
        ({"attack_mode": "nearest"}, "attack_mode must be one of closest, random, got 'nearest'"),
        ({"enemy_shoots": 1}, "enemy_shoots must be True or False, got 1"),
        ({"max_steps": 0}, "max_steps must be a whole number of at least 1"),
        ({"won_battle_bonus": "1"}, "won_battle_bonus must be a number"),
    ],
)
def test_what_cannot_be_is_said(arguments, said):
    with pytest.raises(ConfigError, match=said):
        Smax(**arguments)
