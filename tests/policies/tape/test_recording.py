"""Every loss of every algorithm: recorded, its gradient is that of torch, for real learners and columns."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.agents.registry import ALGORITHMS
from tests.policies.algorithms.demonstrated import ACTIONS, demonstrated
from tests.policies.some_batches import GOALS, VECTOR
from tests.policies.tape.captured import arrays_of, batch_of, learner_of, losses_of, recorded
from tests.policies.tape.evaluate import evaluate

FIVE, BOX = spaces.Discrete(5), spaces.Box(-2, 2, (2,), np.float32)
AGENTS, ROWS = 3, 8
ONCE = {"epochs": 1, "minibatches": 1}
TEAM = {"team_size": 3}
STATE = {**TEAM, "state_size": 7}
JOINT = {**STATE, "joint_action_size": 15}
GRU, LSTM = mt.GRU((6,), "tanh", 5, 4), mt.LSTM((6,), "relu", 5, 4)
MIXER = {"mixing_units": 4, "hyper_units": 6}
CASES: dict[str, dict[str, Any]] = {
    "dqn": {},
    "dqn dueling": {"dueling": True},
    "dqn noisy": {"noisy": 0.5},
    "dqn without double": {"double": False, "tau": 0.1},
    "dqn elu": {"network": mt.MLP((6,), "elu")},
    "dqn silu": {"network": mt.MLP((6,), "silu")},
    "dqn gelu": {"network": mt.MLP((6,), "gelu")},
    "dqn lstm": {"network": LSTM},
    "dqn prioritized": {"memory": mt.Replay(prioritized=mt.Prioritized())},
    "dqn masked": {"masked": True},
    "c51": {"atoms": 7},
    "rainbow": {"atoms": 7},
    "ddpg": {"actions": BOX},
    "td3": {"actions": BOX},
    "sac": {"actions": BOX},
    "sac discrete": {},
    "sac masked": {"masked": True},
    "sac gru": {"actions": BOX, "network": GRU},
    "ppo": ONCE,
    "ppo masked": {**ONCE, "masked": True},
    "ppo value_clip": {**ONCE, "value_clip": 0.2},
    "ppo without clip": {**ONCE, "clip": None},
    "ppo kl_penalty": {**ONCE, "kl_penalty": 1.0},
    "ppo target_kl": {**ONCE, "target_kl": 0.05},
    "ppo popart": {**ONCE, "normalize_values": "popart", "normalize_returns": True},
    "ppo shared": {**ONCE, "shared_trunk": True},
    "ppo several": {**ONCE, "actions": spaces.MultiDiscrete([3, 2])},
    "ppo gaussian": {**ONCE, "actions": BOX},
    "ppo state_gaussian": {**ONCE, "actions": BOX, "policy": "state_gaussian"},
    "ppo squashed_gaussian": {**ONCE, "actions": BOX, "policy": "squashed_gaussian"},
    "ppo beta": {**ONCE, "actions": BOX, "policy": "beta"},
    "ppo gru": {**ONCE, "network": GRU},
    "ppo lstm": {**ONCE, "network": LSTM},
    "a2c": {},
    "acer": {},
    "mappo": {**ONCE, "state_size": 7},
    "maa2c": {"state_size": 7},
    "coma": {"state_size": 7, "joint_action_size": 15},
    "seac": {},
    "trpo": {},
    "trl": {"space": GOALS},
    "trl policy": {"space": GOALS, "extraction": "policy"},
    "vdn": TEAM,
    "vdn gru": {**TEAM, "network": GRU},
    "vdn dueling": {**TEAM, "dueling": True},
    "qmix": {**STATE, **MIXER},
    "qmix masked": {**STATE, **MIXER, "masked": True},
    "qmix skip_connection": {**STATE, **MIXER, "skip_connection": True},
    "qmix lstm": {**STATE, **MIXER, "network": LSTM},
    "wqmix": {**STATE, **MIXER},
    "vdac": STATE,
    "maddpg": JOINT,
    "matd3": {**JOINT, "joint_action_size": 6, "actions": BOX},
    "masac": JOINT,
    "bc": {"demonstrations": "discrete"},
    "bc box": {"demonstrations": "box"},
    "gail": {**ONCE, "demonstrations": "discrete"},
}  # fmt: skip


def test_every_algorithm_is_recorded():
    assert {name.partition(" ")[0] for name in CASES} == set(ALGORITHMS)


def losses(name: str) -> Any:
    settings: dict[str, Any] = {"network": mt.MLP((6, 5)), **CASES[name]}
    space, actions, masked = settings.pop("space", VECTOR), settings.pop("actions", FIVE), settings.pop("masked", False)
    if kind := settings.get("demonstrations"):
        settings["demonstrations"], actions = demonstrated(kind), ACTIONS[kind]
    agent_class = getattr(mt, {name.lower(): name for name in dir(mt)}[name.partition(" ")[0]])
    learner = learner_of(agent_class, space, actions, AGENTS, settings)
    batch = batch_of(learner, space, actions, ROWS, masked)
    if settings.get("policy") == "beta":
        batch.extras["raw"] = np.random.default_rng(3).uniform(0.1, 0.9, batch.extras["raw"].shape).astype(np.float32)
    return losses_of(learner, batch, ROWS)


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_of_a_recorded_loss_is_that_of_torch(name):
    found = losses(name)
    assert found
    for loss in found:
        recording = recorded(loss)
        inputs = arrays_of(loss.columns, "columns") | arrays_of(loss.hyper, "hyper")
        outputs, gradients = evaluate(recording, inputs, loss.weights)
        sizes = {network: np.abs(loss.gradients[network]).max() for network in loss.trains}
        assert max(sizes.values()) > 1e-4
        for network, size in sizes.items():
            np.testing.assert_allclose(gradients[network], loss.gradients[network], atol=1e-5 * size, err_msg=network)
        for metric, value in loss.measured.items():
            np.testing.assert_allclose(outputs[metric].reshape(value.shape), value, rtol=1e-4, atol=1e-5)
