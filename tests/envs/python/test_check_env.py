"""The conformance suite finds every flaw that was put there, and nothing in what is sound."""

import gymnasium
import numpy as np
import pytest

from marltrain.core.errors import EnvError
from marltrain.envs import check_env
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


class Rare(Identity):
    """An object that forgets its reset in one of eight episodes, depending on the seed."""

    def reset(self, seed=None, options=None):
        answer = super().reset(seed=seed)
        self.episodes = getattr(self, "episodes", 0) + 1
        if self.episodes > 1 and seed is not None and seed % 8 == 3:
            first = self.agents[0]
            answer[0][first] = (answer[0][first] + 1) % 2
        return answer


def test_rare_impurities_are_found():
    """With 60 episodes, each impure by chance 1 / 8, none is found by chance 0.0003."""
    for seed in range(3):
        report = check_env(Rare, seed=seed, strict=False)
        assert not report.pure and report.deterministic, str(report)
        assert "a used object's episode differs from a fresh one's with the same seed: obs (0) of player" in str(report)


def test_fewer_resets_are_compared_of_long_episodes(monkeypatch):
    monkeypatch.setattr("marltrain.envs.python.check_env.MOST_STEPS", 1_000)
    result = []

    class Long(Film):
        def __init__(self):
            super().__init__(length=99)
            result.append(self)

    assert check_env(Long).ok and len(result) == 3 + 6  # for the spaces, the checks, and as the used one; 6 fresh ones
    result.clear()
    assert check_env(Long, resets=2).ok and len(result) == 3 + 3


class Hundred(Crowd):
    """A hundred players whose observations and rewards are wrong, each with another number."""

    def __init__(self):
        super().__init__()
        self.possible_agents = [f"p{i}" for i in range(100)]
        self._seen = dict.fromkeys(self.possible_agents, self._seen["red_0"])
        self._acts = dict.fromkeys(self.possible_agents, self._acts["red_0"])

    def reset(self, seed=None, options=None):
        self.agents, self.t, self.reds = list(self.possible_agents), 0, 0
        return self._observations(self.agents), {name: {} for name in self.agents}

    def step(self, actions):
        self.t += 1
        names, over = self.agents, self.t == 4
        self.agents = [] if over else names
        rewards = {name: np.array([1.0, i]) for i, name in enumerate(names)}
        flags = dict.fromkeys(names, over), dict.fromkeys(names, False)
        return self._observations(names), rewards, *flags, {name: {} for name in names}

    def _observations(self, names):
        return {name: np.full(2, 50.0 + self.t + i / 200) for i, name in enumerate(names)}


class Outside(Hundred):
    def step(self, actions):
        seen, rewards, *rest = super().step(actions)
        return seen, dict.fromkeys(rewards, 1.0), *rest

    def _observations(self, names):
        return {name: np.full(2, 200.0 + self.t + i, np.float32) for i, name in enumerate(names)}


def test_each_kind_is_said_once_for_all_players():
    report = check_env(Hundred, strict=False)
    assert len(report.problems) == 2 and len(report.notes) == 1, str(report)
    assert report.problems[0].startswith("player 'p0': reward array([1., 0.]) is not one finite number; also players")
    assert report.problems[0].endswith("also players 'p1', 'p2', 'p3' and 96 others")
    assert "has dtype float64, its space says float32; also players 'p1', 'p2', 'p3' and 96 others" in report.notes[0]
    outside = check_env(Outside, strict=False)
    assert len(outside.problems) == 2, str(outside)  # the first, and what ends the episode
    assert outside.problems[0].startswith(
        "player 'p0': observation leaves its space Box(0.0, 100.0, (2,), float32): low"
    )


def test_the_original_of_foraging_is_found_impure():
    import lbforaging  # noqa: F401  registers it

    name = "Foraging-8x8-2p-1f-v3"
    assert not check_env(lambda: gymnasium.make(name, disable_env_checker=True), strict=False).pure
    assert check_env(f"gymnasium/lbforaging:{name}").ok  # known, and rebuilt for every episode
