"""Demonstrations: decisions to imitate, their files, and those of Minari."""
