"""The studies of `studies.py`: their variants, and what is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

import marltrain as mt
from benchmarks.learn.goals import BITS, BitFlipping, PointReacher, shares_by_distance
from examples.point_maze import PointMaze

Measure = Callable[[mt.DecentralizedTrainer, list[Any], Mapping[str, Any]], dict[str, float]]
"""(trainer, agents, result of `train`) -> numbers by name."""
Settings = dict[str, Any]
CARTPOLE, SPREAD = "marltrain/CartPole-v1", "marltrain/simple_spread_v3"


@dataclass(frozen=True, eq=False)
class Case:
    """A variant of a training.

    group: variants of a group are compared with its first one.  env, env_args, trainer: as for `DecentralizedTrainer`.
    agents: keyword arguments of `make_agents`.  callbacks: makes those of a run.
    """

    name: str
    algo: str
    env: Any
    trainer: Settings
    agents: Settings
    measure: Measure
    group: str = ""
    env_args: Settings = field(default_factory=dict)
    callbacks: Callable[[], list[mt.Callback]] = list

    @property
    def title(self) -> str:
        """Name of the variant in the table and for --only."""
        return f"{self.group}: {self.name}" if self.group else self.name


@dataclass(frozen=True)
class Study:
    """Variants, made for a number of env steps; steps: those of a training by default."""

    steps: int
    cases: Callable[[int], list[Case]]


def curve_of(trainer: mt.DecentralizedTrainer, agents: list[Any], result: Mapping[str, Any]) -> dict[str, float]:
    """Return the mean of the tests; the first one, before training, does not count."""
    return {"curve": float(np.mean(result["reward_metric_stats"][1:]))}


# Hindsight: the share of 200 goals that the agent reaches at the end (Andrychowicz et al. 2017, figure 1).

HINDSIGHT = {"none": None, "future": mt.Hindsight("future", share=0.8), "final": mt.Hindsight("final", share=0.8)}


def hindsight(env: Any, algo: str, least: float, agents: Callable[[int], Settings], steps: int) -> list[Case]:
    """Return a variant for each kind of hindsight; least: the return from which a goal counts as reached."""

    def reached(trainer: mt.DecentralizedTrainer, trained: list[Any], result: Mapping[str, Any]) -> dict[str, float]:
        return {"goals reached": float((trainer.test(trained, episodes=200).returns >= least).mean())}

    trainer = {"num_train_envs": 16, "steps_per_train": steps, "update_freq": 16, "test_freq": None}
    return [
        Case(name, algo, env, trainer, {**agents(steps), "memory": mt.Replay(steps, hindsight=memory)}, reached)
        for name, memory in HINDSIGHT.items()
    ]


def bits_agents(steps: int) -> Settings:
    """Return the settings of DQN in the bit-flipping game."""
    return {
        "network": mt.MLP((256,)), "learning_rate": 1e-3, "gamma": 0.98, "batch_size": 128, "learning_starts": 2_000,
        "tau": 0.01, "update_per_step": 0.25, "epsilon": mt.linear(1.0, 0.05, steps // 2),
    }  # fmt: skip


def reacher_agents(steps: int) -> Settings:
    """Return the settings of SAC in the point reacher."""
    return {
        "network": mt.MLP((64, 64)), "learning_rate": 1e-3, "gamma": 0.95, "batch_size": 128, "learning_starts": 1_000,
        "tau": 0.01, "update_per_step": 0.25,
    }  # fmt: skip


# Goals in a maze by their distance: Transitive RL beside DQN with hindsight (arXiv:2510.22512).

MAZE = "long"


def goals_of_maze(trainer: mt.DecentralizedTrainer, agents: list[Any], result: Mapping[str, Any]) -> dict[str, float]:
    """Return the shares of goals that the agent reaches, by their distance."""
    return shares_by_distance(agents[0], MAZE)


def mazes(steps: int) -> list[Case]:
    """Return the variants: DQN, and both ways of TRL to act."""
    trainer = {"num_train_envs": 16, "steps_per_train": steps, "update_freq": 16, "test_freq": None}
    agents: Settings = {
        "network": mt.MLP((64, 64)), "learning_rate": 1e-3, "gamma": 0.98, "tau": 0.01, "batch_size": 128,
        "learning_starts": 2_000, "update_per_step": 0.25, "max_grad_norm": 10.0,
        "epsilon": mt.linear(1.0, 0.1, steps // 2),
    }  # fmt: skip
    variants: dict[str, tuple[str, Settings]] = {
        "dqn": ("dqn", {"memory": mt.Replay(200_000, hindsight=mt.Hindsight("future", share=0.8))}),
        "trl": ("trl", {"extraction": "greedy"}),
        "trl-policy": ("trl", {"extraction": "policy"}),
    }
    return [
        Case(
            name, algo, PointMaze, trainer, {**agents, **own}, goals_of_maze, env_args={"maze": MAZE},
        )
        for name, (algo, own) in variants.items()
    ]  # fmt: skip


# PPO with prioritized replay: greedy returns in the course of training, and of the weights at the end.


def replayed(lam: float = 0.5, alpha: float = 0.6, share: float = 0.5) -> Settings:
    """Return the settings of a replay of the rows of the last 16 rollouts."""
    memory = mt.Replay(16 * 256, prioritized=mt.Prioritized(alpha))
    return {"memory": memory, "priority_lambda": lam, "replay_share": share}


def curve_and_end(trainer: mt.DecentralizedTrainer, agents: list[Any], result: Mapping[str, Any]) -> dict[str, float]:
    """Return the mean of the tests, and that of 100 other episodes at the end."""
    final = mt.DecentralizedTrainer(
        CARTPOLE, num_test_envs=20, seed=1_000_000 + trainer.seed, run_dir=False, progress=False
    )
    return {**curve_of(trainer, agents, result), "end": float(final.test(agents, episodes=100).returns.mean())}


def ppo_replay(steps: int) -> list[Case]:
    """Return the variants of a memory of PPO on CartPole; the first one has none."""
    tuned = mt.tuned("ppo", "gymnasium/CartPole-v1")
    trainer = {**tuned["trainer"], "steps_per_train": steps, "test_freq": None, "test_freq_steps": 5_000,
               "episodes_per_test": 20, "num_test_envs": 20}  # fmt: skip
    variants: dict[str, Settings] = {
        "none": {}, "lambda=0.5": replayed(), "lambda=1": replayed(lam=1.0), "lambda=0": replayed(lam=0.0),
        "uniform": replayed(alpha=0.0), "lambda=0.5, two earlier rows for a new one": replayed(share=2.0),
    }  # fmt: skip
    agents = {"jit_compile": True, "device": "cpu", **tuned["agents"]}
    return [Case(name, "ppo", CARTPOLE, trainer, {**agents, **own}, curve_and_end) for name, own in variants.items()]


# Matrix games with a known trap: the payoff of the greedy joint action (Claus and Boutilier 1998). Agents with replay
# memories explore uniformly: the mean payoff of each own action then leads away from the best joint action.

ONE_ROUND: Settings = {"num_rounds": 1, "observe_last_actions": False}
REPLAY: Settings = {
    "epsilon": 1.0, "learning_rate": 5e-3, "capacity": 20_000, "learning_starts": 500, "update_per_step": 0.125,
    "target_sync": 50, "network": mt.MLP((32, 32), "relu"),
}  # fmt: skip
ROLLOUTS: Settings = {"update_freq": 256, "learning_rate": 3e-3, "network": mt.MLP((32, 32))}
PASSES: Settings = {"epochs": 4, "minibatches": 2, "entropy_coef": 0.01}


def hundredth(observation: Any, action: Any, reward: np.ndarray) -> np.ndarray:
    """Return the rewards over 100: DQN's Huber loss of errors above 1 would learn medians instead of means."""
    return reward / 100


