"""Arguments of the act kernel for a learner's agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from marltrain.addresses import address_of
from marltrain.layout import Array, Obs
from marltrain.policies.algorithms.base import CompiledForm
from marltrain.policies.backends.base import StackedNetwork
from marltrain.policies.batch import Acted
from marltrain.policies.compiled.act_kernel import ACT, GREEDY, SAMPLE, act_program
from marltrain.policies.compiled.network import tell, widths_of

RULES = {"epsilon_greedy": GREEDY, "categorical": SAMPLE}
"""Action rules of `Algorithm.native` -> rules of the act kernel."""
NOISE = {GREEDY: ("choice", "coin"), SAMPLE: ("sample", "")}
"""Names of an act's noise [K, B, A] and of its coins [K, B], by rule."""


class CompiledActing:
    """K agents with networks of one plan that act in compiled code.

    told: [1] ACT, the arguments of the kernel.  extras: names of the outputs beside the action.
    """

    def __init__(self, native: CompiledForm, network: StackedNetwork, row: int | None = None) -> None:
        """Write the constant fields of `told`; `is_known` must hold for the network.

        row: act for this agent only.
        """
        plan = network.plan
        if native.rule not in RULES:
            raise TypeError(f"Native(rule={native.rule!r}): compiled code knows {' and '.join(map(repr, RULES))}")
        self.network, self.rule = network, RULES[native.rule]
        self.extras = ("log_prob",) if self.rule == SAMPLE else ()
        self._rows = slice(None) if row is None else slice(row, row + 1)
        self.agents = network.num_agents if row is None else 1
        self.told = np.zeros(1, ACT)
        told = self.told[0]
        tell(told, plan)
        told["agents"], told["rule"] = self.agents, self.rule
        self.choices = int(told["choices"])
        self._outputs = sum(widths_of(plan))
        self._into = np.empty(0, np.float32)
        self._unkept: dict[str, Array] = {}
        self._kept: tuple[Any, ...] = (None, None, None)  # noise, weights, epsilon
        self.address = address_of(self.told)

    def place(self, rows: int, **arrays: Array | None) -> None:
        """Write the addresses of obs, legal, explore, action and log_prob, [K, rows, ...], for acts of `rows` rows.

        Extras without a given array are written to an internal array.
        """
        told = self.told[0]
        if told["rows"] != rows:
            self._into = np.empty(rows * self._outputs, np.float32)
            told["rows"], told["into"] = rows, address_of(self._into)
            self._unkept = {name: np.empty((self.agents, rows), np.float32) for name in self.extras}
        for name, array in {**self._unkept, **arrays}.items():
            told[name] = 0 if array is None else address_of(array)

    def refresh(self, noise: Mapping[str, Array], hyper: Mapping[str, Array]) -> None:
        """Write the addresses of the noise of several acts [K, acts, rows, ...], the weights, and epsilon [K, 1]."""
        told, weights = self.told[0], self.network.numbers()
        epsilon = hyper["epsilon"] if self.rule == GREEDY else None
        before, self._kept = self._kept, (noise, weights, epsilon)
        if weights is not before[1]:
            told["weights"] = address_of(weights[self._rows])
        if epsilon is not None and epsilon is not before[2]:
            told["epsilon"] = address_of(epsilon[self._rows])
        if noise is before[0]:
            return
        for kind, name, last in zip(("noise", "coin"), NOISE[self.rule], ((self.choices,), ()), strict=True):
            if name:
                array = _fitting(name, noise[name], (self.agents, noise[name].shape[1], self.rows, *last))
                told[kind] = address_of(array)
                for axis, size in zip(("agent", "act", "row"), array.strides, strict=False):
                    told[f"{kind}_{axis}"] = size // 4

    def act(
        self, obs: Obs, legal: Array | None, noise: Mapping[str, Array], explore: Array, hyper: Mapping[str, Array]
    ) -> Acted:
        """Choose actions for observations [K, B, ...]; equivalent to `Algorithm.act`."""
        seen = np.ascontiguousarray(obs, np.float32)
        mask = None if legal is None else np.ascontiguousarray(legal)
        exploring = np.ascontiguousarray(explore)
        action = np.empty(explore.shape, np.int64)
        extras = {name: np.empty(explore.shape, np.float32) for name in self.extras}
        self.place(explore.shape[1], obs=seen, legal=mask, explore=exploring, action=action, **extras)
        self.refresh({name: values[:, None] for name, values in noise.items()}, hyper)
        act_program()(self.address, 0)
        return Acted(action, None, extras)

    @property
    def rows(self) -> int:
        """Number of rows of an act."""
        return int(self.told["rows"][0])


def _fitting(name: str, noise: Array, shape: tuple[int, ...]) -> Array:
    """Return the noise; raises TypeError unless it is float32, of this shape, and contiguous in its last axis."""
    if noise.dtype != np.float32 or noise.shape != shape or not noise[0, 0, 0].flags.c_contiguous:
        raise TypeError(
            f"noise {name!r} of acts in compiled code must be float32 {shape}, its last axis in one piece; it is "
            f"{noise.dtype} {noise.shape} with strides {noise.strides}"
        )
    return noise
