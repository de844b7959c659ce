"""Gradient steps that several devices or processes compute together."""
