"""Rules for the changelog: the same headings in each version, and no timings."""

import re

from tests.house.repository import ROOT

HEADINGS = ["Breaking", "New", "Fixed", "Others"]
TIMING = re.compile(r"\d+(\.\d+)? (times|ms|seconds?|minutes?)\b|\d\.\d+ x\b|env steps/s", re.IGNORECASE)


def versions() -> dict[str, str]:
    """Return the text of each version by its title."""
    text = (ROOT / "docs" / "changelog.md").read_text(encoding="utf-8")
    _, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    return {part.partition("\n")[0]: part for part in parts}


def test_each_version_has_the_headings_in_order():
    assert versions()
    for title, text in versions().items():
        found = re.findall(r"^### (.*)$", text, flags=re.MULTILINE)
        assert found and found == [name for name in HEADINGS if name in found], title


def test_no_version_tells_timings():
    assert not {title: match for title, text in versions().items() if (match := TIMING.search(text))}
