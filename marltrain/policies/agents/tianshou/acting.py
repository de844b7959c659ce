"""Acting with a tianshou policy: exploration, legal actions, and conversion of raw actions to the environment's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tianshou.algorithm.algorithm_base import Algorithm, Policy
from tianshou.data import Batch, to_numpy
from tianshou.utils.torch_utils import policy_within_training_step, torch_train_mode
from torch import nn
from torch.distributions import Categorical

from marltrain.core.errors import AgentError
from marltrain.core.layout import Array, Obs
from marltrain.core.spaces import action_bounds
from marltrain.policies.agents.tianshou.buffer import observed
from marltrain.policies.distributions import ILLEGAL


def raw_actions(algorithm: Algorithm[Any, Any], obs: Obs, legal: Array | None, explore: Array) -> Array:
    """Return the policy's raw actions [B, ...], with exploration where `explore` [B], deterministic elsewhere."""
    policy, batch = algorithm.policy, Batch(obs=observed(obs, legal), info=Batch())
    with torch.no_grad(), torch_train_mode(policy, False), masking(algorithm, legal is not None):
        exploring = greedy = None
        if explore.any():
            with policy_within_training_step(policy):
                exploring = np.asarray(policy.add_exploration_noise(_actions(policy, batch), batch))
        if not explore.all():
            with policy_within_training_step(policy, False), _deterministic(policy):
                greedy = _actions(policy, batch)
    if exploring is None or greedy is None:
        return np.asarray(greedy if exploring is None else exploring)
    return np.where(explore.reshape(-1, *[1] * (greedy.ndim - 1)), exploring, greedy)


def _actions(policy: Policy, batch: Batch) -> Array:
    out = policy(batch)
    state = out.get("state", None)
    if state is not None and not (isinstance(state, Batch) and not state.get_keys()):
        raise AgentError(
            f"{type(policy).__name__} returned a recurrent state, which agents with tianshou algorithms do not support:"
            " use a network without memory"
        )
    return np.asarray(to_numpy(out.act))


@contextmanager
def _deterministic(policy: Any) -> Iterator[None]:
    """Return a context in which a sampling policy takes the mode."""
    before = getattr(policy, "deterministic_eval", None)
    if before is None:
        yield
        return
    policy.deterministic_eval = True
    try:
        yield
    finally:
        policy.deterministic_eval = before


def to_units(policy: Policy, raw: Array) -> Array:
    """Convert raw actions [B, A] with the policy's mapping and clip them; discrete actions stay unchanged."""
    space = policy.action_space
    if not isinstance(space, spaces.Box):
        return raw
    mapped = policy.map_action(raw.reshape(len(raw), *space.shape))
    return np.clip(mapped.reshape(len(raw), -1).astype(np.float32), *action_bounds(space))


def to_raw(policy: Policy, action: Array) -> Array:
    """Convert the environment's actions [B, A] back to the policy's raw actions."""
    space = policy.action_space
    if not isinstance(space, spaces.Box):
        return action
    shaped = action.reshape(len(action), *space.shape)
    if policy.action_bound_method == "tanh":  # the inverse is infinite at the bounds
        margin = 1e-6 * (space.high - space.low) / 2
        shaped = np.clip(shaped, space.low + margin, space.high - margin)
    return policy.map_action_inverse(shaped).reshape(action.shape).astype(np.float32)


@contextmanager
def masking(algorithm: Algorithm[Any, Any], masked: bool) -> Iterator[None]:
    """Return a context in which every policy respects `obs.mask`; in tianshou only Q-learning policies read it.

    tianshou's own networks get only the observation. A custom network gets tianshou's Batch(obs=..., mask=...). The
    illegal actions are removed from the distribution of a categorical policy.
    """
    if not masked:
        yield
        return
    with ExitStack() as stack:
        for module in algorithm.modules():
            if type(module).__module__.startswith("tianshou.utils.net."):
                stack.callback(module.register_forward_pre_hook(_bare).remove)
            elif isinstance(module, Policy):
                stack.callback(module.register_forward_hook(_masked).remove)
        yield


def _bare(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace an observation with a mask by the observation alone."""
    if args and isinstance(args[0], Batch) and "mask" in args[0] and "obs" in args[0]:
        return (args[0].obs, *args[1:])
    return args


def _masked(policy: nn.Module, args: tuple[Any, ...], out: Any) -> Any:
    """Remove illegal actions from a categorical policy's distribution and draw the action again."""
    dist, seen = out.get("dist", None), args[0].obs
    if not isinstance(dist, Categorical) or not isinstance(seen, Batch) or "mask" not in seen:
        return out
    legal = torch.as_tensor(seen.mask, dtype=torch.bool, device=dist.logits.device)
    legal = legal | ~legal.any(-1, keepdim=True)  # after an end no action may be legal; the result is unused
    allowed = Categorical(logits=dist.logits.masked_fill(~legal, ILLEGAL))
    deterministic = getattr(policy, "deterministic_eval", False) and not policy.is_within_training_step
    out.dist, out.act = allowed, allowed.mode if deterministic else allowed.sample()
    return out
