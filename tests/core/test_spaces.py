from __future__ import annotations

import json

import numpy as np
import pytest
from gymnasium import spaces

from marltrain.core.errors import SpecError
from marltrain.core.spaces import (
    action_bounds,
    as_choices,
    check_actions,
    describe_space,
    space_from,
    split_mask,
    without_mask,
)
from tests.core.test_layout import ALL


@pytest.mark.parametrize(
    ("low", "high", "least", "greatest"),
    [
        (-0.3, 0.1, np.nextafter(np.float32(-0.3), np.float32(0)), np.nextafter(np.float32(0.1), np.float32(0))),
        (-0.5, 0.25, -0.5, 0.25),
        (-1e300, 1e300, np.finfo(np.float32).min, np.finfo(np.float32).max),
        (-np.inf, np.inf, -np.inf, np.inf),
        (0.1, 0.1, np.float32(0.1), np.float32(0.1)),  # it holds no float32
    ],
)
def test_the_least_and_the_greatest_float32_of_a_box(low, high, least, greatest):
    bounds = action_bounds(spaces.Box(low, high, (1, 1), np.float64))
    assert [bound.dtype for bound in bounds] == [np.float32] * 2
    assert [bound.tolist() for bound in bounds] == [[least], [greatest]]


@pytest.mark.parametrize("space", ALL, ids=str)
def test_a_description_is_json_and_builds_the_space_again(space):
    described = json.loads(json.dumps(describe_space(space)))
    assert space_from(described) == space
    assert describe_space(space_from(described)) == describe_space(space)


def test_different_spaces_have_different_descriptions():
    texts = [json.dumps(describe_space(space)) for space in ALL]
    assert len(set(texts)) == len(ALL)


@pytest.mark.parametrize("wrong", [{}, {"type": "Ball"}, {"type": "Box", "shape": [2]}, {"type": "Discrete", "n": "x"}])
def test_what_is_no_description(wrong):
    with pytest.raises(SpecError, match="not the description of a space"):
        space_from(wrong)


def test_masks_leave_the_observation():
    box, mask = spaces.Box(0, 1, (2,)), spaces.Box(0, 1, (3,), np.int8)
    assert without_mask(spaces.Dict(observation=box, action_mask=mask)) == (box, True)
    assert without_mask(spaces.Dict(board=box, action_mask=mask)) == (spaces.Dict(board=box), True)
    assert without_mask(spaces.Dict(observation=box)) == (spaces.Dict(observation=box), False)
    assert without_mask(box) == (box, False)
    assert split_mask({"observation": 1, "action_mask": 2}) == (1, 2)
    assert split_mask({"board": 1, "action_mask": 2}) == ({"board": 1}, 2)
    assert split_mask({"observation": 1, "more": 3, "action_mask": 2}) == ({"observation": 1, "more": 3}, 2)
    assert split_mask({"observation": 1}) == ({"observation": 1}, None)
    assert split_mask(5) == (5, None)


def test_actions_without_any_choice_are_refused():
    with pytest.raises(SpecError, match=r"action space Box\(.*\) is empty: there is nothing to do"):
        check_actions(spaces.Box(0, 1, (2, 0), np.float32))


def test_choices_of_bits_and_integers_begin_at_their_lowest_values():
    assert as_choices(spaces.MultiBinary([2, 3])) == spaces.MultiDiscrete(np.full((2, 3), 2))
    box = spaces.Box(np.array([-2, 0]), np.array([2, 1]), dtype=np.int8)
    assert as_choices(box) == spaces.MultiDiscrete([5, 2], start=[-2, 0])
    for space in (spaces.Discrete(3), spaces.MultiDiscrete([2, 3]), spaces.Box(0, 1, (2,)), spaces.Text(2)):
        assert as_choices(space) is space
    with pytest.raises(SpecError, match="up to 18,446,744,073,709,551,615"):
        as_choices(spaces.Box(2**64 - 2, 2**64 - 1, (1,), np.uint64))
