"""Slopes and gradients of actors and critics in compiled code, worked out by hand and held against float64."""

import numpy as np
import pytest

from marltrain.jit.views import address_of
from marltrain.policies.compiled.ppo_kernel import (
    ACTOR_LOSS,
    BLOCK,
    CLIP_SHARE,
    CRITIC_LOSS,
    ENTROPY,
    KL,
    LOSS,
    METRICS,
    NORM,
    advantages,
    evaluate,
    gather,
    log_softmax,
    part_of,
    policy_gradient,
    update_at,
    value_gradient,
    zero_illegal,
)
from tests.policies.compiled.actor_critics import ACTOR, CRITIC, NAMES, Agents, exact, some
from tests.policies.compiled.test_network import UNTOUCHED, Place, given, leaf_of, outputs_of, room

F = np.float32
LN8 = np.log(8.0)


def test_metrics_are_in_their_places():
    assert METRICS == 10
    assert list(range(7)) == [ACTOR_LOSS, CRITIC_LOSS, LOSS, ENTROPY, KL, CLIP_SHARE, NORM]


def test_records_lie_at_their_addresses():
    one = Agents(rows=7)
    assert update_at(address_of(one.all))["of"] == 7
    assert [part_of(one.record, which)["choices"] for which in range(2)] == [3, 1]


# Distributions --------------------------------------------------------------------------------------------------------

CHANCES = np.array([1, 2, 5]) / 8
ENTROPY_OF_IT = LN8 - (2 * np.log(2) + 5 * np.log(5)) / 8


@pytest.mark.parametrize(
    ("logits", "legal", "chances", "entropy"),
    [
        (np.log(CHANCES) + 3, None, CHANCES, ENTROPY_OF_IT),
        (np.log(CHANCES) - 1024, None, CHANCES, ENTROPY_OF_IT),
        (np.log(CHANCES), [1, 1, 1], CHANCES, ENTROPY_OF_IT),
        (np.log([1, 99, 5]), [1, 0, 1], np.array([1, 0, 5]) / 6, np.log(6) - 5 / 6 * np.log(5)),
        ([7, 99, 99], [1, 0, 0], [1, 0, 0], 0),
        ([2e5, 0, 0], None, [1, 0, 0], 0),
        ([-2e5, 1, 1], None, [0, 0.5, 0.5], np.log(2)),
        ([4], None, [1], 0),
    ],
)
def test_log_probabilities(logits, legal, chances, entropy):
    """To float32's precision of the largest logit."""
    result, chances, close = given(logits), np.array(chances), 1e-6 + 1e-7 * np.abs(logits).max()
    mask = Place(np.array(legal or [], bool), True, np.bool_)
    found = log_softmax(result.numbers, mask.at if legal else 0)
    assert found == pytest.approx(entropy, abs=close)
    likely = chances > 0
    np.testing.assert_allclose(result.numbers[likely], np.log(chances[likely]), atol=close)
    assert (np.exp(result.numbers[~likely]) == 0).all()
    result.assert_kept()
    mask.assert_unchanged()


def test_log_probabilities_where_no_action_is_legal():
    """As of padding: they are finite, and weigh nothing."""
    result, mask = given([7, np.inf, 9]), Place([0, 0, 0], True, np.bool_)
    assert np.isfinite([log_softmax(result.numbers, mask.at), *result.numbers]).all()


def test_ruled_out():
    slopes, mask = Place([1, 2, 3, 4, 5], UNTOUCHED), Place([1, 0, 1, 0, 0], True, np.bool_)
    zero_illegal(slopes.numbers, 0)
    assert slopes.numbers.tolist() == [1, 2, 3, 4, 5]
    zero_illegal(slopes.numbers, mask.at)
    assert slopes.numbers.tolist() == [1, 0, 3, 0, 0]
    slopes.assert_kept()


# Rows -----------------------------------------------------------------------------------------------------------------


def test_gathered():
    both = Agents(2, 5, obs=[np.full((5, 2), -1), [[10 * i, i] for i in range(5)]])
    gather(both.parts[0], 5, np.array([4, 0, 0, 3]), both.work[0]["x"])
    assert both["x/0"][:8].tolist() == [40, 4, 0, 0, 0, 0, 30, 3]
    assert np.isnan(both["x/0"][8:]).all()
    both.watch()


