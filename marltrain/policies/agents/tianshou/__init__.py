"""Any algorithm of tianshou 2 as an agent: its learning and its exploration, on marltrain's streams and loop."""

from marltrain.policies.agents.tianshou.agents import OffPolicyAgent, OnPolicyAgent

__all__ = ["OffPolicyAgent", "OnPolicyAgent"]
