"""Weights alone: written, loaded into other agents and frameworks, and refused where networks differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt

SEEN, THREE = spaces.Box(-1, 1, (5,), np.float32), spaces.Discrete(3)
NETWORK = mt.MLP((7,))


def ppo(seed: int = 0, **settings: Any) -> Any:
    return mt.PPO(SEEN, THREE, seed=seed, **{"network": NETWORK, "normalize_observations": True, **settings})


def weights(agent: Any) -> dict[str, np.ndarray]:
    return {name: a for name, a in agent.state().arrays.items() if not name.startswith("optimizer")}


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_weights_move_to_another_agent_and_framework(backend, tmp_path):
    one = ppo()
    statistics = one.learner_.weights.statistics["observation"]
    statistics.mean[:], statistics.variance[:], statistics.count[:] = 0.3, 0.2, 40.0
    mt.save(tmp_path / "weights", one, weights_only=True)
    other = ppo(1, backend=backend, learning_rate=0.5, optimizer="sgd")
    before = other.state()
    other.load_weights(tmp_path / "weights")
    after = other.state()
    assert after.info == before.info  # settings and random streams stay
    for name, array in after.arrays.items():
        np.testing.assert_array_equal(array, (before if name.startswith("optimizer") else one.state()).arrays[name])
    observation = np.random.default_rng(0).standard_normal((50, 5)).astype(np.float32)
    np.testing.assert_array_equal(one.act(observation), other.act(observation))


def test_parts_of_observations_may_be_called_like_target_networks(tmp_path):
    view = spaces.Box(0, 255, (6, 6), np.uint8)
    seen = spaces.Dict({"net/target_q": view, "a/b": view, "vector": view})
    network = mt.CNN(filters=((2, 3, 1),), hidden=(5,))
    one, other = (mt.DQN(seen, THREE, seed=seed, network=network) for seed in (0, 1))
    mt.save(tmp_path / "weights", one, weights_only=True)
    other.load_weights(tmp_path / "weights")
    for name, array in weights(one).items():
        np.testing.assert_array_equal(weights(other)[name], array, err_msg=name)
    assert any("net/target_q.conv0" in name for name in weights(one))


def test_targets_become_copies_and_other_seats_stay(tmp_path):
    one, two = (mt.DQN(SEEN, THREE, seed=seed, network=NETWORK) for seed in (0, 1))
    mt.save(tmp_path / "pair", [one, two, one], players=["ann", "bob", "cat"], weights_only=True)
    other: Any = mt.DQN(SEEN, THREE, seed=2, network=NETWORK)
    for player, expected in (("bob", two), (0, one), ("cat", one), (1, two)):
        other.load_weights(tmp_path / "pair", player=player)
        result = weights(other)
        np.testing.assert_array_equal(result["net/q/head0.weight"], weights(expected)["net/q/head0.weight"])
        np.testing.assert_array_equal(result["net/q/head0.weight"], result["net/target_q/head0.weight"])
    with pytest.raises(mt.SaveError, match="holds several agents: name one with player=, 'ann', 'bob', 'cat'"):
        other.load_weights(tmp_path / "pair")
    with pytest.raises(mt.SaveError, match=r"has no player 'bop': .* Did you mean 'bob'"):
        other.load_weights(tmp_path / "pair", player="bop")


def test_some_networks_of_another_algorithm_from_saved_agents(tmp_path):
    teacher: Any = mt.A2C(SEEN, THREE, seed=3, network=NETWORK)
    mt.save(tmp_path / "agents", teacher)
    agent = ppo(critic_network=mt.MLP((9,)))
    before = weights(agent)
    agent.load_weights(tmp_path / "agents", networks=["actor"])
    for name, array in weights(agent).items():
        np.testing.assert_array_equal(array, (weights(teacher) if "actor" in name else before)[name])
    with pytest.raises(mt.ConfigError, match=r"a PPO has no network 'critik'\. Did you mean 'critic'"):
        agent.load_weights(tmp_path / "agents", networks=["critik"])


def test_the_networks_of_a_team_are_loaded(tmp_path):
    teams: list[Any] = [mt.make_agents("qmix", "marltrain/simple_spread_v3", seed=seed) for seed in (0, 1)]
    mt.save(tmp_path / "team", teams[0], weights_only=True)
    for seat, agent in enumerate(teams[1]):
        agent.load_weights(tmp_path / "team", player=seat)
    for one, other in zip(*teams, strict=True):
        expected, result = weights(one), weights(other)
        assert any(name.startswith("team/net/") for name in result)
        for name in result:
            if "target_" not in name:
                np.testing.assert_array_equal(result[name], expected[name])


def test_every_difference_is_named_and_nothing_changes(tmp_path):
    mt.save(tmp_path / "weights", ppo(), weights_only=True)
    other = mt.PPO(SEEN, THREE, seed=1, network=mt.MLP((7, 6)), critic_network=mt.MLP((9,)))
    before = weights(other)
    with pytest.raises(mt.SaveError) as caught:
        other.load_weights(tmp_path / "weights")
    for part in (
        "'actor' has head0.bias, head0.weight, hidden0.bias, hidden0.weight, expected head0.bias, head0.weight, "
        "hidden0.bias, hidden0.weight, hidden1.bias, hidden1.weight",
        "'critic': ", "head0.weight is [7, 1], expected [9, 1]", "hidden0.weight is [5, 7], expected [5, 9]",
        "the agent has no 'observation statistics'", "weights.json", "do not fit the PPO",
    ):  # fmt: skip
        assert part in str(caught.value)
    dqn = mt.DQN(SEEN, THREE, network=NETWORK)
    with pytest.raises(mt.SaveError, match=r"'q' is not in the file. the agent has no 'actor'"):
        dqn.load_weights(tmp_path / "weights")
    for name, array in weights(other).items():
        np.testing.assert_array_equal(array, before[name])


def test_what_is_no_weights(tmp_path):
    with pytest.raises(mt.AgentError, match="a RandomAgent has no weights"):
        mt.save(tmp_path / "a", [mt.RandomAgent()], weights_only=True)
    mt.save(tmp_path / "weights", ppo(), weights_only=True)
    with pytest.raises(mt.SaveError, match=r"holds weights alone: .*agent.load_weights"):
        mt.load(tmp_path / "weights")
    with pytest.raises(mt.SaveError, match="holds other things than agents"):
        mt.save(tmp_path / "weights", ppo())
    data = (tmp_path / "weights" / "weights.safetensors").read_bytes()
    (tmp_path / "weights" / "weights.safetensors").write_bytes(data[:-4] + b"\0\0\0\1")
    with pytest.raises(mt.SaveError, match="its checksum is not the one in"):
        ppo().load_weights(tmp_path / "weights")
    with pytest.raises(mt.SaveError, match="there is no such folder"):
        ppo().load_weights(tmp_path / "none")