@pytest.mark.parametrize("own", [True, False])
def test_gathered_observations_and_states(own):
    """Two numbers of the observation, then three of the state; or the state alone."""
    both = Agents(2, 5, obs=[np.full((5, 2), -1), [[10 * i, i] for i in range(5)]])
    state, part = given([np.zeros((5, 3)), [[i, -i, 7] for i in range(5)]]), both.parts[1].copy()
    part["state"], part["state_width"], part["obs_width"], part["width"] = state.at, 3, 2 * own, 2 * own + 3
    x = room(2, int(part["width"]))
    gather(part, 5, np.array([4, 1]), x.at)
    expected = [40, 4, 4, -4, 7, 10, 1, 1, -1, 7] if own else [4, -4, 7, 1, -1, 7]
    assert x.numbers.reshape(-1).tolist() == expected


def test_advantages_get_mean_0_and_deviation_1():
    """4 and 2 with weights of a quarter and the rest: mean 2.5, variance 0.25 * 2.25 + 0.75 * 0.25 = 0.75.

    Equal ones have no deviation by which they could be scaled.
    """
    of = {"advantage": [[9] * 4, [1e6, 2, 7, 4]], "obs": np.zeros((2, 4, 2))}
    index, share = np.array([3, 1, 0]), np.array([0.25, 0.75, 0], F)  # the last one is padding
    assert advantages(Agents(2, 4, normalize=True, **of).record, 1, index, share) == pytest.approx((2.5, 0.75**-0.5))
    assert advantages(Agents(2, 4, normalize=True, **of).record, 0, index, share) == (9, 1)
    assert advantages(Agents(2, 4, **of).record, 1, index, share) == (0, 1)


def test_equal_advantages_become_0():
    """Seven shares of a seventh do not add up to 1 in float32: their mean is taken twice."""
    equal = np.float32(1e5 / 3)
    record = Agents(1, 7, normalize=True, advantage=[[equal] * 7], obs=np.zeros((1, 7, 2))).record
    center, scale = advantages(record, 0, np.arange(7), np.full(7, 1 / 7, F))
    assert abs(equal - center) * scale < 1e-6


# Slopes of the actor --------------------------------------------------------------------------------------------------

TAKEN, RATIO, ADVANTAGE, SHARE, PULL = np.array([
    (0, 1.0, 3.0, 0.25, 0.75),
    (1, 1.5, 2.0, 0.125, 0),  # clipped high
    (2, 1.5, -2.0, 0.125, -0.375),  # beyond the bound and free: pessimistic
    (0, 0.5, -1.0, 0.25, 0),  # clipped low
    (1, 0.5, 4.0, 0.25, 0.5),  # below the bound and free
    (2, 1.125, 0.0, 0, 0),
    (2, 9.0, -1e6, 0, 0),  # padding
]).T  # fmt: skip
"""What was taken of chances 1/8, 1/4 and 5/8, bounds being 3/4 and 5/4; ratios times advantages times shares."""


def actors(*, coef=0.0, **of):
    """Two agents of which the second one learns from these rows, in an order of its own."""
    order = np.array([6, 2, 0, 5, 1, 4, 3])

    def column(values, other):
        return [np.full(7, other), values[np.argsort(order)]]

    taken = np.int64(TAKEN)
    result = Agents(
        2, 7, index=[[range(7), order]], action=column(taken, 1), advantage=column(ADVANTAGE, np.nan),
        log_prob=column(np.log(CHANCES[taken] / RATIO), np.nan), clip=[np.nan, 0.25], entropy_coef=[np.nan, coef], **of,
    )  # fmt: skip
    return result, order


def slopes_of_policy(of, logits, *, center=0.0, scale=1.0, sums=(0.0, 0.0, 0.0, 0.0)):
    """The slopes [rows, 3], and the sums."""
    agents, order = of
    out = Place(logits, UNTOUCHED)
    result = policy_gradient(agents.record, 1, np.array(order), SHARE.astype(F), out.at, 3, center, scale, sums)
    out.assert_kept()
    agents.watch()
    return out.numbers, result


LOGITS = np.tile(np.log(CHANCES), (7, 1)) + np.arange(7)[:, None]
STEP = PULL[:, None] * (CHANCES - np.eye(3)[np.int64(TAKEN)])
KL_OF_IT = 0.25 * (0.5 - np.log(1.5)) + 0.5 * (np.log(2) - 0.5)


