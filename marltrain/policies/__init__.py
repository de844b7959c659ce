"""Agents, learners, algorithms and memory. This package does not depend on environments."""
