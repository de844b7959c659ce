"""Small leagues and their trainers."""

from typing import Any

import marltrain as mt

ROCKS, TOE = "marltrain/rock_paper_scissors_v1", "marltrain/tictactoe_v3"


def trainer(env: Any = ROCKS, **settings: Any) -> mt.DecentralizedTrainer:
    few = {"num_train_envs": 6, "num_test_envs": 2, "update_freq": 16, "test_freq": None, "seed": 0, "progress": False,
           "run_dir": False, **settings}  # fmt: skip
    return mt.DecentralizedTrainer(env, **few)


def league_of(agents: Any, **settings: Any) -> mt.League:
    return mt.League(agents, **{"every_steps": 50, "size": 4, **settings})
