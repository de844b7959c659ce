"""Searches: candidates that are trained at once, in a folder from which they go on; finders and tuners share them."""
