"""States of torch's objects that were read: what no training gives is refused by its place."""

import numpy as np
import pytest
import torch
from torch import nn

from marltrain.core.errors import SaveError
from marltrain.policies.backends.torch.state import checked, packed, unpacked


class Masked(nn.Module):
    """A model that keeps infinities."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf]))


def saved():
    """A model that made a step, and its optimizer, as a file holds them and as they are."""
    model = Masked()
    optimizer = torch.optim.Adam(model.parameters())
    model.inner(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    arrays: dict[str, np.ndarray] = {}
    now = {"model": dict(model.state_dict()), "optimizer": optimizer.state_dict(), "own": [1.5, {"count": 3}]}
    return packed(now, "it", arrays), arrays, now


def test_what_was_saved_is_taken_back():
    tree, arrays, now = saved()
    fresh = {**now, "optimizer": torch.optim.Adam(Masked().parameters()).state_dict()}
    for there in (now, fresh):
        assert checked(unpacked(tree, arrays), there, "it")["own"] == [1.5, {"count": 3}]


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("it/model/inner.weight", np.nan, r"it/model/inner.weight\[0, 0\] must be a finite number, got nan"),
        ("it/optimizer/state/0/exp_avg", np.inf, r"it/optimizer/state/0/exp_avg\[0, 0\] must be a finite number"),
        ("it/optimizer/state/0/exp_avg_sq", -1, r"it/optimizer/state/0/exp_avg_sq\[0, 0\] must be from 0 to inf"),
        ("it/optimizer/state/1/step", -1e30, "it/optimizer/state/1/step must be from 0 to 9007199254740992"),
    ],
)
def test_numbers_that_no_training_gives_are_refused(name, wrong, message):
    tree, arrays, now = saved()
    arrays[name][(0,) * arrays[name].ndim] = wrong
    with pytest.raises(SaveError, match=message):
        checked(unpacked(tree, arrays), now, "it")


def test_a_number_takes_no_other_types_place():
    _, _, now = saved()
    checked({"own": [2, {"count": 4}]}, now, "it")
    for wrong in ("1.5", None, True):
        with pytest.raises(SaveError, match="it/own/0 must be of type float, got"):
            checked({"own": [wrong]}, now, "it")
