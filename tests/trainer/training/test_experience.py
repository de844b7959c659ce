"""Observed transitions in a run: which agents take them, how they are checked, and that updates draw them."""

import re
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError, SpecError
from marltrain.envs import resolve
from marltrain.envs.python.probe import probe
from marltrain.policies.memory.observed import ObservedRows
from marltrain.trainer.jobs.messages import Experience
from marltrain.trainer.training.experience import check_rows, memory_of, rows_of, store
from tests.toys import Identity, Relay
from tests.trainer.running import SHORT, SMALL, dqn, noted_batches, ppo, trainer

SENTINEL = 777.0


class Runner(mt.Callback):
    """Gives transitions of a player to a run at every batch step, and asks which agents take them."""

    def __init__(self, player="player_1", ask=()):
        self.player, self.ask, self.experience, self.answers = player, ask, Experience(), []

    def on_collect(self, moment):
        run = moment.trainer.run
        for name in self.ask:
            try:
                memory_of(run, self.experience, name)
                self.answers.append("")
            except ConfigError as error:
                self.answers.append(str(error))
        self.ask = ()
        if self.player:
            seen = rows_of(run.context.envs.spec.players[1], [0, 1, 2], [0, 1, 2], [SENTINEL] * 3, [2, 1, 0],
                           [False, False, True], None, None)  # fmt: skip
            self.experience.waiting.append((self.player, seen))
            store(run, self.experience)


@pytest.mark.parametrize("collect", ["serial", "overlap"])
def test_updates_draw_observed_transitions_of_the_player_alone(monkeypatch, collect):
    """Three observed transitions come at each batch step of three environments."""
    batches, runner = noted_batches(monkeypatch), Runner()
    trainer(steps_per_train=42, run_dir=False, test_freq=None, callbacks=[runner], collect=collect).train(
        dqn(), [1, 1], plot=False
    )
    assert runner.experience.stored == 42
    drawn = np.stack([(batch.reward == SENTINEL).mean(1) for batch in batches])
    assert (drawn[:, 0] == 0).all() and drawn[-1, 1] > 0.3
    last = batches[-1]
    seen = last.reward[1] == SENTINEL
    symbol = last.obs[1].argmax(-1)
    assert np.array_equal(last.action[1][seen], symbol[seen])
    assert np.array_equal(last.next_obs[1][seen].argmax(-1), 2 - symbol[seen])
    assert np.array_equal(last.discount[1][seen] == 0, symbol[seen] == 2)


def test_agents_that_cannot_learn_from_observed_transitions_are_named():
    result = {
        "dqn": dqn(), "sac": mt.make_agents("sac", Identity, env_args=SHORT, seed=0, network=SMALL),
        "ppo": ppo(), "rainbow": mt.make_agents("rainbow", Identity, env_args=SHORT, seed=0, network=SMALL),
        "gru": dqn(network=mt.GRU((4,))), "vdn": mt.make_agents("vdn", Identity, env_args=SHORT, seed=0, network=SMALL),
    }  # fmt: skip
    found = {}
    for name, agents in result.items():
        asking = Runner(player="", ask=("player_0",))
        trainer(steps_per_train=3, run_dir=False, test_freq=None, callbacks=[asking]).train(agents, [1, 1], plot=False)
        found[name] = asking.answers[0]
    assert found.pop("dqn") == found.pop("sac") == ""
    reasons = {"ppo": "on-policy", "rainbow": "priorities", "gru": "recurrent", "vdn": "team"}
    assert found.keys() == reasons.keys()
    for name, text in found.items():
        assert text.startswith("the agent of 'player_0' cannot learn from observed transitions: it"), text
        assert reasons[name] in text
    asking = Runner(player="", ask=("player_0",))
    agents = [mt.RandomAgent(), dqn()[1]]
    trainer(steps_per_train=3, run_dir=False, test_freq=None, callbacks=[asking]).train(agents, [0, 1], plot=False)
    assert "it never learns" in asking.answers[0]


GOOD = {"observation": [0, 1], "action": [0, 1], "reward": [0.0, 1.0], "next_observation": [1, 2],
        "terminated": [False, True], "legal": None, "next_legal": None}  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"action": [0, 3]}, r"action must be one element of Discrete\(3\) for each of 2 transitions, got \[0, 3\]"),
        ({"action": 0}, "action must be one element"),
        ({"reward": [0.0]}, r"reward must be one value for each of 2 transitions, got \[0.0\]"),
        ({"reward": [0.0, np.nan]}, "rewards must be finite"),
        ({"terminated": False}, "terminated must be one value"),
        ({"next_observation": [1, 2, 0]}, "there are 2 observations, and next_observation holds another number"),
        ({"observation": ["x", "y"]}, "observation"),
    ],
)
def test_wrong_transitions_are_refused(wrong, message):
    player = probe(resolve(Identity)).players[0]
    rows_of(player, **GOOD)
    with pytest.raises(SpecError, match=message):
        rows_of(player, **{**GOOD, **wrong})


@pytest.mark.parametrize("wrong", ["observation", "next_observation"])
def test_observations_must_be_finite(wrong):
    player = probe(resolve(Relay)).players[0]
    good, bad = np.zeros((2, 3)), np.array([[0, 0, 0], [0, np.nan, 0]])
    given = {"observation": good, "next_observation": good, "legal": np.ones((2, 3)), "next_legal": np.ones((2, 3))}
    rows_of(player, **{**GOOD, **given})
    with pytest.raises(SpecError, match="expected a finite number"):
        rows_of(player, **{**GOOD, **given, wrong: bad})


