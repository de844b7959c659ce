"""Selection of compiled gradient steps for the learners that can use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from marltrain.policies.backends.base import Backend, Network, Optimizer, StackedNetwork
from marltrain.policies.compiled.network import is_known
from marltrain.policies.compiled.optimizers import RULES
from marltrain.policies.interface.algorithm import Algorithm, CompiledForm
from marltrain.policies.learner.compiled.ppo_update import PPOUpdate, PPOUpdates
from marltrain.policies.learner.compiled.q_update import QStep, QSteps
from marltrain.policies.learner.gradient_step import GradientSteps

LOSSES = ("q", "double_q", "clipped")
"""Possible values of `CompiledForm.loss`."""
LARGEST = 2**15
"""Largest number of weights of a network in compiled code; torch computes larger networks.

`benchmarks/kernels.py --widths 64 128 176 256` compares both on one thread.
"""


def compiled_steps(
    algorithm: Algorithm, backend: Backend, nets: Mapping[str, Network], optimizers: Mapping[str, Optimizer]
) -> GradientSteps | None:
    """Return an algorithm's gradient steps in compiled code, or None if it cannot use them.

    They require an algorithm whose own class defines `compiled_form`, and small networks on a CPU.
    Raises TypeError for a loss that compiled code does not support.
    """
    form = own_form(algorithm)
    if form is None or form.loss is None or not can_learn(form, algorithm, backend, nets):
        return None
    if form.loss not in LOSSES:
        raise TypeError(f"CompiledForm(loss=...): compiled code knows {', '.join(map(repr, LOSSES))}; not {form}")
    (phase,), stacked = algorithm.phases, {name: net for name, net in nets.items() if _is_known(net, form, name)}
    parts = phase, algorithm, backend, stacked, optimizers
    if form.loss == "clipped":
        first, *others = phase.trains
        if first != form.network or [stacked[name].plan.heads[0].width for name in others] != [1]:
            raise TypeError(
                f"CompiledForm(loss='clipped'): its phase must train {form.network!r} and a critic of one output, in "
                f"this order; it trains {phase.trains}"
            )
        return PPOUpdates([PPOUpdate(*parts)])
    return QSteps([QStep(*parts, double=form.loss == "double_q")])


def own_form(algorithm: Algorithm) -> CompiledForm | None:
    """Return the compiled form that the algorithm's own class defines; None if it defines none."""
    return algorithm.compiled_form() if "compiled_form" in vars(type(algorithm)) else None


def can_learn(form: CompiledForm, algorithm: Algorithm, backend: Backend, nets: Mapping[str, Network]) -> bool:
    """Return whether compiled code can make the gradient steps.

    It requires an optimizer that compiled code has, memory shared with the framework, small networks of a supported
    kind, and an algorithm that does not end updates early.
    """
    if not is_supported(algorithm, backend):
        return False
    names = {form.network, *(name for phase in algorithm.phases for name in phase.trains)}
    small = all(
        _is_known(net, form, name) and net.plan.size <= LARGEST
        for name, net in ((name, nets[name]) for name in names)
    )  # fmt: skip
    return small and [phase.every for phase in algorithm.phases] == [1]


def is_supported(algorithm: Algorithm, backend: Backend) -> bool:
    """Return whether compiled code supports an algorithm's updates and optimizer, and the backend."""
    if algorithm.ends_update is not None or algorithm.settings.optimizer not in RULES:
        return False
    return backend.jit_compile and backend.shares_memory and backend.strategy is None


def _is_known(network: Network, form: CompiledForm, name: str) -> TypeGuard[StackedNetwork]:
    acts = name == form.network
    return is_known(network, free=form.rule == "gaussian" and acts, joined=form.loss == "clipped" and not acts)
