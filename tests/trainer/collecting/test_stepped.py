"""Batch steps of native games whose agents act in Python equal single batch steps: complete runs, bit for bit."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch

import marltrain as mt
from marltrain.core.errors import AgentError
from marltrain.trainer.collecting import stepped, work
from marltrain.trainer.collecting.rollout import Recorder, SyncCollector
from marltrain.trainer.collecting.stepped import SteppedCollector
from marltrain.trainer.saving.checkpoint import Checkpoint
from tests.tiers import LONG
from tests.trainer.collecting.test_fused import (
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
from tests.trainer.collecting.test_fused_games import run_league
from tests.trainer.collecting.test_fused_sets import dqn_against_dqn, run as run_set
from tests.trainer.collecting.test_fused_turns import KUHN, MANY, TICTACTOE, nfsp
from tests.trainer.running import SMALL, dqn, ppo, tables, trainer, weights

GRU: dict[str, Any] = {"network": mt.GRU((6,), units=7, sequence_length=4), "minibatches": 2, "epochs": 1}
FADING: list[tuple[str, Any, dict[str, Any]]] = [
    ("dqn with a ring that wraps", lambda: dqn(Fading, {}, capacity=90), {}),
    *LONG
    * [
        ("ppo", lambda: ppo(Fading, {}), {}),
        ("carries", lambda: mt.make_agents("ppo", Fading, seed=0, share=True, **GRU), {}),
        ("joined observations", lambda: mappo(Fading), {"team_reward": "mean"}),
    ],
]


@pytest.fixture(autouse=True)
def in_python(monkeypatch):
    """Agents act in Python, as if their networks were on a GPU; every batch step is divided."""
    monkeypatch.setattr("marltrain.trainer.collecting.fused.can_fuse", lambda _: False)
    monkeypatch.setattr(work, "MEASURED", 1)
    monkeypatch.setattr(work, "LEAST", 1e-12)


@pytest.fixture
def set_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def blocks(output):
    """Return the number of blocks in which games are stepped, and that in which steps are recorded."""
    return [each.blocks for each in (*output.run.collector.moves, output.run.collector.records)]


def runs_of(env, make, threads, set_threads, **settings):
    """Return what is left of a run in single steps, and of runs in several numbers of threads."""
    single, expected = train(env, make(), callbacks=[Looking()], run_dir=None, **settings)
    assert isinstance(single.run.collector, SyncCollector)
    found = []
    for count in threads:
        set_threads(count)
        counting = Counting()
        output, left = train(env, make(), callbacks=[counting], run_dir=None, **settings)
        assert isinstance(output.run.collector, SteppedCollector)
        assert blocks(output) == [min(count, 5)] * 2
        assert max(counting.steps) > 3
        found.append(left)
    return expected, found


@pytest.mark.parametrize(
    ("env", "make", "settings"),
    [
        pytest.param(SPREAD, lambda: ppo(SPREAD, {}), {}, id="ppo"),
        *LONG * [
            pytest.param(CARTPOLE, lambda: dqn(CARTPOLE, {}, capacity=90), {}, id="ends at any time, the ring wraps"),
            pytest.param(TICTACTOE, lambda: dqn(TICTACTOE, {}, share=True, identify=True), MANY, id="turns"),
        ],
    ],
)  # fmt: skip
def test_threads_make_the_same_run(env, make, settings, set_threads):
    """5 environments, in blocks of 5, of 2 and 3, of 1, 2 and 2, and of 1."""
    expected, found = runs_of(env, make, (1, 2, 3, 64), set_threads, **settings)
    for result in found:
        assert_same(result, expected)


def test_the_threads_end_with_the_run(set_threads):
    set_threads(3)
    before = set(threading.enumerate())
    output, _ = train(SPREAD, ppo(SPREAD, {}), run_dir=None)
    assert blocks(output) == [3, 3]
    assert not [each for each in set(threading.enumerate()) - before if each.name.startswith("marltrain-compiled")]


@pytest.mark.parametrize(
    ("env", "make", "settings"),
    [
        pytest.param(SPREAD, lambda: mt.make_agents("ppo", SPREAD, seed=0, **GRU), {}, id="carries"),
        *LONG
        * [pytest.param(TICTACTOE, lambda: mt.make_agents("ppo", TICTACTOE, seed=0, **GRU), MANY, id="carries, turns")],
        pytest.param(SPREAD, lambda: mappo(SPREAD), {"team_reward": "mean"}, id="joined observations, team reward"),
        pytest.param(SPREAD, lambda: mt.make_agents("qmix", SPREAD, seed=0, learning_starts=20, network=SMALL),
                     {"team_reward": "sum"}, id="a team that learns from transitions"),
        pytest.param(CARTPOLE, lambda: ppo(CARTPOLE, {}), {"record": ["steps"]}, id="recorded fields"),
        pytest.param(KUHN, lambda: ppo(KUHN, {}), {"collect": "overlap", **MANY}, id="asynchronous updates"),
        pytest.param(KUHN, lambda: ppo(KUHN, {}), {"mask": [1, 0], "exploring": [1, 0]}, id="masks"),
        pytest.param(KUHN, lambda: nfsp(jit_compile=False), {"mask": [1, 0], **MANY}, id="reservoirs"),
        *(pytest.param(Fading, make, settings, id=f"players that die, {name}") for name, make, settings in FADING),
    ],
)  # fmt: skip
def test_runs_equal_single_steps(env, make, settings, set_threads):
    set_threads(2)
    _, expected = train(env, make(), callbacks=[Looking()], run_dir=None, **settings)
    output, found = train(env, make(), run_dir=None, **settings)
    assert isinstance(output.run.collector, SteppedCollector)
    assert_same(found, expected)


def test_runs_of_rivals_equal_single_steps(set_threads):
    set_threads(2)
    found = []
    for callbacks in ([Looking()], []):
        runs = [
            train(TICTACTOE, dqn(TICTACTOE, {}), callbacks=callbacks, run_dir=None, rotate=True, **MANY),
            run_league(lambda: ppo(TICTACTOE, {}), callbacks),
            run_set(dqn_against_dqn(TICTACTOE), TICTACTOE, callbacks=callbacks),
        ]
        kind = SyncCollector if callbacks else SteppedCollector
        assert [type(output.run.collector) for output, _ in runs] == [kind] * 3
        found.append([left for _, left in runs])
    for one, other in zip(*found, strict=True):
        assert_same(one, other)


def test_resume_in_the_middle_of_an_episode(tmp_path):
    """A checkpoint every 83 env steps, between two updates."""
    make = (lambda: dqn(TICTACTOE, {}, capacity=90)) if LONG else (lambda: ppo(TICTACTOE, {}))
    train(TICTACTOE, make(), callbacks=[Checkpoint(every_steps=83, keep=9)], **MANY)
    agents, again = make(), make()
    output: Any = trainer(TICTACTOE, {}, **{**SETTINGS, **MANY, "run_dir": None})
    result = output.train(again, [1, 1], plot=False, resume="run/checkpoints/170")
    assert isinstance(output.run.collector, SteppedCollector)
    _, whole = train(TICTACTOE, agents, run_dir="whole", **MANY)
    assert_same((weights(again), tables(result)), (weights(agents), whole[2]))


@pytest.mark.parametrize("made", [0, 6])
def test_an_error_of_an_agent_counts_the_batch_steps_before_it(made, monkeypatch):
    """The first act fails, or the seventh: six batch steps of 5 environments are counted, as in single steps."""
    act = Recorder.act
    for callbacks in ([], [Looking()]):
        left = [made]

        def failing(recorder, step, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise AgentError("no idea")
            act(recorder, step)

        monkeypatch.setattr(Recorder, "act", failing)
        output: Any = trainer(SPREAD, {}, **{**SETTINGS, "test_freq": None, "run_dir": None}, callbacks=callbacks)
        with pytest.raises(AgentError, match="no idea"):
            output.train(ppo(SPREAD, {}), [1, 1, 1], plot=False)
        assert (output.run.counters.env_steps, output.run.context.streams.rings[0].now) == (5 * made, made)
        assert not output.run.context.streams.torn


def test_an_illegal_action_raises_the_error_of_single_steps():
    class Wrong(mt.Agent):
        def act(self, observation, legal=None, explore=False):
            return 9 if np.ndim(observation) == 1 else np.full(len(observation), 9, np.int64)

    texts = []
    for callbacks in ([], [Looking()]):
        with pytest.raises(mt.MarlTrainError) as error:
            train(SPREAD, [*ppo(SPREAD, {})[:2], Wrong()], [1, 1, 0], callbacks=callbacks, run_dir=None, test_freq=None)
        texts.append(str(error.value))
    assert texts[0] == texts[1]


def test_a_call_ends_in_time(monkeypatch):
    """A stop request waits for no more than a batch step after `SECONDS`."""
    monkeypatch.setattr(stepped, "SECONDS", 0.0)
    counting = Counting()
    train(SPREAD, ppo(SPREAD, {}), callbacks=[counting], run_dir=None, steps_per_train=50)
    assert set(counting.steps) == {1}


def test_little_work_is_not_divided(monkeypatch, set_threads):
    """One block until the work was measured; then as many as have enough of it."""
    set_threads(8)
    monkeypatch.setattr(work, "LEAST", 3600.0)
    output, _ = train(SPREAD, ppo(SPREAD, {}), run_dir=None, steps_per_train=50)
    assert blocks(output) == [1, 1]
