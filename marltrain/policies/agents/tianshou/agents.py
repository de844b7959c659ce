"""OffPolicyAgent and OnPolicyAgent: agents with a tianshou algorithm."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import torch
from gymnasium import spaces
from tianshou.algorithm.algorithm_base import Algorithm, OffPolicyAlgorithm, OnPolicyAlgorithm, TrainingStats
from tianshou.utils import RunningMeanStd
from tianshou.utils.torch_utils import policy_within_training_step

from marltrain.core.errors import AgentError, ConfigError, SaveError
from marltrain.core.layout import Array, Obs
from marltrain.core.seeds import MOST_SEED
from marltrain.core.settings import build, setting
from marltrain.core.spec import PlayerSpec
from marltrain.policies.agents.external import ExternalAgent, check_legal, seeded
from marltrain.policies.agents.tianshou.acting import masking, raw_actions, to_raw, to_units
from marltrain.policies.agents.tianshou.buffer import ReplayView, RolloutView, StreamBuffer
from marltrain.policies.backends.torch.state import checked, packed, unpacked
from marltrain.policies.batches.batch import Acted, AgentState
from marltrain.policies.learner.learner import UpdateSchedule
from marltrain.policies.memory.config import Replay, Rollouts
from marltrain.policies.memory.needs import Column, Needs
from marltrain.policies.memory.readers import Reader
from marltrain.policies.memory.streams import Streams

NAMES = {"loss": "loss/total", "vf_loss": "loss/critic", "ent_loss": "entropy"}
"""tianshou's metric name -> marltrain's; any other name "x_loss" becomes "loss/x"."""


@dataclass(frozen=True, kw_only=True)
class OffPolicySettings:
    """Update schedule of an off-policy algorithm; the names are those of `UpdateSchedule`."""

    update_per_step: float = setting(1.0, doc="gradient steps per env step; fractions are carried over", above=0)
    batch_size: int | None = setting(None, doc="rows of a batch", low=1)
    update_freq: int | None = setting(None, doc="env steps between updates", low=1)
    learning_starts: int = setting(0, doc="env steps of learning seats before the first update", low=0)


@dataclass(frozen=True, kw_only=True)
class OnPolicySettings:
    """Update schedule of an on-policy algorithm."""

    repeat_per_collect: int = setting(1, doc="passes over each rollout", low=1)
    batch_size: int | None = setting(None, doc="rows of a minibatch", low=1)
    update_freq: int | None = setting(None, doc="env steps between updates", low=1)


class _TianshouAgent(ExternalAgent):
    """Base class of agents with on-policy or off-policy tianshou algorithms."""

    type_name: ClassVar[str]
    expected: ClassVar[type[Algorithm[Any, Any]]]
    memory_type: ClassVar[type[Replay] | type[Rollouts]]
    settings: Any

    def __init__(self, algorithm: Any, seed: int | None) -> None:
        name, expected = type(self).__name__, self.expected
        if not isinstance(algorithm, expected):
            other = next((kind for kind in KINDS if isinstance(algorithm, kind.expected)), None)
            remedy = (
                f"Use {other.__name__} for it" if other else "Give an algorithm, which holds a policy and optimizers"
            )
            raise AgentError(f"{name} takes a tianshou {expected.__name__}, got {type(algorithm).__name__}. {remedy}")
        policy = algorithm.policy
        self.algorithm: Any = algorithm
        self.seed = seed
        self._set_spaces(policy.observation_space, policy.action_space)
        if policy.action_scaling and not policy.action_space.is_bounded():
            raise AgentError(
                f"{name}: the policy scales its actions to {policy.action_space}, which has no bounds: make the policy "
                "with action_scaling=False"
            )

    def _marks(self) -> list[str]:
        return [type(self.algorithm).__name__, *super()._marks()]

    def sit(self, player: PlayerSpec, seed: int) -> None:
        """Take a seat; raises AgentError if the action space or the policy's observation space does not match.

        A policy without an observation space adopts the player's.
        """
        if self.observation_space is None:
            self.observation_space = player.observation_space
        super().sit(player, seed)
        self.layout = player.layout  # includes the environment's frame stack

    def decide(
        self, obs: Obs, legal: Array | None, carry: Any, *, turn: Array, explore: Array, rng: np.random.Generator
    ) -> Acted:
        """Choose actions for Step arrays [B, ...]; raises AgentError for an illegal action."""
        policy = self.algorithm.policy
        with seeded(self.framework, rng):
            raw = raw_actions(self.algorithm, obs, legal, explore)
        check_legal(
            self._seated()[1], legal, raw, turn, f"{type(self).__name__} of tianshou's {type(self.algorithm).__name__}",
            "Its policy has to read obs.mask",
        )  # fmt: skip
        extras = {"raw": raw.reshape(len(raw), -1)} if "raw" in self.needs().columns else {}
        return Acted(to_units(policy, raw), None, extras)

    def _updated(self, buffer: StreamBuffer, **how: Any) -> TrainingStats:
        """Run the algorithm's own update on the rows of the buffer."""
        masked = buffer.ring.legal is not None
        with policy_within_training_step(self.algorithm.policy), masking(self.algorithm, masked):
            stats: TrainingStats = self.algorithm.update(buffer=buffer, **how)
        return stats

    def state(self) -> AgentState:
        """Return weights, optimizer states, counters, settings and random streams, without the algorithm object.

        To load the agent, give the algorithm under its class name:
        `marltrain.load(path, custom_objects={"DQN": make_algorithm})`.
        """
        arrays: dict[str, Array] = {}
        info = {
            "type": self.type_name, **self.described(), "algorithm": type(self.algorithm).__name__,
            "settings": dataclasses.asdict(self.settings), "memory": self.replay.describe(),
            "state": packed(self.algorithm.state_dict(), "state", arrays),
            "rest": packed(_rest(self.algorithm), "rest", arrays), "learner": self.learner().describe(),
        }  # fmt: skip
        return AgentState(info, arrays)

    @classmethod
    def from_state(cls, state: AgentState, custom_objects: Mapping[str, Any], backend: str | None) -> Any:
        """Build the agent from its state with a copy of the supplied algorithm, or with a supplied constructor."""
        info, name = state.info, state.info["algorithm"]
        if name not in custom_objects:
            raise SaveError(
                f"the saved agent is made of tianshou's {name}: give it with custom_objects={{{name!r}: the algorithm "
                "or a function that makes it}"
            )
        given = custom_objects[name]
        algorithm: Any = copy.deepcopy(given) if isinstance(given, Algorithm) else given()
        memory, make = cls.memory_type.described(info["memory"]), cast(Any, cls)
        agent = make(algorithm, memory=memory, seed=int(info["learner"]["seed"]), **info["settings"])
        agent.restore(state)
        return agent

    def restore(self, state: AgentState) -> None:
        """Restore the state that `state` returned; raises SaveError for another algorithm or other networks."""
        info = state.info
        self.seed = state.part("learner").count("seed", high=MOST_SEED)
        self.adopt(info)
        try:
            saved = checked(unpacked(info["state"], state.arrays), self.algorithm.state_dict(), "state")
            self.algorithm.load_state_dict(saved)
        except (RuntimeError, ValueError, KeyError) as error:
            raise SaveError(f"the saved {info['algorithm']} does not fit the one supplied: {error}") from error
        _put_rest(self.algorithm, unpacked(info["rest"], state.arrays))
        self.learner().restore(state.part("learner"))


