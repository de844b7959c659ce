"""Exploration by values: epsilon-greedy by hand, all rules against their laws, seeded, masked and saved."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError
from marltrain.policies.backends.torch import ops
from marltrain.policies.batches.batch import ActInputs
from marltrain.policies.compiled.acting import CompiledActing
from marltrain.policies.exploration import ActionChoice, DiscreteExploration, epsilon_greedy, epsilon_noise
from marltrain.policies.exploration.discrete import NOISE
from marltrain.policies.learner.programs.act_program import ActProgram
from tests.policies.distributions.three import in_all
from tests.trainer.running import dqn, trainer


def test_by_hand():
    q = torch.tensor([[[1.0, 3.0, 2.0]] * 4, [[1.0, 3.0, 2.0]] * 4])
    noise = {
        "coin": torch.tensor([[0.1, 0.3, 0.1, 0.5], [0.1, 0.3, 0.6, 0.5]]),
        "choice": torch.tensor([[[0.9, 0.2, 0.5]] * 4] * 2),
    }
    explore = torch.tensor([[True, True, False, True], [True, True, True, True]])
    epsilon = torch.tensor([[0.2], [0.5]])
    result = epsilon_greedy(ops, q, None, noise, explore, epsilon)
    assert result.tolist() == [[0, 1, 1, 1], [0, 0, 1, 1]]
    legal = torch.tensor([False, True, True]).expand(2, 4, 3)
    result = epsilon_greedy(ops, q, legal, noise, explore, epsilon)
    assert result.tolist() == [[2, 1, 1, 1], [2, 2, 1, 1]]


def test_epsilon_zero_never_and_one_always_explores():
    noise = {name: torch.from_numpy(a) for name, a in epsilon_noise([np.random.default_rng(0)], 5000, 4).items()}
    q = torch.tensor([9.0, 0.0, 0.0, 0.0]).expand(1, 5000, 4)
    on = torch.ones(1, 5000, dtype=torch.bool)
    assert (epsilon_greedy(ops, q, None, noise, on, torch.zeros(1, 1)) == 0).all()
    taken = epsilon_greedy(ops, q, None, noise, on, torch.ones(1, 1))
    shares = torch.bincount(taken[0], minlength=4) / 5000
    assert (shares - 0.25).abs().max() < 0.031  # five standard deviations


def test_each_agent_draws_from_its_own_stream():
    both = epsilon_noise([np.random.default_rng(0), np.random.default_rng(1)], 3, 2)
    alone = epsilon_noise([np.random.default_rng(1)], 3, 2)
    assert both["coin"].shape == (2, 3)
    assert both["choice"].shape == (2, 3, 2)
    for name in both:
        assert (both[name][1] == alone[name][0]).all()
        assert (both[name][0] != alone[name][0]).all()


# The rules against their laws -----------------------------------------------------------------------------------------

ROWS, VALUES = 12_000, np.array([0.4, 1.3, -0.2, 0.9], np.float32)
EPSILON, TEMPERATURE = 0.3, 0.7


def chooser(**settings):
    return ActionChoice(DiscreteExploration(**settings), 4)


def hyper(epsilon=EPSILON, temperature=TEMPERATURE, share=np.inf, counts=(4, 4, 4, 4)):
    """With 4 choices of every action the scale of boltzmann_gumbel's noise is `TEMPERATURE`."""
    numbers = {"epsilon": epsilon, "temperature": temperature, "random_share": share, "gumbel_scale": 2 * TEMPERATURE}
    columns = {name: np.full((1, 1), value, np.float32) for name, value in numbers.items()}
    return {**columns, "action_counts": np.array([counts], np.float32)}


def softmax(values, legal):
    raised = np.where(legal, np.exp(values), 0)
    return raised / raised.sum(-1, keepdims=True)


def chosen(choice, legal=None, explore=True, shift=0.0, **numbers):
    """Return the actions of many rows with equal values, in numpy, which both frameworks repeat."""
    values = np.tile(VALUES + np.float32(shift), (1, ROWS, 1))
    mask = None if legal is None else np.tile(np.array(legal), (1, ROWS, 1))
    noise = choice.noise([np.random.default_rng(1)], ROWS)
    on = np.full((1, ROWS), explore)

    def choose(ops, values, *inputs):
        return choice.choose(ops, values, ActInputs(None, *inputs))

    (actions,) = in_all(choose, values, mask, on, None, noise, hyper(**numbers))
    return actions[0]


def chi_squared(actions, law):
    counts = np.bincount(actions, minlength=4)
    assert not counts[law == 0].any()
    expected = law[law > 0] * len(actions)
    return float(((counts[law > 0] - expected) ** 2 / expected).sum())


