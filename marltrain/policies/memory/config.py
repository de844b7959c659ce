"""The memory of learning agents: `Replay` with its parts, or `Rollouts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from marltrain.core.errors import AgentError, ConfigError, shown
from marltrain.core.settings import Unsaved, check_function, checked_arguments, setting, validate
from marltrain.policies.hyperparameters.schedules import Schedule

MOST_STEPS = 2**34
"""Maximum number of stored env steps, which detects mistyped settings."""
LONGEST = 10_000
"""Maximum number of rewards that a row may sum; they are added in a loop."""
CAPACITY = 50_000
"""Default capacity of agents with external learning code."""
LEAST_PRIORITY = 1e-12
"""Smallest priority; its powers are positive float32 numbers."""


class _Part:
    """A frozen dataclass of settings that is saved with an agent."""

    def describe(self) -> dict[str, Any]:
        """Return all settings as JSON values."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def described(cls, values: Mapping[str, Any]) -> Any:
        """Return the settings that `describe` described."""
        return _made(cls, values)

    def structure(self) -> dict[str, Any]:
        """Return the settings that agents of one learner share, as JSON values."""
        shared: dict[str, Any] = {}
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if isinstance(value, _Part):
                shared[f.name] = value.structure()
            elif callable(value) and not isinstance(value, Schedule):  # a function is equal to itself only
                shared[f.name] = id(value)
            elif not f.metadata.get("per_row") or value is None:
                shared[f.name] = _plain(value)
        return shared


@checked_arguments
@dataclass(frozen=True)
class Prioritized(_Part):
    """Draw rows in proportion to their priorities (Schaul et al. 2016, arXiv:1511.05952, "proportional").

    The priority p of a row is the size of its last error + epsilon. A row is drawn with probability
    P(i) = p_i ** alpha / sum of p ** alpha; each row of a batch comes from another one of B equal parts of the sum.
    Its weight in losses is (N P(i)) ** -beta for N rows, divided by the largest weight of the batch.

    alpha: 0 draws uniformly.  beta: 1 corrects the draws completely; for the annealing of the paper, give a schedule
    such as `mt.linear(0.4, 1.0, steps)`.
    initial: priority of a new row. None: the largest so far, 1 at first. "error": that of its own error by the present
        networks, once the rewards of its n steps are known, as in Ape-X (Horgan et al. 2018, arXiv:1803.00933); until
        then it is not drawn. See `initial_errors`.
    Raises ConfigError for a value out of range.
    """

    alpha: float | Schedule = setting(0.6, doc="power of the priorities", low=0, high=1, per_row=True)
    beta: float | Schedule = setting(0.4, doc="power of the importance weights", low=0, high=1, per_row=True)
    initial: float | str | None = setting(None, doc='priority of new rows; None: the largest; "error": by their errors',
                                          low=LEAST_PRIORITY, choices=("error",))  # fmt: skip
    epsilon: float = setting(1e-6, doc="smallest priority, added to the size of errors", low=LEAST_PRIORITY)

    def __post_init__(self) -> None:
        """Check the values; raises ConfigError."""
        validate(self, "Prioritized")

    @property
    def by_errors(self) -> bool:
        """Whether the first priority of a row is made from its own error."""
        return self.initial == "error"


@checked_arguments
@dataclass(frozen=True)
class Hindsight(_Part):
    """Replace the goal of a share of the drawn transitions by one that was reached (HER, arXiv:1707.01495).

    Observations are a Dict of observation, achieved_goal and desired_goal, as in Gymnasium-Robotics; the policy sees
    all parts. The new goal is the achieved goal of a next observation: of a row of the same episode that is not earlier
    ("future"), of its last row ("final"), of any of its rows ("episode"), or of any row of the memory ("random").
    Episodes that still run count up to their last closed row.

    share: share of the transitions that get another goal; 0.8 is four for each one with its own goal.
    reward_fn: function (achieved [n, *G], desired [n, *G], info {}) -> rewards [n], called on arrays in the trainer's
        process; None: the environment's compute_reward.
    Raises ConfigError for an unknown strategy, a share outside [0, 1], or no function.
    """

    strategy: str = setting("future", doc="where goals come from", choices=("future", "final", "episode", "random"))
    share: float | Schedule = setting(0.8, doc="share of transitions with another goal", low=0, high=1, per_row=True)
    reward_fn: Callable[..., Any] | None = setting(None, doc="rewards of goals; None: the environment's compute_reward")

    def __post_init__(self) -> None:
        """Check the values; raises ConfigError."""
        validate(self, "Hindsight")
        if self.reward_fn is not None:
            check_function("Hindsight: reward_fn", self.reward_fn, "achieved", "desired", "info")


