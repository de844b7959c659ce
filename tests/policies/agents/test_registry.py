"""What every algorithm of the registry does: it goes on in the other framework, and its compiled passes are the same.

Wrong spaces and settings are refused. An algorithm that is added is in these tests without a word.
The short tier leaves `LATER` out of the first: their files and states are those of others, and their own tests
compare their updates in both frameworks.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError, SpecError
from marltrain.core.layout import size_of
from marltrain.policies.agents.registry import ALGORITHMS, agent_class
from marltrain.policies.backends import make_backend
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.joint_learner import JointLearner
from tests.policies.some_batches import (
    GOALS,
    IMAGE,
    VECTOR,
    some_actions,
    some_obs,
    some_observations,
    some_replayed,
    some_rollout,
    some_team,
    with_states,
)
from tests.tiers import LONG

LATER = (
    "a2c",
    "acer",
    "c51",
    "coma",
    "ddpg",
    "maa2c",
    "mappo",
    "masac",
    "matd3",
    "mmd",
    "seac",
    "vdac",
    "vdn",
    "wqmix",
)
ON, ROWS = np.ones(1, bool), 9
DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-2, 3, (2,), np.float32)
SETTINGS: dict[str, Any] = {"network": mt.MLP((6,)), "learning_rate": 1e-3, "gamma": 0.9}


def given(kind: Any, space: Any) -> dict[str, Any]:
    """Return the settings without a default: random demonstrations, or the size of the global state."""
    names = {f.name for f in fields(kind.algorithm_class.Settings)}
    if "demonstrations" not in names:
        sizes = {"state_size": 4, "team_size": 1, "joint_action_size": size_of(space)}
        return {name: size for name, size in sizes.items() if name in names}
    rng = np.random.default_rng(5)
    obs, action = some_obs(rng, VECTOR, (ROWS,)), some_actions(rng, space, (ROWS,))
    return {"demonstrations": mt.Demonstrations.from_arrays(VECTOR, space, obs, action)}


def seen(kind: Any) -> Any:
    """Return a space of observations that an agent class takes."""
    return GOALS if kind.algorithm_class.reads_triplets else VECTOR


def made(name: str, **settings: Any) -> Any:
    """Return an agent, of Discrete actions if it takes them."""
    kind: Any = agent_class(name)
    for space in (DISCRETE, BOX):
        try:
            return kind(seen(kind), space, seed=1, **{**SETTINGS, **given(kind, space), **settings})
        except SpecError:
            continue
    raise AssertionError(f"{name} takes neither {DISCRETE} nor {BOX}")


def batch_for(algorithm: Any, rng: np.random.Generator) -> Any:
    """Return a random batch of one agent."""
    space, masked = algorithm.action_space, isinstance(algorithm.action_space, spaces.Discrete)
    if algorithm.on_policy:
        return some_rollout(rng, VECTOR, space, [ROWS], masked=masked)
    return some_replayed(rng, algorithm, 1, ROWS, masked=masked)


def learn(learner: AlgorithmLearner, seed: int, updates: int) -> None:
    """Make updates of one agent on batches of a seed."""
    rng = np.random.default_rng(seed)
    if learner.team is not None:
        alone = JointLearner([learner], [1], [0])
        for _ in range(updates):
            alone.update(some_team(rng, [learner], [1], ROWS), learn=ON, batch_size=ROWS)
        return
    for _ in range(updates):
        learner.update(with_states(rng, batch_for(learner.algorithm, rng), learner), learn=ON, batch_size=ROWS)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if LONG or name not in LATER])
def test_a_saved_agent_goes_on_in_the_other_framework_and_back(name, tmp_path):
    """Weights, moments, streams of random numbers and actions, before and after two more updates."""
    agent = made(name)
    start = agent.learner_.export(0).arrays
    learn(agent.learner_, 0, 2)
    other = loaded(agent, tmp_path, "tensorflow")
    go_on_alike(agent, other)
    end = agent.learner_.export(0).arrays
    assert all((end[key] != array).any() for key, array in start.items() if trained(key))
    go_on_alike(other, loaded(other, tmp_path, "torch"))


def loaded(agent: Any, folder: Path, backend: str) -> Any:
    """Save an agent and load it on a backend."""
    mt.save(folder / backend, agent)
    (other,) = mt.load(folder / backend, backend=backend, custom_objects=supplied(agent))
    assert isinstance(other, type(agent))
    assert other.backend.name == backend
    return other


def go_on_alike(agent: Any, other: Any) -> None:
    """Fail unless two agents are equal, and equal within rounding after two updates."""
    obs = some_observations(np.random.default_rng(2), seen(type(agent)), 40)
    for updates in (0, 2):
        for one in (agent, other):
            learn(one.learner_, 3, updates)
        mine, theirs = agent.learner_.export(0), other.learner_.export(0)
        assert mine.info == theirs.info
        for key, array in mine.arrays.items():
            np.testing.assert_allclose(theirs.arrays[key], array, atol=2e-5 * bool(updates), err_msg=key)
        for explore in (False, True):
            np.testing.assert_allclose(other.act(obs, explore=explore), agent.act(obs, explore=explore), atol=1e-4)


def trained(key: str) -> bool:
    """Whether an array is a weight of a network that is trained."""
    return key.startswith("net/") and not key.startswith("net/target_")


def supplied(agent: Any) -> dict[str, Any]:
    """Return the settings that are not saved."""
    unsaved = [f.name for f in fields(agent.settings) if not f.metadata.get("saved", True)]
    return {name: value for name in unsaved if (value := getattr(agent.settings, name)) is not None}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_wrong_spaces_are_refused_with_what_is_needed_and_another_algorithm(name):
    """Discrete, MultiDiscrete and Box actions are learned, or refused; one of the first and the last is learned."""
    kind: Any = agent_class(name)
    taken = set()
    for space in (DISCRETE, BOX, spaces.MultiDiscrete([2, 3])):
        try:
            kind(seen(kind), space, **{**SETTINGS, **given(kind, space)})
        except SpecError as error:
            text = rf"{kind.__name__} (needs|takes) a .*Discrete|Box.*, got {re.escape(str(space))}; .*takes? "
            assert re.match(text, str(error)), error
        else:
            taken.add(type(space))
    assert taken & {spaces.Discrete, spaces.Box}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_recurrent_network_reads_sequences_or_is_refused(name):
    try:
        agent = made(name, network=mt.GRU((4,), units=3, sequence_length=5))
    except ConfigError as error:
        assert re.search("cannot be recurrent|cannot be noisy", str(error)), error
    else:
        assert agent.algorithm.needs().block == 5 and agent.algorithm.carry()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_images_are_not_normalized(name):
    kind: Any = agent_class(name)
    space = made(name).action_space
    with pytest.raises(ConfigError, match=rf"{name}: .*normalize_observations=True.* out"):
        kind(IMAGE, space, normalize_observations=True, **given(kind, space))


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's compiler warns of torch's own
@pytest.mark.filterwarnings("ignore:.*autograd.function.Function:DeprecationWarning")
@pytest.mark.parametrize("name", ALGORITHMS if LONG else ["vdn"])  # torch compiles each for seconds
def test_compiled_passes_compute_the_same(name):
    agent = made(name, **({} if LONG else {"network": mt.MLP(()), "optimizer": "sgd"}))
    plain, compiled = (
        AlgorithmLearner(agent.algorithm, make_backend("torch", "cpu", jit_compile=jit), [1], draw=True)
        for jit in (False, True)
    )
    start = plain.export(0).arrays
    for learner in (plain, compiled):
        learn(learner, 0, 3)
    expected, got = plain.export(0), compiled.export(0)
    assert expected.info == got.info
    for key, array in expected.arrays.items():
        np.testing.assert_allclose(got.arrays[key], array, atol=2e-5, err_msg=key)
        assert not trained(key) or (array != start[key]).any(), key
