"""Instructions behind the rows of a gradient step: norms of gradients, optimizers, targets that follow.

Numbers of agents, such as learning rates, are segments: of as many numbers as there are rows of weights, or of one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from marltrain.policies.compiled.optimizers import ADAM, ADAMAX, ADAMW, LANES, RMSPROP, SGD
from marltrain.policies.tape.assembly.assembler import Assembler
from marltrain.policies.tape.assembly.segments import GRADIENT, AssemblyError
from marltrain.policies.tape.instructions import ARENA, place

RULES = {"adam": (ADAM, "first", "second"), "adamw": (ADAMW, "first", "second"), "adamax": (ADAMAX, "first", "largest"),
         "rmsprop": (RMSPROP, "", "second"), "sgd": (SGD, "first", "")}  # fmt: skip
"""Names of `policies.optimizers.OPTIMIZERS` -> the number of the rule, and the names of the two moments."""


@dataclass(frozen=True)
class OptimizerNumbers:
    """Names of the segments that an optimizer reads.

    rate: the learning rate.  factor: by which the gradient is clipped.  fine: 0.0 where loss or gradient are not
    finite.  going: 0.0 where nothing changes; None: always 1.0.  decay, momentum: None: 0.0.
    """

    rate: str
    factor: str
    fine: str
    going: str | None = None
    decay: str | None = None
    momentum: str | None = None


def write_norms(assembler: Assembler, network: str, out: str) -> None:
    """Write the Euclidean norms [K] of the gradient [K, N] of a network."""
    agents, size = shape_of(assembler, network)
    gradient = assembler.segment(GRADIENT + network, (agents, size), "float", "after", written=True)
    norms = assembler.segment(out, (agents,), "float", "after", written=True)
    scratch = assembler.arena.take(4 * LANES)
    for k in range(agents):
        assembler.emit(
            "after", "norm", out=norms + 4 * k, a=gradient + 4 * k * size, scratch=place(ARENA, scratch), size=size
        )
    assembler.arena.give(scratch)


def write_optimizer(assembler: Assembler, network: str, rule: str, epsilon: float, numbers: OptimizerNumbers) -> None:
    """Write a step of an optimizer for each row of weights [K, N].

    Its moments are the segments "first/NETWORK", ... [K, N], the steps so far "count/NETWORK" [K, 1].
    """
    agents, size = shape_of(assembler, network)
    number, *moments = RULES[rule]
    arrays = {"weights": f"weights/{network}", "gradient": GRADIENT + network}
    arrays |= {field: f"{name}/{network}" for field, name in zip(("first", "second"), moments, strict=True) if name}
    where = {field: assembler.segment(name, (agents, size), "float", "after", written=True)
             for field, name in arrays.items()}  # fmt: skip
    count = assembler.segment(f"count/{network}", (agents, 1), "float", "after", written=True)
    given = {"rate": numbers.rate, "factor": numbers.factor, "fine": numbers.fine, "going": numbers.going,
             "decay": numbers.decay, "momentum": numbers.momentum}  # fmt: skip
    constant = assembler.constant(np.float64(epsilon).tobytes())
    for k in range(agents):
        rows = {field: start + 4 * k * size for field, start in where.items()}
        singles = {field: _number(assembler, name, agents, k, field == "going") for field, name in given.items()}
        assembler.emit(
            "after", "optimizer", **rows, **singles, count=count + 4 * k, epsilon=constant, size=size, rule=number
        )


def write_follow(assembler: Assembler, target: str, online: str, share: str) -> None:
    """Write the move of a target network's weights towards those of another network by a share."""
    agents, size = shape_of(assembler, online)
    moved = assembler.segment(f"weights/{target}", (agents, size), "float", "after", written=True)
    towards = assembler.segment(f"weights/{online}", (agents, size), "float", "after")
    for k in range(agents):
        at = 4 * k * size
        by = _number(assembler, share, agents, k, False)
        assembler.emit("after", "follow", out=moved + at, a=towards + at, share=by, size=size)


def shape_of(assembler: Assembler, network: str) -> tuple[int, int]:
    """Return the shape of the weights of a network; raises AssemblyError if no recording has read them."""
    found = assembler.segments.found.get(f"weights/{network}")
    if found is None:
        known = sorted(name for name in assembler.segments.found if name.startswith("weights/"))
        raise AssemblyError(f"network {network!r}: expected one whose weights a recording reads, of {known}")
    agents, size = found.shape
    return agents, size


def _number(assembler: Assembler, name: str | None, agents: int, k: int, one: bool) -> int:
    """Return the place of the number of row k; of a constant 1.0 or 0.0 without a name."""
    if name is None:
        return assembler.number(1.0 if one else 0.0)
    if name not in assembler.segments.found:
        assembler.segment(name, (agents, 1), "float", "after")
    size = math.prod(assembler.segments.found[name].shape)
    if size not in (1, agents):
        raise AssemblyError(f"segment {name!r}: expected 1 number or {agents}, one for each row of weights; got {size}")
    return assembler.segments.place(name, 4 * k if size == agents else 0)
