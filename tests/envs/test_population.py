"""Copies of an environment side by side: each plays what it plays alone."""

from typing import Any

import numpy as np
import pytest

from marltrain.core.errors import ConfigError, EnvError, SaveError
from marltrain.envs import make_vector, resolve
from marltrain.envs.population import copy_name, population_of, population_spec
from marltrain.envs.python.check_env import random_actions
from tests.envs.driving import column, same, snapshot
from tests.toys import Identity, Inn, Relay

SEEDS = (3, 8, 5)
ENVS = 2


def without_copies(said, copy):
    """What a Step says of the players of a copy, by their plain names."""
    end = copy_name("", copy)
    return {
        field: kept
        for field, values in said.items()
        if (kept := {name.removesuffix(end): value for name, value in values.items() if name.endswith(end)})
    }


@pytest.mark.parametrize(
    ("env", "steps"),
    [(Relay, 25), (Inn, 20), ("marltrain/CartPole-v1", 60), ("marltrain/simple_world_comm_v3", 30),
     ("marltrain/tictactoe_v3", 20), ("gymnasium/CartPole-v1", 40)],
)  # fmt: skip
def test_a_copy_plays_the_episodes_of_its_seed(env, steps):
    """Every column of every Step, where it is valid, with the same actions; episodes end at different steps."""
    source, rng = resolve(env), np.random.default_rng(0)
    alone = [make_vector(source, num_envs=ENVS) for _ in SEEDS]
    together = make_vector(population_of(source, SEEDS), num_envs=ENVS)
    said: list[Any] = [one.reset(seed) for one, seed in zip(alone, SEEDS, strict=True)]
    step, ends = together.reset(99), np.zeros(len(SEEDS), int)
    spec = alone[0].spec
    for _ in range(steps):
        for n, own in enumerate(said):
            ends[n] += own.ended.sum()
            for e in range(ENVS):
                assert without_copies(column(together.spec, step, e), n) == column(spec, own, e)
        assert not step.ended.any()
        actions = [random_actions(spec, own, rng) for own in said]
        for one, chosen in zip(alone, actions, strict=True):
            one.send(chosen)
        said = [one.recv() for one in alone]
        joined = [np.stack([chosen[g] for chosen in actions], 1) for g in range(len(spec.groups))]
        together.send(tuple(each.reshape(-1, ENVS, *each.shape[3:]) for each in joined))
        step = together.recv()
    assert ends.min() > 0
    for one in (*alone, together):
        one.close()


def test_players_of_all_copies_form_the_groups_of_one():
    spec = population_spec(make_vector("marltrain/simple_world_comm_v3").spec, 2)
    assert spec.names[:4] == ("leadadversary_0:0", "leadadversary_0:1", "adversary_0:0", "adversary_0:1")
    assert [group.size for group in spec.groups] == [2, 6, 4]


def test_a_fault_of_a_copy_is_an_error():
    class Broken(Relay):
        def step(self, action):
            raise OSError("no more moves")

    with make_vector(population_of(resolve(Broken), [1, 2]), num_envs=1) as envs:
        envs.send(random_actions(envs.spec, envs.reset(0), np.random.default_rng(0)))
        with pytest.raises(EnvError, match="no more moves"):
            envs.recv()


@pytest.mark.parametrize(
    "asked", [{"vector": "subproc"}, {"with_state": True}, {"record": ["length"]}, {"on_fault": "restart"}]
)
def test_a_population_is_refused_where_it_cannot_be_played(asked):
    with pytest.raises(ConfigError, match="a population of environments is played in this process"):
        make_vector(population_of(resolve(Relay), [1, 2]), **asked)
    with pytest.raises(ConfigError, match="the seed of at least one copy"):
        population_of(resolve(Relay), [])


def stepped(vector, step, count, seed):
    """Copies of the `joined` Steps under random actions drawn from `seed`."""
    rng = np.random.default_rng(seed)
    seen: list[Any] = []
    for _ in range(count):
        step = vector.step(random_actions(vector.spec, step, rng))
        seen.append({**snapshot(vector.joined), **snapshot(step)})
    return seen


@pytest.mark.parametrize("env", [Relay, "marltrain/CartPole-v1", "marltrain/tictactoe_v3"])
def test_a_restored_population_goes_on_as_the_saved_one(env):
    """Also the events of each copy, which `joined` tells."""
    source = population_of(resolve(env), SEEDS)
    with make_vector(source, num_envs=ENVS, recording=True) as vector:
        stepped(vector, vector.reset(0), 17, seed=0)
        state, at = vector.state(), snapshot(vector._step)
        expected = stepped(vector, vector._step, 40, seed=1)
    with make_vector(source, num_envs=ENVS, recording=True) as again:
        step, lost = again.restore(state)
        assert lost == [] and same(at, snapshot(step))
        assert all(np.array_equal(array, state[name]) for name, array in again.state().items())
        assert all(same(a, b) for a, b in zip(expected, stepped(again, step, 40, seed=1), strict=True))


class Moody(Identity):
    """Shows another symbol in step 2 of the first environment of a copy that is told to."""

    told = False

    def step(self, actions):
        answer = super().step(actions)
        if self.told and self.t == 2:
            type(self).told = False
            self.symbols = {name: (symbol + 1) % self.choices for name, symbol in self.symbols.items()}
            return dict(self.symbols), *answer[1:]
        return answer


def test_where_an_environment_of_one_copy_begins_anew_those_of_all_copies_do(monkeypatch):
    """Episodes of 3 steps: after 5 steps all environments are 2 steps into their episode 1."""
    source = population_of(resolve(Moody, {"length": 3}), SEEDS)
    with make_vector(source, num_envs=ENVS, recording=True) as vector:
        stepped(vector, vector.reset(0), 5, seed=0)
        state = vector.state()
    monkeypatch.setattr(Moody, "told", True)
    again: Any = make_vector(source, num_envs=ENVS, recording=True)
    with again:
        step, ((lost, reason),) = again.restore(state)
        assert lost == 0 and "episode 1 (seed" in reason and "step 2: played again, player 'player_" in reason
        assert step.ended.tolist() == [True, False] and not step.truncated.any()
        assert not step.reward[:, 0].any()
        assert np.array_equal(step.reward[:, 1], state["step/reward"][:, 1])
        ends = [again.joined.ended.tolist() for _ in range(3) if stepped(again, step, 1, seed=0)]
        assert ends == [[False, True] * 3, [False, False] * 3, [True, False] * 3]
        assert not step.ended.any() and not any(name.startswith("envs/3/") for name in again.state())


def test_a_state_of_other_copies_is_refused():
    source = resolve(Relay)
    with make_vector(population_of(source, SEEDS), num_envs=ENVS, recording=True) as vector:
        stepped(vector, vector.reset(0), 3, seed=0)
        state = vector.state()
        with pytest.raises(SaveError, match=r"envs/envs/2/moves/0 must be int64 of shape \(6, 3"):
            vector.restore(state | {"envs/2/moves/0": state["envs/2/moves/0"][:-1]})
        with pytest.raises(SaveError, match="envs/envs/1/seed is missing"):
            vector.restore({name: array for name, array in state.items() if name != "envs/1/seed"})
