"""Turn-based environments as arrays: every number of these games is worked out by hand (see tests.toys.Relay)."""

import numpy as np
import pytest
from pettingzoo.utils import BaseWrapper, OrderEnforcingWrapper

from marltrain.core.errors import EnvError
from marltrain.core.spec import Step
from marltrain.envs import DummyVectorEnv, make_vector, resolve
from marltrain.envs.python.check_env import random_actions
from marltrain.policies.memory import Storage, Streams
from tests.envs.driving import act, column, rewards, run_seed
from tests.toys import Doubled, Inn, Relay

MOVES = [("ann", 2), ("bob", 1), ("cat", 0), ("ann", 1), ("bob", 2), ("cat", 1), ("ann", 0), ("cat", 1)]
# What each move brings ann, bob and cat: the mover its action, the others 10, 20 or 30; move 5 kills bob; the end pays.
BROUGHT = [
    [2, 10, 10],
    [20, 1, 20],
    [30, 30, 0],
    [1, 10, 10],
    [20, 2, 20],
    [30, 30 - 1000, 1],
    [0, 0, 10],
    [30 + 500, 0, 1 + 502],
]


def relay(parities=(0, 0), **arguments):
    vector = DummyVectorEnv(resolve(Relay, arguments), 1)
    return vector, vector.spec, vector.reset(run_seed(list(parities)))


def test_first_step_gives_the_first_mover_its_observation_and_legal_moves():
    _, spec, step = relay()
    assert spec.turn_based and spec.names == ("ann", "bob", "cat") and len(spec.groups) == 1
    assert column(spec, step) == {
        "reward": {"ann": 0, "bob": 0, "cat": 0},
        "turn": {"ann": True},
        "alive": {"ann": True, "bob": True, "cat": True},
        "obs": {"ann": [0, 0, -1]},
        "legal": {"ann": [0, 1, 2]},
    }
    assert not step.ended[0] and step.episode[0] == 0


@pytest.mark.parametrize("truncate", [False, True])
def test_every_step_of_an_episode_by_hand(truncate):
    vector, spec, step = relay(truncate=truncate)
    seen = []
    for name, action in MOVES:
        assert list(column(spec, step)["turn"]) == [name]
        step = vector.step(act(spec, **{name: action}))
        seen.append(column(spec, step))
        assert bool(step.ended[0]) == (len(seen) == 8)
    assert [list(said["reward"].values()) for said in seen] == BROUGHT

    # Observations are [t, place, the action before]; action 2 is legal when t is even.
    assert [said["obs"] for said in seen[:7]] == [
        {"bob": [1, 1, 2]},
        {"cat": [2, 2, 1]},
        {"ann": [3, 0, 0]},
        {"bob": [4, 1, 1]},
        {"cat": [5, 2, 2]},
        {"ann": [6, 0, 1]},  # bob's turn is skipped: he is dead
        {"cat": [7, 2, 0]},
    ]
    assert [list(said["legal"].values()) for said in seen[:7]] == [[[0, 1]], [[0, 1, 2]]] * 3 + [[[0, 1]]]

    # Bob's part is closed at move 5, by cat; his last observation is read then.
    assert [list(said.get("terminated", ())) for said in seen[:7]] == [[], [], [], [], [], ["bob"], []]
    assert all("truncated" not in said for said in seen[:7])
    assert seen[5]["final_obs"] == {"bob": [6, 1, 1]} and seen[5]["final_legal"] == {"bob": [0, 1, 2]}
    assert list(seen[4]["alive"]) == ["ann", "bob", "cat"] and list(seen[5]["alive"]) == ["ann", "cat"]

    # The end closes the mover's part and the waiting player's; the next episode is already there.
    event = "truncated" if truncate else "terminated"
    assert seen[7] == {
        "reward": {"ann": 530, "bob": 0, "cat": 503},
        event: {"ann": True, "cat": True},
        "final_obs": {"ann": [8, 0, 1], "cat": [8, 2, 1]},
        "final_legal": {"ann": [0, 1, 2], "cat": [0, 1, 2]},
        "turn": {"ann": True},
        "alive": {"ann": True, "bob": True, "cat": True},
        "obs": {"ann": [0, 0, -1]},
        "legal": {"ann": [0, 1, 2]},
    }
    assert step.episode[0] == 1

    # Events stand on one Step only.
    step = vector.step(act(spec, ann=0))
    assert not step.terminated.any() and not step.truncated.any() and not step.ended.any()
    assert rewards(spec, step) == [0, 10, 10]


