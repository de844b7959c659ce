"""Environments of other packages: training, with returns that are counted inside of them, and films.

`make third-party` installs the packages and plays all of them. In `make check-long`, those that are not installed are
reported as skipped, each with the name of the package.
"""

from __future__ import annotations

from typing import Any

import imageio.v3
import numpy as np
import pytest

import marltrain as mt
from tests.tiers import LONG, rounds
from tests.whole.third_party import COUNTED, ENVIRONMENTS, Episode, thousandths

NUM_ENVS = 4
STEPS = rounds(400, 2_000)
PLAYED = list(ENVIRONMENTS) if LONG else ["lbforaging"]
FILMED = [name for name in PLAYED if ENVIRONMENTS[name].filmed] if LONG else ["Atari"]
QUIET: dict[str, Any] = {"seed": 0, "progress": False, "run_dir": False}


def trained(name: str, **where: Any) -> tuple[list[Episode], list[mt.Agent]]:
    """Train PPO; return the episodes that marltrain has recorded, and the agents."""
    build = ENVIRONMENTS[name].build
    share = len(mt.make_agents("random", build)) > 4
    agents = mt.make_agents(
        "ppo", build, seed=0, network=mt.MLP((16,)), epochs=1, minibatches=1, jit_compile=False, share=share
    )
    trainer = mt.DecentralizedTrainer(
        build, num_train_envs=NUM_ENVS, update_freq=400, steps_per_train=STEPS, test_freq=None, **where, **QUIET
    )
    result = trainer.train(agents, plot=False)
    assert result["num_collected_steps"] == STEPS and result["num_faults"] == 0
    table = result["episodes"]
    returns = table.filter(like="return/").to_numpy()
    return sorted(map(thousandths, table["length"], returns)), agents


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PLAYED)
def test_returns_are_those_that_the_environment_pays(name: str) -> None:
    """Those of worker processes are the same, and so are the agents."""
    COUNTED.clear()
    episodes, agents = trained(name)
    assert episodes == sorted(COUNTED.episodes) and episodes
    from_workers, twins = trained(name, vector="subproc", num_workers=2)
    assert from_workers == episodes
    for agent, twin in zip(agents, twins, strict=True):
        one, other = (each.state_dict() for each in (agent, twin))
        assert all(np.array_equal(one[key], other[key]) for key in one)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FILMED)
def test_a_film_shows_something(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SDL_VIDEODRIVER")  # marltrain chooses it
    build = ENVIRONMENTS[name].build
    mt.play(build, mt.make_agents("random", build, seed=0), out="film.gif", max_steps=5)
    frames = imageio.v3.imread("film.gif")
    assert len(frames) > 1 and all(np.std(frame) > 1 for frame in frames)
