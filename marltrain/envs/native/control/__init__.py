"""Gymnasium's classic control, as native games."""
