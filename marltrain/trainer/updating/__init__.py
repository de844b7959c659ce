"""Schedules of updates: when learners update, the rows they learn from, and the thread that runs updates."""
