"""Every loss of every algorithm: recorded, its gradient is that of torch, for real learners and columns."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.agents.registry import ALGORITHMS
from marltrain.policies.backends.torch import ops as torch_ops
from marltrain.policies.batches.tensor_batch import TensorBatch
from marltrain.policies.learner.joint_learner import JointLearner
from marltrain.policies.tape import ops
from marltrain.policies.tape.recording import Recording
from marltrain.policies.tape.symbols import Tape
from tests.policies.algorithms.demonstrated import ACTIONS, demonstrated
from tests.policies.some_batches import GOALS, IMAGE, PICTURE_AND_VECTOR, VECTOR, some_team
from tests.policies.tape.captured import (
    Loss,
    arrays_of,
    batch_of,
    learner_of,
    losses_of,
    recorded,
    stacked,
    with_team_carries,
)
from tests.policies.tape.evaluate import evaluate

FIVE, BOX = spaces.Discrete(5), spaces.Box(-2, 2, (2,), np.float32)
AGENTS, ROWS = 3, 8
ONCE = {"epochs": 1, "minibatches": 1}
TEAM = {"team_size": 3}
STATE = {**TEAM, "state_size": 7}
JOINT = {**STATE, "joint_action_size": 15}
CONVOLVED = mt.CNN((6,), filters=((4, 3, 2), (5, 2, 1)))
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
    "dqn images": {"space": IMAGE, "network": CONVOLVED},
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
    "ppo images": {**ONCE, "space": PICTURE_AND_VECTOR, "network": CONVOLVED},
    "a2c": {},
    "acer": {},
    "mappo": {**ONCE, "state_size": 7},
    "maa2c": {"state_size": 7},
    "coma": {"state_size": 7, "joint_action_size": 15},
    "seac": {},
    "mmd": ONCE,
    "mmd masked": {**ONCE, "masked": True},
    "nfsp": {},
    "nfsp masked": {"masked": True},
    "trpo": {},
    "trl": {"space": GOALS},
    "trl policy": {"space": GOALS, "extraction": "policy"},
    "vdn": TEAM,
    "vdn gru": {**TEAM, "network": GRU},
    "vdn images": {**TEAM, "space": IMAGE, "network": mt.GRU((6,), "tanh", 5, 4, filters=((4, 3, 2),))},
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


def learners_of(name: str, count: int = 1, agents: int = AGENTS, **more: Any) -> tuple[list[Any], Any]:
    """Return equal learners of a case, and its action space.  more: settings."""
    settings: dict[str, Any] = {"network": mt.MLP((6, 5)), **CASES[name], **more}
    space, actions = settings.pop("space", VECTOR), settings.pop("actions", FIVE)
    settings.pop("masked", None)
    if kind := settings.get("demonstrations"):
        settings["demonstrations"], actions = demonstrated(kind), ACTIONS[kind]
    agent_class = getattr(mt, {name.lower(): name for name in dir(mt)}[name.partition(" ")[0]])
    return [learner_of(agent_class, space, actions, agents, settings) for _ in range(count)], actions


def rows_of(name: str, learner: Any, actions: Any, rows: int = ROWS, seed: int = 1) -> Any:
    """Return random rows for a learner of a case."""
    batch = batch_of(learner, actions, rows, CASES[name].get("masked", False), seed)
    if CASES[name].get("policy") == "beta":
        raw = np.random.default_rng(3).uniform(0.1, 0.9, batch.extras["raw"].shape)
        batch.extras["raw"] = raw.astype(np.float32)
    return batch


def losses(name: str) -> list[Loss]:
    (learner,), actions = learners_of(name)
    return losses_of(learner, rows_of(name, learner, actions), ROWS)


def assert_as_in_torch(found: list[Loss]) -> None:
    """Compare the outputs and the gradients of recorded losses with those of torch."""
    assert found
    for loss in found:
        inputs = arrays_of(loss.columns, "columns") | arrays_of(loss.hyper, "hyper")
        outputs, gradients = evaluate(recorded(loss), inputs, loss.weights)
        sizes = {network: np.abs(loss.gradients[network]).max() for network in loss.trains}
        assert max(sizes.values()) > 1e-4
        for network, size in sizes.items():
            np.testing.assert_allclose(gradients[network], loss.gradients[network], atol=1e-5 * size, err_msg=network)
        for metric, value in loss.measured.items():
            np.testing.assert_allclose(outputs[metric].reshape(value.shape), value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_of_a_recorded_loss_is_that_of_torch(name):
    assert_as_in_torch(losses(name))


@pytest.mark.parametrize("name", ["vdn", "vdn gru", "qmix", "wqmix", "vdac", "maddpg", "masac"])
def test_teams_of_two_kinds_of_agents_and_of_several_seats(name):
    """Two agents with five actions, and one with three actions in two seats; the kinds alternate in the environment."""
    settings = {"network": mt.MLP((6, 5)), **CASES[name], "team_size": 4}
    settings |= {"joint_action_size": 16} if "joint_action_size" in settings else {}
    kind = getattr(mt, name.partition(" ")[0].upper())
    parts = [stacked(kind, VECTOR, spaces.Discrete(n), agents, settings) for n, agents in ((5, 2), (3, 1))]
    learner = JointLearner(parts, [1, 2], [0, 2, 1, 3])
    rng = np.random.default_rng(1)
    batch = some_team(rng, parts, [1, 2], ROWS)
    assert_as_in_torch(losses_of(learner, with_team_carries(rng, batch, parts), ROWS))


@pytest.mark.parametrize("columns", [("advantage", "weight"), ("advantage", "weight", "trace")])
def test_what_is_computed_over_all_rows(columns):
    """Normalized advantages, and the end of an update."""
    rng = np.random.default_rng(0)
    algorithm = mt.PPO(VECTOR, FIVE, target_kl=0.1).algorithm
    ends_update = algorithm.ends_update
    assert ends_update is not None
    arrays = {name: rng.random((AGENTS, ROWS)).astype(np.float32) for name in columns}
    arrays["weight"] /= arrays["weight"].sum(1, keepdims=True)
    kl, limit = np.array([0.1, 0.16, 0.3], np.float32), np.full((3, 1), 0.1, np.float32)

    def results(ops: Any, given: Any) -> Any:
        batch = TensorBatch(**{name: given(name, array) for name, array in arrays.items()})
        algorithm.over_rows(ops, batch)
        measured, hyper = {"approx_kl": given("kl", kl)}, {"target_kl": given("limit", limit)[:, 0]}
        return batch.advantage, ends_update(measured, hyper)

    expected, ended = results(torch_ops, lambda name, array: torch.from_numpy(array))
    tape = Tape()
    made, ends = results(ops, lambda name, array: tape.input(name, array.shape))
    outputs, _ = evaluate(Recording(tape, {"made": made, "ends": ends}, ()), {**arrays, "kl": kl, "limit": limit}, {})
    np.testing.assert_allclose(outputs["made"], expected.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(outputs["ends"], ended.numpy())
    assert 0 < outputs["ends"].sum() < 3
