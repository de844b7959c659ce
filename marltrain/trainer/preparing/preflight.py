"""Checks before training: every learning agent makes an update, and tests include a trained agent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from marltrain.core.errors import AgentError, ConfigError, warn
from marltrain.core.layout import Array
from marltrain.core.spec import EnvSpec
from marltrain.envs.rotation import Rotation
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.fixed import FrozenAgent, RandomAgent
from marltrain.policies.agents.mixed import MixedAgent
from marltrain.policies.agents.registry import ALGORITHMS, agent_class
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.learner import UpdateSchedule
from marltrain.trainer.adapting.criterion import CriterionCallback
from marltrain.trainer.seats.seats import LearnerSeats
from marltrain.trainer.seats.sides import whole_teams
from marltrain.trainer.settings import TrainerSettings
from marltrain.trainer.training.context import TrainerSetup
from marltrain.trainer.updating.update_schedule import Defaults, schedule_of

NOTHING = "nothing is learned"
"""Start of every warning about training without updates."""


def warn_of_early_end(
    learners: Sequence[LearnerSeats],
    learning: Array,
    num_envs: int,
    defaults: Defaults,
    steps_per_train: int | None,
    *,
    begun: bool = False,
    matches: int = 1,
) -> None:
    """Warn if training ends before the first update of an agent that should learn.

    learning: [P] bool.  steps_per_train: budget in env steps; for other budgets nothing can be computed in advance.
    begun: the agents have learned before, so `learning_starts` may already be reached.
    matches: among which the environments of the run are divided; num_envs: of a match.
    """
    if steps_per_train is None:
        return
    for seated in _learners(learners, learning):
        needs, schedule = seated.learner.needs, schedule_of(seated, defaults)
        schedule = replace(schedule, learning_starts=0) if begun else schedule
        on_policy = needs is not None and needs.on_policy
        first = matches * first_update(schedule, num_envs, on_policy=on_policy)
        if first > -(-steps_per_train // (matches * num_envs)) * matches * num_envs:
            own = "" if on_policy else (
                f", learning_starts={schedule.learning_starts:,}, update_per_step={schedule.update_per_step:g}"
            )  # fmt: skip
            warn(
                f"{NOTHING} by the agent of {seated.who}: steps_per_train={steps_per_train:,} ends "
                f"training before its first update, at env step {first:,} (update_freq={schedule.update_freq:,}{own}). "
                "Train for longer, or let it learn earlier"
            )


def check_lag(learners: Sequence[LearnerSeats], max_lag: int | None) -> None:
    """Raise ConfigError for on-policy learners that cannot learn from rows of asynchronous runners.

    max_lag: of the runners; None: they are synchronous, or there are none.
    """
    for seated in learners:
        learner, needs = seated.learner, seated.learner.needs
        if not max_lag or needs is None or not needs.on_policy or seated.all_frozen:
            continue
        if not isinstance(learner, AlgorithmLearner) or learner.algorithm.corrects_lag:
            continue  # runners refuse other learners themselves
        able = [name for name in ALGORITHMS if agent_class(name).algorithm_class.corrects_lag]
        raise ConfigError(
            f"sync=False: the agent of {seated.who} learns on-policy, and {learner.algorithm.name} does not correct "
            f"for actions that were chosen by earlier weights. Use {', '.join(able)}, an off-policy algorithm, "
            "max_lag=0, or leave sync=False out"
        )


def rotation_of(spec: EnvSpec, agents: Sequence[Agent], setup: TrainerSetup) -> Rotation:
    """Return the rotation of a run's agents: of whole teams, if there are some. Raises ConfigError if they cannot."""
    if all(group.size == 1 for group in spec.groups):
        kinds = "; ".join(
            f"{player.name}: {player.observation_space}, {player.action_space}" for player in spec.players
        )
        raise ConfigError(
            f"rotate=True: agents change seats of equal spaces, and {spec.name} has no two seats of equal spaces "
            f"({kinds}): leave rotate out"
        )
    if setup.source.copies:
        raise ConfigError("rotate=True does not support copies of the environment: leave one of them out")
    if told := [agent for agent in agents if agent.identity]:
        raise ConfigError(
            f"rotate=True: {told[0]!r} distinguishes the players by their seats (identify=True), and seats change: "
            "leave one of them out"
        )
    teams = whole_teams(agents, spec.names, setup.team_reward)
    if not teams:
        return Rotation(spec)
    names = [f"({', '.join(spec.names[p] for p in team)})" for team in teams]
    seats = [[spec.players[p].kind for p in team] for team in teams]
    if len(teams) < 2 or any(own != seats[0] for own in seats):
        raise ConfigError(
            f"rotate=True: whole teams change seats: expected at least two teams of equally many players, with equal "
            f"spaces place by place, got {', '.join(names)}: leave rotate out"
        )
    return Rotation(spec, list(zip(*teams, strict=True)))


