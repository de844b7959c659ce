"""Native games that are stepped while a GPU computes: the runs of single batch steps, bit for bit.

A CPU stands for the GPU. Its captured calls compute each row as plain calls do, however many rows there are.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import marltrain as mt
from marltrain.core.errors import AgentError
from marltrain.policies.backends.torch.places import cpu_as_gpu
from marltrain.policies.backends.torch.recorded_capture import RecordedCapture
from marltrain.trainer.collecting import halves, stepped, work
from marltrain.trainer.collecting.halves import HalvesCollector
from marltrain.trainer.collecting.rollout import Actors, Recorder, SyncCollector
from marltrain.trainer.collecting.stepped import SteppedCollector
from marltrain.trainer.saving.checkpoint import Checkpoint
from marltrain.trainer.training.make_collector import make_collector
from tests.tiers import LONG
from tests.trainer.collecting.test_fused import (
    ADVERSARY,
    CARTPOLE,
    SETTINGS,
    SPREAD,
    Counting,
    Fading,
    Looking,
    assert_same,
    mappo,
    train,
)
from tests.trainer.collecting.test_fused_sets import dqn_against_dqn, run as run_set
from tests.trainer.collecting.test_fused_turns import KUHN, MANY, TICTACTOE
from tests.trainer.running import dqn, ppo, tables, trainer, weights

GRU: dict[str, Any] = {"network": mt.GRU((6,), units=7, sequence_length=4), "minibatches": 2, "epochs": 1}
CAPTURED: dict[str, Any] = {"jit_compile": True}


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    """A CPU stands for the GPU; 5 environments are divided into 2 and 3, and these into blocks of 1 and 2."""
    monkeypatch.setattr(halves, "LEAST_OF_TWO", 5)
    monkeypatch.setattr(work, "MEASURED", 1)
    monkeypatch.setattr(work, "LEAST", 1e-12)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with cpu_as_gpu(RecordedCapture()) as capture:
        yield capture
    torch.set_num_threads(before)


def in_parts(monkeypatch, parts):
    monkeypatch.setattr("marltrain.trainer.training.run.make_collector", partial(make_collector, parts=parts))


@pytest.mark.parametrize(
    ("env", "make", "settings"),
    [
        pytest.param(SPREAD, lambda: ppo(SPREAD, {}, **CAPTURED), {}, id="ppo"),
        *LONG * [pytest.param(SPREAD, lambda: dqn(SPREAD, {}, share=True, identify=True), {}, id="a shared agent")],
        pytest.param(CARTPOLE, lambda: dqn(CARTPOLE, {}, capacity=90), {}, id="ends at any time, the ring wraps"),
        pytest.param(TICTACTOE, lambda: ppo(TICTACTOE, {}, share=True), MANY, id="turns"),
        *LONG * [pytest.param(ADVERSARY, lambda: dqn(ADVERSARY, {}), {}, id="two groups")],
        *LONG * [pytest.param(SPREAD, lambda: mappo(SPREAD), {"team_reward": "mean"}, id="joined observations")],
        pytest.param(KUHN, lambda: ppo(KUHN, {}), {"rotate": True, **MANY}, id="changing seats"),
        pytest.param(
            Fading, lambda: ppo(Fading, {}), {"mask": [1, 0, 1], "exploring": [1, 1, 0]}, id="players that wait and die"
        ),
        *LONG * [
            pytest.param(CARTPOLE, lambda: ppo(CARTPOLE, {}), {"record": ["steps"]}, id="recorded fields"),
            pytest.param(KUHN, lambda: ppo(KUHN, {}), {"mask": [1, 0], "exploring": [1, 0]}, id="masks"),
            pytest.param(Fading, lambda: dqn(Fading, {}, capacity=90), {}, id="players that die, the ring wraps"),
        ],
    ],
)  # fmt: skip
def test_runs_equal_single_steps(env, make, settings, monkeypatch):
    single, expected = train(env, make(), callbacks=[Looking()], run_dir=None, **settings)
    assert isinstance(single.run.collector, SyncCollector)
    for parts in (1, 2):
        in_parts(monkeypatch, parts)
        counting = Counting()
        output, found = train(env, make(), callbacks=[counting], run_dir=None, **settings)
        assert isinstance(output.run.collector, HalvesCollector)
        assert [each.blocks for each in output.run.collector.moves] == [2] * parts
        assert max(counting.steps) > 1
        assert_same(found, expected)


@pytest.mark.parametrize(
    ("env", "settings"),
    [
        pytest.param(SPREAD, {}, id="no turns"),
        *LONG * [pytest.param(TICTACTOE, MANY, id="turns")],
        *LONG * [pytest.param(Fading, {}, id="players that wait and die")],
    ],
)
def test_runs_with_carries_equal_single_steps(env, settings, monkeypatch):
    """Rows of a sigmoid or a tanh are rounded by their place: in two parts the numbers are near, in one part equal."""
    make = partial(mt.make_agents, "ppo", env, seed=0, share=True, **GRU)
    _, expected = train(env, make(), callbacks=[Looking()], run_dir=None, **settings)
    in_parts(monkeypatch, 1)
    assert_same(train(env, make(), run_dir=None, **settings)[1], expected)
    in_parts(monkeypatch, 2)
    _, found = train(env, make(), run_dir=None, **settings)
    for name, array in found[0][0].items():
        np.testing.assert_allclose(array, expected[0][0][name], rtol=1e-4, atol=1e-6, err_msg=name)
    assert found[4] == expected[4]


def test_counted_actions_are_known_before_the_next_acts(monkeypatch):
    make = partial(dqn, CARTPOLE, {}, exploration="boltzmann_gumbel")
    _, expected = train(CARTPOLE, make(), callbacks=[Looking()], run_dir=None)
    in_parts(monkeypatch, 2)
    output, found = train(CARTPOLE, make(), run_dir=None)
    assert isinstance(output.run.collector, HalvesCollector) and len(output.run.collector.moves) == 1
    assert_same(found, expected)


def test_resume_in_the_middle_of_an_episode(tmp_path):
    """A checkpoint every 83 env steps, between two updates."""
    make = partial(ppo, TICTACTOE, {})
    train(TICTACTOE, make(), callbacks=[Checkpoint(every_steps=83, keep=9)], **MANY)
    agents, again = make(), make()
    output: Any = trainer(TICTACTOE, {}, **{**SETTINGS, **MANY, "run_dir": None})
    result = output.train(again, [1, 1], plot=False, resume="run/checkpoints/170")
    assert isinstance(output.run.collector, HalvesCollector)
    _, whole = train(TICTACTOE, agents, run_dir="whole", **MANY)
    assert_same((weights(again), tables(result)), (weights(agents), whole[2]))


def test_acts_are_dropped_with_their_noise_where_enough_episodes_have_ended(monkeypatch):
    """A function after every 3 episodes changes epsilon: no act before it has another one."""
    found, dropped, drop = [], [], HalvesCollector._drop

    def noted(collector, noises):
        dropped.append(len(noises))
        drop(collector, noises)

    monkeypatch.setattr(HalvesCollector, "_drop", noted)
    for callbacks in ([], [Looking()]):
        agents = dqn(CARTPOLE, {})

        def anneal(episodes, steps, agents=agents):
            agents[0].hyper.epsilon = 1 / (1 + episodes)

        _, left = train(CARTPOLE, agents, callbacks=callbacks, run_dir=None, num_train_envs=5, train_fn=anneal)
        found.append(left)
    assert_same(*found)
    assert sum(dropped) > 3


@pytest.mark.parametrize(
    ("parts", "kind", "method", "calls", "made"),
    [
        (1, Recorder, "finish", 0, 0), (2, Recorder, "finish", 12, 6), (2, Recorder, "finish", 13, None),
        (2, Actors, "start", 1, 0), (2, Actors, "start", 12, 6), (2, Actors, "start", 13, 6),
    ],
)  # fmt: skip
def test_an_error_of_an_agent_counts_the_batch_steps_before_it(parts, kind, method, calls, made, monkeypatch):
    """An act of the first batch step fails, or of the seventh: six batch steps of 5 environments are counted.

    The rows are torn only where one of two parts has been stepped before.
    """
    in_parts(monkeypatch, parts)
    monkeypatch.setattr(stepped, "SECONDS", 3600.0)
    whole, left = getattr(kind, method), [calls]

    def failing(*given):
        left[0] -= 1
        if left[0] < 0:
            raise AgentError("no idea")
        return whole(*given)

    monkeypatch.setattr(kind, method, failing)
    output: Any = trainer(SPREAD, {}, **{**SETTINGS, "test_freq": None, "run_dir": None})
    with pytest.raises(AgentError, match="no idea"):
        output.train(ppo(SPREAD, {}), [1, 1, 1], plot=False)
    streams = output.run.context.streams
    assert streams.torn is (made is None)
    assert (output.run.counters.env_steps, streams.rings[0].now) == (5 * (made or 0), made or 0)


def test_agents_without_a_gpu_and_sets_of_policies_act_before_the_games_are_stepped():
    agents = [*ppo(SPREAD, {})[:2], mt.RandomAgent()]
    one, _ = train(SPREAD, agents, [1, 1, 0], run_dir=None, steps_per_train=50, test_freq=None)
    other, _ = run_set(dqn_against_dqn(TICTACTOE), TICTACTOE, steps_per_train=100)
    assert [type(each.run.collector) for each in (one, other)] == [SteppedCollector] * 2


@pytest.mark.parametrize(("envs", "parts"), [(4, 1), (5, 2)])
def test_many_environments_are_divided(envs, parts):
    output, _ = train(CARTPOLE, ppo(CARTPOLE, {}), run_dir=None, steps_per_train=50, num_train_envs=envs)
    assert len(output.run.collector.moves) == parts


def test_measurements_choose_the_parts(monkeypatch):
    for parts, kind in ((0, SteppedCollector), (1, HalvesCollector)):
        in_parts(monkeypatch, parts)
        output, _ = train(CARTPOLE, ppo(CARTPOLE, {}), run_dir=None, steps_per_train=50)
        assert type(output.run.collector) is kind and len(output.run.collector.moves) == 1


def test_a_call_ends_in_time(monkeypatch):
    """A stop request waits for no more than a batch step after `SECONDS`; acts are not started for a later one."""
    monkeypatch.setattr(stepped, "SECONDS", 0.0)
    counting = Counting()
    train(SPREAD, ppo(SPREAD, {}), callbacks=[counting], run_dir=None, steps_per_train=50)
    assert set(counting.steps) == {1}
