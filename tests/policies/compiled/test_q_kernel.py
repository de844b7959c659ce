"""A gradient pass in compiled code, worked out by hand: what values aim at, slopes, clipping, and who is left alone."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from marltrain.core.layout import Layout
from marltrain.jit.views import address_of
from marltrain.policies.compiled.network import write_network
from marltrain.policies.compiled.optimizers import ADAM, LANES, RMSPROP, RULES, SGD
from marltrain.policies.compiled.q_kernel import (
    CLIPPED,
    LOSS,
    MEAN,
    METRICS,
    NORM,
    Q_STEP,
    apply_gradients,
    loss_gradient,
    step,
    step_at,
    update_targets,
    write_targets,
)
from marltrain.policies.networks.specs import MLP, Head, NetworkDefinition, Plan
from tests.policies.compiled.test_acting_by_hand import IDENTITY
from tests.policies.compiled.test_network import UNTOUCHED, Place, given, room

DOWN = [-1, 0, 0, 0, -1, 0, 0, 0, -5]
"""Of an observation (a, b): -a, -b and -5. Weights [2, 3], then three biases."""


def biases(*values):
    """Values whatever is seen."""
    return [*[0] * 6, *values]


class Agents:
    """K agents whose three values are linear in two numbers, with rows to learn from; all memory around is watched.

    Whatever is not given of the rows is 0, their shares are equal, and there is no limit.
    """

    def __init__(self, weights, target=None, *, rows=1, rule=SGD, double=False, due=None, limit=None, rate=None, **of):
        agents = len(weights)
        plan = Plan(NetworkDefinition(MLP(()), [Head(3)], Layout(spaces.Box(-9, 9, (2,), np.float32))))
        self.record: Any = np.zeros(1, Q_STEP)[0]
        write_network(self.record, plan)
        self.read = {
            "obs": np.zeros((agents, rows, 2)), "next_obs": np.zeros((agents, rows, 2)),
            "reward": np.zeros((agents, rows)), "discount": np.zeros((agents, rows)),
            "share": np.full((agents, rows), 1 / rows),
            "limit": [np.inf] * agents if limit is None else limit, "rate": [0.5] * agents if rate is None else rate,
            "weight_decay": [0] * agents, "momentum": [0] * agents,
            "zeros": [0, 0, 0], **{name: of[name] for name in of if name not in ("action", "next_legal")},
        }  # fmt: skip
        self.written = {
            "weights": weights, "target": weights if target is None else target, "first": np.zeros((agents, 9)),
            "second": np.zeros((agents, 9)), "count": np.zeros(agents),
        }  # fmt: skip
        sizes = {"metrics": (4, agents), "activations": 3 * rows, "next_activations": 3 * rows, "gradient": 9,
                 "targets": rows, "transposed": 9, "scratch": max(LANES, 6, 2 * rows)}  # fmt: skip
        self.read = {name: given(values) for name, values in self.read.items()}
        self.written = {name: Place(values, UNTOUCHED) for name, values in self.written.items()}
        self.written |= {name: room(*np.atleast_1d(size)) for name, size in sizes.items()}
        self.others = {
            "action": np.array(of.get("action", np.zeros((agents, rows))), np.int64),
            "due": np.array([True] * agents if due is None else due),
            "epsilon": np.array([1e-8]),
        }
        if "next_legal" in of:
            self.others["next_legal"] = np.array(of["next_legal"], bool)
        self.record["agents"], self.record["rows"], self.record["rule"], self.record["double"] = (
            agents,
            rows,
            rule,
            double,
        )
        for name, place in (self.read | self.written).items():
            self.record[name] = place.at
        for name, array in self.others.items():
            self.record[name] = address_of(array)

    def __getitem__(self, name):
        """The array at the address in the arguments."""
        return (self.read | self.written)[name].numbers

    def watch(self):
        for place in self.read.values():
            place.assert_unchanged()
        for place in self.written.values():
            place.assert_kept()

    def aims(self):
        """What each agent's values aim at, [K, B]."""
        result = []
        for k in range(self.record["agents"]):
            write_targets(self.record, k)
            result.append(self["targets"].tolist())
            self.watch()
        return result

    def slopes(self, k, aims):
        """The gradient [9] of one agent's loss."""
        self["targets"][:] = aims
        loss_gradient(self.record, k, self["metrics"].reshape(-1))
        self.watch()
        return self["gradient"].tolist()

    def apply_gradients(self, k, gradient, loss=0.0):
        """Move one agent by a gradient."""
        self["gradient"][:] = gradient
        self["metrics"][LOSS, k] = loss
        fine = apply_gradients(self.record, k, self["metrics"].reshape(-1))
        self.watch()
        return fine


