"""Environments that go on where others were: the same Steps from there, however they are spread."""

from typing import Any

import numpy as np
import pytest

from marltrain.core.errors import ConfigError, SaveError
from marltrain.envs import make_vector
from marltrain.envs.python.check_env import random_actions
from tests.envs.driving import same, snapshot
from tests.faulty_toys import Forgetful
from tests.tiers import LONG
from tests.toys import Crowd, Identity, Motley, Relay

PLACES = [{}, {"vector": "subproc", "num_workers": 1}, {"vector": "subproc", "num_workers": 3}]


def steps(vector, step, count, seed):
    """Copies of `count` Steps under random actions drawn from `seed`."""
    rng = np.random.default_rng(seed)
    seen = []
    for _ in range(count):
        step = vector.step(random_actions(vector.spec, step, rng))
        seen.append(snapshot(step))
    return seen


GAMES: list[tuple[Any, dict[str, Any]]] = [
    (Relay, {}), (Relay, {"truncate": True, "length": 5}), (Crowd, {}), (Motley, {"length": 3}),
    ("gymnasium/CartPole-v1", {}), ("marltrain/CartPole-v1", {}),
]  # fmt: skip
"""In the short tier the first goes from everywhere to everywhere, the others once."""


@pytest.mark.parametrize(
    ("env", "env_args", "place"),
    [(*game, to) for i, game in enumerate(GAMES) for to in range(3) if LONG or i == 0 or to == i % 3],
)
def test_the_steps_that_follow_are_the_same_wherever_the_environments_are(env, env_args, place):
    with make_vector(env, env_args, 5, recording=True, **PLACES[(place + 1) % 3]) as vector:
        steps(vector, vector.reset(3), 17, seed=0)
        state = vector.state()
        at = snapshot(vector._step)
        expected = steps(vector, vector._step, 40, seed=1)
    with make_vector(env, env_args, 5, recording=True, **PLACES[place]) as again:
        step, lost = again.restore(state)
        assert lost == []
        assert same(at, snapshot(step))
        assert all(np.array_equal(array, state[name]) for name, array in again.state().items())
        assert all(same(a, b) for a, b in zip(expected, steps(again, step, 40, seed=1), strict=True))


class Moody(Identity):
    """Shows what it is told to from its second step on: an environment whose episodes cannot be repeated."""

    mood = 0

    def step(self, actions):
        answer = super().step(actions)
        if self.t > 1 and self.mood:
            self.symbols = dict.fromkeys(self.symbols, (self.symbols["player_0"] + self.mood) % self.choices)
            return dict(self.symbols), *answer[1:]
        return answer


def test_an_environment_that_shows_something_else_begins_its_episode_anew_and_is_named(monkeypatch):
    """Episodes of 3 steps: after 4 steps every environment is 1 step into episode 1; after 5 steps, 2."""
    with make_vector(Moody, {"length": 3}, 3, recording=True) as vector:
        steps(vector, vector.reset(0), 5, seed=0)
        state = vector.state()
    monkeypatch.setattr(Moody, "mood", 1)
    with make_vector(Moody, {"length": 3}, 3, recording=True) as again:
        step, lost = again.restore(state)
        assert [e for e, _ in lost] == [0, 1, 2]
        assert all("episode 1 (seed" in found and "step 2: played again, player 'player_" in found for _, found in lost)
        assert step.ended.all() and not step.truncated.any() and not step.reward.any()
        assert step.episode.tolist() == [1, 1, 1]
        ended = [seen["ended 0 0"].tolist() for seen in steps(again, step, 3, seed=0)]
        assert ended == [[False] * 3, [False] * 3, [True] * 3]


def test_an_environment_that_cannot_repeat_an_episode_begins_every_one_anew():
    with make_vector(Forgetful, {"flaw": "random", "declared": True}, 2, recording=True) as vector:
        steps(vector, vector.reset(0), 4, seed=0)
        step, lost = vector.restore(vector.state())
        assert [e for e, _ in lost] == [0, 1]
        assert "not reproducible" in lost[0][1]
        assert step.episode.tolist() == [1, 1]


def test_an_impure_environment_that_is_rebuilt_goes_on():
    with make_vector(Forgetful, {"flaw": "impure", "declared": True}, 2, recording=True) as vector:
        steps(vector, vector.reset(0), 5, seed=0)
        state = vector.state()
        expected = steps(vector, vector._step, 7, seed=1)
        step, lost = vector.restore(state)
        assert lost == []
        assert all(same(a, b) for a, b in zip(expected, steps(vector, step, 7, seed=1), strict=True))


def test_moves_are_kept_only_where_that_is_asked():
    with make_vector(Crowd, {}, 2) as vector:
        vector.reset(0)
        with pytest.raises(RuntimeError, match="recording=True"):
            vector.state()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("step/obs/0", lambda a: a * np.nan, r"envs/step/obs/0\[0, 0, 0\] must be a finite number, got nan"),
        ("step/obs/0", lambda a: a[..., :1], "envs/step/obs/0 must be float32 of shape"),
        ("step/reward", lambda a: a.astype(int), "envs/step/reward must be float32"),
        ("step/episode", lambda a: a - 9, r"envs/step/episode\[0\] must be from 0 to"),
        ("step/turn/0", None, "envs/step/turn/0 is missing"),
        ("faults", None, "envs/faults is missing"),
        ("envs/theta", lambda a: a * np.nan, "environment 0, field 'theta' must be a number from"),
    ],
)
def test_a_state_that_no_step_leads_to_is_refused(name, change, message):
    with make_vector("marltrain/CartPole-v1", {}, 3) as vector:
        steps(vector, vector.reset(3), 5, seed=0)
        state = vector.state()
        if change is None:
            del state[name]
        else:
            state[name] = change(state[name])
        with pytest.raises((SaveError, ConfigError), match=message):
            vector.restore(state)


def test_a_move_that_is_not_legal_is_not_played_again():
    with make_vector(Identity, {"length": 9}, 2, recording=True) as vector:
        steps(vector, vector.reset(3), 5, seed=0)
        state = vector.state()
        state["envs/moves/0"][2, 0] = 99
        _, lost = vector.restore(state)
    assert [e for e, _ in lost] == [0]
    assert "played again, player 'player_0': action 99 is not legal" in lost[0][1]
