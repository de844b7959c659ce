"""Callbacks that stop training or change numbers of agents by what a run measures."""
