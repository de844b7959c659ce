"""The rows of the learning table: tasks, algorithms, env steps and published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import marltrain as mt
from benchmarks.learn.greedy_seats import GreedySeats
from examples.apples import SETTINGS as APPLES_SETTINGS, Apples
from marltrain.core.errors import ConfigError, did_you_mean
from marltrain.policies.agents.registry import ALGORITHMS

Settings = Mapping[str, Mapping[str, Any]]
"""{"trainer": keyword arguments of DecentralizedTrainer, "agents": those of make_agents}."""

TUNING_SEEDS = 100
"""Settings are chosen on seeds from here on; the table shows smaller ones."""
SEEDS, SEEDS_OF_AN_HOUR = 5, 3
"""Number of seeds, and of seeds that take over an hour each."""
RANDOM = "random"


@dataclass(frozen=True, eq=False)
class Task:
    """An environment of the table.

    env, env_args: as for `DecentralizedTrainer`.  group: the make target that trains its rows.
    players: number of players whose returns are added; 1: the table shows the mean return of a player.
    scored: pattern of the names of the players whose returns count; in mixed games, those of one team.
    original: the environment of another package that the task's environment equals, on which agents can be tested, too.
    """

    name: str
    title: str
    env: Any
    env_args: Mapping[str, Any] = field(default_factory=dict)
    group: str = "learn"
    players: int = 1
    scored: str = "*"
    original: Any = None

    @property
    def score(self) -> str:
        """What the table shows of the players' returns."""
        players = "a player" if self.scored == "*" else self.scored.replace("*", "i")
        return f"return of {players if self.players == 1 else 'all players'}"


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


def _spread(steps: int, env: str = "mpe2/simple_spread_v3", **agents: Any) -> Settings:
    """Return the settings of PPO on simple_spread, for another number of env steps."""
    tuned = mt.tuned("ppo", env)
    return {
        "trainer": {**tuned["trainer"], "steps_per_train": steps},
        "agents": {**tuned["agents"], "learning_rate": mt.linear(1e-3, 1e-4, steps), **agents},
    }


def _apples(algo: str, **agents: Any) -> Settings:
    """Return the settings of examples/apples.py with one agent for both players, which learns from twice the rows."""
    return {"trainer": {"num_train_envs": 16}, "agents": {**APPLES_SETTINGS[algo], "share": True, **agents}}


def _mixing(steps: int, **agents: Any) -> Settings:
    """Return the settings of value mixing on simple_spread."""
    return {
        "trainer": {"num_train_envs": 16, "update_freq": 64, "team_reward": "mean"},
        "agents": {
            "network": mt.MLP((64, 64), "relu"), "learning_rate": mt.linear(1e-3, 1e-4, steps), "gamma": 0.95,
            "batch_size": 512, "learning_starts": 5_000, "update_per_step": 0.02, "capacity": 200_000, "tau": 0.01,
            "epsilon": mt.linear(1.0, 0.05, 200_000), **agents,
        },
    }  # fmt: skip


def _central(steps: int, **agents: Any) -> Settings:
    """Return the settings of MADDPG on simple_spread."""
    return {
        "trainer": {"num_train_envs": 32, "update_freq": 128},
        "agents": {
            "network": mt.MLP((64, 64), "relu"), "learning_rate": mt.linear(1e-2, 1e-3, steps), "gamma": 0.95,
            "batch_size": 1024, "learning_starts": 5_000, "random_steps": 5_000, "update_per_step": 0.01,
            "capacity": 200_000, "tau": 0.01, "straight_through": False, **agents,
        },
    }  # fmt: skip


def _continuous(steps: int) -> Settings:
    """Return the settings of independent off-policy agents on simple_spread with continuous actions."""
    return {
        "trainer": {"num_train_envs": 16, "update_freq": 64},
        "agents": {
            "network": mt.MLP((64, 64), "relu"), "learning_rate": mt.linear(3e-3, 3e-4, steps), "gamma": 0.95,
            "batch_size": 512, "learning_starts": 5_000, "random_steps": 5_000, "update_per_step": 0.05,
            "capacity": 300_000, "tau": 0.01,
        },
    }  # fmt: skip


def _foraging(steps: int = 5_000_000, callbacks: Sequence[mt.Callback] = (), **agents: Any) -> Settings:
    """Return the settings of actor-critic algorithms on level-based foraging."""
    return {
        "trainer": {"num_train_envs": 32, "update_freq": 2048, "callbacks": list(callbacks)},
        "agents": {
            "learning_rate": mt.linear(1e-3, 1e-4, steps), "entropy_coef": 0.01, "epochs": 8, "minibatches": 2,
            **agents,
        },
    }  # fmt: skip


def _foraging_values(algo: str, steps: int, **agents: Any) -> Settings:
    """Return the settings of value decomposition on level-based foraging, for another number of env steps."""
    tuned = mt.tuned(algo, "marltrain/foraging_v3")
    return {
        "trainer": {**tuned["trainer"], "steps_per_train": steps},
        "agents": {**tuned["agents"], "learning_rate": mt.linear(1e-3, 1e-4, steps), **agents},
    }


