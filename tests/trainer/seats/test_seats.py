"""Seats: one learner per kind of agent, agents as rows of learners, and agents that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import AgentError
from marltrain.core.seeds import child_seed
from marltrain.envs import probe, resolve
from marltrain.policies.agents.agent_learner import AgentLearner
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.trainer.seats.seats import Seating
from tests.toys import Crowd, Identity, Motley, Relay
from tests.trainer.running import SMALL, Student, changed, ppo, trainer, weights

THREE = {"players": 3}
SYMBOLS = spaces.Discrete(3)


def seating_of(env, agents, args=None, stack=True):
    return Seating(probe(resolve(env, args or {})), agents, 0, stack=stack)


def made(kind=mt.PPO, seed=0, **settings):
    return kind(SYMBOLS, SYMBOLS, seed=seed, **{"network": SMALL, **settings})


def test_agents_of_one_kind_share_a_learner():
    agents = ppo(Identity, THREE)
    before = weights(agents)
    seating = seating_of(Identity, agents, THREE)
    (seated,) = seating.learners
    assert isinstance(seated.learner, AlgorithmLearner)
    assert [agent.learner_ is seated.learner for agent in agents] == [True] * 3
    assert [agent.row for agent in agents] == [0, 1, 2]
    assert seated.players.tolist() == seated.rows.tolist() == [[0], [1], [2]]
    assert seated.labels == ["player_0", "player_1", "player_2"]
    assert changed(before, weights(agents)) == [False] * 3
    assert seating_of(Identity, agents, THREE).learners[0].learner is seated.learner  # at home already


@pytest.mark.parametrize(
    ("settings", "together"),
    [
        ({"learning_rate": 0.1, "gamma": 0.5, "clip": 0.3, "entropy_coef": mt.linear(0.1, 0.0, 9)}, True),
        ({"epochs": 3}, False),
        ({"minibatches": 7}, False),
        ({"batch_size": 7}, False),
        ({"update_freq": 7}, False),
        ({"network": mt.MLP(hidden=(5,))}, False),
        ({"optimizer": "sgd"}, False),
        ({"max_grad_norm": None}, False),
        ({"value_clip": 0.2}, False),
    ],
)
def test_agents_of_a_learner_may_differ_in_numbers_only(settings, together):
    seating = seating_of(Identity, [made(), made(seed=1, **settings)])
    assert len(seating.learners) == (1 if together else 2)


def test_kinds_differ_by_algorithm_spaces_and_number_of_seats():
    spec = probe(resolve(Identity, {"players": 5}))
    twice = made(seed=1)
    agents = [made(), twice, made(mt.DQN), twice, made(seed=2)]
    seating = Seating(spec, agents, 0, stack=True)
    assert [seated.players.tolist() for seated in seating.learners] == [[[0], [4]], [[1, 3]], [[2]]]
    assert seating.learners[1].labels == ["player_1+player_3"]
    crowd = seating_of(Crowd, mt.make_agents("ppo", Crowd, seed=0))
    assert [seated.players.tolist() for seated in crowd.learners] == [[[0], [2]], [[1]]]
    assert [seated.rows.tolist() for seated in crowd.learners] == [[[0], [1]], [[0]]]


def test_frozen_agents_have_a_separate_learner():
    agent = made()
    copies = [mt.FrozenAgent(agent), mt.FrozenAgent(agent)]
    own, others = seating_of(Identity, [copies[0], agent, copies[1]], THREE).learners[::-1]
    assert own.frozen.tolist() == [False] and own.learner.num_agents == 1
    assert others.frozen.tolist() == [True, True] and others.learner.num_agents == 2


def test_frozen_copy_of_a_frozen_agent():
    first = mt.FrozenAgent(made())
    assert mt.FrozenAgent(first).inner is not first.inner


def test_agents_keep_their_state_in_another_line_up():
    agents = ppo(Identity, THREE)
    observation = np.arange(3)
    before, actions = weights(agents), [agent.act(observation).tolist() for agent in agents]
    seating_of(Identity, agents, THREE)
    seating_of(Identity, [agents[2], agents[0]])
    seating_of(Identity, [agents[1], agents[2], agents[1]], THREE)
    assert changed(before, weights(agents)) == [False] * 3
    assert [agent.act(observation).tolist() for agent in agents] == actions


def test_line_up_of_tests_does_not_move_agents():
    agents = ppo()
    learner = seating_of(Identity, agents).learners[0].learner
    seating = seating_of(Identity, [agents[1], agents[0]], stack=False)
    assert [type(seated.learner) for seated in seating.learners] == [AgentLearner, AgentLearner]
    assert agents[0].learner_ is learner


def test_agents_without_spaces_get_spaces_and_seed_from_their_seat():
    agents = [mt.RandomAgent(), mt.FunctionAgent(lambda observation: 5), mt.RandomAgent(seed=77)]
    seating_of(Crowd, agents)
    assert agents[0].action_space == spaces.Discrete(3)
    assert agents[1].action_space == spaces.Discrete(2, start=5)
    assert (agents[0].seed, agents[2].seed) == (child_seed(0, "agent", 0), 77)


class Asked(mt.Agent):
    """Plays the first action, and stores the spaces and observations that it receives."""

    def __init__(self):
        self.asked = []

    def act(self, observation, legal=None, explore=False):
        self.asked.append((self.action_space, np.shape(observation)))
        return np.full(len(observation), getattr(self.action_space, "start", 0))


@pytest.mark.parametrize(
    "make", [mt.RandomAgent, lambda: mt.FunctionAgent(lambda seen: 5 if len(seen) == 3 else 0), Asked]
)
@pytest.mark.parametrize("frozen", [False, True])
def test_agent_without_spaces_fits_any_seat(make, frozen):
    agent = mt.FrozenAgent(make()) if frozen else make()
    spec = probe(resolve(Crowd))
    for stack in (True, False):
        seating = Seating(spec, [agent] * 3, 0, stack=stack)
        assert [seated.players.tolist() for seated in seating.learners] == [[[0, 2]], [[1]]]
        assert [seated.labels for seated in seating.learners] == [["red_0+red_1"], ["blue"]]
    result = trainer(Crowd).test([agent] * 3, episodes=2)
    assert len(result.lengths) == 2
    inner = agent.inner if isinstance(agent, mt.FrozenAgent) else agent
    if isinstance(inner, Asked):
        assert {(space.n, shape[1:]) for space, shape in inner.asked} == {(3, (2,)), (2, (3,))}


def test_agent_without_spaces_has_a_stream_per_kind_of_seat():
    """The first kind of seat has the same stream as it would have alone."""
    agent = mt.RandomAgent()
    first, second = Seating(probe(resolve(Crowd)), [agent] * 3, 0, stack=True).learners
    alone = Seating(probe(resolve(Crowd)), [mt.RandomAgent() for _ in range(3)], 0, stack=True).learners[0]
    draws = [seated.learner.rngs("act")[0].random() for seated in (first, second, alone)]
    assert draws[0] == draws[2] != draws[1]
    again = Seating(probe(resolve(Crowd)), [agent] * 3, 0, stack=True).learners
    assert [seated.learner for seated in again] == [first.learner, second.learner]  # their streams go on


def test_agent_without_spaces_works_in_several_environments():
    agent = mt.RandomAgent()
    for env in (Crowd, Relay, Identity, Motley, Crowd):
        players = len(probe(resolve(env)).players)
        assert trainer(env, {}).test([agent] * players, episodes=2).lengths.size == 2


def test_learning_agent_keeps_the_spaces_of_its_first_seat():
    student = Student(lambda row: 0)
    seating_of(Identity, [student, mt.RandomAgent()])
    with pytest.raises(AgentError, match="but the Student given for it was made for Discrete"):
        seating_of(Crowd, [student, mt.RandomAgent(), mt.RandomAgent()])


def test_agent_without_spaces_trains_tests_saves_and_loads(tmp_path):
    """In training with a learning agent, in the line-up of tests, and in the run's folder."""
    agent, anyone = mt.make_agents("ppo", Crowd, seed=0, network=SMALL, minibatches=1)[0], mt.RandomAgent()
    run = trainer(Crowd, steps_per_train=12, num_train_envs=2, num_test_envs=1)
    run.train([agent, anyone, anyone], [1, 0, 0], plot=False, test_agents=[agent, anyone, anyone])
    _, second, third = loaded = mt.load("run/best")
    assert second is third
    assert len(trainer(Crowd).test(loaded, episodes=2).lengths) == 2
    mt.save("fresh", [mt.RandomAgent(seed=3)])
    (fresh,) = mt.load("fresh")
    assert (fresh.seed, fresh.action_space) == (3, None)


