"""The choice of a collector."""

from __future__ import annotations

import logging

from marltrain.trainer.collecting.episodes import RunningEpisodes
from marltrain.trainer.collecting.rollout import Actors, Collector, Recorder, SyncCollector
from marltrain.trainer.events.counters import Traffic
from marltrain.trainer.seats.team_reward import TeamRewards
from marltrain.trainer.training.context import RunContext
from marltrain.trainer.training.updates import Updates

LOGGER = logging.getLogger("marltrain")


def make_collector(
    context: RunContext,
    team_rewards: TeamRewards | None,
    actors: Actors,
    episodes: RunningEpisodes,
    updates: Updates,
    traffic: Traffic,
    *,
    parts: int | None = None,
) -> Collector:
    """Return the fastest collector that supports the environments, agents and callbacks.

    team_rewards: the rewards to learn from; None: the players' own.
    traffic: counts what is sent to runners.
    parts: for measurements, largest number of parts of native environments whose agents all compute on a GPU; 0:
        `SteppedCollector`; None: the number of `parts_of`.
    """
    envs, settings = context.envs, context.settings
    recorder = Recorder(actors, context.streams)
    if settings.runners is not None:
        from marltrain.trainer.cluster.collector import RunnerCollector

        return RunnerCollector(
            envs, recorder, updates.schedulers, settings.timeout, traffic, settings.lag, team_rewards
        )
    plain = SyncCollector(envs, recorder)
    by_function = team_rewards is not None and team_rewards.function is not None
    if context.source.game is None or by_function or context.all_callbacks.listens("on_step"):
        return plain
    from marltrain.trainer.collecting.fused import FusedCollector, can_fuse  # loads numba
    from marltrain.trainer.collecting.halves import HalvesCollector, most_parts, parts_of
    from marltrain.trainer.collecting.stepped import SteppedCollector, can_step

    if not can_fuse(plain):
        if not can_step(plain):
            return plain
        given = plain, episodes, updates.schedulers, team_rewards
        count = parts_of(plain) if parts is None else min(parts, most_parts(plain))
        return HalvesCollector(*given, parts=count) if count else SteppedCollector(*given)
    _tell_of_single_updates(context)
    return FusedCollector(
        plain, episodes, updates.schedulers, updates.prepare, team_rewards
    )  # fmt: skip


def _tell_of_single_updates(context: RunContext) -> None:
    """Log which agents' compiled updates are made one at a time, and why. No warning, since it may be intended.

    Call it for native games, in which compiled code could make many updates between batch steps.
    """
    hindering = context.all_callbacks.interfering(("on_update_start", "on_update_end"))
    for scheduler in context.schedulers:
        learner = scheduler.seated.learner
        obstacle = learner.obstacle() if scheduler.plans else None
        if obstacle is not None and (obstacle or hindering):
            why = obstacle or (
                f"{hindering} may change agents at each of them; set only_watches = True in its class if it does not"
            )
            LOGGER.warning(
                "the compiled updates of the agent of %s are made one at a time, outside of the compiled batch steps, "
                "which is slower: %s", scheduler.seated.who, why,
            )  # fmt: skip