def check_matches(names: Sequence[str], setup: TrainerSetup) -> TrainerSetup:
    """Return the arguments of a run whose environments are divided among matches; raises ConfigError if they cannot be.

    Faults of environments are errors there.
    """
    settings = setup.settings
    refused = {
        "copies of the environment": setup.source.copies,
        "shared_memory=True": settings.shared_memory, "team_reward": setup.team_reward is not None,
        'on_fault="restart"': settings.on_fault == "restart",
    }  # fmt: skip
    for what, given in refused.items():
        if given:
            raise ConfigError(f"the matches of one run ({', '.join(names)}) do not support {what}: leave it out")
    count, matches = settings.num_train_envs, len(names)
    if count % matches:
        more = -(-count // matches) * matches
        raise ConfigError(
            f"num_train_envs={count} cannot be divided evenly among {matches} matches ({', '.join(names)}): give "
            f"{f'{more - matches} or ' if more > matches else ''}{more}"
        )
    for callback in setup.callbacks:
        if isinstance(callback, CriterionCallback) and not callback.over_tests:
            raise ConfigError(
                f"{type(callback).__name__}(episodes=...): the episodes of {matches} matches have no common return: "
                "give a criterion over tests"
            )
    return replace(setup, settings=replace(settings, on_fault="raise"))


def check_sets(agents: Sequence[Agent], settings: TrainerSettings, *, copies: int) -> None:
    """Raise an error for sets of policies that do not fit the run; copies: of the environment, in a population."""
    for each in dict.fromkeys(agent for agent in agents if isinstance(agent, MixedAgent)):
        who = type(each).__name__
        if copies:
            raise ConfigError(f"a {who} plays in one environment, and this one has {copies} copies of it: leave it out")
        each.check_run(agents, settings.steps_per_train, settings.episode_budget)


def warn_of_no_update(learners: Sequence[LearnerSeats], learning: Array, updates: int, reason: str) -> None:
    """Warn if a budget in episodes ended training without an update."""
    if not updates and reason == "episodes_per_train" and _learners(learners, learning):
        warn(
            f"{NOTHING}: episodes_per_train ended training before any update. Train for longer, or lower update_freq, "
            "or learning_starts where agents have it"
        )


def _learners(learners: Sequence[LearnerSeats], learning: Array) -> list[LearnerSeats]:
    """Return the learners with an agent that should learn."""
    return [
        seated
        for seated in learners
        if seated.learner.needs and (learning[seated.players] & ~seated.frozen[:, None]).any()
    ]


def first_update(schedule: UpdateSchedule, num_envs: int, *, on_policy: bool) -> int:
    """Return the env step at which the first update is due; `schedule` must have all defaults filled in."""
    round_ = -(-(schedule.update_freq or 1) // num_envs) * num_envs
    if on_policy:
        return round_
    waiting = max(1, -(-schedule.learning_starts // round_))
    gathering = math.ceil(1 / (schedule.update_per_step * round_))
    return round_ * (waiting + gathering - 1)


def check_line_up(agents: Sequence[Agent], test_agents: Sequence[Agent]) -> None:
    """Raise AgentError if no agent of the test line-up can be changed by training, so that tests measure nothing."""
    if any(agent.learns and agent is seated for agent in test_agents for seated in agents):
        return
    if all(isinstance(agent, RandomAgent | FrozenAgent) for agent in test_agents):
        kinds = ", ".join(type(agent).__name__ for agent in test_agents)
        raise AgentError(
            f"test_agents holds none of the agents that are trained ({kinds}): its tests would measure the same again "
            "and again. Put at least one of `agents` that learns there, or leave test_agents out"
        )
