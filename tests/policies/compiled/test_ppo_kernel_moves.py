"""Moves of actors and critics in compiled code, worked out by hand; whole updates, equal for any number of threads."""

import numpy as np
import pytest

from marltrain.policies.compiled.optimizers import ADAM, RMSPROP, RULES
from marltrain.policies.compiled.ppo_kernel import ACTOR_LOSS, CRITIC_LOSS, ENTROPY, LOSS, NORM, apply_gradients
from tests.policies.compiled.actor_critics import NAMES, Agents, exact, three
from tests.policies.compiled.test_network import Place, given


def biases(*values):
    """Of a layer of two inputs: outputs whatever is seen."""
    return [*[0] * (2 * len(values)), *values]


# Moves ----------------------------------------------------------------------------------------------------------------

THREE, FOUR = biases(0, 3, 0), biases(-4)
"""Gradients of an actor and a critic: together of length 5."""


@pytest.mark.parametrize(("limit", "factor"), [(np.inf, 1), (6, 1), (5, 1), (2.5, 0.5), (0.005, 0.001)])
def test_gradients_are_clipped_together(limit, factor):
    """Of two agents with limits and rates of their own, one is moved; its networks have rates of their own."""
    both = Agents(2, limit=[1e-3, limit], actor=biases(1, 2, 3), critic=biases(4), actor_rate=[9, 0.5],
                  critic_rate=[9, 0.25], value_coef=[np.nan, 2], entropy_coef=[np.nan, 0.5])  # fmt: skip
    metrics = both.apply_gradients(1, THREE, FOUR, {ACTOR_LOSS: 1, CRITIC_LOSS: 10, ENTROPY: 4})
    np.testing.assert_allclose(both["actor/weights"], [biases(1, 2, 3), biases(1, 2 - 1.5 * factor, 3)], rtol=1e-6)
    np.testing.assert_allclose(both["critic/weights"], [biases(4), biases(4 + factor)], rtol=1e-6)
    np.testing.assert_allclose(metrics[NORM:], [3, 3 * factor, 4, 4 * factor], rtol=1e-6)
    assert metrics[: LOSS + 1].tolist() == [1, 10, 1 + 20 - 2]
    assert both["actor/count"].tolist() == both["critic/count"].tolist() == [0, 1]


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_moves_the_weights_and_moments_of_its_agent(rule):
    """Adam's first step is one of the rate, that of RMSprop of ten times the rate."""
    both = Agents(2, rule=RULES[rule], actor_rate=[9, 0.5], critic_rate=[9, 0.25])
    both.apply_gradients(1, THREE, FOUR, {})
    for name, rate, slopes in (("actor", 0.5, np.array(THREE)), ("critic", 0.25, np.array(FOUR))):
        step = {"adam": np.sign(slopes), "adamw": np.sign(slopes), "rmsprop": 10 * np.sign(slopes), "sgd": slopes}[rule]
        nothing = np.zeros(len(slopes))
        np.testing.assert_allclose(both[f"{name}/weights"], [nothing, -rate * step], rtol=1e-6)
        first = 0.1 * slopes if rule in ("adam", "adamw") else nothing
        np.testing.assert_allclose(both[f"{name}/first"], [nothing, first], rtol=1e-6)
        share = {"adam": 0.001, "adamw": 0.001, "rmsprop": 0.01, "sgd": 0}[rule]
        np.testing.assert_allclose(both[f"{name}/second"], [nothing, share * slopes**2], rtol=1e-6)
        assert both[f"{name}/count"].tolist() == [0, 1]


@pytest.mark.parametrize("rule", [ADAM, RMSPROP])
def test_rules_know_their_epsilon_and_how_many_steps_came_before(rule):
    one = Agents(rule=rule)
    for name in NAMES:
        one[f"{name}/first"][:], one[f"{name}/second"][:], one[f"{name}/count"][:] = 0.5, 0.25, 9
        one.read[f"{name}/epsilon"] = Place([0.125], np.nan, np.float64)
        one.parts[NAMES.index(name)]["epsilon"] = one.read[f"{name}/epsilon"].at
    one.apply_gradients(0, biases(0, 0, 0), biases(1), {})
    if rule == ADAM:
        spread = 1 - 0.999**10
        step = 0.5 * 0.45 / (1 - 0.9**10) / (np.sqrt(0.24975 / spread) + 0.125)
        last = 0.5 * 0.55 / (1 - 0.9**10) / (np.sqrt(0.25075 / spread) + 0.125)
    else:
        step, last = 0.0, 0.5 / (np.sqrt(0.2475 + 0.01) + 0.125)
    np.testing.assert_allclose(one["actor/weights"][0], np.full(9, -step), rtol=1e-6)
    np.testing.assert_allclose(one["critic/weights"][0], [-step, -step, -last], rtol=1e-6)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("actor", "critic", "losses"),
    [
        (1, 1, {ACTOR_LOSS: np.inf}), (1, 1, {CRITIC_LOSS: np.nan}), (1, 1, {ENTROPY: -np.inf}),
        (np.inf, 1, {}), (1, -np.inf, {}), (np.nan, 1, {}), (1, np.nan, {}), (3e38, 1, {}), (1, 3e38, {}),
        (1, 1, {ACTOR_LOSS: -np.inf, CRITIC_LOSS: np.inf}),
    ],
)  # fmt: skip
def test_what_is_not_finite_moves_no_weight(rule, actor, critic, losses):
    """Of either network. Moments fade, and the step is counted, as with the framework."""
    both = Agents(2, rule=RULES[rule], limit=[1, 1], actor=biases(1, 2, 3), critic=biases(4), entropy_coef=[1, 1])
    for name in NAMES:
        both[f"{name}/first"][:], both[f"{name}/second"][:], both[f"{name}/count"][:] = 0.5, 0.25, 9
    metrics = both.apply_gradients(1, biases(0, actor, 0), biases(critic), losses)
    assert np.isnan(metrics[[NORM, NORM + 2]]).all()
    first = {"adam": 0.45, "adamw": 0.45, "rmsprop": 0.5, "sgd": 0.5}[rule]
    second = {"adam": 0.24975, "adamw": 0.24975, "rmsprop": 0.2475, "sgd": 0.25}[rule]
    for name, weights in (("actor", biases(1, 2, 3)), ("critic", biases(4))):
        assert both[f"{name}/weights"].tolist() == [weights, weights]
        np.testing.assert_allclose(both[f"{name}/first"][:, 0], [0.5, first], rtol=1e-6)
        np.testing.assert_allclose(both[f"{name}/second"][:, -1], [0.25, second], rtol=1e-6)
        assert both[f"{name}/count"].tolist() == [9, 10]


