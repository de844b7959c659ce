"""Agents of candidates: made from an algorithm, or copied."""

import hashlib
from typing import Any

import numpy as np
import pytest

import marltrain as mt
from marltrain.core.errors import AgentError, ConfigError
from marltrain.core.seeds import child_seed
from marltrain.tools.search.candidates import copies_of, maker_of, rate_names, with_settings
from tests.toys import Identity
from tests.trainer.running import SHORT, SMALL, dqn, ppo, trainer


def digest(agent: Any) -> str:
    """A hash of everything in an agent's state."""
    state = agent.state()
    content = [repr(state.info), *(f"{name}{array.tobytes()!r}" for name, array in sorted(state.arrays.items()))]
    return hashlib.sha256("".join(content).encode()).hexdigest()


def test_copies_have_the_weights_and_moments_and_other_random_numbers():
    agents = [*dqn()[:1], mt.RandomAgent()]
    trainer(run_dir=False, steps_per_train=40).train(agents, [1, 0], plot=False)
    agents[0].hyper.epsilon = 0.25
    before = digest(agents[0])
    copies: list[Any] = copies_of(agents, {"learning_rate": 0.5}, 5)
    own, theirs = copies[0].state(), agents[0].state()
    assert all(np.array_equal(own.arrays[name], array) for name, array in theirs.arrays.items())
    assert (copies[0].hyper.learning_rate, copies[0].hyper.epsilon) == (0.5, 0.25)
    assert own.info["learner"]["seed"] == child_seed(5, "agent", 0)
    assert own.info["learner"]["rngs"] != theirs.info["learner"]["rngs"]
    assert copies[1] is not agents[1]
    trainer(run_dir=False, steps_per_train=40).train(copies, [1, 0], plot=False)
    assert digest(agents[0]) == before


def test_another_optimizer_starts_without_moments():
    agents = ppo()
    trainer(run_dir=False, steps_per_train=40).train(agents, [1, 1], plot=False)
    copied = copies_of(agents, {"optimizer": "sgd", "momentum": 0.9}, 1)[0].state().arrays
    before = agents[0].state().arrays
    assert all(np.array_equal(copied[name], array) for name, array in before.items() if name.startswith("net/"))
    assert not any(array.any() for name, array in copied.items() if name.startswith("optimizer/"))


def test_an_agent_in_several_seats_has_one_copy():
    shared = mt.make_agents("ppo", Identity, env_args=SHORT, share=True, network=SMALL, seed=0)
    first, second = copies_of(shared, {}, 1)
    assert first is second and first is not shared[0]


def test_changes_go_before_the_settings_of_an_entry():
    make = maker_of(("ppo", {"learning_rate": 0.1, "network": SMALL}), Identity, SHORT, {"epochs": 3})
    agents: list[Any] = make({"learning_rate": 0.2}, 4)
    assert [agent.hyper.learning_rate for agent in agents] == [0.2, 0.2] and agents[0].settings.epochs == 3


def test_settings_go_to_the_entries_that_learn():
    make = maker_of({"player_0": "ppo", "*": "random"}, Identity, SHORT, {"network": SMALL, "backend": "torch"})
    agents: list[Any] = make({"learning_rate": 0.2}, 4)
    assert agents[0].hyper.learning_rate == 0.2 and agents[0].settings.network == SMALL
    assert isinstance(agents[1], mt.RandomAgent)
    assert with_settings(["dqn", ("random", {}), mt.RandomAgent], {"gamma": 0.9}, {}) == [
        ("dqn", {"gamma": 0.9}), ("random", {}), mt.RandomAgent,
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="learning_rate: got 'random'"):
        maker_of("random", Identity, SHORT, {})({"learning_rate": 0.2}, 4)


@pytest.mark.parametrize(
    ("agents", "settings", "error", "match"),
    [
        (ppo(), {"epochs": 3}, ConfigError, "leave epochs out"),
        ([*ppo()[:1], "dqn"], {}, AgentError, "a list with one agent per player"),
        (ppo()[0], {}, AgentError, "a list with one agent per player"),
    ],
)
def test_wrong_agents_are_refused(agents, settings, error, match):
    with pytest.raises(error, match=match):
        maker_of(agents, Identity, SHORT, settings)


def test_names_of_rates_have_as_many_digits_as_tell_them_apart():
    """By hand: 1.004e-3 is 0.001 in three digits, 0.1 + 0.2 is 0.3 in 16; equal numbers have equal names."""
    assert rate_names([0.001, 0.001004, 0.001008, 0.0031622776]) == ["0.001", "0.001004", "0.001008", "0.003162"]
    assert rate_names([1e-5, 0.0031622776, 1.0]) == ["1e-05", "0.00316", "1"]
    assert rate_names([0.3, 0.1 + 0.2]) == ["0.29999999999999999", "0.30000000000000004"]
    assert rate_names([0.001, 0.002, 0.001]) == ["0.001", "0.002", "0.001"]