class OffPolicyAgent(_TianshouAgent):
    """Agent with an off-policy algorithm of tianshou 2: DQN, C51, Rainbow, QRDQN, DDPG, TD3, SAC and others.

    algorithm: the tianshou algorithm; the agent trains this object without a copy, in one or several seats.
    memory: `Replay(capacity=...)`. The algorithm's `n_step_return_horizon` sets the number of summed rewards.
    update_per_step: gradient passes per env step; fractions are carried over.
    batch_size: rows of a batch; None: the trainer's value.
    update_freq: env steps between updates; None: the trainer's value.
    learning_starts: env steps before the first update.
    seed: seed of the random streams; None: a seed from the run.

    Raises AgentError for another kind of algorithm, ConfigError for a wrong setting.
    """

    type_name = "tianshou-off-policy"
    expected = OffPolicyAlgorithm
    memory_type = Replay
    replay: Replay

    def __init__(
        self,
        algorithm: OffPolicyAlgorithm[Any],
        *,
        memory: Replay | None = None,
        update_per_step: float = 1.0,
        batch_size: int | None = None,
        update_freq: int | None = None,
        learning_starts: int = 0,
        seed: int | None = None,
    ) -> None:
        """Check and store the algorithm and the settings."""
        super().__init__(algorithm, seed)
        self._remember(memory, (Replay,))
        if self.replay.triplets is not None:
            raise ConfigError(
                "OffPolicyAgent: tianshou's algorithms read no triplets: leave triplets= out, or take a CustomAgent"
            )
        horizon = getattr(algorithm, "n_step_return_horizon", getattr(algorithm, "n_step", 1))  # DDPG's name, DQN's
        if self.replay.hindsight is not None and horizon != 1:
            raise ConfigError(
                f"OffPolicyAgent: the algorithm has n_step_return_horizon={horizon}, and transitions with other goals "
                "stand alone: make it with n_step_return_horizon=1, or take an agent of marltrain's own (DQN, SAC)"
            )
        if self.replay.n_step != 1:
            raise ConfigError(
                f"OffPolicyAgent: memory has n_step={self.replay.n_step}, but tianshou sums the steps itself: make the "
                "algorithm with n_step_return_horizon, and the memory with n_step=1"
            )
        given: dict[str, Any] = {
            "update_per_step": update_per_step, "learning_starts": learning_starts, "batch_size": batch_size,
            "update_freq": update_freq,
        }  # fmt: skip
        self.settings = build(OffPolicySettings, given, "OffPolicyAgent")
        self.update_schedule = UpdateSchedule(**given)

    def needs(self) -> Needs:
        """Return `Needs` for off-policy learning with the memory's capacity."""
        return Needs.of(self.replay)

    def reader(self, streams: Streams, seats: Sequence[Sequence[int]]) -> Reader:
        """Return a reader that passes a tianshou buffer view of the streams to `learn`."""
        view: Any = ReplayView
        if self.replay.hindsight is not None:
            from marltrain.policies.agents.tianshou.relabeled import RelabeledView  # loads numba

            view = RelabeledView
        make = partial(view, to_raw=partial(to_raw, self.algorithm.policy), numbers=self.memory_numbers)
        return streams.reader(seats, self.needs(), make)

    def learn(self, batch: StreamBuffer, batch_size: int) -> tuple[dict[str, float], int]:
        """Make one gradient pass with the algorithm; returns (metrics, 1).

        Raises AgentError if the memory is prioritized and the algorithm gives no errors of rows.
        """
        measured = _named(self._updated(batch, sample_size=batch_size))
        if self.replay.prioritized is not None and not getattr(batch, "informed", True):
            raise AgentError(
                f"OffPolicyAgent: tianshou's {type(self.algorithm).__name__} gives no errors of rows (batch.weight), "
                "from which priorities are made: leave prioritized= out of the memory"
            )
        return measured, 1