def test_absent_for_an_episode_and_back_in_the_next():
    vector, spec, step = relay(parities=(1, 0))
    assert list(column(spec, step)["alive"]) == ["ann", "cat"]
    movers = []
    for t in range(8):
        (mover,) = column(spec, step)["turn"]
        movers.append(mover)
        step = vector.step(act(spec, **{mover: 0}))
        said = column(spec, step)
        assert said["reward"]["bob"] == 0
        if t < 7:
            assert "terminated" not in said and list(said["alive"]) == ["ann", "cat"]
    assert movers == ["ann", "cat"] * 4
    assert list(said["terminated"]) == ["ann", "cat"] and list(said["alive"]) == ["ann", "bob", "cat"]
    assert said["reward"] == {"ann": 530, "bob": 0, "cat": 502}


def test_rewards_between_two_turns_are_what_last_reports():
    """Against PettingZoo's own loop, over random games of every kind."""
    for seed in range(20):
        env = Relay()
        reported: dict[str, list[float]] = {name: [] for name in env.possible_agents}
        moves = []
        rng = np.random.default_rng(seed)
        env.reset(seed=seed)
        for name in env.agent_iter():
            seen, reward, terminated, truncated, _ = env.last()
            reported[name].append(reward)
            over = terminated or truncated
            moves.append(None if over else int(rng.choice(np.flatnonzero(seen["action_mask"]))))
            env.step(moves[-1])

        vector, spec, step = relay(parities=(seed % 2,))
        gathered = dict.fromkeys(spec.names, 0.0)
        data: dict[str, list[float]] = {name: [] for name in spec.names}
        for move in [move for move in moves if move is not None]:
            (mover,) = column(spec, step)["turn"]
            data[mover].append(gathered[mover])
            gathered[mover] = 0.0
            step = vector.step(act(spec, **{mover: move}))
            for p, name in enumerate(spec.names):
                gathered[name] += float(step.reward[p, 0])
                if step.terminated[p, 0]:
                    data[name].append(gathered[name])
        assert step.ended[0] and data == reported


class Lingering(Relay):
    """Bob, once dead, takes his dead step at his own turn, after another move that pays him."""

    after = ""

    def step(self, action):
        mover = self.agent_selection
        dead = self.terminations[mover] or self.truncations[mover]
        if dead:
            self._was_dead_step(action)
            if self.agents:
                self.agent_selection = self.after
            return
        self.t, self.before = self.t + 1, int(action)
        self.rewards = dict.fromkeys(self.agents, 1.0)
        if self.t == 2:  # bob's own move kills him, but cat and ann move before his dead step
            self.terminations["bob"] = True
        if self.t == 6:
            self.terminations = dict.fromkeys(self.agents, True)
        order = self.agents
        self.agent_selection = order[(order.index(mover) + 1) % len(order)]
        self.after = "cat" if "cat" in self.agents else self.agents[0]
        self._cumulative_rewards[mover] = 0.0
        self._accumulate_rewards()


def test_a_part_is_closed_at_the_dead_step_with_what_was_received_until_then():
    vector = DummyVectorEnv(resolve(Lingering, {"absences": False}), 1)
    spec, step = vector.spec, vector.reset(0)
    closed = []
    total = 0.0
    for name in ("ann", "bob", "cat", "ann"):
        assert list(column(spec, step)["turn"]) == [name]
        step = vector.step(act(spec, **{name: 0}))
        total += rewards(spec, step)[1]
        closed.append(bool(step.terminated[1, 0]))
    assert closed == [False, False, False, True] and total == 4
    assert column(spec, step)["final_obs"] == {"bob": [4, 1, 0]}
    assert list(column(spec, step)["turn"]) == ["cat"]


class Stuck(Relay):
    """Never lets go of its dead."""

    def _was_dead_step(self, action):
        pass


