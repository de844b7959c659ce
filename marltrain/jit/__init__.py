"""Compilation by Numba: machine code with a checked cache on disk, views of memory by address, and notices."""