def test_metrics_are_in_their_places():
    assert (METRICS, LOSS, MEAN, NORM, CLIPPED) == (4, 0, 1, 2, 3)


def test_a_record_lies_at_its_address():
    record = np.zeros(1, Q_STEP)
    record["rows"] = 7
    assert step_at(address_of(record))["rows"] == 7


# What values aim at ---------------------------------------------------------------------------------------------------

NEXT = [[1, 2], [3, 1], [-1, -2], [100, 100]]
REWARD, DISCOUNT = [1, 2, 3, -7], [0.5, 0.25, 0.125, 0]
OTHERS = [[10, 0], [20, 0], [30, 0], [40, 0]]
"""The first agent's values of (a, b) are a, b, 0; by its target -a, -b, -5. The second's are 0, 1, 2; 5, 6, a + 7."""
AIMS = {
    (False, False): [[1 - 0.5, 2 - 0.25, 3 + 0.25, -7], [27, 20, 48.5, 87]],
    (True, False): [[1 - 1, 2 - 0.75, 3 - 0.625, -7], [27, 20, 48.5, 87]],
    (False, True): [[1 - 0.5, 2 - 1.25, 3 + 0.125, -7], [16, 20, 48.5, 46]],
    (True, True): [[1 - 0.5, 2 - 1.25, 3 - 0.625, -7], [16, 20, 48.5, 46]],
}
"""By whether it is double, and whether there are masks."""
LEGAL = [[[0, 0, 0], [0, 0, 1], [1, 0, 1], [1, 0, 0]], [[1, 1, 0], [1, 1, 0], [0, 0, 1], [0, 1, 0]]]
"""None at all is as of a row without a turn: the first action is as good as any."""


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("double", [False, True])
def test_what_values_aim_at(double, masked):
    both = Agents(
        [IDENTITY, biases(0, 1, 2)], [DOWN, [0, 0, 1, 0, 0, 0, 5, 6, 7]], rows=4, double=double,
        next_obs=[NEXT, OTHERS],
        reward=[REWARD, [10, 20, 30, 40]], discount=[DISCOUNT, [1, 0, 0.5, 1]],
        **({"next_legal": LEGAL} if masked else {}),
    )  # fmt: skip
    assert both.aims() == AIMS[double, masked]


# Slopes ---------------------------------------------------------------------------------------------------------------


def five_rows(share=(0.25, 0.25, 0.125, 0, 0.375)):
    """Values 2, 3, 0, 4 and 1 of the actions taken; a second agent learns from as many others."""
    return Agents(
        [biases(1, 1, 1), IDENTITY], rows=5,
        obs=[np.full((5, 2), 50), [[2, 1], [0, 3], [1, 1], [4, 0], [1, 0]]],
        action=[[2] * 5, [0, 1, 2, 0, 0]], share=[[0.2] * 5, share],
    )  # fmt: skip


def test_slopes_by_hand():
    """Errors 0.5, -2, 0, one of a row without weight, -1: slopes of 0.125 at (2, 1), -0.25 at (0, 3), -0.375 at (1, 0).

    The inputs' weights of the first action get 0.125 * 2 - 0.375 * 1 and 0.125 * 1, those of the second 0 and -0.75.
    """
    both = five_rows()
    gradient = both.slopes(1, [1.5, 5, 0, 1e6, 2])
    assert gradient == [0.25 - 0.375, 0, 0, 0.125, -0.75, 0, 0.125 - 0.375, -0.25, 0]
    assert both["metrics"][LOSS, 1] == 0.25 * 0.125 + 0.25 * 1.5 + 0.375 * 0.5
    assert both["metrics"][MEAN, 1] == 0.25 * 2 + 0.25 * 3 + 0.375 * 1
    assert np.isnan(both["metrics"][:, 0]).all()  # the other one's are not touched


def test_slopes_of_the_first_agent_by_hand():
    """Values 1 at (50, 50), errors 3, 0.25 and three of -0.5: of the last action 0.2 * (1 + 0.25 - 1.5) = -0.05."""
    both = five_rows()
    gradient = both.slopes(0, [-2, 0.75, 1.5, 1.5, 1.5])
    np.testing.assert_allclose(gradient, [0, 0, -2.5, 0, 0, -2.5, 0, 0, -0.05], rtol=1e-5)
    assert both["metrics"][LOSS, 0] == pytest.approx(0.2 * (2.5 + 0.03125 + 3 * 0.125))
    assert both["metrics"][MEAN, 0] == pytest.approx(1)


