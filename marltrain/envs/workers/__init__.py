"""Environments in worker processes: the worker, the pool of them, and the vector environment in front."""
