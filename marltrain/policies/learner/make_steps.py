"""The choice of the gradient steps of a learner: in other processes, by programs, by the backend."""

from __future__ import annotations

from typing import Any

from marltrain.core.errors import ConfigError
from marltrain.policies.backends.base import Backend
from marltrain.policies.backends.strategies import Strategy, parts_differ
from marltrain.policies.interface.algorithm import Algorithm
from marltrain.policies.learner.fallback import check_required
from marltrain.policies.learner.gradient_pass import GradientPass
from marltrain.policies.learner.gradient_step import GradientStep
from marltrain.policies.learner.gradient_steps import GradientSteps
from marltrain.policies.learner.natural_gradient import NaturalGradientStep
from marltrain.policies.learner.parallel.replicas import Replicas
from marltrain.policies.learner.trained_team import ALONE, TrainedTeam
from marltrain.policies.learner.weights import Weights
from marltrain.policies.memory.needs import Needs


def check_priorities(algorithm: Algorithm, strategy: Any) -> None:
    """Raise ConfigError for a prioritized memory if nothing gives the errors of all rows.

    Also for a memory of an on-policy algorithm that replays nothing.
    """
    needs = algorithm.needs()
    if needs.on_policy and needs.replay is not None:
        _check_replay_of_rollouts(algorithm, needs)
    if not algorithm.prioritized:
        return
    who = f"{algorithm.name}: a prioritized memory"
    if strategy is not None:
        raise ConfigError(
            f"{who} needs the errors of all rows of a batch, which {strategy} splits: leave out strategy= or "
            "prioritized="
        )
    if not any(phase.row_error for phase in algorithm.phases):
        raise ConfigError(
            f"{who} makes priorities from the errors of rows, which no phase gives: name a function of (ops, batch) in "
            "Phase(row_error=...), such as marltrain.policies.interface.algorithm.absolute_error"
        )


def _check_replay_of_rollouts(algorithm: Algorithm, needs: Needs) -> None:
    who = f"{algorithm.name}: Needs(replay=...) of an on-policy algorithm"
    if algorithm.row_errors is None:
        raise ConfigError(
            f"{who} replays rows whose errors are known, and row_errors is None: define it, see "
            "marltrain.policies.interface.algorithm.Algorithm.row_errors, or leave replay out"
        )
    for name in ("replay_share", "sequence"):
        if (value := getattr(needs, name)) <= 0:
            raise ConfigError(
                f"{who} replays sequences of `sequence` rows, `replay_share` rows for each new one, and {name}={value}"
                f": give Needs({name}=...) above 0, or leave replay out"
            )


def check_models(algorithm: Algorithm, weights: Weights, strategy: Strategy) -> None:
    """Raise ConfigError for a user's model whose gradient is not the sum of those of parts of the rows."""
    for name, net in weights.online.items():
        found = net.trial()
        if found.couples is not None:
            raise ConfigError(f"{algorithm.name}: {parts_differ(f'network {name!r}', found.couples, strategy)}")
        if found.changes is not None and strategy.shares_variables:
            raise ConfigError(
                f"{algorithm.name}: network {name!r}: {found.changes}, and the replicas of {strategy} share their "
                "variables: take MultiWorkerMirroredStrategy, or leave strategy= out"
            )


def make_gradient_steps(team: TrainedTeam) -> GradientSteps:
    """Return the gradient steps of a team: in other processes, by programs, or by the backend."""
    algorithm, backend, strategy = team.algorithm, team.backend, team.backend.strategy
    check_priorities(algorithm, strategy)
    check_required(team)
    phases = list(enumerate(algorithm.phases))
    solved = [phase for _, phase in phases if phase.natural is not None]
    if strategy is not None and solved:
        raise ConfigError(
            f"{algorithm.name}: {strategy} sums gradients over parts of a minibatch, and phase {solved[0].name!r} "
            "solves for a natural gradient over all rows; it is trained without strategy="
        )
    if strategy is not None and (weights := team.members[ALONE].weights).custom:
        check_models(algorithm, weights, strategy)
    if strategy is not None and strategy.members():
        return Replicas(strategy, team)
    collect, make = _kinds(backend)
    steps = collect(
        team,
        [make(number, team) for number, phase in phases if phase.natural is None],
        [NaturalGradientStep(number, phase.natural, team) for number, phase in phases if phase.natural],
    )
    needs, at_once = algorithm.needs(), make is GradientStep and backend.compiles_passes and not team.is_joint
    if at_once and not (needs.on_policy or needs.sequence or algorithm.prioritized):
        steps.whole = GradientPass(steps.steps)
    return steps


def _kinds(backend: Backend) -> tuple[type[GradientSteps], type[GradientStep]]:
    """Return the classes of the steps and of each: by programs on a CPU with `jit_compile`, or by the framework."""
    if not backend.runs_programs:
        return GradientSteps, GradientStep
    from marltrain.policies.learner.programs.program_step import ProgramStep  # loads numba
    from marltrain.policies.learner.programs.program_steps import ProgramSteps

    return ProgramSteps, ProgramStep
