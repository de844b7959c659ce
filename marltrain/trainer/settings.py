"""Settings of the trainer and checks of its arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from marltrain.core.errors import ConfigError, shown
from marltrain.core.layout import Array
from marltrain.core.settings import setting
from marltrain.envs.faults import MAX_RESTARTS, ON_FAULT, WINDOW
from marltrain.envs.make import VECTORS
from marltrain.policies.interface.algorithm import MOST_ROWS
from marltrain.policies.memory.config import MOST_STEPS
from marltrain.processes.ray_actors import ANSWER, check_resources

MOST_ENVS = 2**20
"""Maximum number of environments; it catches typing errors before huge arrays are allocated."""
NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
"""Names of runs."""
MOST_EPISODES = 1_000_000
"""Maximum number of episodes of one test; each has a row of returns."""


class Default(int):
    """A default that other values replace if the user does not give the argument.

    Episodes: the same limit in env steps or updates. `batch_size` and `update_freq`: the default of an algorithm.
    """


COLLECT = ("serial", "overlap")
EPISODES, TEST_EPISODES = Default(5000), Default(100)
BATCH_SIZE, UPDATE_FREQ = Default(64), Default(100)
TEST_STEPS = 100_000
MAX_LAG = 1
"""Default of `max_lag` with sync=False: a rollout is collected while the one before it is learned from."""
MOST_LAG = 1_000
"""Maximum of `max_lag`, which detects typing errors."""


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """Settings of a `DecentralizedTrainer`; its docstring explains them."""

    num_train_envs: int = setting(16, doc="training environments", low=1, high=MOST_ENVS)
    num_test_envs: int = setting(16, doc="test environments", low=1, high=MOST_ENVS)
    batch_size: int = setting(
        BATCH_SIZE, doc="rows of a batch, for agents that set none; if it is not given, an algorithm's default is used "
        "first", low=1, high=MOST_ROWS,
    )  # fmt: skip
    update_freq: int = setting(
        UPDATE_FREQ, doc="env steps between updates, for agents that set none; if it is not given, an algorithm's "
        "default is used first", low=1, high=MOST_STEPS,
    )  # fmt: skip
    test_freq: int | None = setting(TEST_EPISODES, doc="episodes between tests; None: none by episodes", low=1)
    episodes_per_train: int = setting(EPISODES, doc="budget of training episodes", low=1)
    episodes_per_test: int = setting(50, doc="episodes of each test", low=1, high=MOST_EPISODES)
    shared_memory: bool = setting(False, doc="off-policy agents also learn from other seats")
    vector: str = setting("dummy", doc="environments in the main process or in workers", choices=VECTORS)
    num_workers: int | None = setting(None, doc="number of worker processes or actors", low=1)
    seed: int | None = setting(None, doc="seed of the run", low=0, high=2**63 - 1)
    steps_per_train: int | None = setting(None, doc="budget of env steps", low=1)
    updates_per_train: int | None = setting(None, doc="budget of updates", low=1)
    progress: bool = setting(True, doc="show a progress bar")
    on_fault: str | None = setting(None, doc="reaction to a fault of an environment", choices=ON_FAULT)
    max_env_restarts: int = setting(MAX_RESTARTS, doc=f"maximum faults within {WINDOW:,} env steps", low=0)
    env_timeout: float | None = setting(None, doc="maximum seconds of a worker's env step", above=0)
    collect: str = setting("serial", doc="collect and learn in turn, or at the same time", choices=COLLECT)
    test_freq_steps: int | None = setting(None, doc="env steps between tests, also with test_freq", low=1)
    max_test_steps: int | None = setting(TEST_STEPS, doc="env steps after which a test is cut; None: no limit", low=1)
    sampled_tests: bool = setting(False, doc="play each test a second time, with agents that explore")
    record: tuple[str, ...] = setting((), doc="attribute of the environment, recorded at the end of episodes")
    resources: Mapping[str, float] | None = setting(None, doc="what each Ray actor occupies")
    address: str | None = setting(None, doc="Ray cluster: host:port, auto, or local")
    timeout: float = setting(ANSWER, doc="maximum seconds of an actor's answer", above=0)
    runners: int | None = setting(None, doc="Ray actors that collect; None: this process collects", low=1)
    min_runners: int | None = setting(None, doc="runners with which the run goes on if others are lost", low=1)
    learners: int | None = setting(None, doc="Ray actors that learn; None: this process learns", low=1)
    learner_resources: Mapping[str, float] | None = setting(None, doc="what each learner actor occupies")
    name: str | None = setting(None, doc="name by which other processes attach to the run; needs Ray")
    sync: bool = setting(True, doc="runners wait for each update")
    max_lag: int | None = setting(
        None, doc="with --no-sync: updates by which runners may be behind (default: 1)", low=0, high=MOST_LAG
    )

    def __post_init__(self) -> None:
        """Set `test_freq` to None if only `test_freq_steps` is given."""
        if self.test_freq_steps is not None and isinstance(self.test_freq, Default):
            object.__setattr__(self, "test_freq", None)

    @property
    def given(self) -> frozenset[str]:
        """Names of the values for learners, `batch_size` and `update_freq`, that the user gave."""
        return frozenset(n for n in ("batch_size", "update_freq") if not isinstance(getattr(self, n), Default))

    @property
    def lag(self) -> int | None:
        """Maximum lag of asynchronous runners; None: they are synchronous."""
        return None if self.sync else MAX_LAG if self.max_lag is None else self.max_lag

    @property
    def least_runners(self) -> int | None:
        """Number of runners with which the run goes on if others are lost; None: it needs all of them."""
        return self.min_runners if (self.min_runners or 0) < (self.runners or 0) else None

    @property
    def tests(self) -> bool:
        """Whether tests are played during training."""
        return self.test_freq is not None or self.test_freq_steps is not None

    @property
    def episode_budget(self) -> int | None:
        """Budget of training episodes, or None if the user gives only other budgets."""
        others = self.steps_per_train is not None or self.updates_per_train is not None
        return None if others and isinstance(self.episodes_per_train, Default) else self.episodes_per_train


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Settings of one call of `train`."""

    plot: bool = setting(True, doc="plot the run at its end")
    any_threads: bool = setting(False, doc="allow another number of threads on resume")
    rotate: bool = setting(False, doc="agents move on by one seat of equal spaces after each training episode")
    rotate_tests: bool = setting(True, doc="test_agents move on by one seat after each episode")
    on_interrupt: str = setting(
        "return", doc="what train does after Ctrl-C or SIGTERM, once the run is saved", choices=("return", "raise")
    )


