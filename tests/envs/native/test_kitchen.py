"""Overcooked: recorded env steps of JaxMARL's, rules by hand, shaped rewards, layouts.

`tests/envs/test_jaxmarl.py` plays it beside JaxMARL's environment, where that is installed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.envs import make_vector
from marltrain.envs.native import parallel_env
from marltrain.envs.native.kitchen.layouts import LAYOUTS, kitchen_of
from marltrain.envs.native.vector import NativeVectorEnv
from marltrain.trainer.saving.checkpoint import Checkpoint
from tests.envs.driving import act
from tests.envs.native.kitchens import FILE, MAX_STEPS, checksum
from tests.tiers import rounds
from tests.trainer.running import tables, weights

NAME = "marltrain/overcooked_v1"
ACTIONS = "udrl.i"
UP, DOWN, RIGHT, LEFT = range(4)
ONION, PLATE, SOUP = 1, 2, 3


def kitchen(**arguments: Any) -> NativeVectorEnv:
    """One environment at its start."""
    vector = NativeVectorEnv(NAME, 1, arguments)
    vector.reset(0)
    return vector


def stepped(vector: NativeVectorEnv, actions: str, **fields: Any) -> tuple[list[float], dict[str, Any]]:
    """Set fields, make an env step, and return rewards and fields; actions: a letter for each cook."""
    vector.batch.set_state(0, fields)
    first, second = (ACTIONS.index(letter) for letter in actions)
    step = vector.step(act(vector.spec, 1, agent_0=first, agent_1=second))
    return step.reward[:, 0].tolist(), vector.batch.get_state(0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_recorded_steps_of_jaxmarl(layout):
    with np.load(FILE) as held:
        rows: dict[str, Any] = {name.split("/")[1]: held[name] for name in held.files if name.startswith(f"{layout}/")}
    vector = kitchen(layout=layout, max_steps=MAX_STEPS, shaping=1.0)
    names = ("place", "heading", "held", "thing", "pot", "steps")
    assert len(rows["reward"]) >= 400 and rows["reward"].any()
    for t in range(0, len(rows["action"]), rounds(3, 1)):
        action, where = rows["action"][t], f"{layout}, row {t}"
        given, after = stepped(vector, "".join(ACTIONS[a] for a in action), **{name: rows[name][t] for name in names})
        assert given == (rows["reward"][t] + rows["shaped"][t]).tolist(), where
        obs = np.asarray(vector._step.obs[0])
        assert [checksum(obs[p, 0]) for p in range(2)] == rows["seen"][t].tolist(), where
        if t + 1 < len(rows["action"]) and rows["steps"][t + 1] == rows["steps"][t] + 1:
            assert all((after[name] == rows[name][t + 1]).all() for name in names), where


# cramped_room, rows from the top:  W W P W W / O . . . O / W . . . W / W B W X W

APART = {"place": [[1, 1], [1, 3]], "heading": [UP, UP]}


@pytest.mark.parametrize(
    ("place", "actions", "after", "heading"),
    [
        ([[1, 1], [1, 3]], "rl", [[1, 1], [1, 3]], [RIGHT, LEFT]),  # both want the middle
        ([[1, 1], [1, 2]], "rl", [[1, 1], [1, 2]], [RIGHT, LEFT]),  # they would swap places
        ([[1, 1], [1, 2]], "r.", [[1, 1], [1, 2]], [RIGHT, UP]),  # the other one stays
        ([[1, 1], [1, 2]], "rr", [[1, 2], [1, 3]], [RIGHT, RIGHT]),  # it follows
        ([[1, 1], [2, 3]], "uu", [[1, 1], [1, 3]], [UP, UP]),  # a counter
        ([[1, 1], [2, 3]], "dl", [[2, 1], [2, 2]], [DOWN, LEFT]),
        ([[1, 1], [2, 3]], "i.", [[1, 1], [2, 3]], [UP, UP]),
    ],
)
def test_moves_by_hand(place, actions, after, heading):
    _, found = stepped(kitchen(), actions, place=place, heading=[UP, UP])
    assert (found["place"].tolist(), found["heading"].tolist()) == (after, heading)


def put(where, value, shape=(4, 5)):
    grid = np.zeros(shape, int)
    grid[where] = value
    return grid


@pytest.mark.parametrize(
    ("place", "heading", "held", "pot", "thing", "after", "rewards"),
    [
        ((1, 1), LEFT, 0, 23, 0, (ONION, 23, 0), (0, 0)),  # from the pile
        ((1, 1), LEFT, PLATE, 23, 0, (PLATE, 23, 0), (0, 0)),  # hands are full
        ((1, 2), UP, ONION, 23, 0, (0, 22, 0), (3, 0)),
        ((1, 2), UP, ONION, 21, 0, (0, 19, 0), (3, 0)),  # the third onion: it cooks at once
        ((1, 2), UP, ONION, 20, 0, (ONION, 19, 0), (0, 0)),
        ((1, 2), UP, PLATE, 1, 0, (PLATE, 0, 0), (0, 0)),  # not ready before this step
        ((1, 2), UP, PLATE, 0, 0, (SOUP, 23, 0), (5, 0)),
        ((1, 2), UP, 0, 0, 0, (0, 0, 0), (0, 0)),
        ((2, 3), DOWN, SOUP, 23, 0, (0, 23, 0), (20, 20)),  # a delivery
        ((2, 3), DOWN, PLATE, 23, 0, (PLATE, 23, 0), (0, 0)),
        ((2, 1), DOWN, 0, 23, 0, (PLATE, 23, 0), (0, 0)),  # no pot needs a plate
        ((2, 1), DOWN, 0, 22, 0, (PLATE, 22, 0), (3, 0)),
        ((2, 1), DOWN, 0, 22, PLATE, (PLATE, 22, PLATE), (0, 0)),  # a plate lies on the counter
        ((1, 1), UP, ONION, 23, 0, (0, 23, ONION), (0, 0)),  # onto the counter
        ((1, 1), UP, ONION, 23, PLATE, (ONION, 23, PLATE), (0, 0)),  # it is taken
        ((1, 1), UP, 0, 22, PLATE, (PLATE, 22, 0), (0, 0)),  # from the counter: without a reward
        ((2, 2), RIGHT, ONION, 23, 0, (ONION, 23, 0), (0, 0)),  # the floor
    ],
)
def test_interactions_by_hand(place, heading, held, pot, thing, after, rewards):
    """Of the first cook, with shaped rewards; `thing` lies on the counter at row 0, column 1."""
    given, found = stepped(
        kitchen(shaping=1.0), "i.", place=[place, [1, 3]], heading=[heading, UP], held=[held, 0],
        pot=put((0, 2), pot), thing=put((0, 1), thing),
    )  # fmt: skip
    assert (found["held"][0], found["pot"][0, 2], found["thing"][0, 1]) == after
    assert tuple(given) == rewards
    assert found["soups"] == (rewards[1] == 20)


def test_the_first_cook_interacts_first():
    """Both face the ready soup with a plate; both want the plates of a pot that needs one."""
    arguments = {"layout": "WWPWW\nB1P2B\nWOWXW", "shaping": 1.0}
    places = {"held": [PLATE, PLATE], "heading": [RIGHT, LEFT]}
    given, found = stepped(kitchen(**arguments), "ii", **places, pot=put((0, 2), 23, (3, 5)))  # the other pot is ready
    assert (found["held"].tolist(), given) == ([SOUP, PLATE], [5, 0])
    pots = put((0, 2), 23, (3, 5)) + put((1, 2), 22, (3, 5))
    given, found = stepped(kitchen(**arguments), "ii", heading=[LEFT, RIGHT], pot=pots)
    assert (found["held"].tolist(), given) == ([PLATE, PLATE], [3, 0])


def test_a_soup_cooks_for_twenty_steps():
    vector = kitchen()
    _, found = stepped(vector, "i.", place=[[1, 2], [1, 3]], heading=[UP, UP], held=[ONION, 0], pot=put((0, 2), 21))
    times = [int(found["pot"][0, 2])]
    for _ in range(20):
        _, found = stepped(vector, "..")
        times.append(int(found["pot"][0, 2]))
    assert times == [*range(19, -1, -1), 0]


# Shaped rewards -------------------------------------------------------------------------------------------------------

FILLING = {"place": [[1, 2], [1, 3]], "heading": [UP, UP], "held": [ONION, 0], "pot": put((0, 2), 23)}


def test_the_factor_falls_linearly_over_the_env_steps_of_the_environment():
    vector = kitchen(shaping=2.0, shaping_steps=4, max_steps=3)
    assert [stepped(vector, "i.", **FILLING)[0][0] for _ in range(6)] == [6.0, 4.5, 3.0, 1.5, 0.0, 0.0]
    assert [stepped(kitchen(shaping=0.5), "i.", **FILLING)[0] for _ in range(2)] == [[1.5, 0]] * 2
    assert stepped(kitchen(), "i.", **FILLING)[0] == [0, 0]


def test_tests_and_objects_have_the_games_own_rewards():
    vector = NativeVectorEnv(NAME, 1, {"shaping": 1.0}, role="test")
    vector.reset(0)
    assert stepped(vector, "i.", **FILLING)[0] == [0, 0]
    env = parallel_env("overcooked_v1", shaping=1.0)
    env.reset(seed=0)
    env.set_state(FILLING)
    assert env.step({"agent_0": 5, "agent_1": 4})[1] == {"agent_0": 0, "agent_1": 0}


def test_a_restored_environment_goes_on_with_the_factor():
    first, second = (kitchen(shaping=2.0, shaping_steps=4) for _ in range(2))
    for _ in range(2):
        stepped(first, "i.", **FILLING)
    second.restore(first.state())
    assert stepped(second, "i.", **FILLING)[0][0] == 3.0


class Looks(mt.Callback):
    """Overrides `on_step`, so that batch steps are made one at a time."""

    def on_step(self, moment: mt.Moment) -> None:
        """Do nothing."""


def test_training_with_a_factor_is_the_same_fused_in_single_steps_and_resumed(tmp_path):
    """Ends of all episodes, weights and tables are equal; shaped rewards are earned, and less later."""
    arguments = {"shaping": 1.0, "shaping_steps": 100, "max_steps": 20, "random_reset": True}

    def ran(folder: str, steps: int, *callbacks: mt.Callback, **more: Any) -> tuple[Any, Any]:
        agents = mt.make_agents("ppo", NAME, env_args=arguments, seed=0, network=mt.MLP((4,)), epochs=1, minibatches=1)
        trainer = mt.DecentralizedTrainer(
            NAME, arguments, num_train_envs=4, num_test_envs=2, episodes_per_test=2, update_freq=160, seed=0,
            test_freq=None, test_freq_steps=400, steps_per_train=steps, progress=False, callbacks=callbacks,
            record=["soups"], run_dir=None if more else tmp_path / folder,
        )  # fmt: skip
        return trainer.train([*agents], plot=False, **more), agents

    fused, agents = ran("fused", 800)
    single, others = ran("single", 800, Looks())
    ran("half", 400, Checkpoint(every_steps=400))
    resumed, again = ran("half", 800, Checkpoint(every_steps=400), resume=tmp_path / "half")
    assert tables(fused) == tables(single) == tables(resumed)
    for one, two, three in zip(weights(agents), weights(others), weights(again), strict=True):
        assert all((one[name] == two[name]).all() and (one[name] == three[name]).all() for name in one)
    episodes = fused["episodes"]
    shaped = (episodes["return/agent_0"] + episodes["return/agent_1"] - 40 * episodes["record/soups"]).to_numpy()
    assert shaped[:20].sum() > 0 and (shaped[-20:] == 0).all()


# Layouts --------------------------------------------------------------------------------------------------------------


def test_a_drawing_is_a_layout():
    drawn = kitchen_of("\nWWPWW\nO1.2O\nW...W\nWBWXW\n")
    named = kitchen_of("cramped_room")
    assert (drawn.kinds == named.kinds).all() and (drawn.starts == named.starts).all()
    assert kitchen_of("WPWW\nOAAX\nWBWW").starts.tolist() == [[1, 1], [1, 2]]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"layout": "cramped_rom"}, r"layout must be one of cramped_room, .* Did you mean 'cramped_room'\?"),
        ({"layout": 3}, "layout must be a name or a text with a line for each row, got 3"),
        ({"layout": "WPW\nO12X\nWBWW"}, "rows of equal length"),
        ({"layout": "WPWW\nO?AX\nWBWW"}, "rows of equal length of W, P, O, B, X, 1, 2 and spaces"),
        ({"layout": "WPWW\nO1.X\nWBWW"}, "must have 2 players"),
        ({"layout": "WP.W\nO12X\nWBWW"}, "no floor at its rim"),
        ({"layout": "WPWW\nO12W\nWBWW"}, "layout must have X too"),
        ({"shaping": -1.0}, "shaping must be a number from 0.0"),
        ({"shaping_steps": 0}, "shaping_steps must be a whole number of at least 1"),
        ({"random_reset": 1}, "random_reset must be True or False, got 1"),
    ],
)
def test_what_cannot_be_is_said(arguments, said):
    with pytest.raises(ConfigError, match=said):
        make_vector(NAME, arguments, 1)
