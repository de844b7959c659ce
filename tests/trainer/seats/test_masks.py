"""Masks that are refused, before training and in hooks."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import MaskError
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
    ({0: 1, 1: 1}, "learning_mask: keys are players' names or patterns, got 0"),
    ({}, "learning_mask gives player 'player_0' no value"),
    ({"player_1": 2}, "learning_mask: the entry of player 'player_1' must be 0 or 1, got 2"),
    ({"player_*": 0}, "learning_mask is False for every player (player_0, player_1): at least one must be True"),
    ({"player_*": 1, "*_0": 0}, "learning_mask: player 'player_0' of Identity is matched by 2 patterns"),
    ({"agent_*": 1}, "learning_mask: no player of Identity is left for the key 'agent_*'"),
    (count(), "learning_mask must hold one truth value per player (player_0, player_1), got count(0)"),
    (np.array(1), "learning_mask must hold one truth value per player (player_0, player_1), got array(1)"),
    (np.ones((2, 2)), "learning_mask: the entry of player 'player_0' must be 0 or 1, got array([1., 1.])"),
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


def applied(agents, learning_mask=None, exploration_mask=None):
    """Both masks of a run, as a hook sees them at its first batch step."""
    seen = []
    look = At(1, lambda moment: seen.append((moment.trainer.learning_mask, moment.trainer.exploration_mask)))
    result = trainer(steps_per_train=6, callbacks=[look], env_args={"players": len(agents), "length": 3})
    result.train(agents, learning_mask, exploration_mask, plot=False)
    return seen[0]


def three(*seats):
    """PPO agents in the seats named "ppo", random ones in the others."""
    agents = ppo(env_args={"players": len(seats), "length": 3})
    return [agent if kind == "ppo" else mt.RandomAgent() for agent, kind in zip(agents, seats, strict=True)]


YES, NO = True, False


def test_without_masks_all_that_can_learn_learn_and_all_explore():
    assert applied(three("ppo", "random", "ppo")) == ((YES, NO, YES), (YES, YES, YES))
    never = [mt.RandomAgent(), mt.FunctionAgent(lambda observation: 0)]
    with pytest.raises(MaskError, match=r"no agent can learn \('player_0': a RandomAgent, 'player_1': a FunctionAgent"):
        trainer().train(never, plot=False)


def test_left_out_learning_mask_equals_the_mask_that_is_given():
    few: dict[str, Any] = {"steps_per_train": 30, "env_args": {"players": 2, "length": 3}}
    one, other = three("ppo", "random"), three("ppo", "random")
    given = trainer(**few).train(one, [1, 0], plot=False)
    left_out = trainer(**few, run_dir="b").train(other, plot=False)
    assert left_out["reward_metric_stats"] == given["reward_metric_stats"]
    for name, array in one[0].state().arrays.items():
        np.testing.assert_array_equal(other[0].state().arrays[name], array, err_msg=name)


@pytest.mark.parametrize(
    ("learning", "exploration", "right"),
    [
        ({"player_2": True}, {"player_0": 1}, ((NO, NO, YES), (YES, NO, NO))),  # True only: the others are False
        ({"player_2": 0}, {"player_0": 0}, ((YES, NO, NO), (NO, YES, YES))),  # False only: the others as without a mask
        ({"*": 0, "player_0": 1}, {"player_[01]": 1, "player_2": 0}, ((YES, NO, NO), (YES, YES, NO))),
        ({"player_[02]": np.True_}, {"player_*": np.int64(0)}, ((YES, NO, YES), (NO, NO, NO))),
    ],
)
def test_masks_by_name_or_pattern(learning, exploration, right):
    """Player 1 is random: it cannot learn."""
    agents = three("ppo", "random", "ppo")
    assert applied(agents, learning, exploration) == right
    assert applied(three("ppo", "random", "ppo"), learning_mask=learning, exploration_mask=exploration) == right


def test_a_mapping_with_both_values_names_every_player():
    for mask in ("learning_mask", "exploration_mask"):
        with pytest.raises(MaskError, match=f"{mask} gives player 'player_1' no value: it may leave players out"):
            applied(three("ppo", "ppo", "ppo"), **{mask: {"player_0": 1, "player_2": 0}})


def test_hooks_set_masks_by_name_or_to_all():
    seen = []

    def switch(moment):
        moment.trainer.learning_mask = {"player_1": True}
        moment.trainer.exploration_mask = {"player_1": False}
        seen.append((moment.trainer.learning_mask, moment.trainer.exploration_mask))
        moment.trainer.learning_mask = moment.trainer.exploration_mask = None
        seen.append((moment.trainer.learning_mask, moment.trainer.exploration_mask))

    trainer(steps_per_train=6, callbacks=[At(1, switch)]).train(ppo(), [1, 0], plot=False)
    assert seen == [((NO, YES), (YES, NO)), ((YES, YES), (YES, YES))]
