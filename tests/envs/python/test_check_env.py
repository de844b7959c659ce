"""The conformance suite finds every flaw that was put there, and nothing in what is sound."""

import gymnasium
import numpy as np
import pytest

from marltrain.envs import check_env
from marltrain.errors import EnvError
from tests.faulty_toys import Broken, Forgetful
from tests.gymnasium_toys import Film, MaskedByInfo
from tests.toys import Crowd, Identity, Inn, Motley, Relay


@pytest.mark.parametrize("env", [Relay, Crowd, Identity, Motley, Film, MaskedByInfo, Broken, Forgetful])
def test_sound_environments_pass(env):
    report = check_env(env)
    assert report.ok and report.pure and report.deterministic and report.episodes == 3
    assert "keeps its contract (3 episodes" in str(report)


class Revives(Crowd):
    def step(self, actions):
        result = super().step(actions)
        if self.t == 3:
            self.agents.append("red_1")
            result[0]["red_1"] = np.zeros(2, np.float32)
        return result


class PaysTheDead(Crowd):
    def step(self, actions):
        result = super().step(actions)
        result[1]["red_1"] = 1.0
        return result


class LeavesItsSpace(Crowd):
    def _observations(self, names):
        return {name: seen - (self.t == 2) for name, seen in super()._observations(names).items()}


class ForgetsAReward(Crowd):
    def step(self, actions):
        result = super().step(actions)
        result[1].pop("blue", None)
        return result


class CountsTwice(Relay):
    """Never sets a mover's cumulative reward back."""

    def step(self, action):
        mover = self.agent_selection
        gathered = self._cumulative_rewards.get(mover, 0.0)
        super().step(action)
        if mover in self._cumulative_rewards and action is not None:
            self._cumulative_rewards[mover] += gathered


class BadSpaceDtype(Crowd):
    def _observations(self, names):
        return {name: seen.astype(complex) for name, seen in super()._observations(names).items()}


@pytest.mark.parametrize(
    ("env", "env_args", "problem"),
    [
        (Revives, {}, "player 'red_1' is back in env.agents after its part had ended"),
        (PaysTheDead, {}, "player 'red_1' received reward 1.0 after its part had ended"),
        (LeavesItsSpace, {}, "player 'red_0': observation leaves its space Box"),
        (ForgetsAReward, {}, "player 'blue' acted but was given no reward"),
        (CountsTwice, {}, "last() reports the same reward twice"),
        (BadSpaceDtype, {}, "has dtype complex128, its space says float32"),
        (Broken, {"fault": "nan"}, "player 'right': observation leaves its space Box"),
        (Broken, {"fault": "shape"}, "player 'right': observation has shape (3,), its space says (2,)"),
        (Broken, {"fault": "reward"}, "player 'right': reward inf is not one finite number"),
        (Broken, {"fault": "no moves"}, "player 'right' must move, but its action_mask allows no action"),
        (Broken, {"fault": "stranger"}, "env.agents holds 'nobody', which is not in possible_agents"),
        (Broken, {"fault": "raise"}, "step 3: ZeroDivisionError: a fault of the environment's own"),
        (Broken, {"fault": "raise", "at": 0}, "cannot be reset: ZeroDivisionError"),
        (Forgetful, {"flaw": "random"}, "two fresh objects with equal seeds and actions differ: obs"),
        (Forgetful, {"flaw": "impure"}, "a used object's episode differs from a fresh one's with the same seed: obs"),
    ],
)
def test_every_flaw_is_found(env, env_args, problem):
    report = check_env(env, env_args, strict=False)
    assert not report.ok and any(problem in text for text in report.problems), str(report)
    with pytest.raises(EnvError, match="problem"):
        check_env(env, env_args)


def test_impurity_says_what_differed_and_where():
    report = check_env(Forgetful, {"flaw": "impure"}, strict=False)
    assert not report.pure and report.deterministic
    assert "obs (0) of player 'only' at step 2" in report.problems[0]
    assert 'metadata["pure_reset"] = False' in report.problems[0]


def test_declared_flaws_are_no_problem():
    impure = check_env(Forgetful, {"flaw": "impure", "declared": True})
    assert impure.ok and not impure.pure and "rebuilt for every episode" in impure.notes[0]
    random = check_env(Forgetful, {"flaw": "random", "declared": True})
    assert random.ok and not random.deterministic


class NewSpaces(Crowd):
    def action_space(self, agent):
        return gymnasium.spaces.Discrete(
            int(super().action_space(agent).n), start=int(super().action_space(agent).start)
        )


class DoublePrecision(Crowd):
    def _observations(self, names):
        return {name: seen.astype(np.float64) for name, seen in super()._observations(names).items()}


def test_harmless_oddities_are_notes():
    assert any("returns a new object at every call" in note for note in check_env(NewSpaces).notes)
    assert any("has dtype float64, its space says float32" in note for note in check_env(DoublePrecision).notes)
    assert any("seems to use no randomness" in note for note in check_env(Film).notes)
    started = "player 'ann' has a cumulative reward of 7000.0 before any move: it enters the player's return"
    assert any(started in note for note in check_env(Inn, strict=False).notes)


def test_endless_episodes_are_left_after_a_while():
    report = check_env(Film, {"length": 10**9}, episodes=1)
    assert any("did not end within 1000 env steps" in note for note in report.notes)