def test_slopes_of_the_actor_by_hand():
    """Losses -0.75, -0.3125, 0.375, 0.1875 and -0.5; a ratio is clipped in all but the first row."""
    slopes, sums = slopes_of_policy(actors(), LOGITS)
    np.testing.assert_allclose(slopes, STEP, atol=1e-6)
    np.testing.assert_allclose(sums, [-1, ENTROPY_OF_IT, KL_OF_IT, 0.75], rtol=1e-5)


def test_sums_are_added_to():
    _, sums = slopes_of_policy(actors(), LOGITS, sums=(1.0, 2.0, 3.0, 4.0))
    np.testing.assert_allclose(sums, [0, 2 + ENTROPY_OF_IT, 3 + KL_OF_IT, 4.75], rtol=1e-5, atol=1e-5)


def test_slopes_of_the_entropy_by_hand():
    """Its slope by logit j is -p (log p + H)."""
    slopes, sums = slopes_of_policy(actors(coef=0.5), LOGITS)
    bonus = 0.5 * SHARE[:, None] * CHANCES * (np.log(CHANCES) + ENTROPY_OF_IT)
    assert abs(bonus[:5]).min() > 0.005
    np.testing.assert_allclose(slopes, STEP + bonus, atol=1e-6)
    np.testing.assert_allclose(sums, [-1, ENTROPY_OF_IT, KL_OF_IT, 0.75], rtol=1e-5)


def test_slopes_by_advantages_that_are_centered_and_scaled():
    """Advantages 1, 0, -4, -3, 2, then doubled: the second one's slope is 0 whether it is clipped or not."""
    slopes, sums = slopes_of_policy(actors(), LOGITS, center=2.0, scale=2.0)
    pull = np.array([0.5, 0, -1.5, 0, 0.5, 0, 0])
    np.testing.assert_allclose(slopes, pull[:, None] * (CHANCES - np.eye(3)[np.int64(TAKEN)]), atol=1e-6)
    assert sums[0] == pytest.approx(-0.5 + 0.125 * 12 + 0.25 * 4.5 - 0.5)


def test_slopes_where_actions_are_illegal():
    """The logits of the first row's last action and the third row's first are anything, and get no slope."""
    legal = np.ones((2, 7, 3), bool)
    agents, order = actors(coef=0.5, legal=legal)
    logits, chances = LOGITS.copy(), np.tile(CHANCES, (7, 1))
    for place, illegal in ((0, 2), (2, 0)):
        agents["legal"][1, order[place], illegal] = False
        logits[place, illegal], chances[place, illegal] = 1e4, 0
        chances[place] /= chances[place].sum()
    agents.read["legal"] = Place(agents["legal"], True, np.bool_)
    agents.record["legal"] = agents.read["legal"].at
    agents.read["log_prob"].numbers[1, order] = np.log(chances[np.arange(7), np.int64(TAKEN)] / RATIO)
    agents.read["log_prob"] = given(agents["log_prob"])
    agents.record["log_prob"] = agents.read["log_prob"].at
    slopes, sums = slopes_of_policy((agents, order), logits)
    logs = np.log(np.where(chances > 0, chances, 1))
    entropy = -(chances * logs).sum(1, keepdims=True)
    expected = PULL[:, None] * (chances - np.eye(3)[np.int64(TAKEN)])
    expected += 0.5 * SHARE[:, None] * chances * (logs + entropy)
    np.testing.assert_allclose(slopes, expected, atol=1e-6)
    assert (slopes[chances == 0] == 0).all()
    np.testing.assert_allclose(sums, [-1, (SHARE * entropy[:, 0]).sum(), KL_OF_IT, 0.75], rtol=1e-5)


@pytest.mark.parametrize("allowed", [[0, 0, 0], [1, 0, 1]])
def test_an_action_that_was_illegal_gets_no_slope(allowed):
    """The fifth row took the second one, and its logit was replaced; none may be legal at all."""
    legal = np.ones((2, 7, 3), bool)
    legal[1, 1] = allowed  # that row is the second of the agent's own
    of = actors(coef=0.5, legal=legal)
    assert of[1][4] == 1
    of[0].read["log_prob"].numbers[1, 1] = 0
    slopes = Place(LOGITS, UNTOUCHED)
    policy_gradient(of[0].record, 1, of[1], SHARE.astype(F), slopes.at, 3, 0.0, 1.0, (0.0, 0.0, 0.0, 0.0))
    assert (slopes.numbers[4][np.array(allowed) == 0] == 0).all()
    assert (slopes.numbers[0] != 0).all()


