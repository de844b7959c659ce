"""Gradient steps by programs of the tape, on a CPU."""
