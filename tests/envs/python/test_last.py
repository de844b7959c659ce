"""Turn-based environments with a `last()` of their own, held against PettingZoo's loop over `agent_iter()`."""

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv
from pettingzoo.utils import BaseWrapper, OrderEnforcingWrapper
from pettingzoo.utils.conversions import parallel_to_aec

from marltrain.core.errors import EnvError
from marltrain.envs import DummyVectorEnv, FrameStack, check_env, make_vector, probe, resolve
from marltrain.envs.native import aec_env
from marltrain.envs.python.last import LastAdapter, has_own_last
from marltrain.envs.python.probe import adapter_of
from tests.envs.driving import act, column, run_seed
from tests.envs.python.test_turns import BROUGHT, MOVES
from tests.toys import Doubled, Inn, Relay


class Loud(BaseWrapper):
    """`last()` gives ten times the reward, 100 more in observations, only move 1 after move 0, and the other flag."""

    def observation_space(self, agent):
        seen = spaces.Box(-1, 1000, (3,), np.float32)
        return spaces.Dict({"observation": seen, "action_mask": spaces.Box(0, 1, (3,), np.int8)})

    def last(self, observe=True):
        seen, reward, terminated, truncated, info = super().last(observe)
        if seen is not None:
            legal = [0, 1, 0] if seen["observation"][2] == 0 else seen["action_mask"]
            seen = {"observation": seen["observation"] + 100, "action_mask": np.array(legal, np.int8)}
        return seen, 10 * reward, truncated, terminated, info


def loud(**arguments):
    return Loud(Relay(**arguments))


def test_every_step_by_hand():
    vector = DummyVectorEnv(resolve(loud, {"absences": False}), 1)
    spec, step = vector.spec, vector.reset(0)
    assert spec.turn_based and column(spec, step)["obs"] == {"ann": [100, 100, 99]}
    seen = []
    for name, action in MOVES:
        assert list(column(spec, step)["turn"]) == [name]
        step = vector.step(act(spec, **{name: action}))
        seen.append(column(spec, step))
        assert not step.start_reward.any()
    # A reward is there when its player is selected: ten times the sum of what it received since its last move.
    brought = np.array(BROUGHT)
    expected = np.zeros((8, 3))
    expected[0, 1] = brought[:1, 1].sum()  # bob's first turn comes after move 0
    expected[1, 2] = brought[:2, 2].sum()
    expected[2, 0] = brought[:3, 0].sum()
    expected[3, 1] = brought[1:4, 1].sum()
    expected[4, 2] = brought[2:5, 2].sum()
    expected[5, 0] = brought[3:6, 0].sum()
    expected[5, 1] = brought[4:6, 1].sum()  # bob's dead step
    expected[6, 2] = brought[5:7, 2].sum()
    expected[7, 0], expected[7, 2] = brought[6:8, 0].sum(), brought[7:8, 2].sum()
    assert [list(said["reward"].values()) for said in seen] == (10 * expected).tolist()

    assert [said["obs"] for said in seen[:3]] == [
        {"bob": [101, 101, 102]},
        {"cat": [102, 102, 101]},
        {"ann": [103, 100, 100]},
    ]
    assert [list(said["legal"].values()) for said in seen[:3]] == [[[0, 1]], [[0, 1, 2]], [[1]]]
    # The wrapper's flags count: those who terminate inside are truncated.
    assert seen[5]["truncated"] == {"bob": True} and seen[5]["final_obs"] == {"bob": [106, 101, 101]}
    assert seen[7]["truncated"] == {"ann": True, "cat": True} and "terminated" not in seen[7]
    assert seen[7]["final_obs"] == {"ann": [108, 100, 101], "cat": [108, 102, 101]}
    assert step.ended[0] and seen[7]["turn"] == {"ann": True} and seen[7]["obs"] == {"ann": [100, 100, 99]}


