"""Threads that make batch steps together: the same runs, bit for bit, in any number of them."""

from __future__ import annotations

import pytest
import torch

import marltrain as mt
from marltrain.trainer.collecting import fused
from tests.tiers import LONG
from tests.trainer.collecting.test_fused import CARTPOLE, SPREAD, assert_same, train
from tests.trainer.collecting.test_fused_games import run_league
from tests.trainer.collecting.test_fused_sets import dqn_against_dqn, run as run_set
from tests.trainer.collecting.test_fused_turns import KUHN, TICTACTOE, mappo_of_two, nfsp
from tests.trainer.running import dqn, ppo


@pytest.fixture
def set_threads(monkeypatch):
    monkeypatch.setattr(fused, "ROWS_OF_A_BLOCK", 1)
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("env", "make"),
    [
        pytest.param(SPREAD, lambda: ppo(SPREAD, {}), id="ppo"),
        pytest.param(SPREAD, lambda: dqn(SPREAD, {}, share=True, identify=True), id="updates between the steps"),
        pytest.param(KUHN, nfsp, id="reservoirs"),
        *LONG * [pytest.param(CARTPOLE, lambda: ppo(CARTPOLE, {}), id="episodes that end at any time")],
        *LONG * [pytest.param(TICTACTOE, lambda: dqn(TICTACTOE, {}, capacity=90), id="turns")],
        *LONG * [pytest.param(KUHN, mappo_of_two, id="joined observations, turns")],
        pytest.param(
            SPREAD,
            lambda: mt.make_agents(
                "ppo", SPREAD, seed=0, jit_compile=True, network=mt.GRU((6,), units=7, sequence_length=4),
                minibatches=2, epochs=1,
            ),
            id="acts by a program",
        ),
    ],
)  # fmt: skip
def test_threads_make_the_same_run(env, make, set_threads):
    """5 environments, in blocks of 5, of 2 and 3, of 1, 2 and 2, and of 1."""
    found = []
    for threads in (1, 2, 3, 64):
        set_threads(threads)
        output, result = train(env, make(), run_dir=None, steps_per_train=200)
        assert output.run.collector.blocks == min(threads, 5)
        found.append(result)
    for result in found[1:]:
        assert_same(result, found[0])


if LONG:

    def test_threads_make_the_same_run_of_rivals(set_threads):
        found = []
        for threads in (1, 2):
            set_threads(threads)
            runs = [
                train(TICTACTOE, dqn(TICTACTOE, {}), run_dir=None, rotate=True), run_league(lambda: ppo(TICTACTOE, {})),
                run_set(dqn_against_dqn(TICTACTOE), TICTACTOE),
            ]  # fmt: skip
            assert [output.run.collector.blocks for output, _ in runs] == [threads] * 3
            found.append([left for _, left in runs])
        for one, other in zip(*found, strict=True):
            assert_same(one, other)
