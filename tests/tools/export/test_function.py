"""The policy as a function is the agent: its greedy actions, and samples with its probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.layout import Layout
from marltrain.tools.export.function import ACTION, UNIFORM, PolicyFunction, observation_ports
from tests.tiers import LONG, rounds
from tests.tools.export.agents import ARM, CASES, FLAT, FOUR, MASKED, NETWORK, named, of_registry, with_statistics

BACKENDS = ("torch", "tensorflow") if LONG else ("torch",)


def outputs(agent: Any, given: dict[str, np.ndarray], **asked: Any) -> dict[str, np.ndarray]:
    function = PolicyFunction(agent, sampling=False, **asked)
    return function.in_arrays(agent.backend, function.own_networks(), given)


def some(agent: Any, rows: int, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Return random observations in the environment's format, and masks."""
    rng = np.random.default_rng(seed)
    space = agent.layout.space
    space.seed(seed)
    obs = agent.layout.empty((rows,))
    for i in range(rows):
        agent.layout.write(space.sample(), obs, i)
    legal = rng.random((rows, 4)) < 0.6
    legal[np.arange(rows), rng.integers(4, size=rows)] = True
    return agent.layout.decode(obs), legal


def test_inputs_have_names_of_their_own_that_files_take():
    """Dots, slashes and letters outside of ASCII become underscores; TensorFlow does not tell "A" from "a"."""
    number = spaces.Box(-9, 9, (2,), np.float32)
    space = spaces.Dict({
        "A": number, "a.b": number, "a/b": number, "a_b_2": number,
        "a": spaces.Dict({"b": spaces.Discrete(3)}), "B": spaces.Dict({"": number}), "b": number,
        "\u00fc": number, "\u00f6": spaces.Box(0, 255, (4, 4), np.uint8),
    })  # fmt: skip
    ports = observation_ports(Layout(space).parts)
    assert [port.name.removeprefix("observation_") for port in ports] == [
        "A", "B_", "a_b", "a_b_2", "a_b_3", "a_b_2_2", "b", "_", "__2"
    ]  # fmt: skip
    assert [port.dtype for port in ports] == ["float32"] * 2 + ["int64"] + ["float32"] * 4 + ["uint8", "float32"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", named())
def test_greedy_actions_of_every_algorithm_are_the_agents(name, backend):
    agent = of_registry(name, backend=backend)
    observation, legal = some(agent, 40)
    observed = dict(observation) if isinstance(observation, dict) else {"": observation}
    given: dict[str, Any] = {
        f"observation_{key}" if key else "observation": value.astype(np.float32) for key, value in observed.items()
    }
    masked = agent.action_space is FOUR
    if masked:
        given["legal"] = legal
    result: Any = outputs(agent, given, legal=masked)
    expected = agent.act(observation, legal if masked else None)
    np.testing.assert_allclose(result[ACTION], expected, atol=1e-6)
    if masked:
        assert legal[np.arange(40), result[ACTION] - FOUR.start].all()
        assert result.get("probabilities", result.get("values")).shape == (40, 4)


def test_probabilities_are_the_softmax_of_the_legal_logits_of_normalized_observations():
    agent = with_statistics(mt.PPO(MASKED, FOUR, network=mt.MLP((), "relu"), normalize_observations=True, seed=1))
    rng = np.random.default_rng(0)
    observation = rng.standard_normal((6, 5)).astype(np.float32)
    legal = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1], [0, 1, 1, 1], [1, 0, 1, 0], [1, 1, 1, 0]], bool)
    weights = agent.learner_.weights.online["actor"].arrays(0)
    logits = (observation - 0.3) / 0.5 @ weights["head0.weight"] + weights["head0.bias"]
    raised = np.exp(logits) * legal
    result = outputs(agent, {"observation": observation, "legal": legal})
    np.testing.assert_allclose(result["probabilities"], raised / raised.sum(1, keepdims=True), atol=1e-6)
    assert result["probabilities"][~legal].max() == 0


def observed_by(agent: Any, observation: np.ndarray) -> np.ndarray:
    """The inputs of the actor in the exported function, [B, V]."""
    function = PolicyFunction(agent, sampling=False)
    seen: list[np.ndarray] = []
    net = function.own_networks()["actor"]

    def watched(obs: Any, *rest: Any) -> Any:
        seen.append(obs.numpy())
        return net(obs, *rest)

    function.in_arrays(agent.backend, {"actor": watched}, {"observation": observation})
    return seen[0][0]


