import pytest

import marltrain as mt
from tests.toys import Relay

ARGS = {"length": 4, "absences": False}


@pytest.mark.parametrize("truncate", [False, True])
def test_rewards_between_decisions_by_hand(truncate):
    """All act 0: ann moves (10 for the others), bob (20), cat (30), ann (10, and 500, 501, 502 at the end).

    What bob and cat get before their first decision belongs to no row.
    """
    agents = [mt.FunctionAgent(lambda observation, legal: 0) for _ in range(3)]
    found = mt.demonstrations(Relay, agents, env_args={**ARGS, "truncate": truncate}, episodes=2)
    rewards = {"ann": [50, 500] * 2, "bob": [541] * 2, "cat": [512] * 2}
    assert {name: one.reward.tolist() for name, one in found.items() if one.reward is not None} == rewards
    ended = found["ann"].terminated
    assert ended is not None
    assert (found["ann"].ends.tolist(), ended.tolist()) == ([False, True] * 2, [False, not truncate] * 2)


def test_dataset_of_a_run(tmp_path):
    trainer = mt.DecentralizedTrainer(
        Relay, env_args=ARGS, steps_per_train=20, num_train_envs=1, test_freq=None, run_dir=tmp_path / "r",
        progress=False, seed=0,
    )  # fmt: skip
    trainer.train(mt.make_agents("dqn", Relay, env_args=ARGS, seed=0), [1, 1, 1], plot=False)
    with pytest.raises(mt.SaveError, match="No file may choose what code is run"):
        mt.dataset(tmp_path / "r", episodes=2)
    played = mt.dataset(tmp_path / "r", env="tests.toys:Relay", episodes=2)
    assert {name: len(one) for name, one in played.items()} == {"ann": 4, "bob": 2, "cat": 2}
    played["ann"].save(tmp_path / "saved")
    again = mt.Demonstrations.load(tmp_path / "saved")
    both = mt.Demonstrations.joined([again, played["ann"]])
    assert both.reward is not None
    assert both.terminated is not None
    assert both.reward[:4].tolist() == both.reward[4:].tolist()
    assert both.terminated.tolist() == [False, True] * 4
