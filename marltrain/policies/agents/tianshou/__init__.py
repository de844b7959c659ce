"""Agents that use an algorithm of tianshou 2 with marltrain's streams and training loop."""

from marltrain.policies.agents.tianshou.agents import OffPolicyAgent, OnPolicyAgent

__all__ = ["OffPolicyAgent", "OnPolicyAgent"]