def test_dead_steps_that_remove_nobody_are_an_error_and_no_endless_loop():
    vector = DummyVectorEnv(Stuck, 1)
    vector.reset(run_seed([0]))
    with pytest.raises(EnvError, match=r"'bob' is dead, but step\(None\) did not remove it"):
        for name, action in MOVES:
            vector.step(act(vector.spec, **{name: action}))


def test_an_illegal_move_is_an_error_that_names_player_environment_and_step():
    vector, spec, _ = relay()
    vector.step(act(spec, ann=0))
    with pytest.raises(EnvError, match=r"environment 0 .*step 1: player 'bob': action 2 is not legal; .* \[0, 1\]"):
        vector.step(act(spec, bob=2))


def test_actions_of_those_who_need_not_act_are_ignored():
    vector, spec, _ = relay()
    step = vector.step(act(spec, ann=2, bob=99, cat=-5))
    assert rewards(spec, step) == BROUGHT[0]


class BothFlags(Relay):
    """Flags the end in both ways, as PettingZoo does after an illegal move."""

    def step(self, action):
        super().step(action)
        for name, over in self.terminations.items():
            self.truncations[name] = over


def test_who_is_flagged_in_both_ways_has_terminated():
    vector = DummyVectorEnv(BothFlags, 1)
    step = vector.reset(run_seed([0]))
    for name, action in MOVES:
        step = vector.step(act(vector.spec, **{name: action}))
        assert not step.truncated.any()
    assert step.terminated[:, 0].tolist() == [True, False, True]


class NoMask(Relay):
    """The mask of whoever does not move is all zeros, as in PettingZoo's classic games."""

    def observe(self, agent):
        seen = super().observe(agent)
        if agent != self.agent_selection:
            seen["action_mask"][:] = 0
        return seen


def test_a_waiting_players_last_legal_moves_are_never_empty():
    vector = DummyVectorEnv(resolve(NoMask, {"truncate": True, "absences": False}), 1)
    step: Step = vector.reset(0)
    rng = np.random.default_rng(0)
    while not step.ended[0]:
        step = vector.step(random_actions(vector.spec, step, rng))
    for p in (0, 2):
        assert step.truncated[p, 0] and step.final_legal[0] is not None and step.final_legal[0][p, 0].all()


# Players that join late, and rewards that are there before any move (see tests.toys.Inn)

INN_REWARDS = [
    [1, 10, 0, 0],
    [20, 2, 30, 0],
    [0, 40, 50, 60],
    [70, 0, 80, 90],
    [100, 0, 3, 0],
    [0, 400, 5, 0],
    [7, 600, 0, 0],
    [9, 0, 11, 0],
]
INN_ALIVE = ["ann bob", "ann bob", "ann bob cat", "ann bob cat dan", "ann bob cat", "ann cat", "ann bob cat", "ann cat"]


def inn(**kind):
    with make_vector(Inn, None, 3, **kind) as vector:
        step = vector.reset(0)
        for _ in range(2):  # episodes
            yield vector.spec, step
            for _ in Inn.SCRIPT:
                step = vector.step(act(vector.spec, 3))
                yield vector.spec, step


@pytest.mark.parametrize("kind", [{"vector": "dummy"}, {"vector": "subproc", "num_workers": 2}])
def test_players_join_late_and_may_die_before_their_first_turn(kind):
    seen = [column(spec, step, e=2) | {"start": step.start_reward[:, 2].tolist()} for spec, step in inn(**kind)]
    first, again = seen[:9], seen[9:]
    assert all(said["start"] == [7000, 5000, 0, 0] for said in seen)
    assert [list(said["alive"]) for said in first] == [names.split() for names in INN_ALIVE] + [["ann", "bob"]]
    assert [list(said["turn"]) for said in first] == [[mover] for mover, *_ in Inn.SCRIPT] + [["ann"]]
    for one in (first, again):
        assert [list(said["reward"].values()) for said in one[1:]] == INN_REWARDS
        assert [list(said.get("terminated", ())) for said in one[1:]] == [
            *([], [], []), ["dan"], ["bob"], [], ["bob"], ["ann", "cat"]
        ]  # fmt: skip
        assert one[4]["final_obs"] == {"dan": [4, 3]} and one[7]["final_obs"] == {"bob": [7, 1]}


