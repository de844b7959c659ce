"""Tuning of settings with Optuna."""
