"""A three-player turn-based game through the whole trainer, every transition worked out by hand (see tests.toys.Relay).

Episode 0 has all three players, episode 1 (an odd seed) goes without bob. What is played depends on the move alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from marltrain.policies.algorithms.dqn import DQNAlgorithm
from marltrain.policies.algorithms.ppo import PPOAlgorithm
from marltrain.policies.batches.batch import Acted
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from tests.envs.driving import run_seed
from tests.toys import Relay
from tests.trainer.running import Student, dqn, ppo, trainer

PLAYED = [2, 1, 0, 1, 2, 1, 0, 1]  # by move; 2 is legal only at even ones
GAMMA = 0.5
ALL, LOW = [True, True, True], [True, True, False]

# What each move brings: the mover its action, the others 10, 20 or 30 (ann, bob or cat moved); rewards before a
# player's first decision belong to nobody. (move, reward until the next decision, that or the end, its legal moves)
WITH_BOB: dict[str, list[Any]] = {
    "ann": [(0, 2 + 20 + 30, 3, LOW), (3, 1 + 20 + 30, 6, ALL), (6, 0 + 30 + 500, "end", ALL)],
    "bob": [(1, 1 + 30 + 10, 4, ALL), (4, 2 + 30 - 1000, "dead", ALL)],  # killed by move 5: he sees t = 6
    "cat": [(2, 0 + 10 + 20, 5, LOW), (5, 1 + 10, 7, LOW), (7, 1 + 502, "end", ALL)],
}
WITHOUT_BOB: dict[str, list[Any]] = {
    "ann": [(0, 2 + 30, 2, ALL), (2, 0 + 30, 4, ALL), (4, 2 + 30, 6, ALL), (6, 0 + 30 + 500, "end", ALL)],
    "bob": [],
    "cat": [(1, 1 + 10, 3, LOW), (3, 1 + 10, 5, LOW), (5, 1 + 10, 7, LOW), (7, 1 + 502, "end", ALL)],
}
SEATS = {"ann": 0, "bob": 1, "cat": 2}


def expected(player, truncate):
    """(move, action, reward, terminated, truncated, next (or final) observation, its legal moves), in order."""
    rows: list[Any] = []
    for move, reward, following, legal in (*WITH_BOB[player], *WITHOUT_BOB[player]):
        at: Any = {"end": 8, "dead": 6}.get(str(following), following)
        over, dead = following == "end", following == "dead"
        seen = [at, SEATS[player], PLAYED[at - 1]]
        rows.append(
            (move, PLAYED[move], float(reward), dead or (over and not truncate), over and truncate, seen, legal)
        )
    return rows


@pytest.fixture
def given(monkeypatch):
    """Make agents play `PLAYED`, and note what their learner is given: (batch, learn) for each update."""
    played, seen = np.array(PLAYED), []

    def act(self, ops, nets, inputs):
        action = played[np.clip(inputs.obs[..., 0].astype(int), 0, 7)]
        return Acted(action, extras={"log_prob": np.full(action.shape, -0.5, np.float32)})

    update = AlgorithmLearner.update

    def noting(learner, batch, *, learn, batch_size):
        seen.append(batch)
        return update(learner, batch, learn=learn, batch_size=batch_size)

    monkeypatch.setattr(PPOAlgorithm, "act", act)
    monkeypatch.setattr(DQNAlgorithm, "act", act)
    for algorithm in (PPOAlgorithm, DQNAlgorithm):
        monkeypatch.setattr(algorithm, "compiled_form", lambda self: None)  # else compiled code acts
        monkeypatch.setattr(algorithm, "acts_in_numpy", True, raising=False)  # the class of `act` must say so itself
    monkeypatch.setattr(AlgorithmLearner, "update", noting)
    return seen


def run(agents, truncate, *, steps=16, **settings):
    once = {"num_train_envs": 1, "update_freq": 16, "steps_per_train": steps, "seed": run_seed([0, 1]), **settings}
    return trainer(Relay, {"truncate": truncate}, **once).train(agents, [1, 1, 1], plot=False)


def rows_of_rollout(batch, k):
    """The rows of agent k as `expected` writes them; the next observation is the next row's or a boot."""
    rows = []
    for i in range(int(batch.weight[k].sum())):
        chained = batch.boot[k, i] == -1
        place = i + 1 if chained else batch.boot[k, i]
        obs, legal = (batch.obs, batch.legal) if chained else (batch.boot_obs, batch.boot_legal)
        terminated = batch.discount[k, i] == 0
        assert batch.discount[k, i] in (0, GAMMA)
        assert batch.cut[k, i] == (not chained)
        rows.append((
            int(batch.obs[k, i, 0]), int(batch.action[k, i]), float(batch.reward[k, i]), bool(terminated),
            bool(batch.truncated[k, i]), obs[k, place].tolist(), legal[k, place].tolist(),
        ))  # fmt: skip
    return rows


@pytest.mark.parametrize("truncate", [False, True], ids=["ended", "cut by a limit"])
def test_ppo_is_given_every_transition(given, truncate):
    result = run(ppo(Relay, {"truncate": truncate}, gamma=GAMMA), truncate)
    (batch,) = given
    assert batch.weight.sum(1).tolist() == [7, 2, 7]
    for player, k in SEATS.items():
        assert rows_of_rollout(batch, k) == expected(player, truncate)
    assert (batch.extras["log_prob"][batch.weight > 0] == -0.5).all()
    returns = result["episodes"].filter(like="return/").to_numpy().tolist()
    assert returns == [
        [633.0, 10 + 41 - 968.0, 10 + 20 + 30 + 11 + 503.0],
        [32 + 30 + 32 + 530.0, 0.0, 10 + 33 + 503.0],
    ]