def loop(env, seed, choose):
    """PettingZoo's own loop: for each player what last() reported, and all that was seen at moves and ends."""
    reported: dict[str, list[float]] = {name: [] for name in env.possible_agents}
    data = []
    env.reset(seed=seed)
    for name in env.agent_iter():
        seen, reward, terminated, truncated, _ = env.last()
        reported[name].append(float(reward))
        data.append((name, np.asarray(seen["observation"] if isinstance(seen, dict) else seen).tolist()))
        env.step(None if terminated or truncated else choose(seen))
    return reported, data


class Tenfold(BaseWrapper):
    """`last()` of Inn with ten times the rewards."""

    def last(self, observe=True):
        seen, reward, *rest = super().last(observe)
        return seen, 10 * reward, *rest


@pytest.mark.parametrize("kind", [{}, {"vector": "subproc", "num_workers": 2}], ids=["dummy", "subproc"])
def test_returns_are_the_sums_of_what_last_reports_also_of_players_that_join_late(kind):
    reported, _ = loop(Tenfold(Inn()), 0, lambda seen: 0)
    expected = [sum(reported[name]) for name in Inn().possible_agents]
    assert expected == [10 * value for value in Inn.RETURNS]
    with make_vector(lambda: Tenfold(Inn()), None, 3, **kind) as vector:
        step = vector.reset(0)
        for _ in range(2):
            returns = step.start_reward.copy()
            assert step.start_reward[:, 1].tolist() == [70_000, 0, 0, 0]  # bob's is reported at his first turn
            for _ in Inn.SCRIPT:
                step = vector.step(act(vector.spec, 3))
                returns += step.reward
            assert step.ended.all() and (returns == np.array(expected)[:, None]).all()


@pytest.mark.parametrize(
    "wrap", [loud, lambda **arguments: Loud(Doubled(Relay(**arguments)))], ids=["plain", "doubled"]
)
def test_random_games_are_those_of_the_loop(wrap):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        moves: list[int] = []

        def choose(seen, rng=rng, moves=moves):
            moves.append(int(rng.choice(np.flatnonzero(seen["action_mask"]))))
            return moves[-1]

        reported, data = loop(wrap(), seed, choose)
        vector = DummyVectorEnv(wrap, 1)
        spec, step = vector.spec, vector.reset(run_seed([seed % 2, seed % 2]))
        for _ in range(2 if wrap is loud else 1):
            seen: list[tuple[str, list[float]]] = []
            gained: dict[str, list[float]] = {name: [] for name in spec.names}
            for t in range(len(moves)):
                said = column(spec, step)
                ((mover, observation),) = said["obs"].items()
                seen.append((mover, observation))
                step = vector.step(act(spec, **{mover: moves[t]}))
                seen += column(spec, step).get("final_obs", {}).items()
                for p, name in enumerate(spec.names):
                    gained[name] += [float(step.reward[p, 0])] if step.reward[p, 0] else []
            assert step.ended[0] and sorted(seen) == sorted((name, list(value)) for name, value in data)
            assert gained == {name: [value for value in values if value] for name, values in reported.items()}


