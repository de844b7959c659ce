"""Numbers that may change in training: schedules, and the values of K agents."""
