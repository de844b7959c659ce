"""Many trainings at once: each equals a run of its seed alone."""

import math
from functools import partial
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.envs import resolve
from marltrain.tools.search.train_all import fits_population, train_all
from marltrain.tools.search.training import Plan, Training, loss_of
from tests.tiers import LONG
from tests.tools.bandit import SETTINGS, TRAINER, Bandit, Regressor
from tests.toys import Identity
from tests.trainer.running import SHORT, SMALL, dqn, ppo, weights

FEW: dict[str, Any] = {
    "num_train_envs": 3,
    "num_test_envs": 2,
    "update_freq": 12,
    "episodes_per_test": 3,
    "test_freq_steps": 20,
}


def plan(steps=60, **settings):
    return Plan(resolve(Identity, SHORT), steps, None, {**FEW, **settings})


def handles(training: Training) -> list[Any]:
    return list(training.agents)


def trainings(make, rates, seeds):
    return [Training(c, s, partial(make, seed=s, learning_rate=r)) for c, r in enumerate(rates) for s in seeds]


def seac(seed, learning_rate):
    return mt.make_agents("seac", Identity, env_args=SHORT, seed=seed, network=SMALL, learning_rate=learning_rate)


@pytest.mark.parametrize(
    ("make", "learners", "settings"),
    [
        (ppo, 1, {}),
        (dqn, 1, {}),
        (ppo, 1, {"team_reward": "mean"}),
        (dqn, 1, {"team_reward": lambda rewards: rewards.max()}),
        *LONG * [(ppo, 1, {"team_reward": "sum"})],
        (ppo, 1, {"team_reward": {"all": ["player_*"]}}),
        (dqn, 4, {"shared_memory": True}),
        (seac, 4, {}),
    ],
)
def test_a_training_among_others_equals_a_run_alone(make, learners, settings):
    """Candidates x seeds x 2 players: weights, moments and every test.

    They are rows of one learner, and have learners of their own where a learner reads the rows of all its agents.
    """
    together = trainings(make, (1e-2, 1e-1), (0, 7))
    train_all(plan(**settings), together)
    assert len({agent.learner_ for training in together for agent in handles(training)}) == learners
    for training in together:
        agents = make(seed=training.seed, learning_rate=(1e-2, 1e-1)[training.candidate])
        run = mt.DecentralizedTrainer(
            Identity, SHORT, seed=training.seed, steps_per_train=60, run_dir=False, progress=False, **FEW, **settings
        )
        result = run.train(agents, [1, 1], plot=False)
        assert [test.metric for test in training.readings] == pytest.approx(result["history"]["metric"].tolist())
        assert [test.env_steps for test in training.readings] == result["history"]["env_steps"].tolist()
        last = result["history"].iloc[-1]
        mean = np.mean([last[f"player_{p}/loss/total"] for p in range(2)])
        assert training.readings[-1].losses["loss/total"] == pytest.approx(mean, rel=1e-4)
        for own, alone in zip(weights(training.agents), weights(agents), strict=True):
            for name, array in alone.items():
                np.testing.assert_allclose(own[name], array, rtol=1e-5, atol=1e-6, err_msg=name)


def test_kinds_are_trained_side_by_side():
    mixed = [Training(0, 1, lambda: ppo(seed=1)), Training(1, 1, lambda: dqn(seed=1)), Training(2, 2, lambda: dqn())]
    train_all(plan(), mixed)
    assert [len({agent.learner_ for t in own for agent in handles(t)}) for own in (mixed, mixed[1:])] == [2, 1]
    assert all(math.isfinite(loss_of(training.readings[-1].losses)) for training in mixed)


def test_a_training_that_diverges_ends_alone():
    """Rate 9 multiplies the error by -8 in each of 40 updates: the loss becomes infinite; rate 1 learns."""
    both = [
        Training(c, 0, partial(mt.make_agents, Regressor, Bandit, seed=0, learning_rate=rate, **SETTINGS))
        for c, rate in enumerate((1.0, 9.0))
    ]
    train_all(Plan(resolve(Bandit), 320, None, {**TRAINER, "test_freq_steps": 80}), both)
    good, bad = both
    assert not good.error and good.readings[-1].metric > -0.1 and len(good.readings) == 5
    assert bad.stopped and "it must be finite" in bad.error and len(bad.readings) < 5


def test_a_watcher_ends_trainings_and_the_run_with_the_last():
    asked = trainings(ppo, (1e-2, 1e-1, 1e-3), (0,))
    seen = []

    def watch(going):
        seen.append([training.candidate for training in going])
        going[0].stopped = True

    train_all(plan(steps=200), asked, watch)
    assert seen == [[0, 1, 2], [1, 2], [2]]
    assert [len(training.readings) for training in asked] == [1, 2, 3]


def test_an_error_that_ends_all_is_found_alone():
    """A policy that raises ends the run of the population; alone, only its own training fails."""

    def broken(observation):
        raise OSError("no policy")

    def make(works):
        return [ppo(seed=0)[0], mt.RandomAgent(seed=1) if works else mt.FunctionAgent(broken)]

    both = [Training(c, c, partial(make, works)) for c, works in enumerate((True, False))]
    with pytest.warns(UserWarning, match="2 trainings.*OSError: no policy. 2 "):
        train_all(plan(), both)
    assert not both[0].error and len(both[0].readings) == 4
    assert both[1].error == "OSError: no policy" and not both[1].readings
    with pytest.raises(OSError, match="no policy"):
        train_all(plan(), both, alone=False)


def test_a_training_that_was_stopped_is_not_repeated_alone():
    """The watcher ends the first training at its first test; later a policy fails."""
    failing: list[int] = []
    seen: list[list[int]] = []

    def policy(observation):
        if failing:
            raise OSError("no policy")
        return 0

    both = [Training(c, c, lambda: [ppo(seed=0)[0], mt.FunctionAgent(policy)]) for c in range(3)]

    def watch(going):
        seen.append([training.candidate for training in going])
        both[0].stopped = True
        failing[:] = [1] if len(seen) == 2 else []

    with pytest.warns(UserWarning, match="no policy. 2 are repeated alone"):
        train_all(plan(), both, watch)
    assert seen[:2] == [[0, 1, 2], [1, 2]]
    assert len(both[0].readings) == 1 and both[0].stopped and not both[0].error
    assert [training.error for training in both[1:]] == ["OSError: no policy"] * 2  # no test made it work again


def test_an_error_of_the_watcher_ends_all():
    def watch(going):
        raise OSError("no storage")

    for asked in (trainings(ppo, (1e-2, 1e-1), (0,)), trainings(ppo, (1e-2,), (0,))):
        with pytest.raises(OSError, match="no storage"):
            train_all(plan(), asked, watch)


def test_agents_that_need_the_environment_itself_are_trained_alone():
    shared = mt.make_agents("ppo", Identity, env_args=SHORT, share=True, identify=True, seed=0, network=SMALL)
    team = mt.make_agents("vdn", Identity, env_args=SHORT, seed=0, network=SMALL)
    assert [fits_population(agents) for agents in (ppo(), shared, team)] == [True, False, False]
    alone = [
        Training(0, s, partial(mt.make_agents, "vdn", Identity, env_args=SHORT, seed=s, network=SMALL)) for s in (0, 1)
    ]
    train_all(plan(batch_size=4, team_reward="mean"), alone)
    assert [len(training.readings) for training in alone] == [4, 4]
