"""New agents with the settings of another one, and agents that begin again with initial or newly drawn weights."""

from __future__ import annotations

from collections.abc import Mapping

from marltrain.core.layout import Array
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.batches.batch import AgentState
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.weights import Weights
from marltrain.storage.state import State


def beginner(agent: LearningAgent, seed: int) -> LearningAgent:
    """Return an agent with the settings and hyperparameters of another one, and with weights drawn from a seed.

    A model of the user's keeps the weights of the other agent.
    """
    result = agent.frozen_copy()
    result.attach(AlgorithmLearner(result.algorithm, result.backend, [seed], draw=True), 0)
    result.seed = seed
    result.learner_.hyper.load(0, State(agent.learner_.hyper.export(agent.row)))
    return result


def drawn_weights(agent: LearningAgent, seed: int) -> dict[str, Array]:
    """Return weights drawn from a seed, and moments of optimizers before the first step, with the names of `export`."""
    return Weights(agent.algorithm, agent.backend, 1, [seed]).export(0)


def begin_again(agent: LearningAgent, arrays: Mapping[str, Array]) -> None:
    """Give an agent the weights and moments `arrays`; its hyperparameters, counts and random numbers continue."""
    own = agent.learner_.export(agent.row)
    agent.learner_.load(agent.row, AgentState(own.info, dict(arrays)))