# Slopes of the critic -------------------------------------------------------------------------------------------------

VALUED, OLD, AIM, WEIGHED, ERROR, PASSED = np.array([
    (2, 0, 1, 0.25, 1, 1),  # the clipped value is nearer: the other counts
    (2, 0, 3, 0.125, -2.5, 0),  # the clipped one is farther off, and passes nothing
    (-2, 0, -3, 0.125, 2.5, 0),
    (-2, 0, -1, 0.25, -1, -1),
    (0.25, 0, 1, 0.125, -0.75, -0.75),  # not clipped
    (4, 4.25, 1, 0.125, 3, 3),
    (5, -1e6, 1e6, 0, -1e6, 0),  # padding
]).T  # fmt: skip


@pytest.mark.parametrize("clipped", [False, True])
def test_slopes_of_the_critic_by_hand(clipped):
    """Values may move by 0.5, and a slope is halved."""
    error, passed = (ERROR, PASSED) if clipped else (VALUED - AIM, VALUED - AIM)
    nothing, order = np.full(7, np.nan), np.array([3, 1, 0, 6, 5, 2, 4])
    back = np.argsort(order)
    own = {"value": [nothing, OLD[back]], "value_clip": [np.nan, 0.5]} if clipped else {}
    both = Agents(2, 7, target=[nothing, AIM[back]], value_coef=[np.nan, 0.5], **own)
    out = Place(VALUED, UNTOUCHED)
    sums = value_gradient(both.record, 1, order, WEIGHED.astype(F), out.at, (3.0, 0.0, 0.0, 0.0))
    np.testing.assert_allclose(out.numbers, 0.5 * WEIGHED * passed, rtol=1e-6)
    np.testing.assert_allclose(sums, [3 + (0.5 * WEIGHED * error**2).sum(), 0, 0, 0], rtol=1e-6)
    out.assert_kept()
    both.watch()


# Gradients ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("masked", "clipped", "normalize"), [(False, True, False), (True, False, True)])
@pytest.mark.parametrize(
    ("hidden", "columns"), [((), 7), ((5,), 1), ((9, 6), 131), ((5,), BLOCK), ((5,), 2 * BLOCK + 1)], ids=str
)
def test_gradients_are_those_of_float64(hidden, columns, masked, clipped, normalize):
    """However many blocks the rows make: of two agents, in the second of two minibatches of the second epoch."""
    rng = np.random.default_rng(columns)
    cut = [(0, 2), (2, columns + 3)]
    both = some(rng, rows=40, hidden=hidden, epochs=2, columns=columns + 3, cut=cut, masked=masked, clipped=clipped,
                normalize=normalize)  # fmt: skip
    for k in range(2):
        rows = np.s_[1, k, 2 : columns + 3]
        gradients, metrics = exact(both, k, both["index"][rows], both["share"][rows])
        for which in (ACTOR, CRITIC):
            result = both.gradient(k, which, 3)
            largest_of_it = abs(gradients[which]).max()
            assert largest_of_it > 0.01
            np.testing.assert_allclose(result, gradients[which], rtol=0, atol=1e-6 * max(1, largest_of_it))
        measured = both["metrics"][3, :, k]
        for place in (ACTOR_LOSS, CRITIC_LOSS, ENTROPY, KL, CLIP_SHARE):
            assert measured[place] == pytest.approx(metrics[place], rel=1e-5, abs=2e-6)
        assert np.isnan(measured[[LOSS, *range(NORM, METRICS)]]).all()  # `move` writes these
    assert np.isnan(both["metrics"][:3]).all()


# Evaluating -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [3, BLOCK, BLOCK + 3, 2 * BLOCK + 1])
def test_what_a_network_gives(rows):
    rng = np.random.default_rng(rows)
    both = some(rng, rows=rows, hidden=(9, 5))
    x = given(rng.normal(size=(rows, 2)))
    for which, choices in ((ACTOR, 3), (CRITIC, 1)):
        result = room(rows, choices)
        evaluate(both.parts[which], both.work[0], 1, x.at, rows, result.at)
        leaf = leaf_of(both[f"{NAMES[which]}/weights"][1])
        exactly = outputs_of(both.plans[which], leaf, x.numbers).detach()
        np.testing.assert_allclose(result.numbers, exactly, rtol=0, atol=3e-6)
        result.assert_kept()
        x.assert_unchanged()
    both.watch()
