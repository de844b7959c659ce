"""Matrix games with known traps: where independent and joint learners end. The long tier trains in each game."""

from __future__ import annotations

import pytest

from benchmarks import sharing
from benchmarks.matrix_games import outcome
from tests.tiers import LONG


def test_the_payoff_is_that_of_the_joint_action():
    table = [[11, -30, 0], [-30, 7, 6], [0, 0, 5]]
    joint, payoff = outcome("coma", "climbing", 0, 300)
    assert payoff == table[joint[0]][joint[1]]


if LONG:

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize(
        ("row", "game", "trap"),
        [("dqn", "climbing", {5}), ("dqn", "penalty", {2}), ("ppo", "climbing", {5, 6, 7}), ("ppo", "penalty", {2})],
    )
    def test_independent_learners_end_in_the_trap(row, game, trap, seed):
        """The optimal payoffs are 11 and 10. DQN explores uniformly: by mean payoffs, (2, 2) is best."""
        assert outcome(row, game, seed, 10_000)[1] in trap

    @pytest.mark.parametrize("seed", range(3))
    @pytest.mark.parametrize(("game", "best"), [("climbing", 11), ("penalty", 10)])
    def test_weighted_mixing_finds_the_best_joint_action(game, best, seed):
        assert outcome("wqmix", game, seed, 10_000)[1] == best

    @pytest.mark.parametrize(("kind", "found"), [("none", 1.0), ("`share=True`", 0.25),
                                                 ("`share=True, identify=True`", 1.0)])  # fmt: skip
    def test_a_shared_agent_needs_its_identity_to_pull_different_levers(kind, found):
        assert sharing.score("levers", kind, 0) == found