@checked_arguments
@dataclass(frozen=True)
class Triplets(_Part):
    """Give each transition two more rows of its episode: triplets i < k < j (Park et al. 2025, arXiv:2510.22512).

    Observations are a Dict of observation, achieved_goal and desired_goal, as in Gymnasium-Robotics. The goals are the
    achieved goals of rows k and j; that of j may also be the last observation of the episode. The transition is drawn
    as without triplets and begins at i; R of its player's decisions, itself included, are left in the episode. A
    running episode counts up to its last closed row.

    offsets: law of j - i, an offset from 1 to R. "geometric": P(n) = (1 - gamma) gamma^(n - 1) for n < R and the rest
        for n = R, with the agent's gamma. "uniform": all offsets are equally likely.
    Row k is one of the j - i - 1 rows in between, all equally likely; for offset 1 there is none, and k = i.
    Batches are `TripletTransitions`.  Raises ConfigError for an unknown law.
    """

    offsets: str = setting("geometric", doc="law of the distance of goals", choices=("geometric", "uniform"))

    def __post_init__(self) -> None:
        """Check the values; raises ConfigError."""
        validate(self, "Triplets")


@checked_arguments
@dataclass(frozen=True)
class Replay(_Part):
    """Learn off-policy from rows of the last `capacity` env steps, drawn uniformly with replacement or by priorities.

    capacity: env steps that stay readable.  n_step: rewards of a player summed before bootstrapping.  For both, None
    means the agent's own value; it is 50,000 and 1 for agents with external learning code.
    prioritized: priorities of the rows; None: uniform draws.
    hindsight: other goals for a share of the transitions; None: their own goals.
    triplets: two more rows of the episode for each transition; None: none, or the agent's own.
    window: the newest env steps from which rows are drawn: a share of `capacity` (up to 1), a number of env steps
        (above 1), a schedule of either, or a function (env steps that are held) -> env steps to keep, called when an
        update is due. Rows that have left the window do not return.
    effective_share: the oldest rows are dropped until the effective sample size (sum of P)^2 / sum of P^2 of the draws,
        with probabilities P, is at least this share of the rows. It is checked each time that a hundredth of `capacity`
        has arrived.
    effective_low: the newest env steps, or share of `capacity`, that `effective_share` keeps in any case.
    half_life: env steps after which a row is drawn half as often as a new one of equal priority. Importance weights
        correct for priorities, not for age. None: age does not count.
    clear_every: all rows are dropped at multiples of this number of env steps.
    Raises ConfigError for a value below 1, for a window that keeps nothing, for `effective_share` of uniform draws, and
    for hindsight with triplets.
    """

    capacity: int | None = setting(None, doc="env steps that stay readable; None: the agent's own", low=1,
                                   high=MOST_STEPS)  # fmt: skip
    n_step: int | None = setting(None, doc="rewards summed before bootstrapping; None: the agent's own", low=1,
                                 high=LONGEST)  # fmt: skip
    prioritized: Prioritized | None = setting(None, doc="priorities of the rows; None: uniform draws")
    hindsight: Hindsight | None = setting(None, doc="other goals; None: the transitions' own goals")
    triplets: Triplets | None = setting(None, doc="two more rows of the episode, as goals; None: none, or the agent's")
    window: float | Schedule | Callable[..., Any] | None = setting(
        None, doc="newest env steps, or share of them, that are drawn; None: all", above=0, per_row=True
    )
    effective_share: float | Schedule | None = setting(
        None, doc="least effective sample size, as a share of the rows; None: any", above=0, high=1, per_row=True
    )
    effective_low: float = setting(0.1, doc="newest env steps, or share, that effective_share keeps", above=0)
    half_life: float | Schedule | None = setting(
        None, doc="env steps after which a row is drawn half as often; None: never", above=0, per_row=True
    )
    clear_every: int | None = setting(None, doc="env steps between two clearings; None: never", low=1)

    def __post_init__(self) -> None:
        """Check the values; raises ConfigError."""
        validate(self, "Replay")
        if self.effective_share is not None and self.prioritized is None and self.half_life is None:
            raise ConfigError(
                f"Replay: effective_share={shown(self.effective_share)} drops nothing, because draws are uniform and "
                "all rows are effective: give prioritized= or half_life=, or a window="
            )
        if self.effective_share is None and self.effective_low != 0.1:
            raise ConfigError(
                f"Replay: effective_low={self.effective_low:g} has no effect without effective_share: leave it out"
            )
        if self.window_function is not None:
            check_function("Replay: window", self.window_function, "held")
        if self.hindsight is not None and self.triplets is not None:
            raise ConfigError(
                "Replay: hindsight replaces the goals of transitions, triplets give goals beside them: leave one out"
            )

    @property
    def window_function(self) -> Callable[..., Any] | None:
        """The function given as `window`, or None."""
        return self.window if callable(self.window) and not isinstance(self.window, Schedule) else None

    @property
    def ages(self) -> bool:
        """Whether the age of a row decides about its draws before it is overwritten."""
        return any(getattr(self, name) is not None for name in AGES)

    @property
    def uniform(self) -> bool:
        """Whether all rows in the ring are drawn with equal probability."""
        return self.prioritized is None and not self.ages

    @property
    def initial_errors(self) -> bool:
        """Whether the first priority of a row is made from its own error."""
        return self.prioritized is not None and self.prioritized.by_errors

    @property
    def with_goals(self) -> tuple[str, ...]:
        """Names of the parts that read the goals of observations."""
        return tuple(name for name in ("hindsight", "triplets") if getattr(self, name) is not None)

    def filled(self, capacity: int = CAPACITY, n_step: int = 1) -> Replay:
        """Return this memory with an agent's own values in place of None."""
        return replace(self, capacity=self.capacity or capacity, n_step=self.n_step or n_step)


