"""Selection of the compiled gradient step for the teams that can use it."""

from __future__ import annotations

from collections.abc import Sequence

from marltrain.policies.compiled.network import is_known
from marltrain.policies.interface.algorithm import CompiledForm
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.compiled.gradient_steps import LARGEST, is_supported, own_form
from marltrain.policies.learner.compiled.team_update import TeamStep, TeamSteps
from marltrain.policies.learner.weights import Weights

TEAM_LOSSES = ("mixed_q", "double_mixed_q")
"""Possible values of `CompiledForm.loss` of a `JointAlgorithm`."""


def compiled_team_steps(
    parts: Sequence[AlgorithmLearner], team: Weights, seats: Sequence[int], order: Sequence[int]
) -> TeamSteps | None:
    """Return a team's gradient step in compiled code, or None if it cannot use it; see `JointLearner`.

    It requires the same as `compiled_steps`, and agents of one kind, which are one learner.
    Raises TypeError for a loss that compiled code does not support.
    """
    first = parts[0]
    form = own_form(first.algorithm)
    if len(parts) > 1 or form is None or form.loss is None or not can_learn_together(form, first, team):
        return None
    if form.loss not in TEAM_LOSSES:
        raise TypeError(
            f"CompiledForm(loss=...): compiled code knows {', '.join(map(repr, TEAM_LOSSES))} of a team; not {form}"
        )
    every, optimizers = {**first.weights.nets, **team.nets}, {**first.weights.optimizers, **team.optimizers}
    stacked = {name: net for name, net in every.items() if is_known(net, joined=name in team.nets)}
    return TeamSteps([TeamStep(first, form, stacked, optimizers, seats[0], order)])


def can_learn_together(form: CompiledForm, part: AlgorithmLearner, team: Weights) -> bool:
    """Return whether compiled code can make the gradient steps of a team of one kind of agents; see `can_learn`."""
    nets = [part.weights.nets[form.network]]
    if form.mixer is not None:
        nets.append(team.nets[form.mixer.network])
    known = all(is_known(net, joined=net is not nets[0]) and net.plan.size <= LARGEST for net in nets)
    phases = [(p.trains, p.team_trains, p.every, p.draw, p.apart) for p in part.algorithm.phases]
    mixers = () if form.mixer is None else (form.mixer.network,)
    return (
        known and is_supported(part.algorithm, part.backend) and phases == [((form.network,), mixers, 1, None, False)]
    )