class OnPolicyAgent(_TianshouAgent):
    """Agent with an on-policy algorithm of tianshou 2: PPO, A2C, TRPO, NPG, Reinforce and others.

    algorithm: the tianshou algorithm; the agent trains this object without a copy, in one or several seats.
    memory: `Rollouts()`, the only valid value.
    repeat_per_collect: passes over each rollout.
    batch_size: rows of a minibatch; None: the trainer's value.
    update_freq: env steps between updates; None: the trainer's value.
    seed: seed of the random streams; None: a seed from the run.

    Raises AgentError for another kind of algorithm, ConfigError for a wrong setting.
    """

    type_name = "tianshou-on-policy"
    expected = OnPolicyAlgorithm
    memory_type = Rollouts
    replay: Rollouts

    def __init__(
        self,
        algorithm: OnPolicyAlgorithm[Any],
        *,
        memory: Rollouts | None = None,
        repeat_per_collect: int = 1,
        batch_size: int | None = None,
        update_freq: int | None = None,
        seed: int | None = None,
    ) -> None:
        """Check and store the algorithm and the settings."""
        super().__init__(algorithm, seed)
        self._remember(memory, (Rollouts,))
        given = {"repeat_per_collect": repeat_per_collect, "batch_size": batch_size, "update_freq": update_freq}
        self.settings = build(OnPolicySettings, given, "OnPolicyAgent")
        normalizes = getattr(algorithm, "advantage_normalization", False)  # the deviation of a single row is NaN
        self.update_schedule = UpdateSchedule(
            batch_size=batch_size, update_freq=update_freq, least_rows=2 if normalizes else 1
        )

    def needs(self) -> Needs:
        """Return `Needs` for on-policy learning; Box actions need raw actions, because `to_units` scales and clips."""
        space = self.action_space
        raw = {"raw": Column((int(np.prod(space.shape)),))} if isinstance(space, spaces.Box) else {}
        return Needs(on_policy=True, columns=raw)

    def reader(self, streams: Streams, seats: Sequence[Sequence[int]]) -> Reader:
        """Return a reader that passes a tianshou buffer view of the streams to `learn`."""
        return streams.reader(seats, self.needs(), partial(RolloutView, to_raw=partial(to_raw, self.algorithm.policy)))

    def learn(self, batch: StreamBuffer, batch_size: int) -> tuple[dict[str, float], int]:
        """Make `repeat_per_collect` passes over one rollout; returns (metrics, gradient passes)."""
        rows, repeat = len(batch.sample_indices(0)), self.settings.repeat_per_collect
        stats = self._updated(batch, batch_size=batch_size, repeat=repeat)
        split = repeat * max(1, rows // batch_size)  # tianshou adds the remaining rows to the last minibatch
        return _named(stats), int(getattr(stats, "gradient_steps", split))


KINDS: tuple[type[_TianshouAgent], ...] = (OffPolicyAgent, OnPolicyAgent)


def _named(stats: TrainingStats) -> dict[str, float]:
    """Return an update's statistics with marltrain's metric names."""
    return {
        NAMES.get(name, f"loss/{name.removesuffix('_loss')}" if name.endswith("_loss") else name): float(value)
        for name, value in stats.get_loss_stats_dict().items()
        if name != "gradient_steps"
    }


def _parts(algorithm: Algorithm[Any, Any]) -> Iterator[tuple[str, Any, str, Any]]:
    """Yield (where, owner, attribute, value) of an algorithm's state outside its `state_dict`.

    This state consists of counters (private ints and floats), running means and standard deviations, and the optimizers
    of submodules, such as the automatic alpha of SAC.
    """
    for name, module in algorithm.named_modules():
        for key, value in vars(module).items():
            counter = key.startswith("_") and type(value) in (int, float)
            if counter or isinstance(value, RunningMeanStd | torch.optim.Optimizer):
                yield f"{name}.{key}", module, key, value


def _rest(algorithm: Algorithm[Any, Any]) -> dict[str, Any]:
    """Return the values of `_parts` as plain values."""
    rest = {}
    for where, _, _, value in _parts(algorithm):
        if isinstance(value, RunningMeanStd):
            rest[where] = {"mean": value.mean, "var": value.var, "count": value.count}
        else:
            rest[where] = value.state_dict() if isinstance(value, torch.optim.Optimizer) else value
    return rest


def _put_rest(algorithm: Algorithm[Any, Any], rest: Mapping[str, Any]) -> None:
    """Restore the result of `_rest`; raises SaveError if the algorithm has other state."""
    parts = list(_parts(algorithm))
    if {where for where, *_ in parts} != set(rest):
        raise SaveError(
            f"the saved {type(algorithm).__name__} keeps {sorted(rest)}, the one supplied {sorted(p[0] for p in parts)}"
        )
    checked(rest, _rest(algorithm), "rest")
    for where, owner, key, value in parts:
        saved = rest[where]
        if isinstance(value, torch.optim.Optimizer):
            value.load_state_dict(saved)
        elif isinstance(value, RunningMeanStd):
            value.mean, value.var, value.count = saved["mean"], saved["var"], saved["count"]
        else:
            setattr(owner, key, saved)