@dataclass(frozen=True, kw_only=True)
class TestSettings:
    """Settings of one call of `test`."""

    __test__ = False  # for pytest: settings, not a test class

    episodes: int | None = setting(None, doc="episodes to play", low=1, high=MOST_EPISODES)
    sampled: bool = setting(False, doc="agents explore as in training")


def check_ray(settings: TrainerSettings) -> None:
    """Raise ConfigError for settings of Ray actors where there are none."""
    check_resources(settings.resources)
    check_resources(settings.learner_resources, "learner_resources")
    if settings.runners is not None:
        _check_runners(settings)
    elif settings.min_runners is not None:
        raise ConfigError(
            f"min_runners={settings.min_runners} is of use with runners only: give runners=, or leave it out"
        )
    elif not settings.sync:
        raise ConfigError("sync=False lets runners work ahead of the updates: give runners=, or leave sync=False out")
    if settings.sync and settings.max_lag is not None:
        raise ConfigError(
            f"max_lag={settings.max_lag} has no effect with sync=True, where nothing lags: give sync=False, or leave "
            "max_lag out"
        )
    if settings.name is not None and not NAME.fullmatch(settings.name):
        raise ConfigError(
            f"name must consist of letters, digits, '.', '_' and '-', such as 'spread-2', got {shown(settings.name)}"
        )
    if settings.learners is not None and settings.collect != "serial":
        raise ConfigError(
            f"learners={settings.learners} make every update before the next batch step, and collect="
            f"{settings.collect!r} does not wait for it: leave one of them out"
        )
    acting, learning = settings.vector == "ray" or settings.runners is not None, settings.learners is not None
    there = {
        "resources": acting,
        "learner_resources": learning,
        "address": acting or learning or settings.name is not None,
    }
    given = [name for name, of_use in there.items() if not of_use and getattr(settings, name) is not None]
    if given:
        use = "learners=" if given == ["learner_resources"] else 'runners= or vector="ray"'
        raise ConfigError(
            f"{' and '.join(given)} are those of Ray actors, and there are none with vector={settings.vector!r}: use "
            f"{use}, or leave {' and '.join(given)} out"
        )


def _check_runners(settings: TrainerSettings) -> None:
    """Raise ConfigError for settings that do not fit runners."""
    if settings.runners is not None and settings.runners > settings.num_train_envs:
        raise ConfigError(
            f"runners must be at most num_train_envs ({settings.num_train_envs}), got {settings.runners}: each holds "
            "at least one environment"
        )
    if settings.min_runners is not None and settings.min_runners > (settings.runners or 1):
        raise ConfigError(f"min_runners must be at most runners ({settings.runners}), got {settings.min_runners}")
    if settings.least_runners is not None and settings.on_fault == "raise":
        raise ConfigError(
            f'on_fault="raise" ends the run when a runner is lost, and min_runners={settings.min_runners} lets it go '
            "on: leave one of them out"
        )
    others = {
        "vector": settings.vector != "dummy", "num_workers": settings.num_workers is not None,
        "collect": settings.collect != "serial",
    }  # fmt: skip
    if given := [f"{name}={getattr(settings, name)!r}" for name, unfit in others.items() if unfit]:
        raise ConfigError(f"runners={settings.runners} hold the environments themselves: leave {', '.join(given)} out")


def check_tests(settings: TrainerSettings, **functions: Any) -> None:
    """Raise ConfigError for sampled tests, and functions that are called after tests, if tests are switched off."""
    given = [name for name, function in functions.items() if function is not None]
    if settings.tests:
        return
    if settings.sampled_tests:
        raise ConfigError(
            "test_freq=None switches tests off, and sampled_tests=True would have no effect: give test_freq or "
            "test_freq_steps, or leave sampled_tests out"
        )
    if given:
        raise ConfigError(
            f"test_freq=None switches tests off, and {' and '.join(given)} would never be called: give test_freq or "
            f"test_freq_steps, or leave {' and '.join(given)} out"
        )


RewardMetric = Callable[[Array], float] | None
