"""Spaces as arrays and back, and as JSON and back."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from marltrain.core.errors import SpecError
from marltrain.core.layout import Layout, distinct
from marltrain.core.spaces import check_actions
from marltrain.policies.networks.specs import CNN, Head, NetworkDefinition, Plan

TREE = spaces.Dict({
    "digit": spaces.Discrete(3, start=-1),
    "tail": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3], start=[1, 5]))),
    "grid": spaces.Box(-1, 1, (2, 2), np.float64),
    "view": spaces.Box(0, 255, (4, 5, 3), np.uint8),
})  # fmt: skip
ALL = [
    TREE,
    spaces.Discrete(4),
    spaces.Discrete(4, start=-2),
    spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])),
    spaces.MultiBinary((2, 3)),
    spaces.Box(-np.inf, np.inf, (3,), np.float32),
    spaces.Box(np.array([0.0, -1.5]), np.array([np.inf, 2.25]), dtype=np.float64),
    spaces.Box(0, 255, (5, 4), np.uint8),
    spaces.Box(0, 255, (3,), np.uint8),
    spaces.Box(-3, 7, (2, 3, 4, 1), np.int16),
    spaces.Box(-1, 1, (), np.float32),
    spaces.Tuple((spaces.Discrete(2), spaces.Dict({"a": spaces.Box(0, 1, (1,))}))),
    spaces.Dict({"board": spaces.Box(-1, 1, (3,), np.float32)}),
]


def same(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return np.shape(one) == np.shape(other) and np.allclose(one, other)


def batch_of(values):
    if isinstance(values[0], dict):
        return {key: batch_of([value[key] for value in values]) for key in values[0]}
    if isinstance(values[0], tuple):
        return tuple(batch_of([value[i] for value in values]) for i in range(len(values[0])))
    return np.stack([np.asarray(value) for value in values])


@pytest.mark.parametrize("space", ALL, ids=str)
def test_what_is_encoded_or_written_is_decoded_again(space):
    layout = Layout(space)
    space.seed(0)
    values = [space.sample() for _ in range(4)]
    target = layout.empty((2, 4))
    for i, value in enumerate(values):
        layout.write(value, target, (1, i))
        obs, batched = layout.encode(value)
        assert not batched
    row = {name: array[1] for name, array in target.items()} if isinstance(target, dict) else target[1]
    assert same(layout.decode(row), batch_of(values))
    obs, batched = layout.encode(batch_of(values))
    assert batched
    assert same(layout.decode(obs), batch_of(values))
    assert same(obs, row)


def test_parts_lie_where_they_say():
    """Gymnasium sorts a mapping's keys."""
    layout = Layout(TREE)
    assert [(p.name, p.start, p.stop, p.image) for p in layout.parts] == [
        ("digit", 0, 3, False), ("grid", 3, 7, False), ("tail.0", 7, 9, False), ("tail.1", 9, 14, False),
        ("view", 0, 0, True),
    ]  # fmt: skip
    assert {name: shape for name, (shape, _) in layout.shapes.items()} == {"vector": (14,), "view": (4, 5, 3)}
    value = {"digit": 1, "tail": (np.array([1, 0]), np.array([2, 5])), "grid": np.array([[0.5, 0], [1, -1]]),
             "view": np.full((4, 5, 3), 9, np.uint8)}  # fmt: skip
    obs, _ = layout.encode(value)
    assert obs["vector"].tolist() == [0, 0, 1, 0.5, 0, 1, -1, 1, 0, 0, 1, 1, 0, 0]
    assert obs["vector"].dtype == np.float32
    assert obs["view"].dtype == np.uint8
    assert layout.bounds is not None
    low, high = layout.bounds
    assert low.tolist() == [-np.inf] * 3 + [-1] * 4 + [0] * 2 + [-np.inf] * 5
    assert high[3:9].tolist() == [1] * 6


VIEW, PAIR = spaces.Box(0, 255, (8, 8, 3), np.uint8), spaces.Box(-9, 9, (2,), np.float32)
NAMED: dict[str, tuple[spaces.Space, list[str]]] = {
    "joined by dots": (spaces.Dict({"a.b": VIEW, "a": spaces.Dict({"b": VIEW})}), ["a.b", "a.b~2"]),
    "numbered": (spaces.Dict({"a.b": VIEW, "a": spaces.Dict({"b": VIEW}), "a.b~2": VIEW}), ["a.b", "a.b~2", "a.b~2~2"]),
    "vector": (spaces.Dict({"vector": VIEW, "v": PAIR}), ["vector", "vector~2"]),
    "a vector alone": (spaces.Dict({"vector": VIEW}), ["vector~2"]),
    "no name": (spaces.Dict({"": VIEW, "image": VIEW}), ["image", "image~2"]),
    "a place and a key": (spaces.Tuple((spaces.Tuple((PAIR, VIEW)), VIEW)), ["vector", "0.1", "1"]),
    "numbers alone": (spaces.Dict({"a.b": PAIR, "a": spaces.Dict({"b": PAIR})}), ["vector"]),
    "other letters": (spaces.Dict({"A": VIEW, "a": VIEW, "\u00fc/": VIEW, " ": PAIR}),
                      ["vector", "A", "a", "\u00fc/"]),
}  # fmt: skip


