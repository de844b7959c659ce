"""Teams never learn from decisions that a seat makes while its mask is 0, in whole runs with masks that change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

import marltrain as mt
from tests.tiers import LONG

PERIOD, ENVS, LENGTH = 3, 4, 7
"""Batch steps until the mask of the second player changes, which is in the midst of episodes of `LENGTH` steps."""
BOX, CHOICES = spaces.Box(-1, 1, (1,), np.float32), spaces.Discrete(3)


class Signals(ParallelEnv):
    """Three players see (0, x), x > 0; the second one sees (x, 0) while its mask is 0.

    The weights of a network that read the first entry have gradients only from these decisions.
    """

    metadata = {"name": "signals"}  # noqa: RUF012
    possible_agents = ["p0", "p1", "p2"]  # noqa: RUF012

    def __init__(self, box: bool = False, always: bool = False) -> None:
        self.space, self.always, self.steps = BOX if box else CHOICES, always, 0

    def observation_space(self, name: str) -> Any:
        return spaces.Box(0, 2, (2,), np.float32)

    def action_space(self, name: str) -> Any:
        return self.space

    def _seen(self) -> Any:
        masked = {"p1": self.always or is_masked(self.steps)}
        pairs = {name: (1, 0) if masked.get(name) else (0, 1) for name in self.possible_agents}
        return {name: (1 + self.rng.random()) * np.array(pair, np.float32) for name, pair in pairs.items()}

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        self.rng, self.agents, self.time = np.random.default_rng(seed), self.possible_agents, 0
        return self._seen(), {name: {} for name in self.agents}

    def step(self, actions: Any) -> Any:
        names, self.time, self.steps = self.agents, self.time + 1, self.steps + 1
        reward = float(sum(float(np.sum(action)) for action in actions.values()) % 3)
        over = self.time == LENGTH
        self.agents = [] if over else names
        ends = [dict.fromkeys(names, end) for end in (False, over)]
        return self._seen(), dict.fromkeys(names, reward), *ends, {name: {} for name in names}


def is_masked(step: int, period: int = PERIOD) -> bool:
    """Return whether the mask of the second player is 0 in a batch step of a run."""
    return step // period % 2 == 0


class Toggle(mt.Callback):
    def __init__(self, period: int = PERIOD) -> None:
        self.period = period

    def on_collect(self, moment):
        moment.trainer.learning_mask = [1, not is_masked(moment.env_steps // ENVS, self.period), 1]


REPLAY: dict[str, Any] = {"learning_starts": 20, "batch_size": 8, "update_per_step": 0.1}
GRU: dict[str, Any] = {**REPLAY, "network": mt.GRU((8,), units=6, sequence_length=5)}
CASES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "vdn": ("vdn", REPLAY, False),
    "qmix compiled": ("qmix", {**REPLAY, "jit_compile": True}, False),
    "wqmix": ("wqmix", REPLAY, False),
    "maddpg": ("maddpg", REPLAY, False),
    "masac, a Box": ("masac", REPLAY, True),
    "qmix, sequences": ("qmix", GRU, False),
    "vdac": ("vdac", {"update_freq": 40}, False),
    **({
        "qmix": ("qmix", REPLAY, False),
        "qmix, dueling": ("qmix", {**REPLAY, "dueling": True}, False),
        "qmix, tensorflow": ("qmix", {**REPLAY, "backend": "tensorflow"}, False),
        "vdac, tensorflow": ("vdac", {"update_freq": 40, "mixing": "sum", "backend": "tensorflow"}, False),
        "matd3": ("matd3", REPLAY, False),
        "matd3, a Box": ("matd3", REPLAY, True),
        "masac": ("masac", REPLAY, False),
        "wqmix, sequences and a burn-in": ("wqmix", {**GRU, "burn_in": 2}, False),
    } if LONG else {}),
}  # fmt: skip
"""Algorithm, settings, and whether the actions are numbers."""


def moved(algo: str, settings: Any, box: bool, *, share: bool = False) -> dict[str, np.ndarray]:
    """Return how far a run moves the first weights of the second agent's networks of observations, by input, [2]."""
    args = {"box": box, "always": share}
    own = {"network": mt.MLP((8,)), **settings}
    agents = mt.make_agents(algo, Signals, env_args=args, seed=0, share=share, **own)
    before = agents[1].state_dict()
    trainer = mt.DecentralizedTrainer(
        Signals, args, num_train_envs=ENVS, update_freq=8, steps_per_train=240, seed=0, progress=False, run_dir=False,
        test_freq=None, callbacks=[] if share else [Toggle()],
    )  # fmt: skip
    trainer.train(agents, [1, 0, 1])
    after = agents[1].state_dict()
    reading = ("net/q/", "net/actor/", "net/central_q/", *(["net/critic/"] if algo == "vdac" else []))
    names = [name for name in before if name.startswith(reading) and name.endswith("/hidden0.weight")]
    assert names
    return {name: np.abs(after[name] - before[name]).max(1) for name in names}


@pytest.mark.parametrize(("algo", "settings", "box"), CASES.values(), ids=CASES)
def test_weights_that_only_masked_decisions_read_do_not_move(algo, settings, box):
    """Masks change within episodes, so that the memory, sequences and rollouts hold decisions of both kinds."""
    for name, distance in moved(algo, settings, box).items():
        assert distance[0] == 0 < distance[1], name


@pytest.mark.parametrize(("algo", "settings", "box"), list(CASES.values())[:: 1 if LONG else 3])
def test_one_agent_in_all_seats_does_not_learn_from_the_seat_whose_mask_is_0(algo, settings, box):
    for name, distance in moved(algo, settings, box, share=True).items():
        assert distance[0] == 0 < distance[1], name


@pytest.mark.parametrize(("algo", "settings"), [("vdac", {"update_freq": 100}), ("vdn", {**REPLAY, "tau": 0.1})])
def test_a_run_whose_masks_change_is_resumed_exactly(tmp_path, algo, settings):
    """At batch step 73 of a rollout of 50 to 74; a seat learns in 56 to 63, drops them in 64 to 71 and learns again."""
    spread, arrays = "marltrain/simple_spread_v3", []
    for run, budgets in (("whole", [400]), ("parts", [292, 400])):
        for budget in budgets:
            agents = mt.make_agents(algo, spread, seed=0, share=True, network=mt.MLP((8,)), **settings)
            trainer = mt.DecentralizedTrainer(
                spread, num_train_envs=ENVS, steps_per_train=budget, seed=0, progress=False, test_freq=None,
                run_dir=tmp_path / run, team_reward="mean", callbacks=[Toggle(8), mt.Checkpoint(every_steps=31)],
            )  # fmt: skip
            trainer.train(agents, [1, 0, 1], plot=False, resume=tmp_path / run if budget != budgets[0] else None)
        arrays.append(agents[0].state_dict())
    for name, array in arrays[0].items():
        np.testing.assert_array_equal(arrays[1][name], array, err_msg=name)
