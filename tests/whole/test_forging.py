"""A short form of `make forgery-test`: a checkpoint that somebody forged is refused, or it is one to go on from."""

from tests.whole.forging import KINDS, made, resumed


def test_forged_checkpoints_are_refused_or_resumed(tmp_path):
    checkpoint, came = made(KINDS["dqn by turns"], tmp_path / "run"), []
    for i in range(12):
        outcome, story = resumed(checkpoint, [1, i], tmp_path / "case")
        assert not outcome.startswith("FAILED"), f"{i}: {outcome}\n{story}"
        came.append(outcome)
    assert {"SaveError", "resumed"} <= set(came)
