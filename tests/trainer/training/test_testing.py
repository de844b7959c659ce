"""Tests during training: who plays them, and in which seats."""

import pytest

import marltrain as mt
from tests.team_toys import Seats


@pytest.mark.parametrize("rotate", [True, False])
def test_a_line_up_keeps_its_seats_if_asked(rotate):
    """Player p gets p + 1 in each of three steps; in five episodes an entry that moves on plays each seat once."""
    agents = mt.make_agents("dqn", Seats, seed=0, network=mt.MLP((4,)))
    line_up = [*agents[:2], *(mt.RandomAgent() for _ in range(3))]
    run = mt.DecentralizedTrainer(Seats, steps_per_train=8, num_train_envs=2, num_test_envs=2, episodes_per_test=5,
                                  run_dir=False, progress=False, seed=0)  # fmt: skip
    last = run.train(agents, test_agents=line_up, rotate_tests=rotate, plot=False)["history"].iloc[-1]
    returns = [last[name] for name in last.index if name.startswith("return/")]
    assert returns == ([9] * 5 if rotate else [3, 6, 9, 12, 15])
    assert last["judged"] == "red_0+red_1" and last["metric"] == (9 if rotate else 4.5)
