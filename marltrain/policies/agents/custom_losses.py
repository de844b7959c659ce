"""The losses of a `CustomAgent`: the rows that they receive, and their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from marltrain.core.errors import AgentError, shown
from marltrain.core.settings import check_function


@dataclass
class LossBatch:
    """B rows to learn from, as tensors of the model's framework on its device.

    obs, next_obs: [B, *O], at the decision and at the next decision or end; a mapping if the space has images beside
        other parts.
    legal, next_legal: [B, A] bool, or None if every action is legal.
    action: [B] int64 from 0 (Discrete), [B, D] int64 (MultiDiscrete), or [B, A] float32 in the environment's units
        (Box).
    reward: [B], the discounted sum over the steps of the row.
    discount: [B], factor of the value of `next_obs`: gamma to the power of n, or 0 after termination.
    terminated: [B] bool.
    weight: [B], 1; with a prioritized memory, the importance weights of the rows, at most 1.
    cut: [B] bool, on-policy only: True if the next row is not the next decision of this row. With one minibatch per
        epoch, rows are ordered by player, environment and time. With several minibatches, rows are shuffled.
    triplets: name -> [B, ...], the columns that `TripletTransitions` adds, with `Replay(triplets=...)`; else None.
    """

    obs: Any
    legal: Any
    action: Any
    reward: Any
    next_obs: Any
    next_legal: Any
    discount: Any
    terminated: Any
    weight: Any
    cut: Any
    triplets: Any = None


Loss = Callable[[Any, LossBatch], Any]
"""(model, batch) -> scalar tensor, or (scalar tensor, sizes of the rows' errors [B])."""


def named_losses(losses: Any, optimizers: Any) -> dict[str, Loss]:
    """Return the losses by metric name; raises AgentError for a loss that is not a function, or an invalid name."""
    by_name = isinstance(losses, Mapping)
    if by_name != isinstance(optimizers, Mapping):
        raise AgentError("CustomAgent: give loss_fn and optimizers both as mappings with the same names, or neither")
    given = dict(losses) if by_name else dict(enumerate(losses if isinstance(losses, list | tuple) else [losses]))
    named: dict[str, Loss] = {}
    for key, loss in given.items():
        if not callable(loss):
            raise AgentError(f"CustomAgent: loss_fn[{key!r}] must be a function of (model, batch), got {shown(loss)}")
        check_function(f"CustomAgent: loss_fn[{key!r}]", loss, "model", "batch")
        if by_name and (not isinstance(key, str) or not key.isidentifier() or key == "total"):
            raise AgentError(
                f"CustomAgent: a loss's name must be a word such as 'actor', not 'total', got {shown(key)}"
            )
        named[str(key) if by_name else "total" if len(given) == 1 else _loss_name(loss, int(key), named)] = loss
    return named


def _loss_name(loss: Any, i: int, taken: Mapping[str, Loss]) -> str:
    """Return the name of a loss: "actor" for the function `actor_loss`, or "loss_<i>" if that name is unusable."""
    name = getattr(loss, "__name__", "").removesuffix("_loss").strip("_")
    return name if name.isidentifier() and name != "total" and name not in taken else f"loss_{i}"