@functools.cache
def laws(legal):
    """Return the exact law of each rule; that of gumbel_softmax by the mean of a million relaxed vectors."""
    every, best = np.array(legal), np.eye(4)[np.where(legal, VALUES, -9).argmax()]
    uniform, boltzmann = every / every.sum(), softmax(VALUES / TEMPERATURE, every)
    gumbel = np.random.default_rng(1).gumbel(size=(1_000_000, 4))
    relaxed = softmax((VALUES + gumbel) / TEMPERATURE, every).mean(0)
    return {
        "greedy": best,
        "epsilon_greedy": EPSILON * uniform + (1 - EPSILON) * best,
        "softmax": softmax(VALUES, every),
        "boltzmann": boltzmann,
        "max_boltzmann": EPSILON * boltzmann + (1 - EPSILON) * best,
        "gumbel_softmax": EPSILON * uniform + (1 - EPSILON) * relaxed,
        "boltzmann_gumbel": boltzmann,
    }


LIMIT = 16.3
"""0.1 % quantile of the chi-squared distribution with 3 degrees of freedom."""
SOME = (True, False, True, True)


@pytest.mark.parametrize("rule", NOISE)
@pytest.mark.parametrize("legal", [None, SOME], ids=["all legal", "masked"])
def test_frequencies_follow_the_law(rule, legal):
    law = laws(legal or (True,) * 4)[rule]
    assert chi_squared(chosen(chooser(exploration=rule), legal), law) < LIMIT


def test_the_noise_of_boltzmann_gumbel_shrinks_with_the_choices_of_an_action():
    """Never chosen counts as once; an action of a million choices has its plain value."""
    counts = np.array([0, 1, 9, 1_000_000])
    noise = np.random.default_rng(5).gumbel(size=(1_000_000, 4)) * 2 * TEMPERATURE / np.sqrt(np.maximum(counts, 1))
    law = np.bincount((VALUES + noise).argmax(-1), minlength=4) / len(noise)
    assert chi_squared(chosen(chooser(exploration="boltzmann_gumbel"), counts=counts), law) < LIMIT


@pytest.mark.parametrize("rule", ["epsilon_greedy", "boltzmann", "max_boltzmann"])
def test_random_share_mixes_in_random_legal_actions(rule):
    law = 0.6 * np.array([1, 0, 1, 1]) / 3 + 0.4 * laws(SOME)[rule]
    choice = chooser(exploration=rule, random_share=0.5)
    assert chi_squared(chosen(choice, SOME, share=0.6), law) < LIMIT
    assert chi_squared(chosen(choice, SOME, share=1.0), np.array([1, 0, 1, 1]) / 3) < LIMIT
    assert chi_squared(chosen(choice, SOME, share=0.0), laws(SOME)[rule]) < LIMIT


@pytest.mark.parametrize("rule", NOISE)
def test_without_exploration_the_best_legal_action(rule):
    choice = chooser(exploration=rule, random_share=1.0)
    assert set(chosen(choice, explore=False, share=1.0)) == {1}
    assert set(chosen(choice, SOME, explore=False, share=1.0)) == {3}


@pytest.mark.parametrize("temperature", [1e-30, 1e-3, 1e9, 1e30])
@pytest.mark.parametrize("rule", ["boltzmann", "gumbel_softmax"])
def test_extreme_temperatures(rule, temperature):
    """Low: the best action, or softmax of the values. High: uniform legal actions, no illegal one.

    The values are negative: divided by a low temperature they are below the logit of an illegal action.
    """
    actions = chosen(chooser(exploration=rule), SOME, shift=-9.0, temperature=temperature, epsilon=0.0)
    low = laws(SOME)["greedy" if rule == "boltzmann" else "softmax"]
    assert chi_squared(actions, low if temperature < 1 else np.array(SOME) / 3) < LIMIT


@pytest.mark.parametrize("rule", NOISE)
def test_noise_of_many_rows_is_the_noise_of_row_after_row(rule):
    choice, rng = chooser(exploration=rule, random_steps=3), np.random.default_rng(3)
    many, parts = choice.noise([np.random.default_rng(3)], 5), [choice.noise([rng], rows) for rows in (1, 3, 1)]
    for name, values in many.items():
        np.testing.assert_array_equal(values, np.concatenate([part[name] for part in parts], 1))


def test_epsilon_greedy_draws_what_it_drew_before():
    mine = chooser().noise([np.random.default_rng(0), np.random.default_rng(1)], 3)
    theirs = epsilon_noise([np.random.default_rng(0), np.random.default_rng(1)], 3, 4)
    assert mine.keys() == theirs.keys()
    assert all((mine[name] == theirs[name]).all() for name in mine)


# In an agent ----------------------------------------------------------------------------------------------------------

OBS = spaces.Box(-1, 1, (3,), np.float32)


