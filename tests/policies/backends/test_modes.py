"""Modes of torch and numpy after code that was aborted in the middle of their exchange."""

from __future__ import annotations

import threading
from contextlib import suppress

import numpy as np
import pytest
import torch
from numpy.random import mtrand

import marltrain as mt
from marltrain.policies.backends.modes import modes_kept
from marltrain.policies.backends.randomness import LENT
from tests.toys import Identity


def left_behind() -> None:
    """What remains if a signal raises at the ends of `torch.no_grad` and of `numpy_seeded`."""
    torch.set_grad_enabled(False)
    mtrand.set_bit_generator(LENT)


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("recording", [True, False])
def test_modes_are_kept(gradients, recording):
    own = mtrand.get_bit_generator()
    with torch.set_grad_enabled(recording):
        with suppress(KeyboardInterrupt), modes_kept(gradients=gradients):
            assert torch.is_grad_enabled() == (recording or gradients)
            left_behind()
            raise KeyboardInterrupt
        assert torch.is_grad_enabled() == recording
        assert mtrand.get_bit_generator() is own


def test_a_generator_of_the_users_own_stays():
    own, other = mtrand.get_bit_generator(), np.random.MT19937(7)
    with modes_kept(gradients=False):
        mtrand.set_bit_generator(other)
    assert mtrand.get_bit_generator() is other
    mtrand.set_bit_generator(own)


def test_other_threads_are_not_touched():
    seen: list[bool] = []

    def other() -> None:
        with torch.no_grad():
            inside.set()
            assert leave.wait(20)
            seen.append(torch.is_grad_enabled())

    inside, leave = threading.Event(), threading.Event()
    thread = threading.Thread(target=other)
    thread.start()
    assert inside.wait(20)
    with modes_kept(gradients=True):
        leave.set()
        thread.join()
    assert seen == [False]


class Abort(mt.Callback):
    """Aborts a training after 9 batch steps, where a context of a framework ends."""

    def __init__(self) -> None:
        self.steps = 0

    def on_step(self, moment):
        self.steps += 1
        if self.steps == 9:
            left_behind()
            raise self.error

    error: BaseException = KeyboardInterrupt()


class Fail(Abort):
    """The same by an error."""

    error = RuntimeError("a limit of time")


def trained(*callbacks: mt.Callback) -> dict[str, np.ndarray]:
    """The weights after a training."""
    agents = mt.make_agents("ppo", Identity, seed=0, network=mt.MLP((8,)), epochs=2, minibatches=2)
    trainer = mt.DecentralizedTrainer(
        Identity, num_train_envs=3, update_freq=20, steps_per_train=100, seed=0, progress=False, run_dir=False,
        test_freq=None, callbacks=callbacks,
    )  # fmt: skip
    trainer.train(agents, [1, 1], plot=False)
    return agents[0].state().arrays


@pytest.mark.parametrize("kind", [Abort, Fail])
def test_a_training_is_equal_after_one_that_was_aborted(kind):
    """Without gradients every later update would end in an error of torch."""
    own, expected = mtrand.get_bit_generator(), trained()
    with suppress(RuntimeError):
        trained(kind())
    assert torch.is_grad_enabled() and mtrand.get_bit_generator() is own
    again = trained()
    assert all((again[name] == array).all() for name, array in expected.items())


def test_a_training_records_gradients_by_itself():
    expected = trained()
    with torch.no_grad():
        again = trained()
        assert not torch.is_grad_enabled()
    assert all((again[name] == array).all() for name, array in expected.items())
