"""Optimisers against torch's own, row by row."""

from __future__ import annotations

import pytest
import torch

from marltrain.errors import SaveError
from marltrain.policies.backends.torch.optimisers import OPTIMISERS

THEIRS = {
    "adam": lambda p, rate: torch.optim.Adam([p], lr=rate, eps=1e-5),
    "rmsprop": lambda p, rate: torch.optim.RMSprop([p], lr=rate, eps=1e-5),
    "sgd": lambda p, rate: torch.optim.SGD([p], lr=rate),
}


@pytest.mark.parametrize("name", THEIRS)
def test_rows_equal_torchs_with_rates_of_their_own_and_pauses(name):
    """Row 1 sits out every third step: for it, as if that step had not been."""
    draw = torch.Generator().manual_seed(0)
    start, rates = torch.randn(3, 11, generator=draw), [1e-2, 3e-3, 0.1]
    flat, own = start.clone(), OPTIMISERS[name](start, 1e-5)
    theirs = [row.clone().requires_grad_() for row in start]
    optimisers = [THEIRS[name](p, rate) for p, rate in zip(theirs, rates, strict=True)]
    for step in range(30):
        grad = torch.randn(3, 11, generator=draw)
        active = [0, 1, 2] if step % 3 else [0, 2]
        rows = None if len(active) == 3 else torch.tensor(active)
        before = flat.clone()
        own.step(flat, grad, torch.tensor(rates), rows)
        if 1 not in active:
            assert torch.equal(before[1], flat[1])
        for k in active:
            theirs[k].grad = grad[k].clone()
            optimisers[k].step()
        torch.testing.assert_close(flat, torch.stack([p.detach() for p in theirs]), rtol=1e-5, atol=1e-6)


def test_no_rows_is_no_step():
    flat = torch.ones(2, 3)
    own = OPTIMISERS["adam"](flat, 1e-8)
    own.step(flat, torch.ones(2, 3), torch.ones(2), torch.tensor([], dtype=torch.int64))
    assert torch.equal(flat, torch.ones(2, 3))
    assert own.count.tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("name", THEIRS)
def test_a_state_moves_to_another_row(name):
    draw = torch.Generator().manual_seed(1)
    rate = torch.tensor([0.1, 0.1])
    flats = [torch.zeros(2, 4), torch.zeros(2, 4)]
    first, second = (OPTIMISERS[name](flat, 1e-8) for flat in flats)
    for _ in range(3):
        first.step(flats[0], torch.randn(2, 4, generator=draw), rate, None)
    second.load(1, first.arrays(0))
    flats[1][1] = flats[0][0]
    grad = torch.randn(4, generator=draw).expand(2, 4)
    first.step(flats[0], grad, rate, None)
    second.step(flats[1], grad, rate, None)
    assert torch.equal(flats[0][0], flats[1][1])
    with pytest.raises(SaveError, match="is not one of"):
        first.load(0, {"speed": flats[0][0].numpy()})
    wrong = first.arrays(0) | {"count": torch.zeros(2).numpy()}
    with pytest.raises(SaveError, match="shape"):
        first.load(0, wrong)