# Whole updates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_passes_follow_each_other(rule):
    """Each is what gradients in float64 and one move make of the weights before; moments are handed on."""
    result, each = three(rule=RULES[rule]), three(rule=RULES[rule])
    result.run(0)
    for number in range(result.passes):
        for k in range(3):
            rows = np.s_[number // 2, k, [0, 5][number % 2] : [5, 11][number % 2]]
            gradients, metrics = exact(each, k, each["index"][rows], each["share"][rows])
            each["actor/gradient"][k], each["critic/gradient"][k] = gradients
            for place, value in metrics.items():
                each["metrics"][number, place, k] = value
            apply_gradients(each.record, number, k, each.work[0]["scratch"])
    for name, values in each.result().items():
        np.testing.assert_allclose(result[name], values, rtol=1e-5, atol=1e-5, err_msg=name)
    assert result["actor/count"].tolist() == [6] * 3


def test_who_is_not_due_is_left_alone():
    """In some passes or in all; the others are moved as they are without them."""
    due = np.ones((6, 3))
    due[:, 1], due[[0, 3, 5], 2] = 0, 0
    some_due, every = three(due=due), three()
    before = {name: array[1].copy() for name, array in some_due.result().items() if name != "metrics"}
    some_due.run(0)
    every.run(0)
    for name, array in before.items():
        np.testing.assert_array_equal(some_due[name][1], array, err_msg=name)
        np.testing.assert_array_equal(some_due[name][0], every[name][0], err_msg=name)
        assert (some_due[name][2] != every[name][2]).any()
    assert some_due["actor/count"].tolist() == some_due["critic/count"].tolist() == [6, 0, 3]
    assert (np.isnan(some_due["metrics"]).all(1) == (due == 0)).all()


@pytest.mark.parametrize("wrong", range(3))
def test_one_that_is_not_finite_holds_up_no_other(wrong):
    """It stays where it was, in whichever of its passes that row is."""
    all_three, faulty = three(), three()
    faulty.read["target"].numbers[wrong] = np.inf
    faulty.read["target"] = given(faulty["target"])
    faulty.record["target"] = faulty.read["target"].at
    before = faulty["actor/weights"].copy()
    all_three.run(0)
    faulty.run(0)
    others = np.arange(3) != wrong
    for name in ("actor/weights", "critic/weights", "critic/first"):
        np.testing.assert_array_equal(faulty[name][others], all_three[name][others])
    np.testing.assert_array_equal(faulty["actor/weights"][wrong], before[wrong])
    assert faulty["critic/count"].tolist() == [6] * 3
    assert np.isnan(faulty["metrics"][:, NORM]).tolist() == [(~others).tolist()] * 6


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("threads", [(0, 1), (0, 1, 2), (2,), (1, 0, 3, 2, 6, 5, 4)], ids=str)
def test_who_does_which_part_does_not_matter(rule, threads):
    """To the last bit; rows make more than two blocks, so that threads meet amid a pass."""
    alone, shared = (three(columns=701, rule=RULES[rule], threads=size) for size in (1, max(threads) + 1))
    alone.run(0)
    shared.record["give_way"] *= rule != "sgd"  # they may wait without giving way, too
    shared.run(*threads)
    for name, array in alone.result().items():
        assert not np.isnan(array).any()
        np.testing.assert_array_equal(shared[name], array, err_msg=name)


def test_what_is_left_from_before_does_not_matter():
    """Work arrays, gradients and metrics hold other numbers when the next update begins."""
    first, second = three(), three()
    for name, place in second.written.items():
        if name == "metrics" or name.endswith(("gradient", "/0")):
            place.numbers[...] = 5
    first.run(0)
    second.run(0)
    for name, array in first.result().items():
        np.testing.assert_array_equal(second[name], array, err_msg=name)