def test_legal_actions_are_read_from_arguments_and_observations():
    """A single transition of a player whose observation holds its mask."""
    player = probe(resolve(Relay)).players[0]
    seen = {"observation": np.zeros(3, np.float32), "action_mask": np.array([1, 0, 1], np.int8)}
    after = {"observation": np.ones(3, np.float32), "action_mask": np.array([0, 1, 0], np.int8)}
    one: Any = rows_of(player, seen, 2, 1.5, after, False, None, None)
    assert (one.legal.tolist(), one.next_legal.tolist()) == ([[True, False, True]], [[False, True, False]])
    assert one.action.tolist() == [2] and one.reward.tolist() == [1.5] and one.obs.shape == (1, 3)
    last: Any = rows_of(player, seen, 2, 1.5, np.ones(3, np.float32), True, None, [0, 0, 0])
    assert last.next_legal.tolist() == [[True] * 3] and last.terminated.tolist() == [True]
    for wrong, message in (({"next_legal": [0, 0, 0]}, "no action is legal, and terminated is False"),
                           ({"next_legal": [1, 1]}, r"next_legal has shape (1, 2), legal has (1, 3)"),
                           ({}, "'ann' has legal actions: give legal= and next_legal=")):  # fmt: skip
        given = {"next_legal": None, **wrong}
        with pytest.raises(SpecError, match=re.escape(message)):
            rows_of(player, seen, 2, 1.5, np.ones(3, np.float32), False, None, **given)


def test_transitions_for_other_agents_are_dropped_with_a_warning():
    """As of a handle that was made for an earlier run of this name."""
    runner = Runner()
    with pytest.warns(UserWarning, match="3 observed transitions are dropped: the agent of 'player_1' cannot learn"):
        trainer(steps_per_train=3, run_dir=False, test_freq=None, callbacks=[runner]).train(ppo(), [1, 1], plot=False)
    assert runner.experience.stored == 0


FITTING = ObservedRows(
    np.zeros((2, 3), np.float32), np.ones((2, 3), bool), np.array([0, 2]), np.zeros(2, np.float32),
    np.array([False, True]), np.ones((2, 3), np.float32), np.ones((2, 3), bool),
)  # fmt: skip
MISFITS: dict[str, tuple[dict[str, Any], str]] = {
    "another space": ({"obs": np.zeros((2, 4), np.float32)}, r"is \(4,\) float32, those of 'ann' .* \(3,\) float32"),
    "another dtype": ({"action": np.zeros(2, np.float32)}, "their action is .* float32, .* int64"),
    "a mapping": ({"next_obs": {"vector": np.zeros((2, 3), np.float32)}}, "their next_obs is {'vector'"),
    "no masks": ({"legal": None, "next_legal": None}, r"their legal is None, .* \(3,\) bool"),
    "nothing legal": ({"next_legal": np.array([[1, 1, 1], [0, 0, 0]], bool)}, "those of 'ann' .* have a legal action"),
    "not finite": ({"obs": np.full((2, 3), np.nan, np.float32)}, "those of 'ann' .* have finite values"),
    "an unknown action": ({"action": np.array([0, 3])}, r"have finite values, and actions of Discrete\(3\)"),
    "other lengths": ({"next_obs": np.zeros((3, 3), np.float32)}, "have arrays of equal length"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISFITS)
def test_transitions_that_do_not_fit_the_player_are_refused(case):
    player = probe(resolve(Relay)).players[0]
    check_rows(player, FITTING)
    wrong, message = MISFITS[case]
    with pytest.raises(SpecError, match=message):
        check_rows(player, replace(FITTING, **wrong))


class Sender(mt.Callback):
    """Gives transitions to a run once, then lets it store what time allows."""

    def __init__(self, *rows):
        self.experience, self.stored = Experience([("player_1", each) for each in rows]), []

    def on_collect(self, moment):
        if len(self.stored) < 2:
            store(moment.trainer.run, self.experience)
            self.stored.append(self.experience.stored)


def fitting(rows):
    """Transitions that fit Identity."""
    obs, zeros = np.eye(3, dtype=np.float32)[np.zeros(rows, int)], np.zeros(rows, np.float32)
    return ObservedRows(obs, None, np.zeros(rows, int), zeros, zeros > 0, obs, None)


def test_transitions_of_another_space_are_dropped_and_training_goes_on():
    sender = Sender(FITTING, fitting(5))
    with pytest.warns(UserWarning, match="2 observed transitions are dropped: their legal is .* 'player_1' .* None"):
        trainer(steps_per_train=6, run_dir=False, test_freq=None, callbacks=[sender]).train(dqn(), [1, 1], plot=False)
    assert sender.stored == [5, 5]


def test_storing_takes_a_limited_time(monkeypatch):
    """The clock goes on by 0.04 s at each look: three parts of 128 are stored, then storing rests."""
    clock = count(0.0, 0.04)
    monkeypatch.setattr("marltrain.trainer.training.experience.time", SimpleNamespace(monotonic=lambda: next(clock)))
    sender = Sender(fitting(1000), fitting(3))
    trainer(steps_per_train=6, run_dir=False, test_freq=None, callbacks=[sender]).train(dqn(), [1, 1], plot=False)
    assert sender.stored == [256, 256] and [len(rows) for _, rows in sender.experience.waiting] == [744, 3]
