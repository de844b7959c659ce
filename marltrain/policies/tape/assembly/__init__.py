"""Recordings as tables of instructions: places of buffers, instructions of each operation."""
