"""Updates from a prioritized memory: the rows' errors and the importance weights, in both frameworks and compiled."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.policies.algorithms.dqn import DQNAlgorithm
from tests.policies.some_batches import VECTOR, some_transitions
from tests.tiers import LONG

THREE, BOX = spaces.Discrete(3), spaces.Box(-2, 2, (2,), np.float32)
MEMORY = mt.Replay(prioritized=mt.Prioritized())
WAYS = [("torch", False), ("torch", True), ("tensorflow", False)]


def constants(agent: Any, values: dict[str, Any]) -> None:
    """Set each network to outputs that do not depend on its inputs."""
    state = agent.learner_.export(0)
    for name, biases in values.items():
        state.arrays[f"net/{name}/head0.weight"][...] = 0.0
        state.arrays[f"net/{name}/head0.bias"][:] = biases
    agent.learner_.load(0, state)


def batch_of(space: Any, rewards: list[float], discounts: list[float], weights: list[float]) -> Any:
    batch = some_transitions(np.random.default_rng(0), VECTOR, space, 1, len(rewards))
    for name, values in (("reward", rewards), ("discount", discounts), ("weight", weights)):
        setattr(batch, name, np.array([values], np.float32))
    batch.rows = np.arange(len(rewards))[None]
    return batch


def updated(agent: Any, batch: Any) -> dict[str, Any]:
    measured: dict[str, Any] = agent.learner_.update(batch, learn=np.ones(1, bool), batch_size=4)
    return measured


@pytest.mark.parametrize(("backend", "jit_compile"), WAYS)
def test_dqn_by_hand(backend, jit_compile):
    """Q = 1, targets 3, 0.5 + 0.5 * 2 and -4, importance weights 1, 0.5 and 0.25.

    Errors 2, 0.5 and 5; Huber losses 1.5, 0.125 and 4.5. The loss that is reported is the weighted mean. The gradient
    with respect to the bias of an action is the sum of -w clip(error) / 3 over its rows.
    """
    agent = mt.DQN(
        VECTOR, THREE, seed=0, backend=backend, jit_compile=jit_compile, memory=MEMORY, learning_rate=1.0,
        optimizer="sgd", max_grad_norm=None, network=mt.MLP((4,), "relu"),
    )  # fmt: skip
    constants(agent, {"q": [1.0, 1.0, 1.0], "target_q": [2.0, 2.0, 2.0]})
    batch = batch_of(THREE, [3.0, 0.5, -4.0], [0.0, 0.5, 0.0], [1.0, 0.5, 0.25])
    batch.action[:] = [[0, 1, 2]]
    measured = updated(agent, batch)
    np.testing.assert_allclose(batch.errors, [[2.0, 0.5, 5.0]], rtol=1e-5)
    assert measured["loss/total"][0] == pytest.approx((1.5 + 0.5 * 0.125 + 0.25 * 4.5) / 1.75, rel=1e-5)
    assert measured["q_mean"][0] == pytest.approx(1.0)
    bias = agent.learner_.export(0).arrays["net/q/head0.bias"]
    np.testing.assert_allclose(bias, [1 + 1 / 3, 1 + 0.25 / 3, 1 - 0.25 / 3], rtol=1e-5)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_c51_by_hand(backend):
    """Atoms 0 and 1: the target [0, 1] and the prediction [0.75, 0.25] differ by log 4; equal ones do not differ."""
    agent = mt.C51(VECTOR, THREE, seed=0, backend=backend, memory=MEMORY, v_min=0.0, v_max=1.0, atoms=2)
    constants(agent, {"q": np.log([0.75, 0.25] * 3), "target_q": np.log([0.5, 0.5] * 3)})
    batch = batch_of(THREE, [1.0, 0.25], [0.0, 0.0], [1.0, 1.0])
    updated(agent, batch)
    np.testing.assert_allclose(batch.errors, [[np.log(4), 0.0]], atol=1e-6)


@pytest.mark.parametrize(
    ("algo", "backend"),
    [*((algo, "torch") for algo in ("ddpg", "td3", "sac")), ("td3", "tensorflow"),
     *LONG * [("ddpg", "tensorflow"), ("sac", "tensorflow")]],
)  # fmt: skip
def test_critics_by_hand(algo, backend):
    """The critics' values are 1 (and 3 for the second); terminal rewards 3 and -1."""
    kind: Any = {"ddpg": mt.DDPG, "td3": mt.TD3, "sac": mt.SAC}[algo]
    agent = kind(VECTOR, BOX, seed=0, backend=backend, memory=MEMORY, network=mt.MLP((4,), "relu"))
    constants(agent, {"critic": 1.0} if algo == "ddpg" else {"critic": [[1.0], [3.0]]})
    batch = batch_of(BOX, [3.0, -1.0], [0.0, 0.0], [1.0, 1.0])
    updated(agent, batch)
    expected = [2.0, 2.0] if algo == "ddpg" else [(2.0 + 0.0) / 2, (2.0 + 4.0) / 2]
    np.testing.assert_allclose(batch.errors, [expected], rtol=1e-5)


