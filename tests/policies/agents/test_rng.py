"""`rng` of agents with code of their own: seeded by the run, another in each seat, untouched by tests."""

from __future__ import annotations

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError
from tests.trainer.running import tables, trainer


class Guess(mt.Agent):
    """Draws its actions, and something at every update; notes all of it."""

    def __init__(self):
        self.drawn: list[float] = []

    def act(self, observation, legal=None, explore=False):
        self.drawn += self.rng.random(len(observation)).tolist()
        return (3 * np.array(self.drawn[-len(observation) :])).astype(int)

    def update(self, env_steps):
        self.drawn.append(self.rng.random())
        return {"drawn": self.drawn[-1]}

    def state(self):
        return mt.AgentState({"type": "Guess"}, {})

    def restore(self, state):
        pass


def play(agents, **settings):
    return trainer(**{"steps_per_train": 30, **settings}).train(agents, [1, 1], plot=False)


def test_the_runs_seed_decides_and_seats_differ():
    one, same, other = [Guess(), Guess()], [Guess(), Guess()], [Guess(), Guess()]
    play(one)
    play(same)
    play(other, seed=1)
    assert [agent.drawn for agent in one] == [agent.drawn for agent in same]
    assert not {*one[0].drawn} & {*one[1].drawn}
    assert not {*one[0].drawn} & {*other[0].drawn}


def test_a_seed_of_its_own_is_kept():
    one, other = Guess(), Guess()
    one.seed = other.seed = 7
    play([one, Guess()])
    play([other, Guess()], seed=1)
    assert one.drawn == other.drawn


def test_tests_draw_from_a_stream_of_their_own_and_move_nothing():
    """An action a row, 3 rows a batch step in training and 2 in tests; the same in each test."""
    seldom, often = [Guess(), Guess()], [Guess(), Guess()]
    few, many = play(seldom), play(often, test_freq=3)
    assert len(many["history"]) == 5 > len(few["history"]) == 2
    assert len(set(many["history"].metric)) == 1
    first = seldom[0].drawn[:6]  # a test of 3 steps
    assert seldom[0].drawn[-6:] == first
    training = seldom[0].drawn[6:-6]
    assert [value for value in often[0].drawn if value not in first] == training


def test_a_resumed_run_draws_what_it_would_have_drawn():
    whole, half, rest = ([Guess(), Guess()] for _ in range(3))
    expected = play(whole, run_dir="whole")
    play(half, steps_per_train=15, callbacks=[mt.Checkpoint(every_steps=15)])
    result = trainer(steps_per_train=30, run_dir=None).train(rest, [1, 1], plot=False, resume="run")
    assert tables(result) == tables(expected)
    assert rest[0].drawn == whole[0].drawn[-len(rest[0].drawn) :]


def test_there_is_no_seed_before_there_is_a_seat():
    class Early(Guess):
        def __init__(self):
            self.weights = self.rng.random(3)

    with pytest.raises(AgentError, match="rng: this Early has no seed yet: a run gives it one with its seat"):
        Early()


def test_a_generator_that_is_set_is_drawn_from_everywhere():
    agent = Guess()
    agent.rng = np.random.default_rng(3)
    play([agent, Guess()])
    assert agent.drawn == np.random.default_rng(3).random(len(agent.drawn)).tolist()


def test_outside_of_a_run_nothing_of_the_run_is_drawn():
    """It acts in a callback, and the run is the same."""
    one, other = [Guess(), Guess()], [Guess(), Guess()]
    expected = play(one)
    outside: list = []
    asking = mt.LambdaCallback(on_step=lambda moment: outside.append(other[0].act(np.zeros(1))))
    assert tables(play(other, callbacks=[asking])) == tables(expected)


def test_a_frozen_copy_draws_in_its_seat():
    learner, frozen = Guess(), mt.FrozenAgent(Guess())
    trainer(steps_per_train=9).train([learner, frozen], [1, 0], plot=False)
    inner = frozen.inner
    assert isinstance(inner, Guess)
    assert len(inner.drawn) > 9
    assert not {*learner.drawn} & {*inner.drawn}


def test_a_second_run_counts_the_env_steps_of_its_updates_from_0():
    class Told(Guess):
        def __init__(self):
            super().__init__()
            self.told: list[int] = []

        def update(self, env_steps):
            self.told.append(env_steps)
            return {}

    agent, run = Told(), trainer(steps_per_train=24)
    for _ in range(2):
        run.train([agent, Guess()], [1, 1], plot=False)
    assert agent.told == [12, 12, 12, 12]
