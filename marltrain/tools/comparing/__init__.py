"""Comparison of groups of runs."""
