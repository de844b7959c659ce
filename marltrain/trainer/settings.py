"""Every argument of the trainer, checked in one place before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from marltrain.config import setting
from marltrain.errors import ConfigError, EnvError, did_you_mean
from marltrain.layout import Array

TEAM_REWARDS = ("mean", "sum")


class DefaultEpisodes(int):
    """The default of `episodes_per_train`: it does not bind when another budget is given."""


EPISODES = DefaultEpisodes(5000)


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """The numbers a `DecentralizedTrainer` runs by; see its docstring for their meaning."""

    num_train_envs: int = setting(16, doc="environments that are learned in", low=1)
    num_test_envs: int = setting(16, doc="environments that tests are played in", low=1)
    batch_size: int = setting(64, doc="rows of a batch, for learners that set none", low=1)
    update_freq: int = setting(100, doc="env steps between updates, for learners that set none", low=1)
    test_freq: int = setting(100, doc="episodes between tests", low=1)
    episodes_per_train: int = setting(EPISODES, doc="episodes to train for", low=1)
    episodes_per_test: int = setting(50, doc="episodes of a test", low=1)
    shared_memory: bool = setting(False, doc="learners also read the other seats' streams")
    vector: str = setting("dummy", doc="where environments live", choices=("dummy", "subproc"))
    num_workers: int | None = setting(None, doc="worker processes", low=1)
    seed: int | None = setting(None, doc="seed of the run", low=0, high=2**63 - 1)
    steps_per_train: int | None = setting(None, doc="env steps to train for", low=1)
    updates_per_train: int | None = setting(None, doc="updates to train for", low=1)
    progress: bool = setting(True, doc="show a progress bar")

    @property
    def episode_budget(self) -> int | None:
        """Episodes to train for, or None when only another budget binds."""
        others = self.steps_per_train is not None or self.updates_per_train is not None
        return None if others and isinstance(self.episodes_per_train, DefaultEpisodes) else self.episodes_per_train


TeamReward = str | Callable[[Array], float] | None
RewardMetric = Callable[[Array], float] | None


def check_team_reward(team_reward: Any) -> None:
    """Raise ConfigError unless it is None, "mean", "sum" or a function."""
    if team_reward is None or callable(team_reward) or team_reward in TEAM_REWARDS:
        return
    near = did_you_mean(team_reward, TEAM_REWARDS) if isinstance(team_reward, str) else ""
    raise ConfigError(f'team_reward must be None, "mean", "sum" or a function of rewards, got {team_reward!r}.{near}')


def team_rewards(team_reward: TeamReward, rewards: Array) -> Array | None:
    """Return the reward that everyone learns from, [P, E] float32, or None to keep each player's own."""
    if team_reward is None:
        return None
    if team_reward == "mean":
        joint = rewards.mean(0)
    elif team_reward == "sum":
        joint = rewards.sum(0)
    elif not isinstance(team_reward, str):
        values = [team_reward(rewards[:, e]) for e in range(rewards.shape[1])]
        joint = np.array(values)
        if joint.ndim != 1 or not np.issubdtype(joint.dtype, np.number) or not np.isfinite(joint).all():
            raise EnvError(f"team_reward must return one finite number for rewards [P], got {values[0]!r}")
    return np.broadcast_to(joint.astype(np.float32), rewards.shape)


def measured(reward_metric: RewardMetric, returns: Array, learning: Array | None) -> float:
    """Return the metric of a test's returns [episodes, players]; raises ConfigError when it is no number.

    learning: with a line-up of test agents, which columns' agents learn: the default metric is their mean.
    """
    if reward_metric is None:
        return float((returns if learning is None else returns[:, learning]).mean())
    value = reward_metric(returns.copy())
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        shape = f" of shape {value.shape}" if hasattr(value, "shape") else ""
        raise ConfigError(
            f"reward_metric must return one number for rewards [episodes, players], got {type(value).__name__}{shape}. "
            "The default is rewards.mean()"
        )
    if np.isnan(value):
        raise ConfigError("reward_metric returned nan")
    return float(value)


def run_folder(run_dir: str | Path | None, name: str, stamp: str, *, unfinished: bool = False) -> Path:
    """Make and return the run's folder: `run_dir`, or runs/<name>-<time>; with "-2", ... where a run is already.

    unfinished: a folder is taken too where a run did not come to its end, or not to its first checkpoint.
    """
    plain = "".join(c if c.isalnum() or c in "-_" else "-" for c in name.split("/")[-1])
    wanted = Path("runs") / f"{plain}-{stamp}" if run_dir is None else Path(run_dir)
    for number in range(1, 1000):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        if folder.exists() and not folder.is_dir():
            raise ConfigError(f"run_dir {str(folder)!r} is a file: give a folder, or one to make")
        ended = (folder / "last").exists() and not (folder / "checkpoints").exists()
        if (folder / "config.json").exists() and (ended or not unfinished):
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"run_dir {str(folder)!r} cannot be made: {error.strerror}") from error
        return folder
    raise ConfigError(f"{wanted} and 999 folders like it hold runs already: give another run_dir")
