"""Tests: their episodes, their schedule, and the choice of the best agents."""
