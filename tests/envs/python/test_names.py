"""Players whose names in the environment are no text: an episode equals that of the same game with names of text."""

from enum import Enum
from typing import Any

import numpy as np
import pytest
from pettingzoo import AECEnv, ParallelEnv
from pettingzoo.utils import BaseWrapper
from pettingzoo.utils.conversions import parallel_to_aec

import marltrain as mt
from marltrain.core.errors import EnvError, SpecError
from marltrain.envs import DummyVectorEnv, make_vector, probe
from tests.envs.driving import act, column, random_run, same
from tests.toys import Crowd, Identity, Inn, Relay


class Color(Enum):
    """Names of players."""

    RED, BLUE, GREEN = range(3)

    def __str__(self) -> str:
        return self.name.lower()


class Renamed:
    """A game whose player i has the name keys[i]; it accepts no other name."""

    def __init__(self, env: Any, keys: Any) -> None:
        self.game, self.render_mode = env, None
        self.metadata = {"name": "renamed", "is_parallelizable": True}
        self._key, self._name = (
            dict(pairs)
            for pairs in (
                zip(env.possible_agents, keys, strict=True),
                zip(keys, env.possible_agents, strict=True),
            )
        )
        self.possible_agents = list(keys)

    def observation_space(self, agent):
        return self.game.observation_space(self._name[agent])

    def action_space(self, agent):
        return self.game.action_space(self._name[agent])

    def _keyed(self, values):
        return {self._key[name]: value for name, value in values.items()}

    def state(self):
        return self.game.state()


class RenamedParallel(Renamed, ParallelEnv):
    def reset(self, seed=None, options=None):
        seen, infos = self.game.reset(seed=seed)
        self.agents = [self._key[name] for name in self.game.agents]
        return self._keyed(seen), self._keyed(infos)

    def step(self, actions):
        answers = self.game.step({self._name[key]: action for key, action in actions.items()})
        self.agents = [self._key[name] for name in self.game.agents]
        return tuple(map(self._keyed, answers))


class RenamedTurns(Renamed, AECEnv):
    def reset(self, seed=None, options=None):
        self.game.reset(seed=seed)
        self._read()

    def step(self, action):
        self.game.step(action)
        self._read()

    def observe(self, agent):
        return self.game.observe(self._name[agent])

    def _read(self):
        game = self.game
        self.agents = [self._key[name] for name in game.agents]
        self.agent_selection = self._key[game.agent_selection]
        self.rewards, self._cumulative_rewards = self._keyed(game.rewards), self._keyed(game._cumulative_rewards)
        self.terminations, self.truncations = self._keyed(game.terminations), self._keyed(game.truncations)
        self.infos = self._keyed(game.infos)


class OwnLast(BaseWrapper):
    def last(self, observe=True):
        return super().last(observe)


GAMES = [
    (Crowd, lambda keys: RenamedParallel(Crowd(), keys)),
    (lambda: parallel_to_aec(renamable()), lambda keys: parallel_to_aec(RenamedParallel(Crowd(), keys))),
    (Relay, lambda keys: RenamedTurns(Relay(), keys)),
    (lambda: OwnLast(Relay()), lambda keys: OwnLast(RenamedTurns(Relay(), keys))),
]


def renamable():
    """Crowd with a metadata entry that `parallel_to_aec` reads."""
    crowd = Crowd()
    crowd.render_mode = None
    return crowd


@pytest.mark.parametrize("keys", [(0, 1, 2), (np.int64(7), np.int64(3), np.int64(5)), (("a", 1), ("a", 2), "b"), Color])
@pytest.mark.parametrize("game", range(4))
def test_the_episodes_are_those_of_names_of_text(game, keys):
    plain, other = GAMES[game]
    expected = DummyVectorEnv(plain, 2)
    vector = DummyVectorEnv(lambda: other(list(keys)), 2)
    assert vector.spec.names == tuple(map(str, keys)) and vector.spec.keys == tuple(keys)
    runs = random_run(expected, 30), random_run(vector, 30)
    assert all(same(one, two) for one, two in zip(*runs, strict=True))
    assert any(one["reward 0 0"].any() for one in runs[0])


def test_players_that_return_and_die_have_the_returns_of_the_script():
    vector = DummyVectorEnv(lambda: RenamedTurns(Inn(), range(4)), 1)
    step = vector.reset(0)
    total = step.start_reward[:, 0].astype(float)
    while not step.ended[0]:
        step = vector.step(act(vector.spec))
        total += step.reward[:, 0]
    assert total.tolist() == list(Inn.RETURNS)


def test_workers_know_the_names():
    local, workers = (
        make_vector(lambda: RenamedParallel(Crowd(), Color), None, 3, vector=vector, with_state=True)
        for vector in ("dummy", "subproc")
    )
    with workers:
        assert all(same(*pair) for pair in zip(random_run(local, 12), random_run(workers, 12), strict=True))


def test_masks_are_declared_by_the_environments_names():
    def make():
        env = RenamedParallel(Crowd(), (0, 1, 2))
        env.metadata |= {"action_mask": [1]}
        return env

    spec = probe(make)
    assert [player.masked for player in spec.players] == [False, True, False]


def test_frames_are_stacked():
    vector = DummyVectorEnv(mt.FrameStack(lambda: RenamedParallel(Crowd(), (0, 1, 2)), 2), 1)
    vector.reset(0)
    step = vector.step(act(vector.spec))
    assert column(vector.spec, step)["obs"]["2"] == [0, 1, 1, 1]


class Named(Identity):
    def __init__(self, names):
        super().__init__()
        self.possible_agents = list(names)


class Nameless:
    pass


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("wolf", "hare", "wolf"), "possible_agents names 'wolf' twice: give every player a name of its own"),
        ((0, 1, "0"), "possible_agents names '0' by 0 and '0', whose text is the same: give every player a name"),
        ((Nameless(), "a"), "tables and files label a player by the text of its name, which must be the"),
        ((None, "a"), r"possible_agents holds None \(NoneType\), but tables and files label a player by the text"),
        (("", "a"), r"possible_agents holds '' \(str\), but tables and files label a player by the text of its name"),
    ],
)
def test_names_are_keys_with_different_texts(names, said):
    with pytest.raises(SpecError, match=said):
        probe(Named, {"names": names})


def test_a_stranger_is_named_as_the_environment_names_it():
    class Strange(RenamedParallel):
        def step(self, actions):
            seen, *rest = super().step(actions)
            return seen | {7: seen[0]}, *rest

    vector = DummyVectorEnv(lambda: Strange(Crowd(), (0, 1, 2)), 1)
    vector.reset(0)
    with pytest.raises(EnvError, match=r"observations are given for 7, not in possible_agents \(0, 1, 2\)"):
        vector.step(act(vector.spec, **{"1": 1}))


def test_check_env_accepts_them():
    assert str(mt.check_env(lambda: RenamedParallel(Crowd(), (0, 1, 2)), strict=False)).count("problem") == 0
