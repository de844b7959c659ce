"""Agents that a user assigns to seats: learning agents, fixed policies, external agents; saving and loading."""
