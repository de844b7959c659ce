"""Level-based foraging as a native game."""
