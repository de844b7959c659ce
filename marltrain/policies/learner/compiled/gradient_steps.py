"""Selection of compiled gradient steps for the learners that can use them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeGuard

from marltrain.policies.backends.base import Backend, Network, StackedNetwork
from marltrain.policies.compiled.network import is_known
from marltrain.policies.compiled.optimizers import RULES
from marltrain.policies.interface.algorithm import Algorithm, CompiledForm
from marltrain.policies.learner.compiled.q_update import QStep, QSteps
from marltrain.policies.learner.compiled.team_update import TeamStep, TeamSteps
from marltrain.policies.learner.gradient_steps import GradientSteps
from marltrain.policies.learner.trained_team import TrainedTeam

LOSSES = ("q", "double_q")
"""Possible values of `CompiledForm.loss`."""
TEAM_LOSSES = ("mixed_q", "double_mixed_q")
"""Possible values of `CompiledForm.loss` of a `JointAlgorithm`."""
LARGEST = 2**15
"""Largest number of weights of a network in compiled code; torch computes larger networks.

`benchmarks/kernels.py --widths 64 128 176 256` compares both on one thread.
"""


def compiled_steps(team: TrainedTeam) -> GradientSteps | None:
    """Return the gradient steps of a team in compiled code, or None if it cannot use them.

    They require an algorithm whose own class defines `compiled_form`, small networks on a CPU, and agents that are one
    member.  Raises TypeError for a loss that compiled code does not support.
    """
    form = own_form(team.algorithm)
    if len(team.members) > 1 or form is None or form.loss is None:
        return None
    losses = TEAM_LOSSES if team.is_joint else LOSSES
    nets = {name.split("/")[1]: net for name, net in team.nets.items()}
    optimizers = {name.split("/")[1]: optimizer for name, optimizer in team.optimizers.items()}
    if not (can_learn_together if team.is_joint else can_learn)(form, team, nets):
        return None
    if form.loss not in losses:
        known, of_team = ", ".join(map(repr, losses)), " of a team" if team.is_joint else ""
        raise TypeError(f"CompiledForm(loss=...): compiled code knows {known}{of_team}; not {form}")
    stacked = {name: net for name, net in nets.items() if _is_known(net, form, name)}
    if team.is_joint:
        return TeamSteps(team, [TeamStep(team, form, stacked, optimizers)])
    parts = team.algorithm, team.backend, stacked, optimizers
    return QSteps(team, [QStep(*parts, double=form.loss == "double_q")])


def own_form(algorithm: Algorithm) -> CompiledForm | None:
    """Return the compiled form that the algorithm's own class defines; None if it defines none."""
    return algorithm.compiled_form() if "compiled_form" in vars(type(algorithm)) else None


def can_learn(form: CompiledForm, team: TrainedTeam, nets: Mapping[str, Network]) -> bool:
    """Return whether compiled code can make the gradient steps of agents alone.

    It requires an optimizer that compiled code has, memory shared with the framework, small networks of a supported
    kind, and an algorithm that does not end updates early.
    """
    algorithm = team.algorithm
    names = {form.network, *(name for phase in algorithm.phases for name in phase.trains)}
    if not is_supported(algorithm, team.backend):
        return False
    held = ((name, nets[name]) for name in names)
    small = all(_is_known(net, form, name) and net.plan.size <= LARGEST for name, net in held)
    return small and [phase.every for phase in algorithm.phases] == [1]


def can_learn_together(form: CompiledForm, team: TrainedTeam, nets: Mapping[str, Network]) -> bool:
    """Return whether compiled code can make the gradient steps of a team of one kind of agents; see `can_learn`."""
    mixers = () if form.mixer is None else (form.mixer.network,)
    held = ((name, nets[name]) for name in (form.network, *mixers))
    known = all(is_known(net, joined=name in mixers) and net.plan.size <= LARGEST for name, net in held)
    phases = [(p.trains, p.team_trains, p.every, p.draw, p.apart) for p in team.algorithm.phases]
    supported = is_supported(team.algorithm, team.backend)
    return known and supported and phases == [((form.network,), mixers, 1, None, False)]


def is_supported(algorithm: Algorithm, backend: Backend) -> bool:
    """Return whether compiled code supports an algorithm's updates and optimizer, and the backend."""
    if algorithm.ends_update is not None or algorithm.settings.optimizer not in RULES:
        return False
    return backend.jit_compile and backend.shares_memory and backend.strategy is None


def _is_known(network: Network, form: CompiledForm, name: str) -> TypeGuard[StackedNetwork]:
    return is_known(network, joined=name != form.network and form.loss in TEAM_LOSSES)
