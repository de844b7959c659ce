"""Whether a long run grows; `make long-run` is the long form."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.whole.enduring import SPANS, Level, growth

STEPS = 150_000


def test_a_run_does_not_grow():
    command = [sys.executable, "-m", "tests.whole.enduring", str(STEPS)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"15[0-9],[0-9]{3} env steps, [56],[0-9]{3} episodes in [0-9]+ s: nothing grew", done.stdout), (
        done.stdout
    )


@pytest.mark.parametrize(
    ("later", "told"),
    [
        (Level(119.9, 7, 2, 0), []),
        (Level(121.0, 7, 2, 0), [r"memory: 121 between env steps 500 and 550, and at most 100 in the first 100; 20"]),
        (Level(50.0, 8, 2, 0), [r"files: 8 between"]),
        (Level(90.0, 7, 3, 1), [r"threads: 3 between", r"children: 1 between"]),
    ],
)
def test_what_grew_is_told(later, told):
    spans = [Level(100.0, 7, 2, 0)] * SPANS
    spans[10] = later
    said = growth(spans, 1000)
    assert len(said) == len(told)
    for one, pattern in zip(said, told, strict=True):
        assert re.match(pattern, one)


def test_highest():
    assert Level(1.0, 8, 2, 0).highest(Level(2.0, 7, 2, 1)) == Level(2.0, 8, 2, 1)
