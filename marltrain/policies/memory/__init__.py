"""Streams (what happened, stored once) and readers (what a learner is given of it)."""

from marltrain.policies.memory.readers import Reader, RolloutReader, UniformReader
from marltrain.policies.memory.streams import Plan, Streams

__all__ = ["Plan", "Reader", "RolloutReader", "Streams", "UniformReader"]
