"""Remedies for objects that are given in place of agents: algorithms of tianshou, models, classes and names."""

from __future__ import annotations

from typing import Any

from marltrain.policies.agents.agent import Agent

_TIANSHOU_AGENTS = {"OffPolicyAlgorithm": "OffPolicyAgent", "OnPolicyAlgorithm": "OnPolicyAgent"}
"""Base classes of tianshou's algorithms -> agents that play with them."""


def remedy_for(given: Any) -> str:
    """Return a sentence with the agent that an object belongs into; "" for an object that belongs into none.

    The classes are recognized by name, so that no framework is imported.
    """
    name = type(given).__name__
    if isinstance(given, str):
        return f". make_agents makes agents of a name: mt.make_agents({given!r}, env)"
    if isinstance(given, type):
        result = issubclass(given, Agent)
        return f". This is a class: mt.make_agents({given.__name__}, env) makes its agents" if result else ""
    bases = [(base.__module__.partition(".")[0], base.__name__) for base in type(given).__mro__]
    for package, base in bases:
        if package == "tianshou" and base in _TIANSHOU_AGENTS:
            return f". Give the algorithm of tianshou to an agent: mt.{_TIANSHOU_AGENTS[base]}(algorithm)"
    if any(package == "tianshou" for package, _ in bases):
        return (
            f". tianshou's {name} is no algorithm that learns by interaction: give mt.OffPolicyAgent or "
            "mt.OnPolicyAgent the algorithm that holds it"
        )
    if ("torch", "Module") in bases or any(package in ("keras", "tensorflow") for package, _ in bases):
        return (
            ". A model is the network of an agent, mt.DQN(..., network=model), or the model of a "
            "mt.CustomAgent(model, loss_fn, optimizers)"
        )
    if any(package == "stable_baselines3" for package, _ in bases):
        return ". An agent of another library plays as mt.FunctionAgent(lambda obs: model.predict(obs)[0])"
    if callable(given) and not hasattr(given, "act"):
        return ". A function plays as mt.FunctionAgent(function)"
    return ". Objects with an act(observation, legal=None, explore=False) play as a subclass of mt.Agent"
