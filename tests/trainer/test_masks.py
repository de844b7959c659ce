"""Masks that are refused, before training and in hooks."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

import marltrain as mt
from marltrain.errors import MaskError
from tests.trainer.running import At, ppo, trainer

WRONG = [
    ([1], "learning_mask has 1 entries, Identity has 2 players: player_0, player_1"),
    ([1, 1, 1], "learning_mask has 3 entries"),
    ([0, 0], "learning_mask is False for every player (player_0, player_1): at least one must be True"),
    ([1, 2], "learning_mask: the entry of player 'player_1' must be 0 or 1, got 2"),
    ([1, "0"], "the entry of player 'player_1' must be 0 or 1, got '0'"),
    ([1, None], "the entry of player 'player_1' must be 0 or 1, got None"),
    ([1, [1]], "the entry of player 'player_1' must be 0 or 1, got [1]"),
    ([np.ones(2), 1], "the entry of player 'player_0' must be 0 or 1"),
    (1, "learning_mask must hold one truth value per player (player_0, player_1), got 1"),
    ("10", "learning_mask must hold one truth value per player (player_0, player_1), got '10'"),
    ({0: 1, 1: 1}, "learning_mask must hold one truth value per player"),
    (count(), "learning_mask must hold one truth value per player (player_0, player_1), got count(0)"),
    (np.array(1), "learning_mask must hold one truth value per player (player_0, player_1), got array(1)"),
    (np.ones((2, 2)), "learning_mask: the entry of player 'player_0' must be 0 or 1, got array([1., 1.])"),
    ({"player_0": 1, "player_1": 1}, "learning_mask"),
]


@pytest.mark.parametrize(("mask", "words"), WRONG)
def test_invalid_learning_masks(mask, words):
    agents, calls = ppo(), []
    with pytest.raises(MaskError) as caught:
        trainer(test_fn=lambda e, s: calls.append(e)).train(agents, mask, plot=False)
    assert words in str(caught.value)
    assert not calls

    def switch(moment):
        moment.trainer.learning_mask = mask

    with pytest.raises(MaskError) as caught:
        trainer(callbacks=[At(1, switch)]).train(agents, [1, 1], plot=False)
    assert words in str(caught.value)


def test_invalid_exploration_masks():
    with pytest.raises(MaskError, match="exploration_mask has 1 entries"):
        trainer().train(ppo(), [1, 1], [1], plot=False)
    assert trainer(steps_per_train=3).train(ppo(), [1, 1], [0, 0], plot=False)["num_collected_steps"] == 3


def test_learning_mask_refuses_agents_that_never_learn():
    for other in (mt.RandomAgent(), mt.FrozenAgent(ppo()[1]), mt.FunctionAgent(lambda observation: 0)):
        with pytest.raises(
            MaskError, match=f"learning_mask is True for player 'player_1', but a {type(other).__name__} never"
        ):
            trainer().train([ppo()[0], other], [1, 1], plot=False)
        switch = At(1, lambda moment: setattr(moment.trainer, "learning_mask", [0, 1]))
        with pytest.raises(MaskError, match="never learns"):
            trainer(callbacks=[switch]).train([ppo()[0], other], [1, 0], plot=False)


def test_masks_may_be_arrays_of_bools():
    mask = np.array([True, False])
    assert trainer(steps_per_train=3).train(ppo(), mask, mask, plot=False)["num_collected_steps"] == 3
