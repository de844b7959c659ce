"""Losses as lists of operations: recorded once, derived, and executed without a framework."""
