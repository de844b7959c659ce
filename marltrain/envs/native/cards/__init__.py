"""Card games as native games."""
