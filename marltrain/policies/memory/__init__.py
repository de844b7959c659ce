"""Streams, which store each step once, and readers, which make batches from the streams for the learners."""

from marltrain.policies.memory.readers import Reader, RolloutReader, UniformReader
from marltrain.policies.memory.sequences import SequenceReader
from marltrain.policies.memory.streams import Storage, Streams

__all__ = ["Reader", "RolloutReader", "SequenceReader", "Storage", "Streams", "UniformReader"]
