"""Environments written in Python: adapters, contract checks, and the chunk that steps several environments."""