class Counted(AECEnv):
    """One player counts; `last()` itself ends the episode with move 3, which the attributes do not say."""

    def __init__(self):
        self.possible_agents = ["only"]

    def observation_space(self, agent):
        return spaces.Box(0, 9, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.t, self.calls, self.agents, self.agent_selection = 0, 0, ["only"], "only"
        self.infos: dict[str, dict[str, str]] = {"only": {}}
        self.terminations, self.truncations = {"only": False}, {"only": False}

    def step(self, action):
        if action is None:
            self.agents = []
        self.t, self.calls = self.t + 1, 0

    def last(self, observe=True):
        self.calls += 1
        assert self.calls == 1, "last() is called once for each move"
        return np.full(1, self.t, np.float32), 1.0 + self.t, False, self.t == 3, {}


def test_last_may_end_an_episode_and_is_called_once_for_each_move():
    vector = DummyVectorEnv(Counted, 1)
    step = vector.reset(0)
    assert step.start_reward.tolist() == [[1]]
    gained = []
    for _ in range(3):
        step = vector.step(act(vector.spec))
        gained.append(step.reward[0, 0].tolist())
    assert gained == [2, 3, 4] and step.ended[0] and step.truncated[0, 0]
    assert column(vector.spec, step)["final_obs"] == {"only": [3]} and column(vector.spec, step)["obs"] == {"only": [0]}


class Vanishing(Loud):
    """All players leave without a dead step, with the fourth move."""

    def step(self, action):
        super().step(action)
        if self.t == 4:
            self.env.agents.clear()


def test_players_that_leave_without_a_dead_step_keep_their_latest_observation():
    vector = DummyVectorEnv(resolve(lambda: Vanishing(Relay(absences=False))), 1)
    step = vector.reset(0)
    for name, action in MOVES[:4]:
        step = vector.step(act(vector.spec, **{name: action}))
    said = column(vector.spec, step)
    assert step.ended[0] and list(said["terminated"]) == ["ann", "bob", "cat"]
    assert said["final_obs"] == {"ann": [103, 100, 100], "bob": [101, 101, 102], "cat": [102, 102, 101]}


class Texts(Loud):
    """Text for a reward."""

    def last(self, observe=True):
        seen, reward, *rest = super().last(observe)
        return seen, str(reward), *rest


def test_a_text_for_a_reward_is_refused():
    with pytest.raises(EnvError, match=r"player 'ann': reward is the text '0\.0', expected a number"):
        DummyVectorEnv(lambda: Texts(Relay(absences=False)), 1).reset(0)


def test_whose_last_counts():
    plain = [Relay(), OrderEnforcingWrapper(Relay()), aec_env("tictactoe_v3"), aec_env("simple_spread_v3"),
             parallel_to_aec(aec_env("simple_spread_v3").env.env)]  # fmt: skip
    assert not any(map(has_own_last, plain))
    replaced = Relay()
    replaced.last = lambda observe=True: AECEnv.last(replaced, observe)
    assert has_own_last(loud()) and has_own_last(replaced) and adapter_of(loud()) is LastAdapter


def test_a_last_that_the_wrapper_around_it_does_not_call_is_told():
    said = "Loud has a last.. of its own, which the wrapper around it does not call.* make Loud the outermost wrapper"
    with pytest.warns(UserWarning, match=said):
        spec = probe(lambda: OrderEnforcingWrapper(loud()))
    assert spec.turn_based


def test_check_env_reads_last():
    assert check_env(loud, {"absences": False}).ok

    class Beyond(Loud):
        def last(self, observe=True):
            seen, *rest = super().last(observe)
            return seen and {**seen, "observation": seen["observation"] + 900}, *rest

    report = check_env(lambda: Beyond(Relay(absences=False)), strict=False)
    assert any("observation['observation'] leaves its space" in problem for problem in report.problems)


def test_stacked_frames_are_those_of_last():
    """ann's first turns are at t = 0, 3 and 6, bob's at 1 and 4, where he dies at 6."""
    vector = make_vector(FrameStack(loud, 2), {"absences": False})
    spec, step = vector.spec, vector.reset(0)
    seen: dict[str, list[float]] = {}
    total = np.zeros(3)
    for name, action in MOVES:
        ((mover, frames),) = column(spec, step)["obs"].items()
        seen.setdefault(mover, []).append(frames[::3])
        step = vector.step(act(spec, **{name: action}))
        total += step.reward[:, 0]
        last = {who: frames[::3] for who, frames in column(spec, step).get("final_obs", {}).items()}
        seen |= {f"{who}'s last": frames for who, frames in last.items()}
    assert seen == {
        "ann": [[100, 100], [100, 103], [103, 106]], "bob": [[101, 101], [101, 104]],
        "cat": [[102, 102], [102, 105], [105, 107]],
        "bob's last": [104, 106], "ann's last": [106, 108], "cat's last": [107, 108],
    }  # fmt: skip
    assert total.tolist() == (10 * np.array(BROUGHT).sum(0)).tolist()
