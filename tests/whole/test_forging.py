"""A short form of `make forgery-test`: a checkpoint that somebody forged is refused, or it is one to go on from."""

import pytest

from marltrain.core.errors import SaveError
from tests.tiers import LONG, rounds
from tests.whole.forged_kinds import KINDS
from tests.whole.forging import made, resumed
from tests.whole.resuming import Switch


@pytest.mark.parametrize("kind", ["dqn by turns", *LONG * ["wqmix"]])
def test_forged_checkpoints_are_refused_or_resumed(tmp_path, kind):
    checkpoint, came = made(KINDS[kind], tmp_path / "run"), []
    for i in range(rounds(8, 12)):
        outcome, story = resumed(checkpoint, [1, i], tmp_path / "case")
        assert not outcome.startswith("FAILED"), f"{i}: {outcome}\n{story}"
        came.append(outcome)
    assert {"SaveError", "resumed"} <= set(came)


@pytest.mark.parametrize(
    "changed", [{"steps": "3"}, {"steps": 3.0}, {"steps": None}, {"steps": -1}, {"worst": "-inf"}, {"worst": 0.0}]
)
def test_the_callback_of_the_runs_refuses_another_state(changed):
    switch = Switch({})
    switch.load_state_dict(switch.state_dict())
    with pytest.raises(SaveError, match=next(iter(changed))):
        switch.load_state_dict({**switch.state_dict(), **changed})
