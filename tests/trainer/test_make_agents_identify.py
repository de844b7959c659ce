"""Shared agents that observe which player they act for: runs, tests in other seats, resume."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo.utils.wrappers import BaseParallelWrapper

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from tests.toys import Crowd, Identity
from tests.trainer.running import SMALL, dqn, ppo, trainer, weights

SHARED: dict[str, Any] = {"share": True, "identify": True}
THREE = {"players": 3, "length": 3}


class Naming(BaseParallelWrapper):
    """Crowd, in which the reds observe their one-hots: the environment's side does what `identify` does."""

    def __init__(self) -> None:
        super().__init__(Crowd())

    def observation_space(self, agent):
        plain = self.env.observation_space(agent)
        return plain if agent == "blue" else spaces.Box(0, 100, (4,), np.float32)

    def reset(self, seed=None, options=None):
        seen, infos = self.env.reset(seed=seed, options=options)
        return self._named(seen), infos

    def step(self, actions):
        seen, *rest = self.env.step(actions)
        return self._named(seen), *rest

    def _named(self, seen):
        hot = {"red_0": [1, 0], "red_1": [0, 1], "blue": []}
        return {name: np.concatenate([one, np.array(hot[name], np.float32)]) for name, one in seen.items()}


def qmix(env, env_args, **settings):
    """Agents of one team."""
    own: dict[str, Any] = {"seed": 0, "network": SMALL, "learning_starts": 0, "update_per_step": 0.2, **settings}
    return mt.make_agents("qmix", env, env_args=env_args, **own)


@pytest.mark.parametrize("make", [ppo, dqn, qmix])
def test_it_is_the_training_on_observations_with_one_hots(make):
    """Every bit of the weights and of the tests; the reds' seats are not adjacent, and one of them dies early."""
    found = []
    for env, more in ((Crowd, SHARED), (Naming, {"share": True})):
        agents = make(env, {}, **more)
        run = trainer(env, {}, steps_per_train=120, test_freq=20, team_reward="mean")
        result = run.train(agents, [1, 1, 1], plot=False)
        found.append((weights(agents), result["reward_metric_stats"]))
    (ours, stats), (theirs, expected) = found
    assert stats == expected
    for mine, other in zip(ours, theirs, strict=True):
        assert all((mine[name] == array).all() for name, array in other.items())


def test_players_with_spaces_of_their_own_have_no_identity():
    agents: list[Any] = ppo(Crowd, {}, **SHARED)
    assert [agent.identity for agent in agents] == [("red_0", "red_1"), (), ("red_0", "red_1")]
    partial: list[Any] = mt.make_agents({"red_0": "ppo", "*": "dqn"}, Crowd, **SHARED)
    assert [agent.identity for agent in partial] == [("red_0", "red_1"), (), ("red_0", "red_1")]
    assert partial[0] is not partial[2]
    assert all(not agent.identity for agent in mt.make_agents("random", Crowd, **SHARED))


def naming_its_seat():
    """An agent for the three players of Identity whose action is the number of its seat."""
    agent: Any = ppo(Identity, THREE, network=mt.MLP(()), **SHARED)[0]
    state = agent.learner_.export(0)
    for name, array in state.arrays.items():
        array[...] = 0
        if name == "net/actor/head0.weight":
            array[3:] = 9 * np.eye(3)
    agent.learner_.load(0, state)
    return agent


class Places(Identity):
    """The symbol of a player is always its number."""

    def _draw(self, names=None):
        self.symbols = {name: int(name[-1]) for name in names or self.agents}
        return dict.fromkeys(self.symbols, 0)


def test_it_acts_for_the_seat_in_which_it_sits():
    """In the tests of a line-up it takes each seat in turn; with random agents it knows its seat as well."""
    agent, results = naming_its_seat(), []

    class Keep(mt.Callback):
        def on_test_end(self, moment):
            results.append(moment.data["result"])

    run = trainer(Places, THREE, episodes_per_test=6, steps_per_train=9, update_freq=9, callbacks=[Keep()])
    line_up = [agent, mt.RandomAgent(seed=1), mt.RandomAgent(seed=2)]
    run.train([agent] * 3, [1, 1, 1], test_agents=line_up, plot=False)
    first = results[0]
    assert first.seats[:, 0].tolist() == [0, 1, 2] * 2
    assert (first.returns[:, 0] == 3.0).all()
    assert (first.returns[:, 1:] != 3.0).any()
    agent = naming_its_seat()
    assert (run.test([agent] * 3, 4).returns == 3.0).all()
    assert (run.test([mt.FrozenAgent(agent)] * 3, 4).returns == 3.0).all()


def test_a_player_of_another_environment_is_refused():
    agent = naming_its_seat()

    class Renamed(Identity):
        def __init__(self):
            super().__init__(**THREE)
            self.possible_agents = ["player_0", "player_1", "guest"]

    text = "player 'guest': the PPO given for it tells the players player_0, player_1, player_2 apart, and no other"
    with pytest.raises(AgentError, match=text):
        trainer(Renamed, {}).train([agent] * 3, [1, 1, 1], plot=False)


class Loner(mt.Agent):
    """An agent that takes no identity."""

    def act(self, observation, legal=None, explore=False):
        return np.zeros(len(observation), int)


@pytest.mark.parametrize(
    ("name", "settings", "told"),
    [
        ("ppo", {"identify": True}, "identify=True tells .* with share=False each .*: add share=True, or leave"),
        ("ppo", {"share": True, "identify": 1}, "identify must be True or False, got 1"),
        ("ppo", {"identity": ("a",)}, "identity is set by the environment: leave it out"),
        (Loner, SHARED, "player 'player_0': .* Loner takes no argument identity: leave identify out"),
    ],
)
def test_wrong_arguments(name, settings, told):
    with pytest.raises(ConfigError, match=told):
        mt.make_agents(name, Identity, **settings)


@pytest.mark.parametrize("make", [ppo, dqn])
def test_a_resumed_run_is_the_uninterrupted_one(make, tmp_path):
    arrays = []
    for name, lengths in (("whole", (120,)), ("parts", (60, 120))):
        for steps in lengths:
            resumed = {"resume": tmp_path / name} if steps > lengths[0] else {}
            agents = make(Identity, THREE, **SHARED)
            trainer(
                Identity, THREE, steps_per_train=steps, callbacks=[mt.Checkpoint(every_steps=30)],
                run_dir=None if resumed else tmp_path / name,
            ).train(agents, [1, 1, 1], plot=False, **resumed)  # fmt: skip
        arrays.append(weights(agents))
    for one, other in zip(*arrays, strict=True):
        assert all((one[name] == array).all() for name, array in other.items())
