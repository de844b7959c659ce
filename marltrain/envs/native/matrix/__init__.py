"""Matrix games as native games."""
