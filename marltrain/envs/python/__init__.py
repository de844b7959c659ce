"""Environments written in Python: adapters, what they must keep to, and the chunk that steps several of them."""
