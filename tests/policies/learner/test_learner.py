"""Stacked equals looped, rows that do not learn stay as they are, and numbers may differ between rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.core.errors import ConfigError, SaveError
from marltrain.policies.batches.batch import ActInputs, AgentState
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.learner import Learner
from tests.policies.some_batches import (
    IMAGE,
    PICTURE_AND_VECTOR,
    VECTOR,
    of_agent,
    some_legal,
    some_obs,
    some_rollout,
    some_transitions,
)
from tests.tiers import LONG, rounds

UPDATES = rounds(8, 20)
TOLERANCE = 2e-5
"""What Adam steps make of the last bits in which a batched and a single matrix product differ."""


def stacked(agents):
    """One learner that holds copies of all agents."""
    first = agents[0]
    learner = AlgorithmLearner(first.algorithm, first.backend, [agent.seed for agent in agents], draw=False)
    for row, agent in enumerate(agents):
        learner.load(row, agent.learner_.export(agent.row))
    return learner


def everyone(learner):
    return np.ones(learner.num_agents, bool)


def assert_rows_equal(learner, singles, tolerance=TOLERANCE):
    for row, single in enumerate(singles):
        together, alone = learner.export(row), single.export(0)
        assert together.info == alone.info
        assert together.arrays.keys() == alone.arrays.keys()
        for name, array in together.arrays.items():
            np.testing.assert_allclose(
                array, alone.arrays[name], rtol=0, atol=tolerance, err_msg=f"agent {row}: {name}"
            )


def moved(before: AgentState, after: AgentState) -> bool:
    """Whether any array changed, in any bit."""
    return any((before.arrays[name] != array).any() for name, array in after.arrays.items())


PPO_KINDS = [
    pytest.param(3, VECTOR, spaces.Discrete(4), False, {}, id="discrete-3"),
    pytest.param(8, VECTOR, spaces.Discrete(4), True, {"value_clip": 0.2, "hidden": (16,)}, id="masked-8"),
    pytest.param(
        3, VECTOR, spaces.Box(-2, 3, (2,), np.float32), False, {"critic_learning_rate": 1e-3}, id="continuous-3"
    ),
    pytest.param(3, VECTOR, spaces.MultiDiscrete([2, 3]), False, {"normalize_advantage": False}, id="multidiscrete-3"),
    *LONG * [pytest.param(3, IMAGE, spaces.Discrete(3), False, {"cnn": True}, id="cnn-3")],
    pytest.param(3, PICTURE_AND_VECTOR, spaces.Discrete(3), False, {"cnn": True}, id="cnn-and-vector-3"),
]


def network_of(options):
    if options.pop("cnn", False):
        return mt.CNN(hidden=(16,), filters=((4, 3, 2), (4, 2, 1)))
    return mt.MLP(hidden=options.pop("hidden", (16, 16)))


@pytest.mark.parametrize("cut", [{"minibatches": 3}, *LONG * [{"batch_size": 7}]], ids=str)
@pytest.mark.parametrize(("count", "space", "actions", "masked", "options"), PPO_KINDS)
def test_stacked_ppo_equals_looped(count, space, actions, masked, options, cut):
    options = dict(options)
    network = network_of(options)
    agents = [mt.PPO(space, actions, seed=k, network=network, epochs=2, **cut, **options) for k in range(count)]
    learner, rng = stacked(agents), np.random.default_rng(1)
    for _ in range(UPDATES):
        counts = rng.integers(5, 24, size=count).tolist()
        batch = some_rollout(rng, space, actions, counts, masked=masked)
        together = learner.update(batch, learn=everyone(learner), batch_size=64)
        for k, agent in enumerate(agents):
            alone = agent.learner_.update(of_agent(batch, k, counts[k]), learn=np.ones(1, bool), batch_size=64)
            assert together.keys() == alone.keys()
            for name, value in alone.items():
                np.testing.assert_allclose(together[name][k], value[0], rtol=1e-3, atol=2e-4, err_msg=name)
    assert_rows_equal(learner, [agent.learner_ for agent in agents])


DQN_KINDS = [
    pytest.param(3, VECTOR, {"target_sync": 3}, id="double-hard-3"),
    pytest.param(8, VECTOR, {"tau": 0.1, "dueling": True, "n_step": 3}, id="dueling-soft-nstep-8"),
    pytest.param(3, VECTOR, {"double": False, "target_sync": 7, "optimizer": "rmsprop"}, id="single-3"),
    pytest.param(8, IMAGE, {"cnn": True, "dueling": True, "target_sync": 5}, id="cnn-8"),
]


@pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
@pytest.mark.parametrize(("count", "space", "options"), DQN_KINDS)
def test_stacked_dqn_equals_looped(count, space, options, masked):
    options = dict(options)
    agents = [mt.DQN(space, spaces.Discrete(4), seed=k, network=network_of(options.copy()), **{
        name: value for name, value in options.items() if name != "cnn"
    }) for k in range(count)]  # fmt: skip
    learner, rng = stacked(agents), np.random.default_rng(2)
    for _ in range(UPDATES):
        batch = some_transitions(rng, space, 4, count, 11, n_step=options.get("n_step", 1), masked=masked)
        learner.update(batch, learn=everyone(learner), batch_size=11)
        for k, agent in enumerate(agents):
            agent.learner_.update(of_agent(batch, k), learn=np.ones(1, bool), batch_size=11)
    assert_rows_equal(learner, [agent.learner_ for agent in agents])


def test_padding_means_nothing():
    """The same rows with other rubbish behind them give the same weights, bit for bit."""
    rng = np.random.default_rng(3)
    counts = [9, 4]
    batch = some_rollout(rng, VECTOR, spaces.Discrete(3), counts)
    rubbish = some_rollout(rng, VECTOR, spaces.Discrete(3), [9, 9])
    for name in ("obs", "action", "reward"):
        getattr(rubbish, name)[1, :4] = getattr(batch, name)[1, :4]
        getattr(rubbish, name)[0] = getattr(batch, name)[0]
    for name in ("discount", "cut", "boot", "weight", "truncated", "boot_obs"):
        setattr(rubbish, name, getattr(batch, name))
    rubbish.extras["log_prob"][0] = batch.extras["log_prob"][0]
    rubbish.extras["log_prob"][1, :4] = batch.extras["log_prob"][1, :4]
    learners = [
        stacked([mt.PPO(VECTOR, spaces.Discrete(3), seed=k, minibatches=2) for k in range(2)]) for _ in range(2)
    ]
    for learner, given in zip(learners, (batch, rubbish), strict=True):
        learner.update(given, learn=everyone(learner), batch_size=64)
    for row in range(2):
        assert not moved(learners[0].export(row), learners[1].export(row))


@pytest.mark.parametrize("kind", ["ppo", "dqn"])
def test_a_row_that_does_not_learn_is_unchanged_to_the_bit(kind):
    make = mt.PPO if kind == "ppo" else mt.DQN
    options = {"minibatches": 3} if kind == "ppo" else {"tau": 0.5}
    agents = [make(VECTOR, spaces.Discrete(3), seed=k, **options) for k in range(3)]
    learner, rng = stacked(agents), np.random.default_rng(4)

    def update(learn):
        batch = (
            some_rollout(rng, VECTOR, spaces.Discrete(3), [9, 7, 8]) if kind == "ppo"
            else some_transitions(rng, VECTOR, 3, 3, 10)
        )  # fmt: skip
        return learner.update(batch, learn=np.array(learn), batch_size=64)

    update([True, True, True])  # moments are not zero from here on
    before = [learner.export(row) for row in range(3)]
    metrics = update([True, False, True])
    after = [learner.export(row) for row in range(3)]
    assert [moved(b, a) for b, a in zip(before, after, strict=True)] == [True, False, True]
    assert after[1].info["updates"] == before[1].info["updates"] == 1
    assert after[0].info["updates"] == 2
    assert np.isnan(metrics["loss/total"]).tolist() == [False, True, False]


def test_a_gradient_pass_with_nothing_to_learn_changes_nothing():
    """An agent without rows (at all, or in the last minibatches of an epoch) is skipped, and not moved by Adam."""
    agents = [mt.PPO(VECTOR, spaces.Discrete(3), seed=k, batch_size=3, epochs=1) for k in range(2)]
    learner, rng = stacked(agents), np.random.default_rng(5)
    learner.update(some_rollout(rng, VECTOR, spaces.Discrete(3), [9, 9]), learn=everyone(learner), batch_size=64)
    assert learner.gradient_steps.tolist() == [3, 3]
    learner.update(some_rollout(rng, VECTOR, spaces.Discrete(3), [10, 2]), learn=everyone(learner), batch_size=64)
    assert learner.gradient_steps.tolist() == [3 + 4, 3 + 1]
    before = learner.export(1)
    batch = some_rollout(rng, VECTOR, spaces.Discrete(3), [6, 6])
    batch.weight[1] = 0.0
    learner.update(batch, learn=everyone(learner), batch_size=64)
    assert learner.gradient_steps.tolist() == [9, 4]
    assert learner.updates.tolist() == [3, 2]
    assert not moved(before, learner.export(1))


def test_rows_with_different_numbers_equal_their_single_runs():
    """Learning rate, discount, clipping and epsilon differ between rows of one learner."""
    own: list[dict[str, Any]] = [
        {"learning_rate": 1e-3, "clip": 0.1, "max_grad_norm": 0.05, "entropy_coef": 0.0, "gae_lambda": 0.5},
        {"learning_rate": 1e-4, "clip": 0.3, "max_grad_norm": 5.0, "entropy_coef": 0.1, "gae_lambda": 1.0},
    ]
    agents = [mt.PPO(VECTOR, spaces.Discrete(3), seed=7, minibatches=2, **numbers) for numbers in own]
    assert agents[0].kind == agents[1].kind
    learner, rng = stacked(agents), np.random.default_rng(6)
    for _ in range(5):
        batch = some_rollout(rng, VECTOR, spaces.Discrete(3), [12, 12])
        learner.update(batch, learn=everyone(learner), batch_size=64)
        for k, agent in enumerate(agents):
            agent.learner_.update(of_agent(batch, k), learn=np.ones(1, bool), batch_size=64)
    assert_rows_equal(learner, [agent.learner_ for agent in agents])
    assert moved(learner.export(0), learner.export(1))


def test_a_number_set_in_one_row_stays_there():
    agents = [mt.PPO(VECTOR, spaces.Discrete(3), seed=3, minibatches=1, epochs=1) for _ in range(2)]
    learner = stacked(agents)
    for row, agent in enumerate(agents):
        agent.attach(learner, row)
    agents[1].hyper.learning_rate = 0.0
    before = learner.export(1)
    batch = some_rollout(np.random.default_rng(0), VECTOR, spaces.Discrete(3), [8, 8])
    metrics = learner.update(batch, learn=everyone(learner), batch_size=64)
    assert metrics["learning_rate/actor"].tolist() == [3e-4, 0.0]
    weights = [name for name in before.arrays if name.startswith("net/")]
    assert all((learner.export(1).arrays[name] == before.arrays[name]).all() for name in weights)
    assert any((learner.export(0).arrays[name] != before.arrays[name]).any() for name in weights)


@pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
@pytest.mark.parametrize("make", [mt.PPO, mt.DQN])
def test_acting_stacked_equals_acting_alone(make, masked):
    agents = [make(VECTOR, spaces.Discrete(4), seed=k) for k in range(3)]
    learner, rng = stacked(agents), np.random.default_rng(7)
    for _ in range(4):
        obs: Any = some_obs(rng, VECTOR, (3, 6))
        legal = some_legal(rng, rng.integers(4, size=(3, 6)), 4) if masked else None
        explore = rng.random((3, 6)) < 0.5
        together = learner.act(ActInputs(obs, legal, explore), turn=explore, rngs=learner.rngs("act"))
        for k, agent in enumerate(agents):
            alone = agent.decide(
                obs[k], None if legal is None else legal[k], None, turn=explore[k], explore=explore[k],
                rng=agent.learner_.rngs("act")[0],
            )  # fmt: skip
            assert together.action[k].tolist() == alone.action.tolist()
            for name, extra in alone.extras.items():
                np.testing.assert_allclose(together.extras[name][k], extra, atol=1e-5)
            if legal is not None:
                assert np.take_along_axis(legal[k], alone.action[:, None], 1).all()


def test_noise_is_drawn_for_every_row_whatever_turn_and_explore_say():
    streams = []
    for on in (True, False):
        learner = stacked([mt.PPO(VECTOR, spaces.Discrete(3), seed=1)])
        flags = np.full((1, 5), on)
        learner.act(ActInputs(np.zeros((1, 5, 5), np.float32), None, flags), turn=flags, rngs=learner.rngs("act"))
        streams.append(learner.export(0).info["rngs"])
    assert streams[0] == streams[1]


def test_test_streams_start_anew_and_move_nothing():
    learner = stacked([mt.PPO(VECTOR, spaces.Discrete(3), seed=k) for k in range(2)])
    before = [learner.export(k).info for k in range(2)]
    first, second = ([rng.random(3).tolist() for rng in learner.rngs("test")] for _ in range(2))
    assert first == second
    assert first[0] != first[1]
    assert [learner.export(k).info for k in range(2)] == before


def test_export_and_load_carry_everything():
    """An agent moved to another row of another learner goes on exactly as it would have."""
    rng = np.random.default_rng(8)
    options: dict[str, Any] = {"minibatches": 2, "epochs": 2, "learning_rate": mt.linear(1e-3, 1e-4, 100)}
    home = stacked([mt.PPO(VECTOR, spaces.Discrete(3), seed=5, **options)])
    away = stacked([mt.PPO(VECTOR, spaces.Discrete(3), seed=k, **options) for k in (8, 9)])
    home.apply_schedules(40)
    home.update(some_rollout(rng, VECTOR, spaces.Discrete(3), [9]), learn=everyone(home), batch_size=64)
    away.load(1, home.export(0))
    assert away.export(1).info == home.export(0).info
    assert not moved(home.export(0), away.export(1))
    batch = some_rollout(rng, VECTOR, spaces.Discrete(3), [8, 8])
    home.apply_schedules(60), away.apply_schedules(60)
    home.update(of_agent(batch, 1), learn=everyone(home), batch_size=64)
    away.update(batch, learn=everyone(away), batch_size=64)
    assert away.hyper.get(1, "learning_rate") == pytest.approx(1e-3 - 0.6 * 9e-4)
    assert_rows_equal(away, [], 0)
    for name, array in home.export(0).arrays.items():
        np.testing.assert_allclose(array, away.export(1).arrays[name], atol=1e-6, err_msg=name)
    assert home.export(0).info == away.export(1).info


def test_another_kind_of_agent_cannot_be_loaded():
    ppo, dqn = (make(VECTOR, spaces.Discrete(3), seed=0) for make in (mt.PPO, mt.DQN))
    with pytest.raises(SaveError, match="a dqn agent"):
        dqn.learner_.load(0, ppo.learner_.export(0))
    wide = mt.DQN(VECTOR, spaces.Discrete(3), seed=0, network=mt.MLP(hidden=(7, 7)))
    with pytest.raises(SaveError, match=r"of shape \(5, 64\), got float32 of shape \(5, 7\)"):
        dqn.learner_.load(0, wide.learner_.export(0))


# Numbers and schedules ------------------------------------------------------------------------------------------------


def test_schedules_are_evaluated_at_env_steps():
    agents = [
        mt.DQN(
            VECTOR, spaces.Discrete(3), seed=0, epsilon=mt.linear(1.0, 0.0, 100), learning_rate=mt.cosine(0.1, 0.0, 50)
        ),
        mt.DQN(VECTOR, spaces.Discrete(3), seed=1, epsilon=0.5),
    ]
    learner = stacked(agents)
    assert [learner.hyper.get(k, "epsilon") for k in (0, 1)] == [1.0, 0.5]
    learner.apply_schedules(25)
    assert [learner.hyper.get(k, "epsilon") for k in (0, 1)] == [0.75, 0.5]
    assert learner.hyper.get(0, "learning_rate") == pytest.approx(0.05)
    assert learner.hyper.tensors()["epsilon"].tolist() == [[0.75], [0.5]]
    learner.set_hyper(0, "epsilon", 0.3)  # a number ends the schedule
    learner.apply_schedules(75)
    assert learner.hyper.get(0, "epsilon") == 0.3
    learner.set_hyper(1, "epsilon", mt.linear(0.8, 0.4, 100))
    learner.apply_schedules(50)
    assert learner.hyper.get(1, "epsilon") == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("learning_rte", 0.1, "does not exist. Did you mean 'learning_rate'?"),
        ("epochs", 3, "is structural: make a new agent"),
        ("network", None, "is structural"),
        ("clip", 0.0, "clip must be greater than 0, got 0"),
        ("gamma", 1.5, "gamma must be at most 1, got 1.5"),
        ("gamma", None, "gamma must be a number"),
        ("gamma", mt.linear(2.0, 0.5, 10), "gamma must be at most 1, got 2"),
        ("gamma", mt.linear(0.5, 2.0, 10), "gamma must be at most 1, got 2"),
        ("learning_rate", float("nan"), "not a number"),
        ("learning_rate", "fast", "must be a number or Schedule, got 'fast'"),
        ("critic_learning_rate", 1e-3, "was made without"),
        ("max_grad_norm", None, "was made with"),
    ],
)
def test_what_a_hook_may_not_set(name, value, words):
    agent = mt.PPO(VECTOR, spaces.Discrete(3), seed=0)
    before = agent.learner_.export(0).info
    with pytest.raises(ConfigError) as caught:
        setattr(agent.hyper, name, value)
    assert words in str(caught.value)
    assert agent.learner_.export(0).info == before


def test_saving_moves_no_stream_of_a_model_of_ones_own():
    """Its seed at every act comes from the stream of the noise: none may be drawn ahead."""
    import torch

    def made():
        actor, critic = torch.nn.Linear(3, 4), torch.nn.Linear(3, 1)
        return mt.PPO(
            spaces.Box(-1, 1, (3,)), spaces.Discrete(4), seed=1, network=actor, critic_network=critic
        ).learner_

    def acts(learner, *, saving):
        chosen, on = [], np.ones((1, 6), bool)
        inputs = ActInputs(np.ones((1, 6, 3), np.float32), None, on)
        for _ in range(5):
            acted = learner.act(inputs, turn=on, rngs=learner.rngs("act") if saving else rngs)
            chosen.append(acted.action.tolist())
            if saving:
                learner.export(0)
        return chosen

    quiet, saved = made(), made()
    rngs = quiet.rngs("act")
    saved.load(0, quiet.export(0))
    assert acts(saved, saving=True) == acts(quiet, saving=False)


@pytest.mark.parametrize("kind", [mt.PPO, mt.DQN])
def test_acts_made_ready_for_compiled_code_draw_what_acts_do(kind):
    """Ten acts of 3 rows, of which 1, 2, 4 and 3 are made elsewhere, leave the streams where ten calls leave them."""
    both = [kind(VECTOR, spaces.Discrete(4), seed=2).learner_ for _ in range(2)]
    mine, theirs = both
    acting, rngs = mine.actor.compiled(), [learner.rngs("act") for learner in both]
    assert acting is not None
    obs, on = np.zeros((1, 3, 5), np.float32), np.ones((1, 3), bool)
    acting.set_arrays(obs=obs, legal=None, explore=on, action=np.zeros((1, 3), np.int64))
    result = 0
    while result < 10:
        first, left = mine.actor.prepare(acting, rngs[0])
        acts = min(left, 10 - result)
        noise = next(iter(mine.actor.noise.prepared(rngs[0], 3)[0].values()))
        for at in range(first, first + acts):
            expected = next(iter(theirs.actor.noise.next(rngs[1], 3).values()))
            np.testing.assert_array_equal(noise[:, at], expected)
        mine.actor.noise.skip(acts)
        result += acts
    assert mine.export(0).info == theirs.export(0).info


def test_a_learner_that_does_not_act_in_compiled_code_says_so():
    learner = mt.DQN(VECTOR, spaces.Discrete(4), seed=2, dueling=True).learner_
    assert learner.actor.compiled() is None
    assert Learner().actor is None
