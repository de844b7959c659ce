"""Gymnasium environments of several players from other packages: training, returns counted inside, workers, films.

    python -m tests.envs.third_party_players [NAME ...]

Packages that are not installed are named. For every environment, PPO trains 2,000 env steps in this process and again
in two worker processes. The returns of every finished episode must equal those that a wrapper in the environment has
added up, the two runs must be equal, and pictures must not be of one color.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import gymnasium
import numpy as np

import marltrain as mt

STEPS, ENVS = 2_000, 4
PLAIN: dict[str, Any] = {"disable_env_checker": True}


class Counted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds up the rewards of each player until its part has ended.

    objects: all that were made, in order.  returns: one list of totals for each finished episode.
    """

    objects: list[Counted] = []  # noqa: RUF012

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        self.returns: list[list[float]] = []
        Counted.objects.append(self)

    def reset(self, **arguments: Any) -> Any:
        """Begin with zero for every player."""
        self.total = [0.0] * len(self.env.action_space.spaces)  # type: ignore[attr-defined]
        self.over = [False] * len(self.total)
        return self.env.reset(**arguments)

    def step(self, action: Any) -> Any:
        """Add what the players that are not over receive."""
        returned = self.env.step(action)
        paid, *ends = (self.each(value) for value in returned[1:4])
        self.total = [total if over else total + float(own)
                      for total, over, own in zip(self.total, self.over, paid, strict=True)]  # fmt: skip
        self.over = [bool(over or end or cut) for over, end, cut in zip(self.over, *ends, strict=True)]
        if all(self.over):
            self.returns.append(self.total)
        return returned

    def each(self, value: Any) -> list[Any]:
        """Return a value for each player, in the order of the action space."""
        if isinstance(value, Mapping):
            return [value[key] for key in self.env.action_space.spaces]  # type: ignore[attr-defined]
        return list(value) if isinstance(value, Sequence | np.ndarray) else [value] * len(self.total)


