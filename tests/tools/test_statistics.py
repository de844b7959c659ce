import numpy as np
import pytest
from rliable import library, metrics

from marltrain.tools.statistics import difference, estimate, improvement, profile, verdict

GENERATOR = np.random.default_rng(3)
FIRST, SECOND = GENERATOR.normal(size=(5, 3)), GENERATOR.normal(0.3, 1, (7, 3))
FIRST[2, 1] = SECOND[4, 1]  # a tie
POINTS = GENERATOR.normal(size=(6, 2, 3))
THRESHOLDS = np.linspace(-1, 1, 5)


def iqm_at_each_point(scores):
    return np.array([metrics.aggregate_iqm(scores[..., i]) for i in range(scores.shape[2])])


def by_hand(scores, function, **options):
    np.random.seed(0)
    value, interval = library.get_interval_estimates({"a": scores}, function, reps=300, **options)
    return value["a"], *interval["a"]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda: estimate(POINTS, 300), lambda: by_hand(POINTS, iqm_at_each_point)),
        (
            lambda: difference(FIRST, SECOND, 300),
            lambda: by_hand(
                (FIRST, SECOND), lambda x, y: np.array([metrics.aggregate_iqm(x) - metrics.aggregate_iqm(y)])
            ),
        ),
        (
            lambda: improvement(FIRST, SECOND, 300),
            lambda: by_hand((FIRST, SECOND), lambda x, y: np.array([metrics.probability_of_improvement(x, y)])),
        ),
        (
            lambda: profile(FIRST, THRESHOLDS, 300),
            lambda: by_hand(FIRST, lambda x: library.score_distributions(x, THRESHOLDS)),
        ),
    ],
    ids=["interquartile mean", "difference", "probability of improvement", "performance profile"],
)
def test_numbers_of_rliable(ours, theirs):
    for mine, his in zip(ours(), theirs(), strict=True):
        np.testing.assert_allclose(mine, his, rtol=0, atol=1e-12)


def test_interquartile_mean_by_hand():
    """Of 5 runs the best and the worst are left out, of 3 none; every point of a curve has its own."""
    found = estimate(np.array([[1.0, 0], [2, 0], [3, 0], [10, 0], [100, 5]])[:, None], 200)
    assert np.array_equal(found.value, [5.0, 0.0])
    assert 1 <= found.low[0] < 5 < found.high[0] <= 100
    assert estimate(np.array([[[1.0]], [[2]], [[6]]]), 200).value == 3.0


def test_probability_and_profile_by_hand():
    first, second = np.array([[1.0], [3]]), np.array([[1.0], [2]])
    assert improvement(first, second, 50).value == 0.625  # 1 > 1, 2: a tie and a loss; 3 > 1, 2: two wins
    assert profile(first, np.array([0.0, 1, 2, 3]), 50).value.tolist() == [1, 0.5, 0.5, 0]


def test_interval_is_the_same_again_and_leaves_the_global_generator_alone():
    scores = np.arange(5.0)[:, None, None] ** 2
    np.random.seed(5)
    first = estimate(scores, 100)
    np.random.seed(6)
    before = np.random.get_state()[1].copy()  # type: ignore[index]
    second = estimate(scores, 100)
    assert (first.low, first.high) == (second.low, second.high)
    assert np.array_equal(before, np.random.get_state()[1])  # type: ignore[index]


def test_one_run_has_no_interval():
    found = estimate(np.array([[[7.0]]]), 100)
    assert found.value == 7.0
    assert np.isnan(found.low).all()


def test_difference_of_interquartile_means_by_hand():
    """Of 5 runs the best and the worst are left out: 5 - 2."""
    found = difference(np.array([1.0, 2, 3, 10, 100])[:, None], np.array([0.0, 1, 2, 3, 90])[:, None], 200)
    assert found.value == 3.0
    assert found.low < 3 < found.high


def test_runs_of_both_are_resampled():
    """With one constant the interval is that of the other; with both spread it is wider than either."""
    spread, constant = np.array([0.0, 1, 2, 3, 4])[:, None], np.full((5, 1), 2.0)
    first, second, both = (
        difference(*pair, 500) for pair in ((spread, constant), (constant, spread), (spread, spread))
    )
    assert -2 <= first.low < 0 < first.high <= 2
    assert -2 <= second.low < 0 < second.high <= 2
    assert both.high - both.low > max(first.high - first.low, second.high - second.low)
    assert [float(value[0]) for value in difference(constant, constant, 50)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [(0.1, 2, "better"), (-2, -0.1, "worse"), (-1, 1, "no difference shown"), (0, 1, "no difference shown")],
)
def test_verdicts(low, high, says):
    assert verdict(low, high) == says