@pytest.mark.parametrize(
    ("error", "loss", "slope"),
    [(0, 0, 0), (0.5, 0.125, 0.5), (-0.5, 0.125, -0.5), (1, 0.5, 1), (-1, 0.5, -1), (4, 3.5, 1), (-1000, 999.5, -1)],
)
def test_the_loss_is_hubers(error, loss, slope):
    one = Agents([biases(0, 8, 0)], action=[[1]])
    assert one.slopes(0, [8 - error]) == biases(0, slope, 0)
    assert one["metrics"][:2, 0].tolist() == [loss, 8]


# Moves ----------------------------------------------------------------------------------------------------------------

THREE_FOUR = [0, 3, 0, 0, 0, 0, 0, -4, 0]


@pytest.mark.parametrize(("limit", "factor"), [(np.inf, 1), (6, 1), (5, 1), (2.5, 0.5), (0.005, 0.001)])
def test_a_gradient_is_clipped_to_a_norm(limit, factor):
    """Of two agents with limits and rates of their own, one is moved."""
    both = Agents([IDENTITY, IDENTITY], limit=[1e-3, limit], rate=[9, 0.5])
    assert both.apply_gradients(1, THREE_FOUR)
    np.testing.assert_allclose(both["weights"][1], np.array(IDENTITY) - 0.5 * factor * np.array(THREE_FOUR), rtol=1e-6)
    assert both["weights"][0].tolist() == IDENTITY
    assert both["metrics"][NORM, 1] == 5
    assert both["metrics"][CLIPPED, 1] == pytest.approx(5 * factor, rel=1e-6)
    assert both["count"].tolist() == [0, 1]


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_moves_the_weights_and_moments_of_its_agent(rule):
    """By slopes 3 and -4: Adam's first step is one of the rate, that of RMSprop of ten times the rate."""
    both = Agents([IDENTITY, IDENTITY], rule=RULES[rule], rate=[9, 0.5])
    assert both.apply_gradients(1, THREE_FOUR)
    gradient = np.array(THREE_FOUR)
    first = np.sign(gradient)
    step = {"adam": first, "adamw": first, "rmsprop": 10 * first, "sgd": gradient}[rule]
    np.testing.assert_allclose(both["weights"], [IDENTITY, np.array(IDENTITY) - 0.5 * step], rtol=1e-6)
    nothing = np.zeros(9)
    np.testing.assert_allclose(
        both["first"], [nothing, 0.1 * gradient if rule in ("adam", "adamw") else nothing], rtol=1e-6
    )
    share = {"adam": 0.001, "adamw": 0.001, "rmsprop": 0.01, "sgd": 0}[rule]
    np.testing.assert_allclose(both["second"], [nothing, share * gradient**2], rtol=1e-6)
    assert both["count"].tolist() == [0, 1]
    assert both.apply_gradients(1, THREE_FOUR)
    assert both["count"].tolist() == [0, 2]


def test_adam_knows_how_many_steps_came_before_and_its_epsilon():
    """After 9 steps the moments 0.5 and 0.25 of a slope of 0 are 0.45 / (1 - 0.9^10) and 0.24975 / (1 - 0.999^10)."""
    one = Agents([IDENTITY], rule=ADAM)
    one["first"][:], one["second"][:], one["count"][:] = 0.5, 0.25, 9
    one.others["epsilon"][:] = 0.125
    one.apply_gradients(0, [0] * 9)
    step = 0.5 * (0.45 / (1 - 0.9**10)) / (np.sqrt(0.24975 / (1 - 0.999**10)) + 0.125)
    np.testing.assert_allclose(one["weights"][0], np.array(IDENTITY) - step, rtol=1e-6)


def test_rmsprop_knows_its_epsilon():
    one = Agents([IDENTITY], rule=RMSPROP)
    one.others["epsilon"][:] = 0.125
    one.apply_gradients(0, THREE_FOUR)
    np.testing.assert_allclose(one["weights"][0, 1], -0.5 * 3 / (0.3 + 0.125), rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("loss", "slope"), [(np.inf, 1), (-np.inf, 1), (np.nan, 1), (1, np.inf), (1, -np.inf), (1, np.nan), (1, 3e38)]
)
def test_what_is_not_finite_moves_no_weight(rule, loss, slope):
    """Nor do slopes whose squares are not. Moments fade, and the step is counted, as with the framework."""
    both = Agents([IDENTITY, IDENTITY], rule=RULES[rule], limit=[1, 1])
    both["first"][:], both["second"][:], both["count"][:] = 0.5, 0.25, 9
    assert both.apply_gradients(1, biases(0, slope, 0), loss) is False
    assert both["weights"].tolist() == [IDENTITY, IDENTITY]
    assert np.isnan(both["metrics"][NORM, 1])
    first = {"adam": 0.45, "adamw": 0.45, "rmsprop": 0.5, "sgd": 0.5}[rule]
    second = {"adam": 0.24975, "adamw": 0.24975, "rmsprop": 0.2475, "sgd": 0.25}[rule]
    np.testing.assert_allclose(both["first"], np.repeat([[0.5], [first]], 9, 1), rtol=1e-6)
    np.testing.assert_allclose(both["second"], np.repeat([[0.25], [second]], 9, 1), rtol=1e-6)
    assert both["count"].tolist() == [9, 10]


