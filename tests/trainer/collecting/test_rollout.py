"""One batch step: views of seats, actions by seat, carries that are reset with their episode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.seeds import child_seed
from marltrain.envs import make_vector, resolve
from marltrain.policies.batches.batch import Acted
from marltrain.policies.memory import Storage, Streams
from marltrain.trainer.collecting.rollout import Actors, Recorder, SyncCollector, _View
from marltrain.trainer.seats.seats import Seating
from tests.envs.driving import run_seed
from tests.toys import Crowd, Identity, Motley, Relay
from tests.trainer.running import SHORT


def test_view_reads_and_writes_seats():
    array = np.arange(4 * 3 * 2).reshape(4, 3, 2)  # 4 players, 3 environments, 2 numbers
    for where, plain in (
        (np.array([[1], [2]]), True),
        (np.array([[2, 0], [3, 1]]), False),
        (np.array([[0, 1], [2, 3]]), True),
    ):
        view = _View(where, 3)
        taken = view.take(array)
        agents, seats = where.shape
        assert taken.shape == (agents, seats * 3, 2)
        for k in range(agents):
            for s in range(seats):
                assert (taken[k, 3 * s : 3 * s + 3] == array[where[k, s]]).all()
        assert np.shares_memory(taken, array) == plain
        into = np.zeros_like(array)
        view.put(into, taken)
        held = sorted(where.reshape(-1))
        assert (into[held] == array[held]).all()
        assert not into[[p for p in range(4) if p not in held]].any()


def test_view_with_different_seats_per_environment():
    array = np.arange(6).reshape(3, 2)
    view = _View(np.array([[[0, 2]], [[1, 0]]]), 2)  # agent 0 sits in 0 and 2, agent 1 in 1 and 0
    assert view.take(array).tolist() == [[0, 5], [2, 1]]
    into = np.full((3, 2), -1)
    view.put(into, np.array([[10, 11], [20, 21]]))
    assert into.tolist() == [[10, 21], [20, -1], [-1, 11]]


class Counting(mt.Agent):
    """Plays 0; its carry counts, for each row, the decisions since the carry was 0."""

    def __init__(self):
        self.carries = []

    def decide(self, obs, legal, carry, *, turn, explore, rng):
        carry = {"count": np.zeros((len(turn), 1)), "pair": (np.zeros(len(turn)), None)} if carry is None else carry
        self.carries.append(carry["count"][:, 0].tolist())
        carry = {"count": carry["count"] + 1, "pair": (carry["pair"][0] + 1, None)}
        assert (carry["pair"][0] == carry["count"][:, 0]).all()
        return Acted(np.zeros(len(turn), np.int64), carry)


def test_carries_are_reset_when_a_part_ends():
    """Crowd of 4 steps; red_1's part ends with step 2, and again with the episode, without another act."""
    agents: list[Any] = [Counting(), mt.RandomAgent(), Counting()]
    with make_vector(resolve(Crowd, {}), None, 1, vector="dummy", role="train") as envs:
        actors = Actors(envs.spec, Seating(envs.spec, agents, 0, stack=True).learners, 1, "act")
        step = envs.reset(run_seed([0, 0]))
        for _ in range(7):
            actors.decide(step)
            step = envs.step(actors.actions)
    assert agents[0].carries == [[0], [1], [2], [3], [0], [1], [2]]
    assert agents[2].carries == [[0], [1], [0], [0], [0], [1], [0]]  # it waits, dead, with the carry it has


def test_carries_start_at_a_players_first_turn():
    """Relay in two environments: without bob in the first, in which cat moves second, and with bob in the other."""
    agents: list[Any] = [Counting(), Counting(), Counting()]
    seed = next(s for s in range(99) if [child_seed(s, "episode", "train", e, 0) % 2 for e in (0, 1)] == [1, 0])
    with make_vector(Relay, None, 2) as envs:
        actors = Actors(envs.spec, Seating(envs.spec, agents, 0, stack=True).learners, 2, "act")
        step = envs.reset(seed)
        for _ in range(8):
            actors.decide(step)
            step = envs.step(actors.actions)
    ann, bob, cat = (list(zip(*agent.carries, strict=True)) for agent in agents)
    assert ann == [(0, 1, 1, 2, 2, 3, 3, 4), (0, 1, 1, 1, 2, 2, 2, 3)]
    assert bob == [(0, 0, 0, 0, 0, 0, 0, 0), (0, 0, 1, 1, 1, 2, 0, 0)]  # he dies of move 5
    assert cat == [(0, 0, 1, 1, 2, 2, 3, 3), (0, 0, 0, 1, 1, 1, 2, 2)]


class Spy(mt.Agent):
    """Records the arguments of `act`."""

    def __init__(self, answer):
        self.answer = answer
        self.seen: list = []

    def act(self, observation, legal=None, explore=False):
        self.seen.append((observation, legal, explore))
        return self.answer(observation, legal)


def test_act_receives_only_rows_with_a_turn():
    """Two environments of Relay: ann, then bob (absent in the second: cat moves there)."""
    spy = Spy(lambda observation, legal: legal.argmax(-1))
    seed = next(s for s in range(9999) if [child_seed(s, "episode", "train", e, 0) % 2 for e in (0, 1)] == [0, 1])
    with make_vector(resolve(Relay, {}), None, 2, vector="dummy", role="train") as envs:
        seating = Seating(envs.spec, [mt.RandomAgent(seed=1), spy, mt.RandomAgent(seed=2)], 0, stack=True)
        actors = Actors(envs.spec, seating.learners, 2, "act")
        actors.explore(np.array([False, True, False]))
        step = envs.reset(seed)
        for _ in range(2):
            actors.decide(step)
            step = envs.step(actors.actions)
    ((observation, legal, explore),) = spy.seen
    assert observation.shape == (1, 3)  # bob sees t = 1, his place 1; the mask has left the observation
    assert observation[0, :2].tolist() == [1, 1]
    assert legal.tolist() == [[True, True, False]]
    assert explore.tolist() == [True]


