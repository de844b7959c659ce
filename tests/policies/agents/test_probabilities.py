"""Action probabilities of agents are those of their acts."""

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import AgentError

SEEN = spaces.Dict({"observation": spaces.Box(-1, 1, (3,), np.float32), "action_mask": spaces.Box(0, 1, (3,), np.int8)})
LEGAL = np.array([[1, 1, 1], [1, 0, 1], [0, 1, 1], [0, 1, 0]], bool)
ROWS = np.random.default_rng(0).uniform(-1, 1, (4, 3)).astype(np.float32)


def agent_of(name, actions=None, **settings):
    kind = {"ppo": mt.PPO, "sac": mt.SAC, "dqn": mt.DQN}[name]
    return kind(SEEN, spaces.Discrete(3, start=0) if actions is None else actions, seed=0, **settings)


def frequencies(agent, explore):
    rows, legal = ROWS.repeat(4000, 0), LEGAL.repeat(4000, 0)
    acts = agent.act(rows, legal, explore=explore).reshape(4, 4000, 1)
    return (acts == np.arange(3)).mean(1)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_probabilities_of_a_policy_are_the_frequencies_of_its_acts(name, backend):
    agent = agent_of(name, backend=backend)
    chances = agent.probabilities(ROWS, LEGAL)
    assert chances.dtype == np.float64 and np.allclose(chances.sum(1), 1, atol=1e-12) and not chances[~LEGAL].any()
    assert np.abs(frequencies(agent, True) - chances).max() < 0.04  # 5 standard errors
    assert np.array_equal(agent.probabilities(ROWS, LEGAL, explore=False), frequencies(agent, False))
    assert np.allclose(agent.probabilities(ROWS[1], LEGAL[1]), chances[1])


def test_observations_are_normalized_as_for_acts():
    agent = agent_of("ppo", normalize_observations=True)
    before = agent.probabilities(ROWS, LEGAL)
    statistics = agent.learner_.weights.statistics["observation"]
    statistics.update(np.random.default_rng(1).normal(0.5, 0.1, (1, 100, 3)), np.ones((1, 100)))
    after = agent.probabilities(ROWS, LEGAL)
    assert not np.allclose(before, after)
    assert np.abs(frequencies(agent, True) - after).max() < 0.04


def test_probabilities_of_agents_that_do_not_learn():
    chance = mt.RandomAgent(SEEN, spaces.Discrete(3))
    assert np.allclose(chance.probabilities(ROWS, LEGAL), LEGAL / LEGAL.sum(1, keepdims=True))
    assert np.allclose(chance.probabilities({"observation": ROWS[0], "action_mask": LEGAL[1]}), [0.5, 0, 0.5])
    agent = agent_of("ppo")
    frozen = mt.FrozenAgent(agent)
    assert np.array_equal(frozen.probabilities(ROWS, LEGAL), agent.probabilities(ROWS, LEGAL, explore=False))
    first = mt.FunctionAgent(lambda observation, legal: int(np.argmax(legal)), SEEN, spaces.Discrete(3))
    assert first.probabilities(ROWS, LEGAL, explore=False).argmax(1).tolist() == [0, 0, 1, 1]


def test_actions_that_do_not_start_at_zero():
    agent = agent_of("dqn", spaces.Discrete(3, start=5))
    chosen = agent.act(ROWS, LEGAL)
    assert agent.probabilities(ROWS, LEGAL, explore=False).argmax(1).tolist() == (chosen - 5).tolist()


def test_agents_with_an_identity_need_the_player():
    agent = agent_of("ppo", identity=("one", "other"))
    own = [agent.probabilities(ROWS, LEGAL, player=name) for name in ("one", "other")]
    assert not np.allclose(*own)
    with pytest.raises(AgentError, match="needs player="):
        agent.probabilities(ROWS, LEGAL)


def draws(observation, legal):
    return int(np.random.default_rng().choice(np.flatnonzero(legal)))


@pytest.mark.parametrize(
    ("make", "explore", "message"),
    [
        (lambda: agent_of("dqn"), True, "DQN has no action probabilities: it chooses by the values .*explore=False"),
        (lambda: mt.FunctionAgent(draws, SEEN, spaces.Discrete(3)), True, "FunctionAgent has no .*explore=False"),
        (lambda: mt.FunctionAgent(draws, SEEN, spaces.Discrete(3)), False, "FunctionAgent chose different actions"),
        (lambda: agent_of("ppo", network=mt.GRU()), True, "recurrent network"),
        (lambda: agent_of("ppo", network=mt.GRU()), False, "recurrent network"),
        (lambda: agent_of("ppo", spaces.Box(-1, 1, (2,))), True, "Discrete actions, got Box"),
    ],
)
def test_unknown_probabilities_are_refused(make, explore, message):
    agent = make()
    legal = LEGAL[:1].repeat(50, 0) if isinstance(agent.action_space, spaces.Discrete) else None
    with pytest.raises(AgentError, match=message):
        agent.probabilities(ROWS[:1].repeat(50, 0), legal, explore=explore)
