"""Environments in worker processes: the worker, the pool of workers, and the vector environment."""
