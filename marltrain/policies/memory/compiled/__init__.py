"""Compiled code that writes, draws and reads the rows of the memory."""