MATRIX: dict[str, tuple[str, Settings]] = {
    "dqn": ("dqn", {**REPLAY, "reward_model": hundredth}),
    "vdn": ("vdn", REPLAY),
    "qmix": ("qmix", REPLAY),
    "wqmix": ("wqmix", REPLAY),
    "wqmix-optimistic": ("wqmix", {**REPLAY, "weighting": "optimistic"}),
    "ppo": ("ppo", {**ROLLOUTS, **PASSES}),
    "mappo": ("mappo", {**ROLLOUTS, **PASSES}),
    "coma": ("coma", {**ROLLOUTS, "epsilon": mt.linear(0.5, 0.02, 5_000), "target_sync": 5, "optimizer": "adam"}),
}


def payoff(trainer: mt.DecentralizedTrainer, agents: list[Any], result: Mapping[str, Any]) -> dict[str, float]:
    """Return the payoff of the greedy joint action to a player."""
    return {"payoff": float(trainer.test(agents, 1).returns.mean())}


def matrix_game(env: str, env_args: Settings, steps: int) -> list[Case]:
    """Return a variant for each algorithm."""
    trainer = {"num_train_envs": 16, "update_freq": 16, "batch_size": 64, "steps_per_train": steps, "test_freq": None}
    return [
        Case(name, algo, env, trainer, agents, payoff, env_args=env_args) for name, (algo, agents) in MATRIX.items()
    ]


