"""Players form groups by kind; Steps are arrays of the right shapes, and parts of them are views."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from marltrain.core.errors import SpecError
from marltrain.core.layout import Layout
from marltrain.core.spec import EnvSpec, PlayerSpec, Step, empty_actions

BOX, FILM = spaces.Box(-1, 1, (2,), np.float32), spaces.Box(0, 255, (4, 3, 3), np.uint8)


def player(name, observation=BOX, action=spaces.Discrete(3), masked=False, stack=1):  # noqa: B008
    return PlayerSpec(name, observation, action, Layout(observation, stack), masked)


def test_players_of_equal_kind_form_a_group_in_order_of_appearance():
    spec = EnvSpec.of("game", [
        player("a"), player("b", action=spaces.Discrete(4)), player("c"), player("d", masked=True), player("e", FILM),
        player("f", FILM, stack=4), player("g", action=spaces.Discrete(3, start=1)),
        player("h", action=spaces.Discrete(4)),
    ])  # fmt: skip
    assert [group.players for group in spec.groups] == [(0, 2), (1, 7), (3,), (4,), (5,), (6,)]
    assert spec.place == ((0, 0), (1, 0), (0, 1), (2, 0), (3, 0), (4, 0), (5, 0), (1, 1))
    assert spec.names == tuple("abcdefgh")
    assert [group.size for group in spec.groups] == [2, 2, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (spaces.Discrete(3), (), np.int64),
        (spaces.MultiDiscrete(np.array([[2, 3], [4, 5]])), (4,), np.int64),
        (spaces.Box(-1, 1, (2, 3), np.float64), (6,), np.float32),
    ],
)
def test_actions_are_flat_arrays(space, shape, dtype):
    spec = EnvSpec.of("game", [player("a", action=space), player("b", action=space)])
    (actions,) = empty_actions(spec, 5)
    assert (actions.shape, actions.dtype) == ((2, 5, *shape), dtype)


@pytest.mark.parametrize(
    "space", [spaces.MultiBinary(3), spaces.Box(0, 9, (2,), np.int32), spaces.Dict(a=spaces.Discrete(2))]
)
def test_other_action_spaces_are_refused_by_player(space):
    with pytest.raises(SpecError, match="player 'b': action space"):
        EnvSpec.of("game", [player("a"), player("b", action=space)])


def test_the_shapes_of_a_step_and_its_parts():
    seen = spaces.Dict({"view": spaces.Box(0, 255, (4, 4), np.uint8), "x": BOX})
    players = [player("a", seen, masked=True), player("b"), player("c", seen, masked=True)]
    spec = EnvSpec.of("game", players, state_shape=(7,))
    step: Any = Step.empty(spec, 5)
    assert {name: array.shape for name, array in step.obs[0].items()} == {"vector": (2, 5, 2), "view": (2, 5, 4, 4)}
    assert step.obs[1].shape == (1, 5, 2)
    assert (step.legal[0].shape, step.legal[1]) == ((2, 5, 3), None)
    assert [flags.shape for flags in (*step.turn, *step.alive)] == [(2, 5), (1, 5)] * 2
    assert step.reward.shape == step.terminated.shape == step.truncated.shape == (3, 5)
    assert step.state.shape == step.final_state.shape == (5, 7)
    assert step.ended.shape == step.episode.shape == (5,)
    part = step.part(1, 3)
    part.reward[:] = 1
    part.obs[0]["view"][:] = 2
    part.state[:] = 3
    part.ended[:] = True
    assert step.reward.sum(0).tolist() == [0, 3, 3, 0, 0]
    assert step.obs[0]["view"][:, :, 0, 0].tolist() == [[0, 2, 2, 0, 0]] * 2
    assert step.state[:, 0].tolist() == [0, 3, 3, 0, 0]
    assert step.ended.tolist() == [False, True, True, False, False]


def test_only_choices_can_be_masked():
    spec = EnvSpec.of("game", [player("a", action=BOX, masked=True)])
    with pytest.raises(SpecError, match="only Discrete and MultiDiscrete actions can be masked"):
        Step.empty(spec, 1)