def _foraging_shared(steps: int = 5_000_000, **agents: Any) -> Settings:
    """Return the settings of shared experience on level-based foraging.

    Rewards are rare, and at first more than ten times the deviation of returns: the usual clip would make them equal.
    """
    return {
        "trainer": {"num_train_envs": 32, "update_freq": 160},
        "agents": {
            "learning_rate": mt.linear(1e-3, 1e-4, steps), "optimizer": "adam", "gamma": 0.95, "gae_lambda": 0.95,
            "entropy_coef": 0.01, "normalize_returns": True, "reward_clip": 1_000.0, **agents,
        },
    }  # fmt: skip


CARTPOLE = Task("cartpole", "CartPole-v1", "gymnasium/CartPole-v1")
ACROBOT = Task("acrobot", "Acrobot-v1", "gymnasium/Acrobot-v1")
PENDULUM = Task("pendulum", "Pendulum-v1", "gymnasium/Pendulum-v1")
CAR = Task("mountaincar", "MountainCar-v0", "gymnasium/MountainCar-v0")
CAR_CONTINUOUS = Task("mountaincar-continuous", "MountainCarContinuous-v0", "gymnasium/MountainCarContinuous-v0")
LANDER = Task("lunarlander", "LunarLander-v3", "gymnasium/LunarLander-v3")
LANDER_CONTINUOUS = Task("lunarlander-continuous", "LunarLanderContinuous-v3", "gymnasium/LunarLanderContinuous-v3")
CHEETAH = Task("halfcheetah", "HalfCheetah-v5", "gymnasium/HalfCheetah-v5", group="learn-mujoco")
HOPPER = Task("hopper", "Hopper-v5", "gymnasium/Hopper-v5", group="learn-mujoco")
SPREAD = Task("spread", "mpe2 simple_spread, discrete actions", "mpe2/simple_spread_v3")
SPREAD_CONTINUOUS = Task(
    "spread-continuous", "mpe2 simple_spread, continuous actions", "mpe2/simple_spread_v3",
    {"continuous_actions": True},
)  # fmt: skip
TOGETHER = Task(
    "together-spread", "simple_spread, native", "marltrain/simple_spread_v3", original="mpe2/simple_spread_v3"
)
TOGETHER_LONG = Task(
    "together-spread-10m", "simple_spread, native, 10M env steps", "marltrain/simple_spread_v3",
    original="mpe2/simple_spread_v3",
)  # fmt: skip
REFERENCE = Task("reference", "simple_reference, native", "marltrain/simple_reference_v3")
SPEAKER = Task("speaker-listener", "simple_speaker_listener, native", "marltrain/simple_speaker_listener_v4")
TAG = Task("tag", "simple_tag, native, return of a pursuer", "marltrain/simple_tag_v3", scored="adversary_*")
ADVERSARY = Task(
    "adversary", "simple_adversary, native, return of a good agent", "marltrain/simple_adversary_v3", scored="agent_*"
)
FORAGING = Task(
    "foraging-8x8", "foraging 8x8-2p-2f-coop, native, sum of players", "marltrain/foraging_v3", {"force_coop": True},
    players=2,
)  # fmt: skip
FORAGING_LARGE = Task(
    "foraging-10x10", "foraging 10x10-3p-3f, native, sum of players", "marltrain/foraging_v3",
    {"players": 3, "field_size": (10, 10), "max_num_food": 3, "sight": 10}, players=3,
)  # fmt: skip
APPLES = Task("apples", "examples/apples.py (images)", Apples)

TASKS = (
    CARTPOLE, ACROBOT, PENDULUM, CAR, CAR_CONTINUOUS, LANDER, LANDER_CONTINUOUS, SPREAD, SPREAD_CONTINUOUS, TOGETHER,
    TOGETHER_LONG, REFERENCE, SPEAKER, TAG, ADVERSARY, FORAGING, FORAGING_LARGE, APPLES, CHEETAH, HOPPER,
)  # fmt: skip

_FORAGING_LARGE = _foraging(
    callbacks=[GreedySeats(start=2_500_000)], critic_input="agent_specific", share=True, gamma=0.9,
    normalize_observations=True, entropy_coef=mt.linear(0.01, 0.0, 4_000_000),
)  # fmt: skip
_TOGETHER = _spread(1_000_000, TOGETHER.env, epochs=8, minibatches=2)
_TOGETHER_LONG = _spread(
    10_000_000, TOGETHER.env, epochs=8, minibatches=2, share=True, entropy_coef=mt.linear(0.01, 0.0, 8_000_000)
)
_LONG: dict[str, Any] = {"update_per_step": 0.006, "epsilon": mt.linear(1.0, 0.05, 1_000_000), "capacity": 500_000}
_FROM_THE_SUM: dict[str, Any] = {"skip_connection": True, "mixer_gain": 0.1}
_MIXING_LONG = _mixing(10_000_000, **_LONG, **_FROM_THE_SUM)
_CENTRAL_LONG = _central(
    10_000_000, share=True, straight_through=True, network=mt.MLP((128, 128), "relu"),
    learning_rate=mt.linear(3e-3, 3e-4, 10_000_000), update_per_step=0.0015, capacity=500_000,
)  # fmt: skip
_RIVALS = {"adversary": ["adversary_*"], "good": ["agent_*"]}


