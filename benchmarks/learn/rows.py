"""The rows of the learning table: tasks, algorithms, env steps and published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import marltrain as mt
from benchmarks.learn.greedy_seats import GreedySeats
from benchmarks.learn.settings import (
    Settings,
    apples,
    central,
    continuous,
    foraging,
    foraging_independent,
    foraging_one_hot,
    foraging_shared,
    foraging_shared_experience,
    foraging_values,
    mixing,
    shared_policy,
    spread,
)
from benchmarks.learn.tasks import (
    ACROBOT,
    ADVERSARY,
    APPLES,
    CAR,
    CAR_CONTINUOUS,
    CARTPOLE,
    CHEETAH,
    FORAGING,
    FORAGING_FOUR,
    FORAGING_LARGE,
    FORAGING_ONE_HOT,
    HOPPER,
    KITCHEN_ENVS,
    KITCHEN_STEPS,
    KITCHENS,
    LANDER,
    LANDER_CONTINUOUS,
    MARINES,
    OUTNUMBERED,
    PENDULUM,
    REFERENCE,
    SPEAKER,
    SPREAD,
    SPREAD_CONTINUOUS,
    STALKERS,
    TAG,
    TASKS,
    TOGETHER,
    TOGETHER_LONG,
    WAREHOUSE,
    WAREHOUSE_FOUR,
    Task,
)  # fmt: skip
from marltrain.core.errors import ConfigError, did_you_mean
from marltrain.policies.agents.registry import ALGORITHMS

TUNING_SEEDS = 100
"""Settings are chosen on seeds from here on; the table shows smaller ones."""
SEEDS, SEEDS_OF_AN_HOUR = 5, 3
"""Number of seeds, and of seeds that take over an hour each."""
RANDOM = "random"


@dataclass(frozen=True, eq=False)
class Row:
    """One algorithm on one task.

    steps: env steps of training.  figure: mean return to compare with, None for a row without one.
    minutes: estimate for one seed on one core.
    tolerance: share of (figure - random play) by which a held row may fall short of the figure.
    compiled: train with `jit_compile=True`. For algorithms that marltrain does not compile itself, this needs a C++
      compiler and takes some seconds at the start.
    own: settings of the row; None: `marltrain.tuned`.
    most_seeds: number of seeds, where it is not that of the table.
    """

    task: Task
    algo: str
    steps: int
    figure: float | None = None
    minutes: float = 1.0
    tolerance: float = 0.05
    compiled: bool = False
    own: Settings | None = None
    most_seeds: int | None = None

    @property
    def name(self) -> str:
        """Name of the row on the command line and of its folder of results."""
        return f"{self.task.name}-{self.algo}"

    @property
    def seeds(self) -> range:
        """The seeds that the table shows."""
        return range(self.most_seeds or (SEEDS if self.minutes <= 60 else SEEDS_OF_AN_HOUR))

    @property
    def missing(self) -> str:
        """Why the row cannot be trained yet, or an empty string."""
        if self.algo != RANDOM and self.algo not in ALGORITHMS:
            return f"{self.algo} is not available"
        try:
            self.settings()
        except ConfigError:
            return "no tuned settings"
        return ""

    def settings(self) -> Settings:
        """Return the settings of training; raises ConfigError if there are none."""
        if self.algo == RANDOM:
            return {"trainer": {}, "agents": {}}
        return mt.tuned(self.algo, self.task.env) if self.own is None else self.own


_FORAGING_LARGE, _FORAGING_FOUR = (foraging_shared(steps, [GreedySeats(1_000_000)]) for steps in (4_000_000, 3_000_000))
_FORAGING_INDEPENDENT = foraging_independent(2_000_000)
_FORAGING_VDN, _FORAGING_QMIX = foraging_values("vdn", 2_000_000), foraging_values("qmix", 2_000_000)
_ONE_HOT = foraging_one_hot(2_000_000, gamma=0.95, reward_scale=10.0)
_ONE_HOT_TEAM = foraging_one_hot(1_500_000, {"team_reward": "sum"}, batch_size=192)
_TOGETHER = spread(1_000_000, TOGETHER.env, epochs=8, minibatches=2)
_TOGETHER_LONG = spread(
    10_000_000, TOGETHER.env, epochs=8, minibatches=2, share=True, entropy_coef=mt.linear(0.01, 0.0, 8_000_000)
)
_LONG: dict[str, Any] = {"update_per_step": 0.006, "epsilon": mt.linear(1.0, 0.05, 1_000_000), "capacity": 500_000}
_FROM_THE_SUM: dict[str, Any] = {"skip_connection": True, "mixer_gain": 0.1}
_ONE_HOT_MIXER = foraging_one_hot(1_500_000, {"team_reward": "sum"}, batch_size=192, **_FROM_THE_SUM)
_MIXING_LONG = mixing(10_000_000, **_LONG, **_FROM_THE_SUM)
_CENTRAL_LONG = central(
    10_000_000, share=True, straight_through=True, network=mt.MLP((128, 128), "relu"),
    learning_rate=mt.linear(3e-3, 3e-4, 10_000_000), update_per_step=0.0015, capacity=500_000,
)  # fmt: skip
_KITCHEN = shared_policy(KITCHEN_STEPS, KITCHEN_ENVS)
_WAREHOUSE = shared_policy(
    20_000_000, 64, normalize_returns=True, normalize_advantage=False, critic_input="agent_specific"
)
_RIVALS = {"adversary": ["adversary_*"], "good": ["agent_*"]}


def _particle_rows(task: Task, steps: int = 500_000, teams: Mapping[str, Sequence[str]] | None = None) -> list[Row]:
    """Return the rows of a particle world without figures, with the settings of simple_spread.

    teams: of mixed games, for QMIX; the agents of the other algorithms have their own rewards.
    """
    actor_critic = spread(steps, TOGETHER.env, epochs=8, minibatches=2)
    values = mixing(steps, **_FROM_THE_SUM, **({} if teams is None else {"teams": teams}))
    values = {**values, "trainer": {**values["trainer"], "team_reward": teams or "mean"}}
    return [
        Row(task, "ppo", steps, None, 0.5, compiled=True, own=actor_critic),
        Row(task, "mappo", steps, None, 0.5, compiled=True, own=actor_critic),
        Row(task, "maddpg", steps, None, 3, own=central(steps)),
        Row(task, "qmix", steps, None, 3, own=values),
    ]


_ALGORITHM_ROWS = (
    Row(CARTPOLE, "ppo", 100_000, 500.0, 0.7, compiled=True),
    Row(CARTPOLE, "dqn", 50_000, 500.0, 1, compiled=True),
    Row(CARTPOLE, "a2c", 500_000, 500.0, 4),
    Row(CARTPOLE, "trpo", 100_000, None, 2),
    Row(CARTPOLE, "acer", 100_000, None, 4),
    Row(CARTPOLE, "c51", 50_000, None, 3, compiled=True),
    Row(ACROBOT, "dqn", 100_000, -76.6, 3, compiled=True),
    Row(ACROBOT, "ppo", 1_000_000, -73.5, 6, compiled=True),
    Row(ACROBOT, "a2c", 500_000, -83.4, 5),
    Row(PENDULUM, "sac", 20_000, -157.0, 3, compiled=True),
    Row(PENDULUM, "td3", 20_000, -152.0, 3, compiled=True),
    Row(PENDULUM, "ddpg", 20_000, -152.0, 3, compiled=True),
    Row(PENDULUM, "ppo", 100_000, -172.0, 2),
    Row(PENDULUM, "a2c", 1_000_000, -163.0, 10),
    Row(PENDULUM, "trpo", 100_000, None, 2),
    Row(CAR, "dqn", 120_000, -101.0, 3, compiled=True),
    Row(CAR, "ppo", 1_000_000, -110.0, 6, compiled=True),
    Row(CAR, "rainbow", 120_000, None, 6, compiled=True),
    Row(CAR_CONTINUOUS, "sac", 50_000, 94.7, 8, compiled=True),
    Row(CAR_CONTINUOUS, "ddpg", 300_000, 93.5, 20, compiled=True),
    Row(LANDER, "dqn", 100_000, 154.0, 5, compiled=True),
    Row(LANDER, "ppo", 1_000_000, 242.0, 15, compiled=True),
    Row(LANDER, "a2c", 200_000, 156.0, 5),
    Row(LANDER, "rainbow", 100_000, None, 8, compiled=True),
    Row(LANDER_CONTINUOUS, "sac", 500_000, 260.0, 12, compiled=True),
    Row(LANDER_CONTINUOUS, "td3", 300_000, 207.0, 50, compiled=True),
    Row(SPREAD, "ppo", 300_000, None, 6, compiled=True, own=spread(300_000)),
    Row(SPREAD_CONTINUOUS, "ppo", 300_000, None, 8, own=spread(300_000)),
    Row(SPREAD_CONTINUOUS, "sac", 300_000, None, 6, compiled=True, own=continuous(300_000)),
    Row(SPREAD_CONTINUOUS, "ddpg", 300_000, None, 6, compiled=True, own=continuous(300_000)),
    Row(TOGETHER, "ppo", 1_000_000, -12.0, 1, tolerance=0.0, compiled=True, own=_TOGETHER),
    Row(TOGETHER, "mappo", 1_000_000, -12.0, 1, tolerance=0.0, compiled=True, own=_TOGETHER),
    Row(TOGETHER, "vdn", 1_000_000, -15.0, 4, tolerance=0.0, own=mixing(1_000_000)),
    Row(TOGETHER, "qmix", 1_000_000, -15.0, 5, tolerance=0.0, own=mixing(1_000_000, **_FROM_THE_SUM)),
    Row(TOGETHER, "maddpg", 1_000_000, -16.0, 5, tolerance=0.0, own=central(1_000_000)),
    Row(TOGETHER_LONG, "mappo", 10_000_000, -9.8, 8, tolerance=0.0, compiled=True, own=_TOGETHER_LONG),
    Row(TOGETHER_LONG, "vdn", 10_000_000, -11.0, 5, tolerance=0.0, compiled=True, own=mixing(10_000_000, **_LONG)),
    Row(TOGETHER_LONG, "qmix", 10_000_000, -11.0, 5, tolerance=0.0, compiled=True, own=_MIXING_LONG),
    Row(TOGETHER_LONG, "maddpg", 10_000_000, -9.8, 10, tolerance=0.0, compiled=True, own=_CENTRAL_LONG),
    *_particle_rows(REFERENCE),
    *_particle_rows(SPEAKER),
    *_particle_rows(TAG, teams=_RIVALS),
    *_particle_rows(ADVERSARY, teams=_RIVALS),
    Row(FORAGING, "mappo", 5_000_000, 0.95, 4, tolerance=0.0, compiled=True, own=foraging(critic_input="joint")),
    Row(FORAGING, "vdn", 1_000_000, 0.97, 2, tolerance=0.0, compiled=True),
    Row(FORAGING, "qmix", 1_000_000, 0.97, 3, tolerance=0.0, compiled=True),
    Row(FORAGING, "seac", 5_000_000, 0.95, 5, tolerance=0.0, own=foraging_shared_experience()),
    Row(FORAGING_LARGE, "mappo", 4_000_000, 0.90, 3, tolerance=0.0, compiled=True, own=_FORAGING_LARGE),
    Row(FORAGING_LARGE, "dqn", 2_000_000, 0.84, 4, tolerance=0.0, compiled=True, own=_FORAGING_INDEPENDENT),
    Row(FORAGING_LARGE, "vdn", 2_000_000, 0.84, 4, tolerance=0.0, compiled=True, own=_FORAGING_VDN),
    Row(FORAGING_LARGE, "qmix", 2_000_000, 0.84, 6, tolerance=0.0, compiled=True, own=_FORAGING_QMIX),
    Row(FORAGING_LARGE, "seac", 5_000_000, 0.85, 5, tolerance=0.0, own=foraging_shared_experience()),
    Row(FORAGING_ONE_HOT, "dqn", 2_000_000, 0.84, 4, tolerance=0.0, compiled=True, own=_ONE_HOT, most_seeds=1),
    Row(FORAGING_ONE_HOT, "vdn", 1_500_000, 0.84, 3, tolerance=0.0, compiled=True, own=_ONE_HOT_TEAM, most_seeds=1),
    Row(FORAGING_ONE_HOT, "qmix", 1_500_000, 0.84, 5, tolerance=0.0, compiled=True, own=_ONE_HOT_MIXER, most_seeds=1),
    Row(FORAGING_FOUR, "mappo", 3_000_000, 0.70, 5, tolerance=0.0, compiled=True, own=_FORAGING_FOUR, most_seeds=1),
    Row(WAREHOUSE, "mappo", 20_000_000, 21.2, 7, tolerance=0.0, compiled=True, own=_WAREHOUSE, most_seeds=1),
    Row(WAREHOUSE_FOUR, "mappo", 20_000_000, 49.4, 12, tolerance=0.0, compiled=True, own=_WAREHOUSE, most_seeds=1),
    *(Row(task, "ppo", KITCHEN_STEPS, None, 2, compiled=True, own=_KITCHEN, most_seeds=3) for task in KITCHENS),
    Row(MARINES, "ppo", 1_000_000, None, 1, compiled=True, own=shared_policy(1_000_000), most_seeds=3),
    Row(STALKERS, "ppo", 1_000_000, None, 2, compiled=True, own=shared_policy(1_000_000), most_seeds=3),
    Row(STALKERS, "mappo", 1_000_000, None, 2, compiled=True, own=shared_policy(1_000_000), most_seeds=3),
    Row(OUTNUMBERED, "ppo", 1_000_000, None, 2, compiled=True, own=shared_policy(1_000_000), most_seeds=3),
    Row(APPLES, "dqn", 60_000, 3.0, 2, tolerance=0.0, own=apples("dqn", update_per_step=1 / 4)),
    Row(APPLES, "ppo", 60_000, 2.0, 2, tolerance=0.0, own=apples("ppo", minibatches=8)),
    Row(CHEETAH, "sac", 1_000_000, 9535.0, 70, compiled=True, most_seeds=1),
    Row(CHEETAH, "td3", 1_000_000, 9656.0, 70, compiled=True, most_seeds=1),
    Row(CHEETAH, "ppo", 1_000_000, 5819.0, 30, compiled=True, most_seeds=1),
    Row(HOPPER, "td3", 1_000_000, 3606.0, 60, compiled=True, most_seeds=1),
)
"""Figures: RL Baselines3 Zoo's table of one tuned model per row (Hopper: v3), and goals of this project for apples and
for learning together."""

ROWS = tuple(
    row
    for task in TASKS
    for row in (Row(task, RANDOM, 0, minutes=0.1, most_seeds=1), *(r for r in _ALGORITHM_ROWS if r.task is task))
)
"""Every row, by task, random play first."""


def row_of(name: str) -> Row:
    """Return the row of a name; raises ConfigError for an unknown name."""
    rows = {row.name: row for row in ROWS}
    if name not in rows:
        raise ConfigError(f"there is no row {name!r}.{did_you_mean(name, rows)} There are {', '.join(rows)}")
    return rows[name]