# Parameter sharing, with and without the identity of the players, and none.

SHARING: dict[str, Settings] = {
    "none": {}, "share=True": {"share": True}, "share=True, identify=True": {"share": True, "identify": True},
}  # fmt: skip


def greedy(trainer: mt.DecentralizedTrainer, agents: list[Any], result: Mapping[str, Any]) -> dict[str, float]:
    """Return the mean return of a player in 100 greedy episodes."""
    return {"return": float(trainer.test(agents, 100).returns.mean())}


def sharing(env: str, trainer: Settings, agents: Callable[[int], Settings], steps: int) -> list[Case]:
    """Return a variant for each kind of sharing."""
    of_trainer = {**trainer, "steps_per_train": steps, "test_freq": None}
    return [
        Case(name, "ppo", env, of_trainer, {"jit_compile": True, **agents(steps), **own}, greedy)
        for name, own in SHARING.items()
    ]


def spread_agents(steps: int) -> Settings:
    """Return PPO's settings on simple_spread."""
    return {**mt.tuned("ppo", SPREAD)["agents"], "learning_rate": mt.linear(1e-3, 1e-4, steps)}


def levers_agents(steps: int) -> Settings:
    """Return PPO's settings in the lever game, whose observations do not tell the players apart."""
    return {"update_freq": 256, "epochs": 4, "minibatches": 1, "learning_rate": 3e-3}


# Priorities of new rows: the largest so far, or by the rows' own errors, as in Ape-X. With a lag, two asynchronous
# runners compute the errors, by weights that lag by so many updates at most.


