"""Tests of a population: each copy's test is the test that it would play alone."""

import warnings

import numpy as np
import pytest

import marltrain as mt
from marltrain.envs import make_vector, resolve
from marltrain.envs.population import population_of
from marltrain.trainer.evaluating.evaluation import Evaluation
from marltrain.trainer.evaluating.population import PopulationEvaluation
from marltrain.trainer.seats.seats import Seating
from tests.toys import Auction, Relay


@pytest.mark.parametrize(("episodes", "most"), [(7, None), (7, 20), (3, 2)])
@pytest.mark.parametrize("env", [Auction, Relay])
def test_a_copy_plays_the_test_of_its_seed(env, episodes, most):
    """Also if `max_test_steps` cuts it: running episodes count so far, those that have not begun are NaN."""
    Auction.started = []
    seeds = (4, 5, 9)

    def play(source, kind, seed=0):
        with make_vector(source, num_envs=2, role="test") as envs:
            agents = [mt.FunctionAgent(lambda observation, legal=None: 1) for _ in envs.spec.names]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return kind(envs, seed, most).play(Seating(envs.spec, agents, 0, stack=False).learners, episodes)

    together = play(population_of(resolve(env), seeds), PopulationEvaluation)
    lengths, cut = [], False
    for n, seed in enumerate(seeds):
        alone = play(resolve(env), Evaluation, seed)
        cut |= bool(alone.unfinished.any())
        own = together.returns[:, n :: len(seeds)]
        assert np.array_equal(own[~np.isnan(own[:, 0])], alone.returns)
        lengths.append(np.pad(alone.lengths, (0, episodes - len(alone.lengths))))
    assert together.lengths.tolist() == np.max(lengths, 0).tolist()
    assert together.unfinished.any() == cut
