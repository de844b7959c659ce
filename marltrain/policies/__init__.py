"""Agents, learners and algorithms, and the memory they learn from. This package knows no environment."""
