"""Exploration rules, by name with settings: actions by their values, noise on continuous actions, random warm-up."""

from marltrain.policies.exploration.continuous import ActionNoise, ContinuousExploration, SampleNoise
from marltrain.policies.exploration.discrete import (
    ActionChoice,
    DiscreteExploration,
    epsilon_greedy,
    epsilon_noise,
)
from marltrain.policies.exploration.warmup import Warmup

__all__ = [
    "ActionChoice",
    "ActionNoise",
    "ContinuousExploration",
    "DiscreteExploration",
    "SampleNoise",
    "Warmup",
    "epsilon_greedy",
    "epsilon_noise",
]
