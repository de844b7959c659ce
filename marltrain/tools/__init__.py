"""Tools around runs, built on the trainer."""