@pytest.mark.parametrize(
    ("env", "agents", "words"),
    [
        (Identity, lambda: ppo()[:1], "Identity has 2 players (player_0, player_1), got 1 agents"),
        (Identity, lambda: [*ppo(), *ppo()], "got 4 agents"),
        (Identity, lambda: [ppo()[0], "ppo"], "player 'player_1': expected an Agent, got str ('ppo')"),
        (Identity, lambda: [ppo()[0], mt.PPO], "player 'player_1': expected an Agent, got type"),
        (
            Identity,
            lambda: [ppo()[0], mt.PPO(spaces.Discrete(4), SYMBOLS)],
            "player 'player_1': its observation space is Discrete(3), but the PPO given for it was made for",
        ),
        (
            Identity,
            lambda: [ppo()[0], mt.DQN(SYMBOLS, spaces.Discrete(4))],
            "player 'player_1': its action space is Discrete(3), but the DQN given for it was made for Discrete(4)",
        ),
        (
            Crowd,
            lambda: [mt.make_agents("random", Crowd)[0]] * 3,
            "player 'blue': its observation space is",
        ),
    ],
)
def test_agents_that_do_not_fit(env, agents, words):
    with pytest.raises(AgentError) as caught:
        seating_of(env, agents())
    assert words in str(caught.value)


def test_unsuitable_agents_are_refused_before_training():
    calls = []
    with pytest.raises(AgentError, match="got 1 agents"):
        trainer(test_fn=lambda e, s: calls.append(e)).train(ppo()[:1], [1, 1], plot=False)
    assert not calls


def test_error_of_a_wrong_line_up_names_test_agents():
    wrong: list[tuple[Any, str]] = [(3, "test_agents must be a list"), (ppo()[:1], "test_agents: Identity has 2")]
    for line_up, words in wrong:
        with pytest.raises(AgentError, match=words):
            trainer(steps_per_train=12).train(ppo(), [1, 1], plot=False, test_agents=line_up)


def test_the_rows_of_seats_of_a_team_that_do_not_learn_are_dropped():
    """Two agents of equal spaces are one learner, and the second agent another; one agent sits in two seats."""
    (seats,) = seating_of(Crowd, mt.make_agents("vdac", Crowd, seed=0)).updated
    reading = seats.reading(np.array([True, False, False]))
    assert (reading.learn.tolist(), reading.silent) == ([True, False, False], [(1, 0), (2, 0)])
    assert reading.players == [[0], [2], [1]]
    (seats,) = seating_of(Crowd, mt.make_agents("vdac", Crowd, seed=0, share=True)).updated
    reading = seats.reading(np.array([True, True, False]))
    assert (reading.learn.tolist(), reading.silent) == ([True, True], [(0, 1)])
