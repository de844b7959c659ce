"""dataset: the decisions of a run's agents, as rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from marltrain.core.seeds import chosen_seed
from marltrain.policies.demonstrations.demonstrations import Demonstrations
from marltrain.tools.saved_run import open_run
from marltrain.trainer.playing.demonstrations import demonstrations


def dataset(
    run: str | Path,
    *,
    episodes: int,
    seed: int | None = 0,
    explore: bool = False,
    agents: str | None = None,
    env: str | None = None,
    env_args: Mapping[str, Any] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    device: str | None = None,
) -> dict[str, Demonstrations]:
    """Let a run's agents play whole episodes in its environment; return each player's decisions by its name.

    A row is one decision: observation, legal actions, action, reward until the next decision, next observation, end of
    the episode and termination. `Demonstrations.to_minari` writes them as a Minari dataset.

    run: folder of a run.  episodes, seed, explore: see `demonstrations`.  agents: "best" or "last" (default: best).
    env: the environment's name, which environments of your own need.  env_args: arguments to change.
    custom_objects, device: see `load`.
    Raises SaveError for a folder that is no run.
    """
    number = chosen_seed(seed, "dataset")
    saved = open_run(run, env=env, agents=agents, custom_objects=custom_objects, device=device)
    arguments = {**saved.env_args, **(env_args or {})}
    return demonstrations(saved.env, saved.agents, episodes=episodes, env_args=arguments, seed=number, explore=explore)
