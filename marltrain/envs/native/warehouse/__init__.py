"""Robots that carry shelves in a warehouse."""
