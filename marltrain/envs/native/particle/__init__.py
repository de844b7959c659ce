"""The particle worlds of MPE2, as native games."""
