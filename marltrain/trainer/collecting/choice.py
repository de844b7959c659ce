"""The choice of a collector."""

from __future__ import annotations

from marltrain.trainer.collecting.rollout import Actors, Collector, Recorder, SyncCollector
from marltrain.trainer.context import RunContext
from marltrain.trainer.counters import RunningEpisodes, Traffic
from marltrain.trainer.preflight import tell_of_single_updates
from marltrain.trainer.team_reward import TeamRewards
from marltrain.trainer.updating.updates import Updates


def make_collector(
    context: RunContext,
    team_rewards: TeamRewards | None,
    actors: Actors,
    episodes: RunningEpisodes,
    updates: Updates,
    traffic: Traffic,
) -> Collector:
    """Return the fastest collector that supports the environments, agents and callbacks.

    team_rewards: the rewards to learn from; None: the players' own.
    traffic: counts what is sent to runners.
    """
    envs, settings = context.envs, context.settings
    recorder = Recorder(actors, context.streams)
    if settings.runners is not None:
        from marltrain.trainer.cluster.collector import RunnerCollector
        from marltrain.trainer.cluster.runners import RunnerVectorEnv

        if isinstance(envs, RunnerVectorEnv):
            return RunnerCollector(
                envs, recorder, updates.schedulers, settings.timeout, traffic, settings.lag, team_rewards
            )
    plain = SyncCollector(envs, recorder)
    by_function = team_rewards is not None and team_rewards.function is not None
    if context.source.game is None or by_function or context.all_callbacks.listens("on_step"):
        return plain
    from marltrain.trainer.collecting.fused import FusedCollector, can_fuse  # loads numba

    if not can_fuse(plain):
        return plain
    tell_of_single_updates(context)
    return FusedCollector(
        plain, episodes.returns, episodes.lengths, updates.schedulers, updates.prepare, team_rewards
    )  # fmt: skip
