"""RewardScaling: the rewards that losses get, in plain and in planned updates."""

from __future__ import annotations

import functools

import numpy as np

from marltrain.core.errors import AgentError
from marltrain.core.layout import Array
from marltrain.policies.batches.normalization import RunningStatistics


class RewardScaling:
    """Multiplies rewards by `reward_scale` and divides them by their running deviation (`normalize_rewards`).

    The statistics are of the rewards in the batches, by their weights: each batch is added once, before it is scaled.
    There is no mean to subtract and no limit, so that sums of n rewards and values are scaled alike.

    agents: rows of rewards, K; 1 for the reward of a team.
    statistics: those of `Algorithm.statistics`; None: rewards are not normalized.
    """

    def __init__(self, agents: int, statistics: RunningStatistics | None) -> None:
        """Store them."""
        self.agents, self.statistics = agents, statistics

    @functools.cached_property
    def record(self) -> Array:
        """The arguments of `scale_rewards`, [1] SCALING, without the factors."""
        from marltrain.jit.views import address_of  # loads numba
        from marltrain.policies.compiled.reward_kernel import SCALING

        record = np.zeros(1, SCALING)
        record["agents"] = self.agents
        for name, values in {} if self.statistics is None else self.statistics.values().items():
            record[name] = address_of(values)
        return record

    def changes(self, scale: Array) -> bool:
        """Return whether rewards change with factors `scale`."""
        return self.statistics is not None or bool(np.count_nonzero(scale != 1))

    def __call__(self, reward: Array, weight: Array, learn: Array, scale: Array) -> Array:
        """Return rewards [K, B] scaled, as float32; first add those of the agents that learn to the statistics.

        weight: [K, B].  learn: [K] bool.  scale: [K] float64, values of `reward_scale`.
        """
        if not self.changes(scale):
            return reward
        from marltrain.jit.views import address_of  # loads numba
        from marltrain.policies.compiled.reward_kernel import scaling_program

        result, scale = np.array(reward, np.float32, order="C"), np.ascontiguousarray(scale, np.float64)
        weight, learn = np.ascontiguousarray(weight, np.float32), np.ascontiguousarray(learn, bool)
        self.record["scale"] = address_of(scale)
        places = (address_of(array) for array in (self.record, result, weight, learn))
        scaling_program()(*places, result.shape[1])
        return result


def of_team(scale: Array) -> Array:
    """Return the factor of a team's one reward, [..., 1], from those of its agents [..., N].

    Raises AgentError if they differ.
    """
    if (scale != scale[..., :1]).any():
        raise AgentError(
            "the agents of a team learn from one reward, and reward_scale is "
            f"{', '.join(f'{each:g}' for each in np.unique(scale))}: set agent.hyper.reward_scale to one value for all "
            "of them, or give make_agents one reward_scale="
        )
    return np.asarray(scale[..., :1])
