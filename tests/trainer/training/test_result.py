"""Agents, results and trainers print in one line."""

import torch

import marltrain as mt
from marltrain.trainer.training.result import TrainResult
from tests.policies.own import with_torch
from tests.toys import Identity
from tests.trainer.running import dqn, ppo, trainer


def acts(observation):
    return 0


def test_agents_print_in_one_line():
    first = ppo()[0]
    text = f"PPO(network=MLP(hidden=(4,), activation='tanh'), backend='torch', seed={first.seed})"
    assert repr(first) == text
    assert repr(mt.FrozenAgent(first)) == f"FrozenAgent({text})"
    assert repr(mt.FunctionAgent(acts)) == "FunctionAgent(acts)"
    assert (repr(mt.RandomAgent()), repr(mt.RandomAgent(seed=3))) == ("RandomAgent()", "RandomAgent(seed=3)")
    assert repr(with_torch.q_agent(3, 3)) == "CustomAgent(Twins, backend='torch')"
    own = dqn(network=torch.nn.Linear(3, 3))[0]
    assert repr(own) == f"DQN(network=Linear, backend='torch', seed={own.seed})"


def test_hyper_prints_its_current_values():
    agent = dqn(epsilon=mt.linear(1.0, 0.0, 100), learning_rate=1e-3, max_grad_norm=None)[0]
    text = repr(agent.hyper)
    assert text.startswith("hyper(")
    assert {"epsilon=1", "learning_rate=0.001"} <= set(text[6:-1].split(", "))
    assert "\n" not in text
    assert len(text) < 200
    assert repr(with_torch.q_agent(3, 3).hyper) == "hyper(gamma=0.9, epsilon=0.2, noise=0.1)"


def test_results_and_the_trainer_print_in_one_line():
    output = trainer(steps_per_train=12)
    assert (
        repr(output)
        == f"DecentralizedTrainer({output.setup.source.name!r}, seed=0, num_train_envs=3, steps_per_train=12)"
    )
    result = output.train(ppo(), [1, 1], plot=False)
    text = repr(result)
    assert isinstance(result, TrainResult)
    assert dict(result) == result
    assert text.startswith("TrainResult(metric ")
    assert "12 env steps" in text
    assert text.endswith(f"stop_reason='steps_per_train', run_dir={result['run_dir']!r})")
    tested = trainer(Identity).test(ppo(), episodes=3)
    assert repr(tested).startswith(f"TestResult(mean={tested.mean:.4g}, interval=(")
    assert repr(tested).count("\n") == 0
    assert "episodes=3, player_0: " in repr(tested)
