"""`marltrain plot`: its options, and their mistakes."""

import numpy as np
import pytest

from tests.cli.running import refused, said
from tests.tools.runs import write_run


@pytest.fixture
def runs(tmp_path):
    return [write_run(tmp_path / name, np.arange(4.0) * (1 + i), seed=i) for i, name in enumerate("ab")]


def test_labels_title_and_metric(capsys, tmp_path, runs):
    words = ["--label", "slow", "--label", "fast", "--title", "Two runs", "--metric", "return/player_0"]
    out = said(capsys, "plot", *runs, *words, "--out", tmp_path / "p.svg")
    assert out == f"{tmp_path / 'p.svg'}\n"
    text = (tmp_path / "p.svg").read_text(encoding="utf-8")
    for shown in ("slow", "fast", "Two runs", "return/player_0 in tests"):
        assert f"<!-- {shown} -->" in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--label", "one"], "give one name for each of the 2 entries of run_dirs, got ['one'] (--label, once"),
        (["--metric", "retrun/player_0"], "Did you mean 'return/player_0'"),
        (["--labels", "x"], "Did you mean '--label'"),
        (["--x", "step"], "Did you mean 'steps'"),
    ],
)
def test_wrong_words(capsys, tmp_path, runs, words, told):
    assert told in refused(capsys, "plot", *runs, *words, "--out", tmp_path / "p.png")
    assert not (tmp_path / "p.png").exists()