@pytest.mark.parametrize("every", [1, 3, 5, 7])
def test_ppo_is_given_each_transition_once_however_rollouts_are_cut(given, every):
    run(ppo(Relay, gamma=GAMMA, minibatches=1), False, update_freq=every)
    for player, k in SEATS.items():
        got = [row for batch in given for row in rows_of_rollout(batch, k)]
        wanted = expected(player, False)
        done = 16 - 16 % every  # what is whole by the last update
        assert got == wanted[: len(got)]
        assert len(got) >= len(wanted) - (done < 16) * 3


@pytest.mark.parametrize("truncate", [False, True], ids=["ended", "cut by a limit"])
def test_dqn_replays_every_transition_with_the_next_legal_moves(given, truncate):
    agents = dqn(Relay, {"truncate": truncate}, gamma=GAMMA, batch_size=200, update_per_step=0.125)
    run(agents, truncate)
    assert len(given) == 2
    for batch in given:
        for player, k in SEATS.items():
            wanted = {
                (move, reward): (action, 0.0 if terminated else GAMMA, seen, legal)
                for move, action, reward, terminated, _, seen, legal in expected(player, truncate)
            }
            got = {
                (int(batch.obs[k, i, 0]), float(batch.reward[k, i])): (
                    int(batch.action[k, i]), float(batch.discount[k, i]), batch.next_obs[k, i].tolist(),
                    batch.next_legal[k, i].tolist(),
                )
                for i in range(200)
            }  # fmt: skip
            assert got == wanted


def test_dqn_sums_three_decisions_of_its_own_and_stops_at_the_end(given):
    agents = dqn(Relay, {"truncate": True}, gamma=GAMMA, batch_size=300, n_step=3, update_per_step=0.125)
    run(agents, True)
    wanted = {
        "ann": {
            (0, 52 + 51 / 2 + 530 / 4): (1 / 8, 8), (3, 51 + 530 / 2): (1 / 4, 8), (6, 530): (1 / 2, 8),
            (0, 32 + 30 / 2 + 32 / 4): (1 / 8, 6), (2, 30 + 32 / 2 + 530 / 4): (1 / 8, 8),
            (4, 32 + 530 / 2): (1 / 4, 8),
        },
        "bob": {(1, 41 - 968 / 2): (0, 6), (4, -968): (0, 6)},
        "cat": {
            (2, 30 + 11 / 2 + 503 / 4): (1 / 8, 8), (5, 11 + 503 / 2): (1 / 4, 8), (7, 503): (1 / 2, 8),
            (1, 11 + 11 / 2 + 11 / 4): (1 / 8, 7), (3, 11 + 11 / 2 + 503 / 4): (1 / 8, 8),
        },
    }  # fmt: skip
    for batch in given:
        for player, k in SEATS.items():
            got = {
                (int(batch.obs[k, i, 0]), float(batch.reward[k, i])): (
                    float(batch.discount[k, i]),
                    batch.next_obs[k, i, 0],
                )
                for i in range(300)
            }
            assert got == wanted[player]


@pytest.mark.parametrize("truncate", [False, True], ids=["ended", "cut by a limit"])
def test_a_users_own_agents_observe_every_transition(truncate):
    students = [Student(lambda row: PLAYED[int(row[0])]) for _ in SEATS]
    run(students, truncate)
    for player, k in SEATS.items():
        (batch,) = students[k].seen
        assert batch.legal is not None and batch.next_legal is not None
        wanted = expected(player, truncate)
        assert list(zip(
            batch.observation[:, 0].astype(int), batch.action, batch.reward, batch.terminated, batch.truncated,
            batch.next_observation.tolist(), batch.next_legal.tolist(), strict=True,
        )) == wanted  # fmt: skip
        assert batch.legal.tolist() == [ALL if move % 2 == 0 else LOW for move, *_ in wanted]


def test_a_team_reward_goes_to_everyone_who_waits():
    """The sum of what a move brings all three; ann's first decision gathers moves 0, 1 and 2: 22 + 41 + 60."""
    students = [Student(lambda row: PLAYED[int(row[0])]) for _ in SEATS]
    run(students, False, steps=8, update_freq=8, team_reward="sum")
    brought = [22, 41, 60, 21, 42, 30 - 970 + 1, 10, 530 + 503]
    assert students[0].seen[0].reward.tolist() == [sum(brought[:3]), sum(brought[3:6]), sum(brought[6:])]
    assert students[1].seen[0].reward.tolist() == [sum(brought[1:4]), sum(brought[4:6])]
    assert students[2].seen[0].reward.tolist() == [sum(brought[2:5]), sum(brought[5:7]), sum(brought[7:])]


def test_no_illegal_move_is_ever_played_while_learning():
    """The environments refuse one with an error; thousands of moves by learning agents raise none."""
    for make in (ppo, dqn):
        result = trainer(Relay, num_train_envs=4, steps_per_train=2000, update_freq=100).train(
            make(Relay), [1, 1, 1], plot=False
        )
        assert result["num_collected_steps"] == 2000
        assert np.isfinite(result["history"].filter(like="loss").iloc[-1]).all()
