"""JaxMARL's environments: the errors without JaxMARL; in the long tier, Overcooked beside the native game."""

import sys

import pytest

from marltrain.core.errors import ConfigError
from marltrain.envs import list_environments, resolve
from marltrain.envs.native.kitchen.layouts import LAYOUTS
from tests.envs.native.kitchens import Busy, fields_of
from tests.envs.native.originals import assert_same_starts, hold
from tests.tiers import LONG

NAME, NATIVE = "jaxmarl/overcooked", "marltrain/overcooked_v1"


def test_without_jaxmarl_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "jaxmarl", None)
    assert NAME not in list_environments()
    with pytest.raises(ConfigError, match=r"needs jaxmarl, which is not installed: pip install jaxmarl.*overcooked_v1"):
        resolve(NAME)


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
