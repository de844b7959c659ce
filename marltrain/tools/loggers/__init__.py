"""Loggers of runs: files of scalars, Weights & Biases, MLflow."""
