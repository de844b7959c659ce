"""Gradient steps and updates of learners in compiled code, for small networks."""
