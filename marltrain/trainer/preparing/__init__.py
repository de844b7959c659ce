"""The parts of a run are built and checked before it starts."""
