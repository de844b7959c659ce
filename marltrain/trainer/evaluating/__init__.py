"""Tests: their episodes, when one is due, and which agents are the best so far."""
