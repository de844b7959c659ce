"""The masks of a run: what is wanted, and what is in effect."""

from __future__ import annotations

import numpy as np

from marltrain.trainer.masks import Masks
from tests.trainer.running import At, ppo, trainer


def test_masks_take_effect_when_they_are_applied():
    masks = Masks(np.array([True, False]), np.array([True, True]))
    assert masks.applied is None and masks.effective.tolist() == [[True, False], [True, True]]
    masks.applied = masks.wanted
    masks.set(exploring=np.array([False, True]))
    assert masks.effective.tolist() == [[True, False], [True, True]]
    assert masks.wanted.tolist() == [[True, False], [False, True]]


def test_masks_set_in_a_hook_are_in_effect_after_the_next_batch_step():
    effective = []

    def look(moment):
        effective.append(moment.trainer.run.masks.effective[0].tolist())

    def switch(moment):
        moment.trainer.learning_mask = [0, 1]
        look(moment)

    trainer(steps_per_train=12, callbacks=[At(2, switch), At(3, look)]).train(ppo(), [1, 1], plot=False)
    assert effective == [[True, True], [False, True]]
