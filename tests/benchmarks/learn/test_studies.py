"""Studies: their variants can be trained, and their table. The long tier trains in games with known answers."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.learn.cases import STUDIES, curve_of
from benchmarks.learn.goals import shares_by_distance
from benchmarks.learn.studies import lines_of, trained
from examples.point_maze import PointMaze
from marltrain.policies.agents.fixed import RandomAgent
from marltrain.trainer.decentralized import DecentralizedTrainer
from marltrain.trainer.make_agents import make_agents
from tests.tiers import LONG


def case_of(study, title, steps=None):
    (found,) = (case for case in STUDIES[study].cases(steps or STUDIES[study].steps) if case.title == title)
    return found


@pytest.mark.parametrize("study", STUDIES)
def test_the_variants_are_valid(study):
    """Agents, trainer and callbacks of each are made; titles tell the variants apart."""
    cases = STUDIES[study].cases(STUDIES[study].steps)
    assert len({case.title for case in cases}) == len(cases)
    for case in cases:
        assert make_agents(case.algo, case.env, env_args=case.env_args, seed=0, **case.agents)
        DecentralizedTrainer(case.env, case.env_args, callbacks=case.callbacks(), **case.trainer)


def test_lines_compare_with_the_first_variant_of_the_group():
    case = case_of("adaptation-dqn", "well set: learning rate by noise")
    first, own = ([{"curve": value, "seconds": 2.0} for value in values] for values in ((1.0, 3.0), (2.0, 5.0)))
    (alone,), (line,) = lines_of(case, first, first), lines_of(case, own, first)
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells == [case.title, "curve", "2.00 5.00", "3.50", "2.00 to 5.00", "1.50 (1.00 to 2.00)", "2"]
    assert alone.split("|")[6].strip() == ""


def test_the_payoff_is_that_of_a_joint_action():
    assert trained(case_of("climbing", "coma", 300), 0)["payoff"] in {11, -30, 7, 6, 0, 5}


def test_the_curve_leaves_out_the_test_before_training():
    trainer = DecentralizedTrainer("marltrain/CartPole-v1")
    assert curve_of(trainer, [], {"reward_metric_stats": np.array([100.0, 1.0, 2.0])}) == {"curve": 1.5}


def test_goals_of_a_maze_that_a_random_agent_reaches_are_near(monkeypatch):
    monkeypatch.setattr("benchmarks.learn.goals.PAIRS", 20)
    monkeypatch.setattr("benchmarks.learn.goals.RANGES", [(1, 4), (8, 16)])
    env = PointMaze("small")
    near, *_, far = shares_by_distance(RandomAgent(env.observation_space, env.action_space, seed=0), "small").values()
    assert near > far


if LONG:

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize(
        ("game", "algorithm", "trap"),
        [("climbing", "dqn", {5}), ("penalty", "dqn", {2}), ("climbing", "ppo", {5, 6, 7}), ("penalty", "ppo", {2})],
    )
    def test_independent_learners_end_in_the_trap(game, algorithm, trap, seed):
        """The optimal payoffs are 11 and 10. DQN explores uniformly: by mean payoffs, (2, 2) is best."""
        assert trained(case_of(game, algorithm), seed)["payoff"] in trap

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize(("game", "best"), [("climbing", 11), ("penalty", 10)])
    def test_weighted_mixing_finds_the_best_joint_action(game, best, seed):
        assert trained(case_of(game, "wqmix"), seed)["payoff"] == best

    @pytest.mark.parametrize(
        ("kind", "found"), [("none", 1.0), ("share=True", 0.25), ("share=True, identify=True", 1.0)]
    )
    def test_a_shared_agent_needs_its_identity_to_pull_different_levers(kind, found):
        assert trained(case_of("sharing-levers", kind), 0)["return"] == found
