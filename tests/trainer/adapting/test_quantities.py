import math

import pytest

from marltrain.core.errors import ConfigError, SaveError
from marltrain.trainer.adapting.quantities import Average, Quantity, drive


def test_average_is_corrected_for_its_start():
    average = Average(0.9)
    assert average.value is None
    for value in (3.0, 3.0):
        average.add(value)
    assert average.value == pytest.approx(3.0)
    average.add(0.0)  # weights 0.81, 0.9 and 1 of 2.71
    assert average.value == pytest.approx(3 * 1.71 / 2.71)


@pytest.mark.parametrize(
    ("by", "value", "target", "expected"),
    [
        ("td_error", 1.2, 1.0, math.log(1.2)),
        ("td_error", 9.0, 1.0, 1.0),
        ("td_error", 0.1, 1.0, -1.0),
        ("td_error", 0.0, 1.0, -1.0),
        ("effective_sample_size", 0.6, 0.5, math.log(1.5)),  # odds of 1.5 to 1
        ("effective_sample_size", 0.99, 0.95, 1.0),  # odds of 99 to 19
        ("effective_sample_size", 1.0, 0.95, 1.0),
    ],
)
def test_drives_by_hand(by, value, target, expected):
    assert drive(by, value, target) == pytest.approx(expected)


def measured(noise, signal, rows=4.0):
    return {"gradient_noise/q": noise, "gradient_signal/q": signal, "gradient_rows": rows}


def test_noise_scale_in_batches_by_hand():
    """Averages of the noise (6) and of the signal (2) are divided, and not the single quotients; batches of 4."""
    quantity = Quantity("gradient_noise", 0.0, None)
    quantity.add([measured(4.0, 1.0), measured(8.0, 3.0)], "Adapt")
    assert quantity.value == 6 / 2 / 4
    quantity.add([measured(1.0, -1.0)], "Adapt")
    assert quantity.value == 2**24 / 4  # noise hides the gradient


def test_noise_of_one_network_or_of_all():
    values = {**measured(4.0, 1.0), "gradient_noise/actor": 2.0, "gradient_signal/actor": 2.0}
    for network, expected in ((None, 6 / 3 / 4), ("actor", 2 / 2 / 4), ("q", 4 / 4)):
        quantity = Quantity("gradient_noise", 0.5, network)
        quantity.add([values], "Adapt")
        assert quantity.value == pytest.approx(expected)


def test_td_error_is_a_short_mean_over_a_long_one():
    quantity = Quantity("td_error", 0.0, None)  # the long mean has a smoothing of 0.9
    for loss in (1.0, 1.0, 4.0):
        quantity.add([{"loss/critic": loss, "loss/total": 99.0}], "Adapt")
    assert quantity.value == pytest.approx(4.0 / ((0.81 + 0.9 + 4) / 2.71))


def test_metrics_that_are_missing_now_and_then_are_passed_over():
    quantity = Quantity("loss/actor", 0.5, None)
    quantity.add([{"loss/critic": 1.0}], "Adapt")
    quantity.add([{"loss/actor": math.nan}, {"loss/actor": math.inf}], "Adapt")
    assert quantity.value is None
    quantity.add([{"loss/actor": 2.0}, {"loss/critic": 1.0}], "Adapt")
    assert quantity.value == 2.0


def test_a_metric_that_is_never_reported_is_an_error():
    quantity = Quantity("loss/acter", 0.5, None)
    with pytest.raises(ConfigError, match=r"Adapt: the updates report no 'loss/acter'.*Did you mean 'loss/actor'"):
        for _ in range(100):
            quantity.add([{"loss/actor": 1.0}], "Adapt")


def test_state_is_restored():
    quantity, other = (Quantity("gradient_noise", 0.9, None) for _ in range(2))
    quantity.add([measured(4.0, 1.0)], "Adapt")
    other.restore(quantity.state())
    for one in (quantity, other):
        one.add([measured(1.0, 2.0)], "Adapt")
    assert quantity.state() == other.state()
    with pytest.raises(SaveError):
        other.restore("much")
