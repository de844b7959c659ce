"""JaxMARL's environments: the errors without JaxMARL; in the long tier, Overcooked and SMAX beside the native games."""

import sys

import numpy as np
import pytest

from marltrain.core.errors import ConfigError
from marltrain.envs import DummyVectorEnv, list_environments, resolve
from marltrain.envs.native.kitchen.layouts import LAYOUTS
from marltrain.envs.native.vector import NativeVectorEnv
from tests.envs.native import battles
from tests.envs.native.kitchens import Busy, fields_of
from tests.envs.native.originals import assert_same_spec, assert_same_starts, hold
from tests.tiers import LONG

NAME, NATIVE = "jaxmarl/overcooked", "marltrain/overcooked_v1"


def test_without_jaxmarl_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jaxmarl", None)
    assert not {NAME, battles.NAME} & {*list_environments()}
    with pytest.raises(ConfigError, match=r"needs jaxmarl, which is not installed: pip install jaxmarl.*overcooked_v1"):
        resolve(NAME)
    with pytest.raises(ConfigError, match=r"needs jaxmarl, which is not installed: pip install jaxmarl.*smax_v2"):
        resolve(battles.NAME)


if LONG:  # JaxMARL is installed by `make third-party`

    @pytest.mark.filterwarnings("ignore:OvercookedV2:DeprecationWarning")
    @pytest.mark.parametrize("layout", LAYOUTS)
    def test_overcooked(layout):
        """From random states, and from the start; with shaped rewards."""
        players = Busy()
        arguments = {"layout": layout, "shaping": 0.5, "max_steps": 70, "random_reset": True}
        hold(NAME, NATIVE, fields_of, arguments, episodes=40, choose=players)
        assert players.earned > 0
        hold(NAME, NATIVE, fields_of, {"layout": layout, "shaping": 0.25}, episodes=3, choose=players)

    @pytest.mark.filterwarnings("ignore:OvercookedV2:DeprecationWarning")
    @pytest.mark.parametrize("random_reset", [False, True])
    def test_starts_of_overcooked(random_reset):
        assert_same_starts(NAME, NATIVE, {"random_reset": random_reset, "layout": "asymm_advantages"}, count=1000)

    @pytest.mark.filterwarnings("ignore:OvercookedV2:DeprecationWarning")
    def test_unknown_layouts_and_arguments_are_refused():
        with pytest.raises(ConfigError, match=r"layout must be one of .* Did you mean 'coord_ring'"):
            resolve(NAME, {"layout": "coord_rin"}).make()
        with pytest.raises(ConfigError, match=r"takes no argument 'steps'.* It takes: layout, max_steps, random_reset"):
            resolve(NAME, {"steps": 3})

    @pytest.mark.filterwarnings("ignore:OvercookedV2:DeprecationWarning")
    @pytest.mark.parametrize(
        ("arguments", "episodes"),
        [
            ({}, 40),
            ({"enemy": "players"}, 10),
            ({"scenario": "2s3z", "attack_mode": "random"}, 15),
            ({"scenario": "5m_vs_6m", "enemy": "players", "see_enemy_actions": False}, 5),
            ({"scenario": "5m_vs_6m", "enemy": "players", "use_self_play_reward": True}, 5),
            ({"scenario": "3s5z_vs_3s6z"}, 10),
            ({"scenario": "6h_vs_8z", "walls_cause_death": False, "max_steps": 30}, 10),
            ({"scenario": "smacv2_5_units", "won_battle_bonus": 3.0}, 20),
            ({"scenario": "smacv2_10_units", "enemy": "players", "max_steps": 20}, 5),
            ({"scenario": "25m"}, 3),
            ({"scenario": "27m_vs_30m", "enemy_shoots": False, "max_steps": 20}, 2),
        ],
    )
    def test_smax(arguments, episodes):
        """Each env step from JaxMARL's state, with what chance gave there; near a threshold it may differ.

        In whole episodes, and in env steps from random states.
        """
        with DummyVectorEnv(resolve(battles.NAME, arguments), 1, with_state=True) as theirs:
            vector = NativeVectorEnv(battles.NATIVE, 1, arguments, with_state=True)
            assert_same_spec(theirs.spec, vector.spec)
            env, rng = theirs._chunk._adapters[0].env.unwrapped, np.random.default_rng(0)
            chance = battles.Chance(env)
            vector.reset(0)
            made = apart = 0
            for shuffled, starts, steps in ((False, episodes, 200), (True, 10 * episodes, 2)):
                for step in battles.steps_of(env, chance, rng, starts, steps, shuffled=shuffled):
                    made += 1
                    mine = battles.taken_in_game(vector, step.fields, step.drawn.outcomes, step.actions)
                    if differences := step.taken.differs_from(mine):
                        assert step.drawn.margin <= battles.NEAR, f"step {made}: {differences}"
                        apart += 1
        print(f"{arguments}: {made} env steps, {apart} apart")
        assert apart <= 0.02 * made

    @pytest.mark.filterwarnings("ignore:OvercookedV2:DeprecationWarning")
    @pytest.mark.parametrize("scenario", ["2s3z", "smacv2_5_units"])
    def test_starts_of_smax(scenario):
        assert_same_starts(battles.NAME, battles.NATIVE, {"scenario": scenario}, count=1000)
