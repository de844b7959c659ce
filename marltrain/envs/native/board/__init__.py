"""Board games as native games."""
