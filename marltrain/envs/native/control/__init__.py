"""Gymnasium's classic control environments as native games."""
