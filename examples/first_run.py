"""Train agents on a custom environment: `python examples/first_run.py`."""

from own_game import Rendezvous

import marltrain as mt

if __name__ == "__main__":
    agents = mt.make_agents("ppo", Rendezvous, seed=0, learning_rate=1e-3, minibatches=4)
    trainer = mt.DecentralizedTrainer(
        Rendezvous, num_train_envs=8, update_freq=512, test_freq=400, episodes_per_train=2000, seed=0
    )
    result = trainer.train(agents)
    print("meetings an episode:", [round(metric, 1) for metric in result["reward_metric_stats"]])
    print("picture, tables and agents are in", result["run_dir"])
