"""train_offline: updates of an off-policy agent from recorded decisions, without an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from marltrain.core.errors import AgentError, ConfigError, shown
from marltrain.core.layout import Array, Obs, arrays_of
from marltrain.core.seeds import chosen_seed
from marltrain.core.spec import LONE_PLAYER, EnvSpec, PlayerSpec, Step
from marltrain.policies.agents.agent import Agent
from marltrain.policies.agents.algorithm_agent import LearningAgent
from marltrain.policies.demonstrations.chains import followed
from marltrain.policies.demonstrations.demonstrations import Demonstrations
from marltrain.policies.interface.joint import JointAlgorithm
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.streams import Storage, Streams
from marltrain.trainer.seats.in_use import at_work
from marltrain.trainer.seats.seats import Seating, Seats
from marltrain.trainer.updating.scheduler import not_finite, rngs_of

if TYPE_CHECKING:
    import pandas as pd

DEFAULT_ROWS = 64
"""Rows of a batch, if neither the call nor the agent nor its algorithm sets them."""
INTERVALS = 100
"""Number of rows of the table that is returned."""


def train_offline(
    agent: Agent, data: Demonstrations, *, updates: int, batch_size: int | None = None, seed: int | None = 0
) -> pd.DataFrame:
    """Train an off-policy agent from the decisions in `data`; return the means of the metrics of its updates.

    The decisions take the place of the replay memory. n-step returns and priorities (`memory=mt.Replay(...)`) apply.
    `capacity`, `learning_starts` and `update_freq` have no meaning here. Schedules count updates in place of env steps.

    agent: it learns in place.
    data: rewards, terminations and next observations are needed; `marltrain.dataset` and `from_minari` give them. A row
    whose next observation is not that of the row after it ends there, as by a truncation.
    updates: number of gradient passes.  batch_size: rows of a batch; None: the agent's, or else its algorithm's.
    seed: for agents that have no random stream of their own yet.

    Returns a DataFrame of at most 100 rows: "update", the number of updates so far, and the mean of each metric since
    the row before.
    Raises ConfigError for numbers below 1 and for agents that cannot learn so: on-policy, imitating, recurrent or of a
    team; AgentError for data that do not fit, and if a loss is not finite.
    """
    for name, value in (("updates", updates), ("batch_size", 1 if batch_size is None else batch_size)):
        if type(value) is not int or value < 1:
            raise ConfigError(f"train_offline: {name} must be an integer of at least 1, got {shown(value)}")
    if not isinstance(data, Demonstrations):
        raise ConfigError(f"train_offline: data must be Demonstrations of one player, got {shown(data)}")
    _outcomes(data)
    _check_agent(agent)
    spec = _spec_of(data)
    with at_work(None, [agent], training=True):
        seated = Seating(spec, [agent], chosen_seed(seed, "train_offline"), stack=True).updated[0]
        try:
            reader = _filled(seated, spec, data)
            schedule = seated.learner.update_schedule
            rows = batch_size or schedule.batch_size or schedule.default_batch_size or DEFAULT_ROWS
            return _trained(seated, reader, updates, rows)
        finally:
            seated.learner.close()


def _outcomes(data: Demonstrations) -> tuple[Array, Array, Obs]:
    """Return rewards, terminations and next observations; raises AgentError if some are missing."""
    reward, terminated, following = data.reward, data.terminated, data.next_obs
    if reward is None or terminated is None or following is None:
        given = {"reward": reward, "terminated": terminated, "next_obs": following}
        raise AgentError(
            f"train_offline: the data lack {', '.join(name for name, array in given.items() if array is None)}, which "
            "updates need: record them with marltrain.dataset or marltrain.demonstrations"
        )
    return reward, terminated, following


def _check_agent(agent: Agent) -> None:
    """Raise ConfigError unless the agent can learn from transitions alone."""
    kind = type(agent).__name__
    if not isinstance(agent, LearningAgent):
        raise ConfigError(f"train_offline: {kind} is not an agent of marltrain's algorithms")
    needs = agent.learner().needs
    replay = None if needs is None else needs.replay
    reasons = {
        "it is trained with a team": isinstance(agent.algorithm, JointAlgorithm),
        "it learns on-policy": needs is None or needs.on_policy,
        "it learns from what its own acts return, as recurrent networks do": needs is not None
        and bool(needs.columns or needs.sequence),
        "it reads a global state": needs is not None and needs.state is not None,
        "its goals are judged by the environment": replay is not None
        and replay.hindsight is not None
        and replay.hindsight.reward_fn is None,
    }
    for reason, holds in reasons.items():
        if holds:
            raise ConfigError(
                f"train_offline: {kind} cannot learn from recorded decisions: {reason}. Use an off-policy algorithm "
                "with transitions, such as dqn or sac; or behavior cloning (bc)"
            )


def _spec_of(data: Demonstrations) -> EnvSpec:
    """Return the specification of an environment whose only player made the decisions."""
    player = PlayerSpec(LONE_PLAYER, data.observation_space, data.action_space, data.layout, data.legal is not None)
    return EnvSpec.of("recorded decisions", [player])


def _filled(seated: Seats, spec: EnvSpec, data: Demonstrations) -> Reader:
    """Return a reader of the decisions, stored as the steps of one environment."""
    reward, terminated, following = _outcomes(data)
    streams = Streams(spec, 1, {0: Storage(rows=len(data) + 1)})
    reader = seated.learner.reader(streams, [[0]])
    step, action = Step.empty(spec, 1), data.action[:, None, None]
    ends = data.ends | ~followed(data.obs, following)  # other rows bootstrap from their own next observation
    if step.final_legal[0] is not None:
        step.final_legal[0][...] = True  # the data do not tell the legal actions at an end
    for i in range(len(data) + 1):
        if i:
            step.reward[...], step.ended[...] = reward[i - 1], ends[i - 1]
            step.terminated[...], step.truncated[...] = terminated[i - 1], ends[i - 1] & ~terminated[i - 1]
            _put(step.final_obs[0], following, i - 1)
        shown_row = min(i, len(data) - 1)  # nothing is decided on the last Step
        step.turn[0][...] = step.alive[0][...] = i < len(data)
        _put(step.obs[0], data.obs, shown_row)
        if step.legal[0] is not None and data.legal is not None:
            step.legal[0][...] = data.legal[shown_row]
        streams.record_step(step)
        if i < len(data):
            streams.record_actions(0, action[i], {})
    reader.admit()
    return reader


def _put(into: Obs, source: Obs, i: int) -> None:
    for to, values in zip(arrays_of(into), arrays_of(source), strict=True):
        to[0, 0] = values[i]


def _trained(seated: Seats, reader: Reader, updates: int, rows: int) -> pd.DataFrame:
    """Make the updates; return the means of their metrics."""
    import pandas as pd

    learner, learns = seated.learner, np.ones(1, bool)
    bounds = set(np.linspace(0, updates, min(updates, INTERVALS) + 1).astype(int)[1:].tolist())
    sums: dict[str, list[float]] = {}
    table = []
    for number in range(1, updates + 1):
        learner.apply_schedules(number - 1)
        batch = reader.sample(rngs_of(seated, learns), learner.gammas(), rows)
        metrics = learner.update(batch, learn=learns, batch_size=rows)
        if (error := not_finite(seated, metrics, learner.skipped, learns, number, 0)) is not None:
            raise error
        reader.learned(batch)
        for name, values in metrics.items():
            sums.setdefault(name, []).append(float(values[0]))
        if number in bounds:
            table.append({"update": number, **{name: float(np.nanmean(values)) for name, values in sums.items()}})
            sums = {}
    return pd.DataFrame(table)
