"""Saving of runs: the run's folder, checkpoints, and resuming or continuing a run."""
