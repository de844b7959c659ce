"""Tests in which agents explore as in training: `test(..., sampled=True)` and `sampled_tests`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.envs import make_vector, resolve
from marltrain.envs.population import population_of
from marltrain.trainer.evaluating.evaluation import Evaluation
from marltrain.trainer.evaluating.population import PopulationEvaluation
from marltrain.trainer.reporting.scalar_logger import ScalarLogger
from marltrain.trainer.saving.checkpoint import Checkpoint
from marltrain.trainer.seats.seats import Seating
from tests.tiers import LONG
from tests.toys import Identity
from tests.trainer.running import SHORT, SMALL, changed, dqn, ppo, tables, trainer, weights

NATIVE = "marltrain/matrix_game_v1"
PAYOFFS = {"payoffs": [[[1.0, 2.0], [4.0, 8.0]], [[1.0, 2.0], [4.0, 8.0]]], "num_rounds": 3}


class OnlyWhenExploring(mt.Agent):
    """Names the symbol that it sees if it explores, and another one otherwise."""

    def act(self, observation: Any, legal: Any = None, explore: Any = False) -> Any:
        symbol = np.asarray(observation)
        return np.where(explore, symbol, (symbol + 1) % 3)


def test_agents_explore_in_a_sampled_test_only():
    """Identity gives 1 for the symbol, in each of 3 steps; a frozen agent never explores."""
    agents = [OnlyWhenExploring(), mt.FrozenAgent(OnlyWhenExploring())]
    assert trainer().test(agents, 4).returns.tolist() == [[0, 0]] * 4
    assert trainer().test(agents, 4, sampled=True).returns.tolist() == [[3, 0]] * 4


def test_value_based_agents_explore_by_their_present_epsilon():
    """With epsilon 1 a symbol of three is named in a third of the steps; with epsilon 0 the test is the greedy one."""
    agents = dqn(epsilon=1.0)
    greedy = trainer().test(agents, 400).returns
    sampled = trainer().test(agents, 400, sampled=True).returns
    assert sampled.mean() == pytest.approx(1.0, abs=0.1)  # 2,400 coins: a deviation of 0.03
    for agent in agents:
        agent.hyper.epsilon = 0.0
    assert trainer().test(agents, 400, sampled=True).returns.tolist() == greedy.tolist()


def test_stochastic_policies_sample_the_same_actions_in_both_frameworks():
    """The mean return is that of the policies' probabilities of naming each of three equally frequent symbols."""
    results = {}
    for backend in ("torch", "tensorflow"):
        agents = ppo(backend=backend)
        results[backend] = trainer().test(agents, 400, sampled=True)
        expected = [3 * np.mean([agent.probabilities(symbol)[symbol] for symbol in range(3)]) for agent in agents]
        assert results[backend].returns.mean(0) == pytest.approx(expected, abs=0.15)
    assert results["torch"].returns.tolist() == results["tensorflow"].returns.tolist()


def vdn() -> list[Any]:
    return mt.make_agents(
        "vdn", Identity, env_args=SHORT, seed=0, network=SMALL, learning_starts=0, update_per_step=0.2, epsilon=0.5
    )


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "ppo": (ppo, {}),
    "recurrent": (lambda: ppo(network=mt.GRU((4,), sequence_length=2)), {}),
    "counted": (lambda: dqn(exploration="boltzmann_gumbel"), {}),
    "team": (vdn, {"team_reward": "mean"}),
    "tensorflow": (lambda: dqn(backend="tensorflow"), {}),
    "native": (lambda: ppo(NATIVE, PAYOFFS), {"env": NATIVE, "env_args": PAYOFFS}),
}


def ran(kind: str, **settings: Any) -> tuple[dict[str, Any], list[Any]]:
    make, own = CASES[kind]
    agents = make()
    arguments = {"steps_per_train": 60, "test_freq": 6, **own, **settings}
    return trainer(**arguments).train([*agents], plot=False), agents


@pytest.mark.parametrize("kind", [kind for kind in CASES if LONG or kind not in ("ppo", "tensorflow")])
def test_sampled_tests_change_nothing_in_training(kind):
    """Weights, states, episodes and the columns of greedy tests are the same, bit for bit."""
    (plain, first), (result, second) = ran(kind), ran(kind, sampled_tests=True)
    assert not any(changed(weights(first), weights(second)))
    states = [[agent.learner_.export(agent.row).info for agent in agents] for agents in (first, second)]
    assert states[0] == states[1]
    history = result["history"]
    added = ["sampled/metric", *(f"sampled/return/{name}" for name in ("player_0", "player_1"))]
    assert history[added].notna().all().all()
    assert tables({**result, "history": history.drop(columns=added)}) == tables(plain)
    assert len(history) > 2


