"""Other processes: children of this one, and actors of a Ray cluster."""