def test_an_agent_explores_by_name_and_its_numbers_may_change():
    agent = mt.DQN(OBS, spaces.Discrete(4), seed=0, exploration="boltzmann", temperature=1e-6)
    obs = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    greedy = agent.act(obs)
    np.testing.assert_array_equal(agent.act(obs, explore=True), greedy)
    agent.hyper.temperature = 1e6
    assert (agent.act(obs, explore=True) != greedy).mean() > 0.6
    agent.hyper.temperature = mt.linear(5.0, 1.0, 100)
    agent.learner_.apply_schedules(75)
    assert agent.hyper.temperature == 2.0


def test_choices_of_exploring_seats_are_counted_and_saved(tmp_path):
    agent: Any = mt.DQN(OBS, spaces.Discrete(3), seed=0, exploration="boltzmann_gumbel", gumbel_scale=2.0)
    learner = agent.learner()
    obs = np.random.default_rng(0).normal(size=(1, 7, 3)).astype(np.float32)
    turn, explore = np.arange(7)[None] != 2, np.arange(7)[None] < 5
    counts = np.zeros(3, np.int64)
    for _ in range(3):
        acted = learner.act(ActInputs(obs, None, explore), turn=turn, rngs=learner.rngs("act"))
        learner.actor.count(acted.action, turn & explore)
        counts += np.bincount(acted.action[turn & explore], minlength=3)
    assert counts.sum() == 12  # rows 0, 1, 3 and 4, three times
    assert learner.actor.counts.tolist() == [counts.tolist()]
    mt.save(tmp_path / "agent", [agent])
    again: Any = mt.load(tmp_path / "agent", backend="tensorflow")[0]
    assert again.learner().actor.counts.tolist() == [counts.tolist()]
    np.testing.assert_array_equal(again.act(obs[0], explore=True), agent.act(obs[0], explore=True))


def test_wrong_counts_in_a_file_are_refused():
    agent: Any = mt.DQN(OBS, spaces.Discrete(3), seed=0, exploration="boltzmann_gumbel")
    state = agent.learner().export(0)
    for wrong, message in (([1, 2], "2 counts, expected 3"), ([1, -2, 0], "from 0 to")):
        state.info["action_counts"] = wrong
        with pytest.raises(mt.SaveError, match=message):
            agent.learner().load(0, state)


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_a_saved_agent_continues_with_the_same_random_numbers(backend, tmp_path):
    settings: dict[str, Any] = {"exploration": "gumbel_softmax", "epsilon": mt.decay(1.0, 0.2, 50), "random_steps": 100}
    agent = mt.DQN(OBS, spaces.Discrete(4), seed=3, **settings)
    agent.learner_.apply_schedules(120)
    obs = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    agent.act(obs, explore=True)
    mt.save(tmp_path / "agent", [agent])
    again: Any = mt.load(tmp_path / "agent", backend=backend)[0]
    assert again.hyper.random_steps == 100
    assert (again.hyper.random_share, again.hyper.epsilon) == (0.0, agent.hyper.epsilon)
    np.testing.assert_array_equal(again.act(obs, explore=True), agent.act(obs, explore=True))
    again.learner_.apply_schedules(60)
    assert (again.hyper.random_share, again.hyper.epsilon) == (1.0, mt.decay(1.0, 0.2, 50)(60))


def test_only_plain_epsilon_greedy_acts_by_the_kernel():
    for settings, kind in (
        ({}, CompiledActing),
        ({"random_steps": 5}, ActProgram),
        ({"exploration": "softmax"}, ActProgram),
    ):
        agent = mt.DQN(OBS, spaces.Discrete(4), seed=0, jit_compile=True, network=mt.MLP((8,)), **settings)
        assert type(agent.learner_.actor.compiled()) is kind


def test_a_run_warms_up_with_random_actions():
    """For 20 env steps in 2 environments; schedules are applied every 4 env steps."""
    shares: dict[int, float] = {}
    agents = dqn(random_steps=20, epsilon=0.0)
    watch = mt.LambdaCallback(on_step=lambda moment: shares.update({moment.env_steps: agents[0].hyper.random_share}))
    trainer(num_train_envs=2, update_freq=4, steps_per_train=40, callbacks=[watch]).train(agents, [1, 1], plot=False)
    assert {share for steps, share in shares.items() if steps < 20} == {1.0}
    assert {share for steps, share in shares.items() if steps > 24} == {0.0}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"exploration": "boltzman"}, "exploration must be one of greedy, epsilon_greedy, .*boltzmann"),
        ({"temperature": 0.0}, "temperature must be greater than 0"),
        ({"epsilon": 1.5}, "epsilon must be at most 1"),
        ({"random_share": -0.1}, "random_share must be at least 0"),
        ({"random_steps": -1}, "steps must be at least 1, got -1"),
        ({"random_steps": 10, "random_share": 0.5}, "random_steps=10 and random_share=0.5 exclude each other"),
    ],
)
def test_wrong_settings(settings, words):
    with pytest.raises(ConfigError, match=words):
        mt.DQN(OBS, spaces.Discrete(4), seed=0, **settings)
