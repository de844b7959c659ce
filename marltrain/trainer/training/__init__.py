"""A call of `train`: its parts, the state of the run, the loop."""
