"""Gradient steps of teams in compiled code: by hand, as the framework's, and exactly continued once loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import marltrain as mt
from marltrain.policies.batches.batch import TeamBatch, TeamRows
from marltrain.policies.learner.algorithm_learner import AlgorithmLearner
from marltrain.policies.learner.gradient_steps import GradientSteps
from marltrain.policies.learner.joint_learner import JointLearner
from marltrain.policies.learner.programs.program_steps import ProgramSteps
from marltrain.policies.networks.specs import MLP
from tests.policies.learner.programs.test_program_steps import COMPILED, PLAIN, assert_close, assert_metrics_close
from tests.policies.some_batches import VECTOR, some_team
from tests.tiers import LONG, rounds

SIZES = (7, 64, 3)
"""Numbers of batch steps, in turn."""
E_3 = np.exp(-3)


def team_of(backend: Any, algo: Any, seats: int = 1, order: Any = (0, 1, 2), own: Any = None, **settings: Any) -> Any:
    """A team of agents of one kind with targets of their own; `own`: numbers that differ between the agents."""
    sizes = {} if algo is mt.VDN else {"state_size": 4, "mixing_units": 5, "hyper_units": 9}
    given = {"network": MLP((5, 9)), "team_size": len(order), "learning_rate": 3e-3, **sizes, **settings}
    agent = algo(VECTOR, spaces.Discrete(4), seed=0, device="cpu", **given)
    member = AlgorithmLearner(agent.algorithm, backend, list(range(len(order) // seats)), draw=True)
    for name, values in (own or {}).items():
        for row, value in enumerate(values):
            member.set_hyper(row, name, value)
    rng = np.random.default_rng(0)
    result = JointLearner([member], [seats], order)
    for weights in (member.weights, result.team):
        for target in weights.target.values():
            target.flat.add_(backend.tensor(rng.normal(scale=0.3, size=target.flat.shape).astype(np.float32)))
    return result


def teams(algo: Any, **settings: Any) -> list[Any]:
    """The same team twice: with compiled gradient steps and with those of torch."""
    result = [team_of(backend, algo, **settings) for backend in (COMPILED, PLAIN)]
    assert [type(team.steps) for team in result] == [ProgramSteps, GradientSteps]
    return result


def batch_of(rng: np.random.Generator, team: JointLearner, seats: int, rows: int, *, masked: bool) -> TeamBatch:
    """Batch steps in which players are absent; in one batch of eight the first agent never acts, and steps weigh 0.

    In one batch of two, some decisions are not learned from.
    """
    batch = some_team(rng, team.members, [seats], rows, masked=masked)
    if rng.random() < 0.5:
        own = batch.members[0]
        own.learned = rng.random(own.weight.shape) < 0.7
        own.weight *= own.learned
    if rng.random() < 0.125:
        batch.members[0].weight[0], batch.members[0].present[0] = 0, False
        batch.weight[0, : rows // 2] = 0
    return batch


# By hand --------------------------------------------------------------------------------------------------------------


def by_hand(jit_compile: bool, *, skip: bool) -> tuple[JointLearner, TeamBatch]:
    """Two players whose value of action 0 is what they see, a mixer of constant weights, and two batch steps.

    |W1| is (1, 2), (3, 0.5), b1 (-1, 4), |w2| (2, 1) and V 0.25; the hidden layer of the mixer's network is 0.5.
    Values (2, 1): hidden (4, 8.5), Q_tot 16.75. Values (-2, 0): elu(-3) = e^-3 - 1 and 0, Q_tot 2 e^-3 - 1.75.
    """
    agents: list[Any] = [
        mt.QMIX(
            spaces.Box(-9, 9, (1,), np.float32), spaces.Discrete(2), seed=i, team_size=2, state_size=1, mixing_units=2,
            hyper_units=1, network=MLP(()), optimizer="sgd", learning_rate=1.0, max_grad_norm=None, device="cpu",
            jit_compile=jit_compile, skip_connection=skip,
        )
        for i in range(2)
    ]  # fmt: skip
    member = AlgorithmLearner(agents[0].algorithm, agents[0].backend, [0, 1], draw=True)
    for row in range(2):
        state = member.export(row)
        state.arrays["net/q/head0.weight"][...], state.arrays["net/q/head0.bias"][...] = [[1, 0]], 0
        for name, array in state.arrays.items():
            if name.startswith("team/net/mixer"):
                array[...] = np.arctanh(0.5) if name.endswith("hidden0.bias") else 0
        state.arrays["team/net/mixer/head0.bias"][...] = [1, -2, -3, 0.5, -1, 4, 2, -1, 0.25]
        member.load(row, state)
    seen, nothing = np.array([[[2], [-2]], [[1], [0]]], np.float32), np.zeros((2, 2), np.float32)
    everyone = np.ones((2, 2), bool)
    rows = TeamRows(
        obs=seen, legal=None, action=np.zeros((2, 2), np.int64), reward=nothing, discount=nothing,
        weight=np.ones((2, 2), np.float32), extras={}, next_obs=seen, next_legal=None, cells=np.zeros((2, 2), np.int64),
        present=everyone, next_present=everyone,
    )  # fmt: skip
    seen_by_all = np.array([[[1], [10]]], np.float32)
    reward = np.array([[16.75 - 1, 2 * E_3 - 1.75 - 2]], np.float32)
    flat = np.ones((1, 2), np.float32)
    batch = TeamBatch([rows], reward, 0 * flat, flat, state=seen_by_all, next_state=seen_by_all)
    return JointLearner([member], [1], [0, 1]), batch


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("jit_compile", [False, True])
def test_gradients_of_a_mixture_by_hand(jit_compile, skip):
    """Errors 1 and 2 of two steps: slopes 1 and 2 of Q_tot, and plain gradient descent with rate 1 shows the gradients.

    Of the hidden units, 2 and 1 in the first step, 4 e^-3 and 2 in the second: times |W1| that is 4 and 6.5, 4 + 4 e^-3
    and 1 + 12 e^-3 for the values. With a skip connection, the slope of each value is greater by that of Q_tot.
    """
    team, batch = by_hand(jit_compile, skip=skip)
    assert team.steps.plannable is jit_compile
    if skip:
        batch.reward += [[3, -2]]  # the sums of the values
    before = [team.members[0].export(row).arrays for row in range(2)]
    metrics = team.update(batch, learn=np.ones(2, bool), batch_size=2)
    after = [team.members[0].export(row).arrays for row in range(2)]
    down = [{name: was[name] - now[name] for name in was} for was, now in zip(before, after, strict=True)]
    of_mixer = [4 - 8 * E_3, 2, -2, 1, 2 + 4 * E_3, 3, 2 + 2 * E_3, -8.5, 3]
    np.testing.assert_allclose(down[0]["team/net/mixer/head0.bias"], of_mixer, rtol=1e-5)
    np.testing.assert_allclose(down[0]["team/net/mixer/head0.weight"], 0.5 * np.array([of_mixer]), rtol=1e-5)
    slopes = np.array([[4, 4 + 4 * E_3], [6.5, 1 + 12 * E_3]]) + skip * np.array([1, 2])
    for own, slope, seen in zip(down, slopes, ([2, -2], [1, 0]), strict=True):
        np.testing.assert_allclose(own["net/q/head0.bias"], [slope.sum(), 0], rtol=1e-5)
        np.testing.assert_allclose(own["net/q/head0.weight"], [[slope @ seen, 0]], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(metrics["loss/total"], [2.5] * 2, rtol=1e-5)
    np.testing.assert_allclose(metrics["q_mean"], [(15 + 2 * E_3 + skip) / 2] * 2, rtol=1e-5)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_decision_that_is_not_learned_from_is_mixed_without_a_gradient_by_hand(jit_compile):
    """That of the second player in the first step; see the test before: its slope 6.5 is left out, others stay."""
    team, batch = by_hand(jit_compile, skip=False)
    batch.members[0].learned = np.array([[True, True], [False, True]])
    batch.members[0].weight[1, 0] = 0
    before = [team.members[0].export(row).arrays for row in range(2)]
    metrics = team.update(batch, learn=np.ones(2, bool), batch_size=2)
    after = [team.members[0].export(row).arrays for row in range(2)]
    down = [{name: was[name] - now[name] for name in was} for was, now in zip(before, after, strict=True)]
    of_mixer = [4 - 8 * E_3, 2, -2, 1, 2 + 4 * E_3, 3, 2 + 2 * E_3, -8.5, 3]
    np.testing.assert_allclose(down[0]["team/net/mixer/head0.bias"], of_mixer, rtol=1e-5)
    for own, slope, seen in zip(down, ([4, 4 + 4 * E_3], [0, 1 + 12 * E_3]), ([2, -2], [1, 0]), strict=True):
        np.testing.assert_allclose(own["net/q/head0.bias"], [sum(slope), 0], rtol=1e-5)
        np.testing.assert_allclose(own["net/q/head0.weight"], [[np.dot(slope, seen), 0]], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(metrics["loss/total"], [2.5] * 2, rtol=1e-5)


# As the framework -----------------------------------------------------------------------------------------------------

RATES = (1e-3, 3e-3, 2e-4)
CASES: dict[str, dict[str, Any]] = {
    "vdn, double, masked": {"algo": mt.VDN, "target_sync": 7, "own": {"learning_rate": RATES}},
    "qmix, double, masked, clipped": {"algo": mt.QMIX, "target_sync": 7, "max_grad_norm": 0.5, "order": (2, 0, 1)},
    "qmix, relu, tau, skip": {
        "algo": mt.QMIX, "network": MLP((5, 9), "relu"), "double": False, "masked": False, "tau": 0.1,
        "skip_connection": True, "mixer_learning_rate": 1e-3, "max_grad_norm": None,
        "own": {"learning_rate": RATES, "tau": (0.1, 1.0, 0.005)},
    },
    "qmix, one agent in three seats": {"algo": mt.QMIX, "seats": 3, "order": (1, 2, 0), "target_sync": 5},
    **({
        "vdn, two agents in four seats, rmsprop": {
            "algo": mt.VDN, "seats": 2, "order": (0, 2, 1, 3), "optimizer": "rmsprop", "network": MLP((5,)),
        },
        "qmix, sgd with momentum, L2": {
            "algo": mt.QMIX, "network": MLP((5,)), "optimizer": "sgd", "learning_rate": 0.01, "tau": 0.05,
            "own": {"weight_decay": (0.1, 0.0, 0.02), "momentum": (0.5, 0.9, 0.0)},
        },
        "qmix, adamw": {"algo": mt.QMIX, "optimizer": "adamw", "weight_decay": 0.1},
    } if LONG else {}),
}  # fmt: skip
LEARN = [(1, 1, 1, 1), (1, 0, 1, 1), (0, 1, 1, 0), (1, 1, 0, 1)]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_updates_are_those_of_torch(case):
    """Batches of several sizes, with masks, absent players, players without a next value, and agents that do not learn.

    Weights, targets and moments of the agents and of the mixer, and every metric.
    """
    settings = dict(case)
    seats, masked, algo = settings.get("seats", 1), settings.pop("masked", True), settings.pop("algo")
    native, plain = teams(algo, **settings)
    rng, start = np.random.default_rng(3), plain.members[0].export(0)
    for i in range(rounds(24, 60)):
        batch = batch_of(rng, native, seats, SIZES[i % len(SIZES)], masked=masked)
        learn = np.array(LEARN[i % len(LEARN)][: native.num_agents], bool)
        if not learn.any():
            learn[:] = True
        measured = [team.update(batch, learn=learn, batch_size=batch.reward.size) for team in (native, plain)]
        assert_metrics_close(*measured)
        assert native.skipped.keys() == plain.skipped.keys()
    assert_close(native.members[0], plain.members[0])
    assert any((start.arrays[name] != array).any() for name, array in plain.members[0].export(0).arrays.items())


def test_an_agent_that_does_not_learn_and_one_without_rows_stay():
    native, _ = teams(mt.QMIX)
    rng = np.random.default_rng(5)
    native.update(batch_of(rng, native, 1, 9, masked=True), learn=np.ones(3, bool), batch_size=9)
    before = [native.members[0].export(row).arrays for row in range(3)]
    batch = some_team(rng, native.members, [1], 9)
    batch.members[0].weight[2] = 0
    native.update(batch, learn=np.array([0, 1, 1], bool), batch_size=9)
    after = [native.members[0].export(row).arrays for row in range(3)]
    same = [
        all((was[name] == now[name]).all() for name in was if not name.startswith("team"))
        for was, now in zip(before, after, strict=True)
    ]
    assert same == [True, False, True]
    assert (before[0]["team/net/mixer/head0.bias"] != after[0]["team/net/mixer/head0.bias"]).any()


@pytest.mark.parametrize("wrong", ["reward", "obs"])
def test_after_a_loss_that_is_not_finite_no_weight_changes(wrong):
    native, plain = teams(mt.QMIX)
    rng = np.random.default_rng(5)
    batch = some_team(rng, native.members, [1], 9)
    batch.members[0].present[...] = True
    obs: Any = batch.members[0].obs
    broken = batch.reward if wrong == "reward" else obs[0]
    broken[0, 0] = np.nan
    before = native.members[0].export(1).arrays
    for team in (native, plain):
        measured = team.update(batch, learn=np.ones(3, bool), batch_size=9)
        assert np.isnan(measured["grad_norm/q"]).all() and np.isnan(measured["grad_norm/mixer"]).all()
    after = native.members[0].export(1).arrays
    assert all((before[name] == after[name]).all() for name in before if "net/" in name and "target" not in name)


def test_a_loaded_team_goes_on_exactly():
    """In a team that has learned before: the addresses that compiled code knows stay valid."""
    home, away = (team_of(COMPILED, mt.QMIX, target_sync=3) for _ in range(2))
    rng = np.random.default_rng(8)
    batches = [batch_of(rng, home, 1, 9, masked=True) for _ in range(9)]
    for batch in batches[:5]:
        home.update(batch, learn=np.ones(3, bool), batch_size=9)
    away.update(batches[7], learn=np.ones(3, bool), batch_size=9)
    for row in range(3):
        away.members[0].load(row, home.members[0].export(row))
    for batch in batches[5:]:
        for team in (home, away):
            team.update(batch, learn=np.ones(3, bool), batch_size=9)
    for row in range(3):
        result, expected = away.members[0].export(row), home.members[0].export(row)
        assert result.info["updates"] == expected.info["updates"] >= 8
        for name, array in result.arrays.items():
            np.testing.assert_array_equal(array, expected.arrays[name], err_msg=name)