@pytest.mark.parametrize("case", NAMED)
def test_every_image_has_an_array_of_its_own(case):
    """A name that is taken gets a number; the joined numbers are called "vector" whatever the parts are called."""
    space, names = NAMED[case]
    layout, values = Layout(space), []
    assert list(layout.shapes) == names
    space.seed(1)
    target = layout.empty((3,))
    for i in range(3):
        values.append(space.sample())
        layout.write(values[-1], target, i)
        assert same(layout.decode(layout.encode(batch_of(values))[0]), batch_of(values))
    assert same(layout.decode(target), batch_of(values))
    plan = Plan(NetworkDefinition(CNN(filters=((4, 3, 1),), hidden=(5,)), [Head(2)], layout))
    assert len({parameter.name for parameter in plan.parameters}) == len(plan.parameters)


def test_names_are_distinct():
    assert distinct(["a", "b", "a", "a", "a~2", "c"], ["c"]) == ["a", "b", "a~2", "a~3", "a~2~2", "c~2"]
    assert distinct(["a", "A", "a_2"], mark="_", fold=str.lower) == ["a", "A_2", "a_2_2"]


@pytest.mark.parametrize(
    ("space", "stack", "image"),
    [
        (spaces.Box(0, 255, (8, 8), np.uint8), 1, True),
        (spaces.Box(0, 255, (8, 8, 3), np.uint8), 1, True),
        (spaces.Box(0, 255, (4, 8, 8, 3), np.uint8), 1, False),
        (spaces.Box(0, 255, (4, 8, 8, 3), np.uint8), 4, True),
        (spaces.Box(0, 255, (8,), np.uint8), 1, False),
        (spaces.Box(0, 255, (8, 8), np.float32), 1, False),
        (spaces.Box(0, 255, (8, 8), np.int16), 1, False),
    ],
)
def test_what_is_an_image(space, stack, image):
    (part,) = Layout(space, stack).parts
    assert part.image == image
    assert part.stack == (stack if image else 1)


def test_misfits_name_the_part():
    layout = Layout(spaces.Dict({"a": spaces.Box(0, 1, (2,)), "b": spaces.Dict({"c": spaces.Discrete(2)})}))
    for wrong, words in (
        ({"a": np.zeros(3), "b": {"c": 0}}, r"part 'a' has shape \(3,\), its space says \(2,\)"),
        ({"a": np.zeros(2), "b": {}}, "no part 'b.c'"),
        ({"a": np.zeros(2)}, "no part 'b.c'"),
        ({"a": np.zeros((4, 2)), "b": {"c": 0}}, "some parts carry a batch axis"),
    ):
        with pytest.raises(SpecError, match=words):
            layout.encode(wrong)
    with pytest.raises(SpecError, match="one axis more"):
        layout.write({"a": np.zeros((1, 2)), "b": {"c": np.zeros(1, int)}}, layout.empty((1,)), 0)
    with pytest.raises(SpecError, match="is a Text"):
        Layout(spaces.Text(3))
    with pytest.raises(SpecError, match="nothing to observe"):
        Layout(spaces.Dict({}))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(0, 1, (3, 0), np.float32),
        spaces.Dict(),
        spaces.Tuple((spaces.Box(0, 1, (0,), np.float32),)),
        spaces.Box(0, 255, (0, 4, 3), np.uint8),
        spaces.Dict(board=spaces.Box(0, 1, (2,), np.float32), screen=spaces.Box(0, 255, (5, 0), np.uint8)),
    ],
)
def test_a_space_without_numbers_is_refused(space):
    with pytest.raises(SpecError, match="holds no numbers: there is nothing to observe"):
        Layout(space)


def test_an_empty_part_may_stand_beside_others():
    layout = Layout(spaces.Dict(goal=spaces.Box(0, 1, (0,), np.float32), place=spaces.Discrete(3)))
    result, _ = layout.encode({"goal": [], "place": 2})
    assert np.asarray(result).tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("space", "numbers"),
    [(spaces.Discrete(2**40), "1,099,511,627,"), (spaces.MultiDiscrete([2**62, 2**62, 2**62]), "13,835,058,")],
)
def test_spaces_too_large_for_arrays_are_refused(space, numbers):
    with pytest.raises(SpecError, match=f"becomes {numbers}.* give a large one as binary digits"):
        Layout(spaces.Tuple((spaces.Discrete(2), space)))
    with pytest.raises(SpecError, match=f"has {numbers}.* choices or numbers.* Split it into"):
        check_actions(space)


@pytest.mark.parametrize("value", [["1", "2"], np.array([1, "2"], object), np.array([1j, 2])])
def test_only_real_numbers_are_observed(value):
    box = spaces.Box(0, 9, (2,), np.float32)
    for layout, observation in ((Layout(box), value), (Layout(spaces.Dict(x=box)), {"x": value})):
        with pytest.raises(SpecError, match=r"is an array of dtype .*, its space Box.* holds real numbers"):
            layout.write(observation, layout.empty((1,)), (0,))
        with pytest.raises(SpecError, match="holds real numbers"):
            layout.encode(observation)


def test_a_part_that_has_no_numbers_may_be_left_out():
    space = spaces.Dict({"image": spaces.Box(0, 1, (2,)), "mission": spaces.Text(9)})
    with pytest.raises(SpecError, match=r"part \('mission',\) is a Text; .*FilterObservation\(env, \[...\]\) keeps"):
        Layout(space)
    with pytest.raises(SpecError, match=r"is a Text; .* Wrap the environment to give one of them\.$"):
        Layout(spaces.Text(9))