class Moved(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds 0.01 x its action to the reward of each player, where agents that have learned little deliver nothing."""

    def step(self, action: Any) -> Any:
        """Return rewards in the environment's own form, a list."""
        observation, given, *rest = self.env.step(action)
        rewards: Any = given
        return observation, [reward + 0.01 * own for reward, own in zip(rewards, action, strict=True)], *rest


def rware(render_mode: str | None = None) -> Any:
    """Return a small warehouse. Its pictures need a display."""
    import_module("rware")
    return Counted(Moved(gymnasium.make("rware-tiny-2ag-v2", **PLAIN, max_steps=250, render_mode=render_mode)))


def lbforaging(render_mode: str | None = None) -> Any:
    """Return level-based foraging on a small grid."""
    import_module("lbforaging")
    return Counted(gymnasium.make("Foraging-5x5-2p-1f-v3", **PLAIN, render_mode=render_mode))


def vmas(render_mode: str | None = None) -> Any:
    """Return a scenario of continuous actions."""
    options: dict[str, Any] = {"num_envs": 1, "device": "cpu", "terminated_truncated": True, "max_steps": 40}
    return Counted(import_module("vmas").make_env("balance", wrapper="gymnasium", seed=0, n_agents=2, **options))


def vmas_choices(render_mode: str | None = None) -> Any:
    """Return a scenario of discrete actions. (With Dicts of spaces, vmas's wrapper takes no dict of actions.)"""
    options: dict[str, Any] = {"num_envs": 1, "device": "cpu", "terminated_truncated": True, "max_steps": 40}
    options |= {"continuous_actions": False}
    return Counted(import_module("vmas").make_env("navigation", wrapper="gymnasium", seed=0, n_agents=3, **options))


def highway(render_mode: str | None = None) -> Any:
    """Return a road on which two vehicles have one reward."""
    import_module("highway_env")
    config = {
        "controlled_vehicles": 2, "vehicles_count": 5,
        "observation": {"type": "MultiAgentObservation", "observation_config": {"type": "Kinematics"}},
        "action": {"type": "MultiAgentAction", "action_config": {"type": "DiscreteMetaAction"}},
    }  # fmt: skip
    return Counted(gymnasium.make("highway-fast-v0", config=config, render_mode=render_mode, **PLAIN))


def crossing(render_mode: str | None = None) -> Any:
    """Return a crossing at which each vehicle has its own reward and end."""
    import_module("highway_env")
    config = {"initial_vehicle_count": 2, "spawn_probability": 0.1}
    return Counted(gymnasium.make("intersection-multi-agent-v2", config=config, render_mode=render_mode, **PLAIN))


class WithoutMission(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Leaves the text of the mission out of multigrid's observations."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        inner: Any = env.observation_space
        self.observation_space = gymnasium.spaces.Dict({
            key: gymnasium.spaces.Dict({"image": own["image"], "direction": own["direction"]})
            for key, own in inner.items()
        })  # fmt: skip

    def observation(self, observation: Any) -> Any:
        """Return what each player sees, without the text."""
        return {key: {"image": own["image"], "direction": own["direction"]} for key, own in observation.items()}


def multigrid(render_mode: str | None = None) -> Any:
    """Return a grid in which players reach a goal at different times."""
    import_module("multigrid.envs")
    options: dict[str, Any] = {"agents": 2, "max_steps": 100, "render_mode": render_mode}
    return Counted(WithoutMission(gymnasium.make("MultiGrid-Empty-5x5-v0", **PLAIN, **options)))


GAMES: dict[str, tuple[str, Callable[..., Any]]] = {
    "rware": ("rware", rware), "lbforaging": ("lbforaging", lbforaging), "vmas": ("vmas", vmas),
    "vmas_choices": ("vmas", vmas_choices), "highway": ("highway_env", highway), "crossing": ("highway_env", crossing),
    "multigrid": ("multigrid", multigrid),
}  # fmt: skip
"""Name -> (package, function that builds the environment)."""
FILMED = ("highway", "crossing", "multigrid")


def trained(build: Callable[..., Any], **where: Any) -> Any:
    """Train PPO; return the table of finished episodes."""
    agents = mt.make_agents("ppo", build, seed=0, network=mt.MLP((16,)))
    trainer = mt.DecentralizedTrainer(
        build, num_train_envs=ENVS, num_test_envs=1, update_freq=400, steps_per_train=STEPS, test_freq=None, seed=0,
        progress=False, run_dir=False, **where,
    )  # fmt: skip
    result = trainer.train(agents)
    assert result["num_collected_steps"] >= STEPS, result["num_collected_steps"]
    return result["episodes"]


def check(name: str) -> str:
    """Check one environment; return what was found. Raises AssertionError for a difference."""
    build = GAMES[name][1]
    Counted.objects.clear()
    episodes = trained(build)
    played = [each for each in Counted.objects if each.returns]
    columns = [column for column in episodes if column.startswith("return/")]
    for i, counted in enumerate(played):
        ours = episodes[episodes["env"] == i][columns].to_numpy()
        np.testing.assert_allclose(ours, np.array(counted.returns)[: len(ours)], rtol=1e-5, atol=1e-5, err_msg=name)
    assert len(played) == ENVS and sum(len(each.returns) for each in played) == len(episodes)
    other = trained(build, vector="subproc", num_workers=2)
    equal = [column for column in episodes if column != "seconds"]
    assert episodes[equal].equals(other[equal]), f"{name}: workers give other episodes"
    filmed = f", {picture(build)} colors in a picture" if name in FILMED else ""
    sums = ", ".join(f"{value:.3f}" for value in episodes[columns].sum())
    return f"{len(episodes)} episodes counted by hand; returns in all: {sums}; workers equal{filmed}"


def picture(build: Callable[..., Any]) -> int:
    """Return the number of colors of a frame after ten random steps, which must be several."""
    env = build(render_mode="rgb_array")
    env.reset(seed=0)
    env.action_space.seed(0)
    for _ in range(10):
        env.step(env.action_space.sample())
    colors = len(np.unique(np.asarray(env.render()).reshape(-1, 3), axis=0))
    env.close()
    assert colors > 1, "the picture has one color"
    return colors


def installed(name: str) -> bool:
    """Return whether an environment's package is installed."""
    return find_spec(GAMES[name][0]) is not None


def main(names: Sequence[str]) -> int:
    """Check environments by name, or all; return the number of those that fail."""
    failed = 0
    for name in names or GAMES:
        if not installed(name):
            print(f"{name}: package {GAMES[name][0]} is not installed", flush=True)
            continue
        try:
            print(f"{name}: {check(name)}", flush=True)
        except (AssertionError, mt.MarlTrainError) as error:
            failed += 1
            print(f"{name}: WRONG: {error}", flush=True)
    return failed


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main(sys.argv[1:]))