def test_the_columns_are_those_of_a_sampled_test():
    run = trainer(
        steps_per_train=60, sampled_tests=True, episodes_per_test=20, reward_metric=lambda rewards: rewards[0, 0]
    )
    agents = ppo()
    last = run.train(agents, plot=False)["history"].iloc[-1]
    result = run.test(agents, 20, sampled=True)
    assert last["sampled/metric"] == result.returns[0, 0]
    assert [last[f"sampled/return/{name}"] for name in result.names] == result.returns.mean(0).tolist()
    assert result.returns.tolist() != run.test(agents, 20).returns.tolist()


def test_the_default_sampled_metric_is_that_of_the_players_that_learn():
    history = trainer(steps_per_train=30, sampled_tests=True).train(ppo(), [0, 1], plot=False)["history"]
    assert history["sampled/metric"].tolist() == history["sampled/return/player_1"].tolist()


def test_events_of_sampled_tests():
    """Two tests of 2 + 2 episodes of 3 steps, in 2 environments; a logger gets the means of both halves."""
    steps, ends, scalars = [], [], {}

    class Watch(mt.Callback):
        def on_test_start(self, moment):
            assert moment.data["episodes"] == 4

        def on_test_step(self, moment):
            steps.append(tuple(moment.data[name] for name in ("finished", "episodes", "steps")))

        def on_test_end(self, moment):
            ends.append(moment.data)

    class Log(ScalarLogger):
        def write(self, values, env_steps):
            scalars.update(values)

    passed = []
    run = trainer(steps_per_train=3, sampled_tests=True, callbacks=[Watch(), Log()],
                  test_fn=lambda episodes, env_steps: passed.append((episodes, env_steps)))  # fmt: skip
    run.train([ppo()[0], OnlyWhenExploring()], [1, 0], plot=False)
    assert steps == [(0, 4, 2), (0, 4, 4), (2, 4, 6), (2, 4, 8), (2, 4, 10), (4, 4, 12)] * 2
    assert passed == [(0, 0), (2, 6), (4, 12)] * 2
    assert [data["sampled"].returns[:, 1].tolist() for data in ends] == [[3, 3]] * 2
    assert [data["sampled_metric"] for data in ends] == [data["sampled"].returns[:, 0].mean() for data in ends]
    assert [scalars[f"test/{half}return/player_1"] for half in ("", "sampled/")] == [0, 3]
    assert scalars["test/sampled/metric"] == ends[-1]["sampled_metric"]


@pytest.mark.parametrize("kind", ["recurrent", "counted"])
def test_resume_repeats_sampled_tests(kind):
    whole, _ = ran(kind, sampled_tests=True, run_dir="whole")
    ran(kind, sampled_tests=True, steps_per_train=30, run_dir="half", callbacks=[Checkpoint(every_steps=30)])
    make, own = CASES[kind]
    again = trainer(
        steps_per_train=60, test_freq=6, sampled_tests=True, run_dir=None, callbacks=[Checkpoint(every_steps=30)], **own
    ).train(make(), plot=False, resume=Path("half"))
    assert tables(again) == tables(whole)


def test_populations_play_sampled_tests():
    seeds = (4, 5)
    agents = [OnlyWhenExploring() for _ in range(4)]
    with make_vector(population_of(resolve(Identity, SHORT), seeds), num_envs=2, role="test") as envs:
        learners = Seating(envs.spec, agents, 0, stack=False).learners
        assert PopulationEvaluation(envs, 0, None).play(learners, 3, sampled=True).returns.tolist() == [[3] * 4] * 3
        assert PopulationEvaluation(envs, 0, None).play(learners, 3).returns.tolist() == [[0] * 4] * 3
    with make_vector(resolve(Identity, SHORT), num_envs=2, role="test") as envs:
        learners = Seating(envs.spec, agents[:2], 0, stack=False).learners
        assert Evaluation(envs, 4, None).play(learners, 3, sampled=True).returns.tolist() == [[3] * 2] * 3


def test_sampled_tests_without_tests_are_an_error():
    with pytest.raises(ConfigError, match=r"test_freq=None .* sampled_tests=True"):
        trainer(test_freq=None, sampled_tests=True)