def test_act_uses_the_structure_and_units_of_the_spaces():
    mixed = Spy(lambda observation, legal: np.tile([2, 1, 3], (len(observation["digit"]), 1)))
    steered = Spy(lambda observation, legal: np.full((len(observation), 2, 1), 1.5, np.float32))
    with make_vector(resolve(Motley, {}), None, 2, vector="dummy", role="train") as envs:
        actors = Actors(envs.spec, Seating(envs.spec, [mixed, steered], 0, stack=True).learners, 2, "act")
        step = envs.reset(0)
        actors.decide(step)
        step = envs.step(actors.actions)
        assert step.reward.tolist() == [[6.0, 6.0], [3.0, 3.0]]
        assert actors.actions[0][0].tolist() == [[1, 0, 2]] * 2  # counted from 0 in the arrays
    observation, legal, _ = mixed.seen[0]
    assert observation["screen"].shape == (2, 4, 5)
    assert observation["digit"].tolist() == [-1, -1]
    assert observation["tail"][1].shape == (2, 2)
    assert legal is None
    assert steered.seen[0][0].shape == (2, 2, 2)


@pytest.mark.parametrize(
    ("answer", "came"),
    [
        (lambda observation, legal: [0.5] * len(observation), "float64 of shape"),
        (lambda observation, legal: 0, "int64 of shape ()"),
        (lambda observation, legal: [0] * (len(observation) + 1), "of shape (4,) for 3 observations"),
        (lambda observation, legal: None, "object of shape ()"),
        (lambda observation, legal: ["0"] * len(observation), "of shape (3,)"),
    ],
)
def test_invalid_results_of_act(answer, came):
    with make_vector(resolve(Crowd, {}), None, 3, vector="dummy", role="train") as envs:
        seating = Seating(envs.spec, [Spy(answer), mt.RandomAgent(), mt.RandomAgent()], 0, stack=True)
        with pytest.raises(mt.AgentError) as caught:
            Actors(envs.spec, seating.learners, 3, "act").decide(envs.reset(0))
    assert came in str(caught.value)
    assert "expected one action of Discrete(3) a row" in str(caught.value)


def test_action_outside_the_space_is_an_env_error():
    with make_vector(resolve(Crowd, {}), None, 1, vector="dummy", role="train") as envs:
        seating = Seating(envs.spec, [mt.FunctionAgent(lambda o: 3), mt.RandomAgent(), mt.RandomAgent()], 0, stack=True)
        actors = Actors(envs.spec, seating.learners, 1, "act")
        actors.decide(envs.reset(0))
        with pytest.raises(mt.EnvError, match=r"player 'red_0': action 3 is not legal"):
            envs.step(actors.actions)


def test_collector_records_the_decisions_of_each_unit():
    agents = mt.make_agents("ppo", Crowd, seed=0)
    agents[0] = mt.RandomAgent(seed=0)
    with make_vector(resolve(Crowd, {}), None, 2, vector="dummy", role="train") as envs:
        seating = Seating(envs.spec, agents, 0, stack=True)
        storage = {
            seated.group: Storage(5, seated.learner.needs.columns)
            for seated in seating.learners
            if seated.learner.needs
        }
        streams = Streams(envs.spec, 2, storage)
        actors = Actors(envs.spec, seating.learners, 2, "act")
        actors.explore(np.ones(3, bool))
        collector = Recorder(actors, streams)
        step = envs.reset(0)
        streams.record_step(step)
        collector.act(step)
        collector.record_actions()
        for group, ring in streams.rings.items():
            assert (ring.action[:, 0] == actors.actions[group]).all()
        reds = streams.rings[0].extras["log_prob"][:, 0]
        assert not reds[0].any()  # a random agent gives none
        assert (reds[1] < 0).all()
        assert (streams.rings[1].extras["log_prob"][:, 0] < 0).all()


def test_sync_collector_makes_one_batch_step():
    """It makes one step for any limit; the result of the step is not recorded yet."""
    calls = []
    with make_vector(Identity, SHORT, 3) as envs:
        seating = Seating(envs.spec, [mt.RandomAgent(), mt.RandomAgent()], 0, stack=True)
        streams = Streams(envs.spec, 3, {0: Storage(5)})

        def recv():
            calls.append(streams.rings[0].coming)
            return type(envs).recv(envs)

        envs.recv = recv  # type: ignore[method-assign]
        collector = SyncCollector(envs, Recorder(Actors(envs.spec, seating.learners, 3, "act"), streams))
        step = envs.reset(0)
        for t, most in enumerate((1, 7, 1000)):
            streams.record_step(step)
            ring = streams.rings[0]
            seen = {name: array.copy() for name, array in step.arrays().items()}
            step, result, recorded, updates, ended = collector.advance(step, most, 1)
            assert (result, recorded, list(updates), ended) == (1, False, [], None)
            assert (ring.now, ring.coming) == (t, t + 1)
            assert calls == list(range(1, t + 2))
            np.testing.assert_array_equal(ring.action[:, t], collector.recorder.actors.actions[0])
            shown = next(array for name, array in seen.items() if name.startswith("obs"))
            np.testing.assert_array_equal(ring.obs["vector"][:, t], shown)
