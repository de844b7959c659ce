"""examples/from_tianshou.py makes what it says: long, as the page that shows it (docs/from_tianshou.md) is run."""

import numpy as np

import marltrain as mt
from examples import from_tianshou
from tests.tiers import LONG

if LONG:

    def test_its_algorithms_learn_side_by_side():
        agents = [mt.OffPolicyAgent(from_tianshou.make_dqn()), mt.OnPolicyAgent(from_tianshou.make_ppo())]
        trainer = mt.DecentralizedTrainer(
            from_tianshou.GAME, num_train_envs=4, steps_per_train=200, episodes_per_test=4, seed=0, progress=False
        )
        line_up = [agents[0], mt.RandomAgent()]
        result = trainer.train(agents, learning_mask=[1, 1], plot=False, test_agents=line_up)
        assert np.isfinite(result["reward_metric_stats"]).all()
        losses = result["history"].iloc[-1][["player_1/loss/total", "player_2/loss/total"]].astype(float)
        assert np.isfinite(losses).all()