AGES = ("window", "effective_share", "half_life", "clear_every")
"""Settings of `Replay` by which the age of a row decides about its draws."""
PARTS: dict[str, type[Any]] = {"prioritized": Prioritized, "hindsight": Hindsight, "triplets": Triplets}
"""Settings of `Replay` that hold a part."""


@checked_arguments
@dataclass(frozen=True)
class Rollouts(_Part):
    """Learn on-policy from each row exactly once, in the first update after its outcome is known."""


def _plain(value: Any) -> Any:
    if isinstance(value, _Part):
        return value.describe()
    if isinstance(value, Schedule):
        return {"schedule": value.describe()}
    if isinstance(value, Unsaved):
        return {"unsaved": value.name}
    return {"unsaved": getattr(value, "__name__", type(value).__name__)} if callable(value) else value


def _made(cls: type[Any], values: Mapping[str, Any]) -> Any:
    return cls(**{name: _restored(name, value) for name, value in values.items()})


def _restored(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if name in PARTS:
        return _made(PARTS[name], value)
    return Schedule(**value["schedule"]) if "schedule" in value else Forgotten(value["unsaved"])


class Forgotten(Unsaved):
    """Stands for a function of a loaded agent's memory, which is not saved with it: the agent can act, not learn."""

    def __call__(self, *arguments: Any) -> Any:
        """Raise AgentError."""
        raise AgentError(
            f"the agent's memory used the function {self.name!r}, which is not saved with it: the agent can act, and "
            "to learn it needs a run that is resumed with a new agent of the same settings"
        )


def replay_of(settings: Any, who: str) -> Replay:
    """Return the memory of an algorithm with the settings `memory`, `capacity` and `n_step`, without None for these.

    `n_step` is 1 for an algorithm without this setting.  Raises ConfigError if a value is given twice.
    """
    replay, usual = settings.memory or Replay(), {f.name: f.default for f in fields(settings)}
    for name in [name for name in ("capacity", "n_step") if name in usual]:
        inner, outer = getattr(replay, name), getattr(settings, name)
        if inner is not None and outer not in (inner, usual[name]):
            raise ConfigError(
                f"{who}: {name}={outer} and memory=Replay({name}={inner}) contradict each other: leave one of them out"
            )
    filled: Replay = replay.filled(settings.capacity, getattr(settings, "n_step", 1))
    return filled


def chosen_memory(memory: Any, allowed: tuple[type[Any], ...], who: str) -> Any:
    """Return the given memory, or the default of the first type in `allowed` for None, with all values filled in.

    who: name for the error.  Raises ConfigError for any other value.
    """
    memory = allowed[0]() if memory is None else memory
    if isinstance(memory, Replay) and memory.initial_errors:
        raise ConfigError(
            f'{who}: Prioritized(initial="error") computes the errors of new rows outside of updates, which only '
            "marltrain's own algorithms can: leave initial= out"
        )
    if isinstance(memory, allowed):
        return memory.filled() if isinstance(memory, Replay) else memory
    instead = " or ".join(
        f"marltrain.Replay(capacity={getattr(memory, 'maxsize', CAPACITY)})" if kind is Replay
        else "marltrain.Rollouts()"
        for kind in allowed
    )  # fmt: skip
    if hasattr(memory, "sample_indices"):
        raise ConfigError(
            f"{who}: memory got a buffer ({type(memory).__name__}), but the trainer itself stores all "
            f"transitions, once for all agents: set the size of the memory with memory={instead}"
        )
    if isinstance(memory, Replay):
        raise ConfigError(
            f"{who}: memory must be {instead}, got {shown(memory)}. It learns on-policy, from each row once: there is "
            "nothing to draw by priorities or to relabel. Off-policy agents (DQN, SAC) have a Replay"
        )
    raise ConfigError(f"{who}: memory must be {instead}, got {shown(memory)}")
