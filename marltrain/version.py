"""The version of marltrain."""

__version__ = "0.1.0"
