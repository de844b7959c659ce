"""Measures of play: exploitability, and play judged by solvers of connect four and tic-tac-toe."""
