"""The particle environments of MPE2 as native games."""
