"""Observed transitions in a run: which agents take them, how they are checked, and that updates draw them."""

import re
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.envs import resolve
from marltrain.envs.python.probe import probe
from marltrain.errors import ConfigError, SpecError
from marltrain.trainer.jobs.experience import memory_of, rows_of, store
from marltrain.trainer.jobs.messages import Experience
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
    made = {
        "dqn": dqn(), "sac": mt.make_agents("sac", Identity, env_args=SHORT, seed=0, network=SMALL),
        "ppo": ppo(), "rainbow": mt.make_agents("rainbow", Identity, env_args=SHORT, seed=0, network=SMALL),
        "gru": dqn(network=mt.GRU((4,))), "vdn": mt.make_agents("vdn", Identity, env_args=SHORT, seed=0, network=SMALL),
    }  # fmt: skip
    found = {}
    for name, agents in made.items():
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
