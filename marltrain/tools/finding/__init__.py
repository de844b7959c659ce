"""Finders: candidates of settings, which are trained at once and ranked."""
