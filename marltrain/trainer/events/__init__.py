"""Events of a run: callbacks, counters, and when work is due."""