def initial_priorities(per_step: float, sync: int, steps: int) -> list[Case]:
    """Return the variants for a number of updates of 64 rows per env step; sync: updates between two target copies."""
    trainer = {
        "num_train_envs": 8, "num_test_envs": 20, "update_freq": 256, "steps_per_train": steps, "test_freq": None,
        "test_freq_steps": steps // 20, "episodes_per_test": 20,
    }  # fmt: skip
    agents: Settings = {
        "jit_compile": True, "batch_size": 64, "learning_rate": mt.linear(1e-3, 1e-5, steps), "learning_starts": 1_000,
        "epsilon": mt.linear(1.0, 0.04, steps // 6), "update_per_step": per_step, "target_sync": sync,
        "network": mt.MLP((128, 128), "relu"),
    }  # fmt: skip
    kinds = {"largest so far": None, "own errors": "error"}
    lags: dict[str, Settings] = {"": {}, "lag 4": {"runners": 2, "sync": False, "max_lag": 4}}
    return [
        Case(
            name, "dqn", CARTPOLE, {**trainer, **runners},
            {**agents, "memory": mt.Replay(100_000, 3, mt.Prioritized(initial=initial))}, curve_of, group=lag,
        )
        for lag, runners in lags.items()
        for name, initial in kinds.items()
    ]  # fmt: skip


# Where adaptation helps and where it harms: well and badly set agents on CartPole.

PPO: Settings = {
    "learning_rate": 2.5e-3, "batch_size": 256, "epochs": 10, "gamma": 0.98, "network": mt.MLP((64, 64)),
    "jit_compile": True, "update_freq": 1_024,
}  # fmt: skip
DQN: Settings = {
    "learning_rate": 1e-3, "batch_size": 64, "gamma": 0.99, "network": mt.MLP((64, 64)), "jit_compile": True,
    "update_per_step": 0.25, "update_freq": 8, "learning_starts": 1_000, "epsilon": mt.linear(1.0, 0.05, 5_000),
    "capacity": 20_000,
}  # fmt: skip
BADLY_SET: dict[str, dict[str, Settings]] = {
    "ppo": {"well set": PPO, "learning rate x 8": {**PPO, "learning_rate": 2e-2},
            "learning rate / 8": {**PPO, "learning_rate": 3e-4}, "batch size x 4": {**PPO, "batch_size": 1_024}},
    "dqn": {"well set": DQN, "learning rate x 8": {**DQN, "learning_rate": 8e-3}},
}  # fmt: skip
ON: Settings = {"every": 1, "rate": 0.1, "smoothing": 0.8}
OFF: Settings = {"every": 50, "rate": 0.1, "smoothing": 0.99}
ROWS: Settings = {"by": "effective_sample_size", "target": 0.95, **ON}
ADAPTED: dict[str, dict[str, Settings]] = {
    "ppo": {
        "batch size by noise": {"name": "batch_size", "by": "gradient_noise", "low": 32, "high": 1_024, **ON},
        "learning rate by effective rows": {"name": "learning_rate", "low": 1e-4, "high": 2e-2, **ROWS},
        "clip by effective rows": {"name": "clip", "low": 0.05, "high": 0.4, **ROWS},
    },
    "dqn": {
        "batch size by noise": {"name": "batch_size", "by": "gradient_noise", "low": 16, "high": 512, **OFF},
        "learning rate by noise": {"name": "learning_rate", "by": "gradient_noise", "low": 1e-4, "high": 1e-2, **OFF},
        "learning rate by errors": {"name": "learning_rate", "by": "td_error", "low": 1e-4, "high": 1e-2, **OFF},
    },
}
"""Algorithm -> variant -> arguments of `Adapt`."""


def adaptation(algo: str, steps: int) -> list[Case]:
    """Return the variants, in a group for each setting of the agents; the first one of a group adapts nothing."""
    trainer = {"num_train_envs": 8, "test_freq": None, "test_freq_steps": 2_000, "episodes_per_test": 10,
               "steps_per_train": steps}  # fmt: skip
    makers: dict[str, Callable[[], list[mt.Callback]]] = {"none": list}
    makers |= {name: partial(_adapting, **arguments) for name, arguments in ADAPTED[algo].items()}
    makers["learning rate halved on plateaus"] = lambda: [mt.ReduceOnPlateau(patience=2)]
    return [
        Case(name, algo, CARTPOLE, trainer, agents, curve_of, group=group, callbacks=callbacks)
        for group, agents in BADLY_SET[algo].items()
        for name, callbacks in makers.items()
    ]


def _adapting(**arguments: Any) -> list[mt.Callback]:
    return [mt.Adapt(**arguments)]


STUDIES = {
    "hindsight-bits": Study(30_000, partial(hindsight, BitFlipping, "dqn", 1 - BITS, bits_agents)),
    "hindsight-reacher": Study(20_000, partial(hindsight, PointReacher, "sac", -40, reacher_agents)),
    "maze": Study(30_000, mazes),
    "ppo-replay": Study(100_000, ppo_replay),
    "climbing": Study(10_000, partial(matrix_game, "marltrain/climbing_v1", ONE_ROUND)),
    "penalty": Study(10_000, partial(matrix_game, "marltrain/penalty_v1", {"k": -100.0, **ONE_ROUND})),
    "sharing-spread": Study(300_000, partial(sharing, SPREAD, mt.tuned("ppo", SPREAD)["trainer"], spread_agents)),
    "sharing-levers": Study(20_000, partial(sharing, "marltrain/levers_v1", {"num_train_envs": 64}, levers_agents)),
    "priorities-many": Study(50_000, partial(initial_priorities, 1 / 2, 128)),
    "priorities-some": Study(100_000, partial(initial_priorities, 1 / 32, 32)),
    "priorities-few": Study(400_000, partial(initial_priorities, 1 / 256, 32)),
    "adaptation-ppo": Study(20_000, partial(adaptation, "ppo")),
    "adaptation-dqn": Study(20_000, partial(adaptation, "dqn")),
}
"""Name -> study. A row is drawn 32 times on average in "priorities-many", twice in "-some", every fourth in "-few"."""