def test_what_the_steps_say_of_an_episode_is_what_last_reports_in_sum():
    env = Inn()
    env.reset()
    reported = dict.fromkeys(env.possible_agents, 0.0)
    for name in env.agent_iter():
        _, reward, over, *_ = env.last()
        reported[name] += reward
        env.step(None if over else 0)
    assert tuple(reported.values()) == Inn.RETURNS
    data = [(step.reward if t else step.start_reward).copy() for t, (_, step) in enumerate(inn())]
    assert (sum(data[:9]) == np.array(Inn.RETURNS)[:, None]).all()


def test_a_reward_before_a_players_first_decision_is_credited_to_none():
    vector = DummyVectorEnv(Inn, 3)
    streams = Streams(vector.spec, 3, {0: Storage(11)})
    ring = streams.rings[0]
    streams.record_step(vector.reset(0))
    for _ in Inn.SCRIPT:
        actions = act(vector.spec, 3)
        streams.record_actions(0, actions[0], {})
        streams.record_step(vector.step(actions))
    credited = {
        name: [(t, ring.reward[p, t, 1].tolist()) for t in range(8) if ring.acted[p, t, 1]]
        for p, name in enumerate(vector.spec.names)
    }
    assert credited == {
        "ann": [(0, 1 + 20), (2, 70 + 100), (5, 7), (7, 9)],
        "bob": [(1, 2 + 40), (3, 0)],
        "cat": [(4, 3 + 5), (6, 11)],
        "dan": [],
    }
    assert ring.drawable_count.tolist() == [4 * 3, 2 * 3, 2 * 3, 0]
    assert ring.terminated.sum((1, 2)).tolist() == [3, 3, 3, 0]


def test_a_selected_player_that_is_nowhere_is_an_error():
    class Absent(Relay):
        def reset(self, seed=None, options=None):
            super().reset(seed=seed, options=options)
            self.agents.remove("ann")

    with pytest.raises(EnvError, match=r"agent_selection is 'ann', which is not in env.agents \['bob', 'cat'\]"):
        DummyVectorEnv(Absent, 1).reset(run_seed([0]))


# Wrappers


def doubled_relay(**arguments):
    return Doubled(Relay(**arguments))


@pytest.mark.parametrize("kind", [{"vector": "dummy"}, {"vector": "subproc", "num_workers": 1}])
def test_rewards_are_those_of_a_wrapper_that_sets_them_in_its_first_step(kind):
    with make_vector(doubled_relay, {"absences": False}, 1, **kind) as vector:
        vector.reset(0)
        for _ in range(3):  # episodes
            for (name, action), brought in zip(MOVES, BROUGHT, strict=True):
                step = vector.step(act(vector.spec, **{name: action}))
                assert rewards(vector.spec, step) == [2 * reward for reward in brought]
                assert not step.start_reward.any()


class Computed(BaseWrapper):
    """Computes the sums of rewards when they are asked for: three times those inside."""

    def __getattr__(self, name):
        inner = super().__getattr__(name)
        return {player: 3 * value for player, value in inner.items()} if name == "_cumulative_rewards" else inner


@pytest.mark.parametrize("wrap", [lambda env: env, OrderEnforcingWrapper])
def test_rewards_are_those_of_a_wrapper_that_computes_its_attributes(wrap):
    vector = DummyVectorEnv(lambda: wrap(Computed(Relay(absences=False))), 1)
    vector.reset(0)
    for (name, action), brought in zip(MOVES, BROUGHT, strict=True):
        step = vector.step(act(vector.spec, **{name: action}))
        assert rewards(vector.spec, step) == [3 * reward for reward in brought]


def test_a_wrappers_rewards_of_an_episode_left_halfway_are_none_of_the_next():
    vector = DummyVectorEnv(resolve(doubled_relay, {"absences": False}), 1)
    for _ in range(2):
        step = vector.reset(0)
        assert not step.start_reward.any()
        for (name, action), brought in zip(MOVES[:5], BROUGHT, strict=False):
            step = vector.step(act(vector.spec, **{name: action}))
            assert rewards(vector.spec, step) == [2 * reward for reward in brought]