def test_observations_that_never_changed_are_not_scaled():
    agent = mt.PPO(FLAT, FOUR, network=NETWORK, normalize_observations=True, seed=1)
    statistics = agent.learner_.weights.statistics["observation"]
    statistics.mean[:], statistics.variance[:], statistics.count[:] = 0.25, [4.0, 0.0, 0.0, 4.0, 0.0], 10.0
    observation = np.random.default_rng(0).standard_normal((9, 5)).astype(np.float32)
    expected = (observation - 0.25) / np.array([2, 1, 1, 2, 1])
    np.testing.assert_allclose(observed_by(agent, observation), expected, atol=1e-5)


def test_the_digits_of_a_large_mean_are_kept():
    agent = mt.PPO(FLAT, FOUR, network=NETWORK, normalize_observations=True, seed=1)
    statistics = agent.learner_.weights.statistics["observation"]
    statistics.mean[:], statistics.variance[:], statistics.count[:] = 1e6 + 0.3, 0.04, 10.0
    observation = np.float32(1e6) + np.random.default_rng(0).integers(-8, 8, (50, 5)).astype(np.float32) / 16
    exact = np.clip((observation.astype(np.float64) - 1e6 - 0.3) / np.sqrt(0.04 + 1e-8), -10, 10)
    np.testing.assert_allclose(observed_by(agent, observation), exact, atol=1e-5)


def test_samples_have_the_probabilities_of_the_policy():
    rows = 20_000
    agent = CASES["ppo, gru"]()
    function = PolicyFunction(agent, sampling=True)
    rng = np.random.default_rng(0)
    legal = np.tile([True, False, True, True], (rows, 1))
    given = {
        "observation": np.tile(rng.standard_normal(5).astype(np.float32), (rows, 1)), "legal": legal,
        "carry": np.zeros((rows, 6), np.float32), UNIFORM: rng.random((rows, 4), np.float32),
    }  # fmt: skip
    result = function.in_arrays(agent.backend, function.own_networks(), given)
    shares = np.bincount(result[ACTION] - FOUR.start, minlength=4) / rows
    np.testing.assert_allclose(shares, result["probabilities"][0], atol=0.015)  # more than 4 standard deviations
    assert shares[1] == 0


@pytest.mark.parametrize("policy", ["gaussian", "squashed_gaussian", "beta"])
def test_samples_of_a_box_are_distributed_as_those_of_the_agent(policy):
    rows = rounds(4_000, 40_000)
    agent = mt.PPO(FLAT, ARM, network=NETWORK, policy=policy, log_std=-1.0, seed=1)
    function = PolicyFunction(agent, sampling=True)
    rng = np.random.default_rng(0)
    (width,) = next(port.shape for port in function.inputs if port.name == UNIFORM)
    observation = np.tile(rng.standard_normal(5).astype(np.float32), (rows, 1))
    given = {"observation": observation, UNIFORM: rng.random((rows, width), np.float32)}
    result = function.in_arrays(agent.backend, function.own_networks(), given)[ACTION]
    acted = agent.act(observation, explore=True)
    assert result.shape == acted.shape == (rows, 1, 2)
    for level in (0.1, 0.5, 0.9):
        spread = np.ptp(acted, axis=0)
        gap = np.abs(np.quantile(result, level, axis=0) - np.quantile(acted, level, axis=0)) / spread
        assert gap.max() < 0.03


@pytest.mark.parametrize(("space", "action"), [(FLAT, ARM), (MASKED, FOUR)])
def test_samples_are_of_the_policy_whatever_the_share_of_random_actions(space, action):
    rng, found = np.random.default_rng(0), []
    given = {"observation": rng.standard_normal((50, 5)).astype(np.float32), UNIFORM: rng.random((50, 4), np.float32)}
    for share in (None, 1.0):
        agent: Any = mt.SAC(space, action, network=NETWORK, seed=1, random_steps=0, random_share=share)
        function = PolicyFunction(agent, sampling=True, legal=False)
        found.append(function.in_arrays(agent.backend, function.own_networks(), given)[ACTION])
    np.testing.assert_array_equal(*found)
    assert len(np.unique(found[0])) > 2