def _particle_rows(task: Task, steps: int = 500_000, teams: Mapping[str, Sequence[str]] | None = None) -> list[Row]:
    """Return the rows of a particle world without figures, with the settings of simple_spread.

    teams: of mixed games, for QMIX; the agents of the other algorithms have their own rewards.
    """
    actor_critic = _spread(steps, TOGETHER.env, epochs=8, minibatches=2)
    mixing = _mixing(steps, **_FROM_THE_SUM, **({} if teams is None else {"teams": teams}))
    mixing = {**mixing, "trainer": {**mixing["trainer"], "team_reward": teams or "mean"}}
    return [
        Row(task, "ppo", steps, None, 0.5, compiled=True, own=actor_critic),
        Row(task, "mappo", steps, None, 0.5, compiled=True, own=actor_critic),
        Row(task, "maddpg", steps, None, 3, own=_central(steps)),
        Row(task, "qmix", steps, None, 3, own=mixing),
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
    Row(SPREAD, "ppo", 300_000, None, 6, compiled=True, own=_spread(300_000)),
    Row(SPREAD_CONTINUOUS, "ppo", 300_000, None, 8, own=_spread(300_000)),
    Row(SPREAD_CONTINUOUS, "sac", 300_000, None, 6, compiled=True, own=_continuous(300_000)),
    Row(SPREAD_CONTINUOUS, "ddpg", 300_000, None, 6, compiled=True, own=_continuous(300_000)),
    Row(TOGETHER, "ppo", 1_000_000, -12.0, 1, tolerance=0.0, compiled=True, own=_TOGETHER),
    Row(TOGETHER, "mappo", 1_000_000, -12.0, 1, tolerance=0.0, compiled=True, own=_TOGETHER),
    Row(TOGETHER, "vdn", 1_000_000, -15.0, 4, tolerance=0.0, own=_mixing(1_000_000)),
    Row(TOGETHER, "qmix", 1_000_000, -15.0, 5, tolerance=0.0, own=_mixing(1_000_000, **_FROM_THE_SUM)),
    Row(TOGETHER, "maddpg", 1_000_000, -16.0, 5, tolerance=0.0, own=_central(1_000_000)),
    Row(TOGETHER_LONG, "mappo", 10_000_000, -9.8, 8, tolerance=0.0, compiled=True, own=_TOGETHER_LONG),
    Row(TOGETHER_LONG, "vdn", 10_000_000, -11.0, 5, tolerance=0.0, compiled=True, own=_mixing(10_000_000, **_LONG)),
    Row(TOGETHER_LONG, "qmix", 10_000_000, -11.0, 5, tolerance=0.0, compiled=True, own=_MIXING_LONG),
    Row(TOGETHER_LONG, "maddpg", 10_000_000, -9.8, 10, tolerance=0.0, compiled=True, own=_CENTRAL_LONG),
    *_particle_rows(REFERENCE),
    *_particle_rows(SPEAKER),
    *_particle_rows(TAG, teams=_RIVALS),
    *_particle_rows(ADVERSARY, teams=_RIVALS),
    Row(FORAGING, "mappo", 5_000_000, 0.95, 4, tolerance=0.0, compiled=True, own=_foraging(critic_input="joint")),
    Row(FORAGING, "vdn", 1_000_000, 0.97, 2, tolerance=0.0, compiled=True),
    Row(FORAGING, "qmix", 1_000_000, 0.97, 3, tolerance=0.0, compiled=True),
    Row(FORAGING, "seac", 5_000_000, 0.95, 5, tolerance=0.0, own=_foraging_shared()),
    Row(FORAGING_LARGE, "mappo", 5_000_000, 0.85, 6, tolerance=0.0, compiled=True, own=_FORAGING_LARGE),
    Row(
        FORAGING_LARGE, "vdn", 2_000_000, 0.84, 4, tolerance=0.0, compiled=True, own=_foraging_values("vdn", 2_000_000)
    ),
    Row(
        FORAGING_LARGE,
        "qmix",
        2_000_000,
        0.84,
        6,
        tolerance=0.0,
        compiled=True,
        own=_foraging_values("qmix", 2_000_000),
    ),
    Row(FORAGING_LARGE, "seac", 5_000_000, 0.85, 5, tolerance=0.0, own=_foraging_shared()),
    Row(APPLES, "dqn", 60_000, 3.0, 2, tolerance=0.0, own=_apples("dqn", update_per_step=1 / 4)),
    Row(APPLES, "ppo", 60_000, 2.0, 2, tolerance=0.0, own=_apples("ppo", minibatches=8)),
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