def test_what_is_large_and_finite_moves():
    one = Agents([biases(0, 0, 0)], limit=[0.5])
    assert one.apply_gradients(0, biases(0, 1e18, 0), 3e38) is True
    np.testing.assert_allclose(one["weights"][0], biases(0, -0.25, 0), rtol=1e-6)
    np.testing.assert_allclose(one["metrics"][[NORM, CLIPPED], 0], [1e18, 0.5], rtol=1e-6)


# Whole passes ---------------------------------------------------------------------------------------------------------


def three(due, rewards=(0, 0, 0)):
    """Three agents of one row each; they value the action taken by 1, 2 and 3 and aim at their rewards."""
    return Agents([biases(1, 0, 0), biases(0, 2, 0), biases(0, 0, 3)], due=due, action=[[0], [1], [2]],
                  reward=np.array(rewards)[:, None], discount=np.zeros((3, 1)), rate=[0.5, 0.25, 0.125])  # fmt: skip


def test_a_pass_of_all():
    """Errors 1, 2 and 3: slopes of 1 by the bias alone."""
    all_three = three([True, True, True])
    assert step(all_three.record) is True
    all_three.watch()
    assert all_three["weights"].tolist() == [biases(0.5, 0, 0), biases(0, 1.75, 0), biases(0, 0, 2.875)]
    expected = np.array([[0.5, 1.5, 2.5], [1, 2, 3], [1, 1, 1], [1, 1, 1]])
    np.testing.assert_allclose(all_three["metrics"], expected, rtol=1e-6)
    assert all_three["count"].tolist() == [1, 1, 1]


def test_who_is_not_due_is_left_alone():
    some = three([False, True, False])
    before = {name: some[name].copy() for name in ("weights", "target", "first", "second", "count")}
    assert step(some.record) is True
    some.watch()
    for name, array in before.items():
        np.testing.assert_array_equal(some[name][[0, 2]], array[[0, 2]], err_msg=name)
    assert some["weights"][1].tolist() == biases(0, 1.75, 0)
    assert some["count"].tolist() == [0, 1, 0]
    np.testing.assert_allclose(some["metrics"], np.array([[1.5, 2, 1, 1]]).T * [0, 1, 0], rtol=1e-6)


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_one_that_is_not_finite_is_told_and_holds_up_no_other(wrong):
    rewards = np.zeros(3)
    rewards[wrong] = np.inf
    all_three = three([True, True, True], rewards)
    before = all_three["weights"].copy()
    assert step(all_three.record) is False
    all_three.watch()
    stayed = (all_three["weights"] == before).all(1)
    assert stayed.tolist() == [k == wrong for k in range(3)]
    assert np.isnan(all_three["metrics"][NORM]).tolist() == stayed.tolist()
    assert step(three([k != wrong for k in range(3)], rewards).record) is True  # who is not due is not looked at


def test_a_pass_aims_by_the_target_and_keeps_it():
    """0 + 0.5 * 7 by the target, against 1; the weights of the target stay as they are."""
    one = Agents([biases(1, 0, 0)], [biases(5, 6, 7)], discount=[[0.5]])
    step(one.record)
    assert one["metrics"][:2, 0].tolist() == [2, 1]
    assert one["weights"][0].tolist() == biases(1.5, 0, 0)
    assert one["target"][0].tolist() == biases(5, 6, 7)


def test_targets_follow_by_their_shares():
    """One that does not follow is not looked at."""
    online = [biases(4, 0, 8), biases(np.inf, 0, 8), biases(4, 0, 8)]
    agents = Agents(online, [biases(0, 8, 8)] * 3)
    shares = given([0.25, 0, 1])
    update_targets(agents.record, shares.at)
    agents.watch()
    assert agents["target"].tolist() == [biases(1, 6, 8), biases(0, 8, 8), biases(4, 0, 8)]
    assert agents["weights"].tolist() == online
