"""Phases that the framework computes in place of a program: refused with `jit_compile="require"`, else told."""

from __future__ import annotations

from marltrain.core.errors import ConfigError
from marltrain.jit.notices import tell
from marltrain.policies.backends.base import REQUIRE
from marltrain.policies.interface.algorithm import Phase
from marltrain.policies.learner.trained_team import TrainedTeam

NATURAL = "it solves for a natural gradient"


def fall_back(team: TrainedTeam, phase: Phase, reason: str) -> None:
    """Send a notice that the framework computes a phase, or raise ConfigError if programs are required."""
    if team.backend.jit_compile == REQUIRE:
        raise refusal(team, phase, reason)
    tell(f"{team.algorithm.name}: phase {phase.name!r} is computed by {team.backend.name}, because {reason}")


def check_required(team: TrainedTeam) -> None:
    """Raise ConfigError if programs are required for a phase that has none, as far as this is known without rows.

    The first update finds the other phases that cannot be recorded; see `fall_back`.
    """
    backend = team.backend
    if backend.jit_compile != REQUIRE:
        return
    for phase in team.algorithm.phases:
        if not backend.runs_programs:
            raise refusal(team, phase, f"programs run on a CPU, not on {backend.device}")
        if phase.natural is not None:
            raise refusal(team, phase, NATURAL)
        for name in team.trained_by(phase):
            if not hasattr(team.nets[name], "plan"):
                raise refusal(team, phase, f"network {name.split('/')[1]!r} is a model of your own")


def refusal(team: TrainedTeam, phase: Phase, reason: str) -> ConfigError:
    """Return the error of a phase without a program, with `jit_compile="require"`."""
    return ConfigError(
        f"{team.algorithm.name}: jit_compile={REQUIRE!r} allows only gradient steps by marltrain's own compiled code, "
        f"which cannot compute phase {phase.name!r}, because {reason}. Change this, or leave jit_compile out: then "
        f"{team.backend.name} computes the phase"
    )
