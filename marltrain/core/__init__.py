"""Definitions that every other package uses: specifications, spaces, settings, seeds and errors."""
