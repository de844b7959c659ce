"""Two teams of units that fight each other."""