def test_a_discrete_sac_gives_errors():
    agent = mt.SAC(VECTOR, THREE, seed=0, memory=MEMORY)
    batch = batch_of(THREE, [3.0, -1.0], [0.0, 0.0], [1.0, 1.0])
    updated(agent, batch)
    assert batch.errors.shape == (1, 2) and (batch.errors > 0).all()


def test_uniform_weights_change_nothing():
    """With weights of 1 an update from a prioritized memory is that from a uniform one."""
    arrays = []
    for memory in (MEMORY, None):
        agent = mt.DQN(VECTOR, THREE, seed=0, memory=memory)
        batch = batch_of(THREE, [3.0, 0.5, -4.0], [0.9, 0.5, 0.0], [1.0, 1.0, 1.0])
        batch.rows = None if memory is None else batch.rows
        updated(agent, batch)
        arrays.append(agent.learner_.export(0).arrays)
    assert all((arrays[0][name] == arrays[1][name]).all() for name in arrays[0])


class SilentAlgorithm(DQNAlgorithm):
    """Its phase gives no errors."""

    @property
    def phases(self):
        return (mt.Phase("q", ("q",), self._loss, self._targets),)


class Silent(mt.DQN):
    """An agent of it."""

    algorithm_class = SilentAlgorithm


def test_wrong_memories():
    with pytest.raises(ConfigError, match=r"A2C learns on-policy.*no replay memory"):
        mt.A2C(VECTOR, THREE, memory=MEMORY)  # type: ignore[call-arg]
    with pytest.raises(AgentError, match=r"PPO learns on-policy.*no replay memory"):
        _ = mt.PPO(VECTOR, THREE).memory
    with pytest.raises(ConfigError, match=r"capacity=10 and memory=Replay\(capacity=20\) contradict"):
        mt.DQN(VECTOR, THREE, capacity=10, memory=mt.Replay(20))
    with pytest.raises(ConfigError, match="errors of rows, which no phase gives"):
        Silent(VECTOR, THREE, memory=MEMORY)
    with pytest.raises(ConfigError, match="needs the errors of all rows of a batch"):
        mt.DQN(VECTOR, THREE, memory=MEMORY, strategy=mt.DataParallel(processes=2))
    with pytest.raises(ConfigError, match="memory must be Replay or None"):
        mt.DQN(VECTOR, THREE, memory=mt.Rollouts())  # type: ignore[arg-type]


def test_the_memory_of_an_agent(tmp_path):
    agent = mt.Rainbow(VECTOR, THREE, seed=0)
    assert (agent.memory.capacity, agent.memory.n_step, agent.memory.alpha) == (50_000, 3, 0.5)
    agent.memory.alpha, agent.memory.beta = 0.25, mt.linear(0.5, 1.0, 100)
    agent.learner_.apply_schedules(50)
    assert "alpha=0.25, beta=0.75" in repr(agent.memory)
    mt.save(tmp_path / "saved", [agent])
    loaded: Any = mt.load(tmp_path / "saved")[0]
    assert loaded.settings.memory == agent.settings.memory
    assert (loaded.memory.alpha, loaded.memory.beta) == (0.25, 0.75)
    loaded.learner_.apply_schedules(100)
    assert loaded.memory.beta == 1.0
    with pytest.raises(ConfigError, match="'capacity' of the memory is structural"):
        agent.memory.capacity = 3
    with pytest.raises(AttributeError, match="bate"):
        _ = agent.memory.bate
    others = [mt.DQN(VECTOR, THREE, seed=0, memory=m) for m in (MEMORY, mt.Replay(prioritized=mt.Prioritized(0.1)))]
    assert others[0].kind == others[1].kind != mt.DQN(VECTOR, THREE, seed=0).kind


class LateAlgorithm(DQNAlgorithm):
    """Its phase runs on every second pass."""

    @property
    def phases(self):
        (phase,) = super().phases
        return (replace(phase, every=2),)


class Late(mt.DQN):
    """An agent of it."""

    algorithm_class = LateAlgorithm


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_a_phase_that_is_not_due_gives_no_errors(backend):
    """Passes 0 and 2 are due: their rows get their own errors, and those of pass 1 none."""
    agent = Late(VECTOR, THREE, seed=0, backend=backend, memory=MEMORY, learning_rate=0.0)
    constants(agent, {"q": 1.0, "target_q": 1.0})
    errors = []
    for reward in (3.0, 4.0, 5.0):
        batch = batch_of(THREE, [reward, 1.0], [0.0, 0.0], [1.0, 1.0])
        updated(agent, batch)
        errors.append(None if batch.errors is None else batch.errors.tolist())
    assert errors == [[[2.0, 0.0]], None, [[4.0, 0.0]]]
