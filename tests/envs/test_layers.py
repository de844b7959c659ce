"""Attributes and metadata are those of the outermost layer that defines them."""

from typing import Any

import gymnasium
import pytest
from gymnasium.wrappers import TimeLimit
from pettingzoo.utils import BaseParallelWrapper, OrderEnforcingWrapper
from pettingzoo.utils.conversions import aec_to_parallel, parallel_to_aec

from marltrain.envs import probe
from marltrain.envs.layers import layers, metadata_of, outermost
from tests.faulty_toys import Forgetful
from tests.gymnasium_toys import Film, MaskedByInfo
from tests.toys import Crowd, Relay


class Named(gymnasium.Wrapper):
    size = 3


def test_layers_are_given_from_the_outside_to_the_inside():
    inner: Any = Film()
    middle = TimeLimit(inner, 5)
    outer = Named(middle)
    assert list(layers(outer)) == [outer, middle, inner] and list(layers(inner)) == [inner]
    crowd: Any = Crowd()
    crowd.render_mode = None
    turns = parallel_to_aec(crowd)
    assert [type(layer).__name__ for layer in layers(turns)] == [
        "OrderEnforcingWrapper",
        "parallel_to_aec_wrapper",
        "Crowd",
    ]
    relay: Any = Relay()
    relay.metadata = {**Relay.metadata, "is_parallelizable": True}
    assert list(layers(aec_to_parallel(relay)))[1:] == [relay]


def test_the_outermost_layer_with_an_attribute_counts():
    inner = Named(Film())
    inner.size = 4
    outer = TimeLimit(Named(TimeLimit(inner, 5)), 6)
    assert outermost(outer, "size").size == 3 and outermost(outer, "length") is inner.env
    assert outermost(outer, "weight") is None


class Titled(gymnasium.Wrapper):
    metadata = {"name": "titled"}  # hides the metadata of the environment inside # noqa: RUF012


def test_metadata_are_joined_entry_by_entry():
    class Random(MaskedByInfo):
        metadata = {"reproducible": False, "name": "inner"}  # noqa: RUF012

    wrapped = Titled(Random())
    assert wrapped.metadata == {"name": "titled"}
    assert dict(metadata_of(wrapped)) == {"name": "titled", "reproducible": False}
    assert probe(Random).reproducible is probe(lambda: Titled(Random())).reproducible is False
    assert dict(metadata_of(object())) == {}


@pytest.mark.parametrize("flaw", ["random", "impure"])
def test_a_wrapper_with_metadata_of_its_own_keeps_declarations_inside(flaw):
    class Own(BaseParallelWrapper):
        metadata = {"name": "own"}  # noqa: RUF012

    def make():
        return Own(Forgetful(flaw, declared=True))

    assert probe(make).reproducible == (flaw != "random")
    assert metadata_of(make())["pure_reset"] == (flaw != "impure")
    assert metadata_of(OrderEnforcingWrapper(Relay()))["name"] == "relay"
