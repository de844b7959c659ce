"""docs/results.md: a head, and sections that are replaced one by one."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "results.md"
HEAD = """# Results

The learning table is written by `make learn-table` from the results in `benchmarks/learn/results/`, which `make learn`
and `make learn-mujoco` compute. The other sections are written by `python benchmarks/claims.py --write` (`make claims`
prints the same), and on TensorFlow with `--backend tensorflow`. Settings: `marltrain.tuned`, and `examples/apples.py`
for the game of images. One thread."""


def put(sections: dict[str, str], page: Path = PAGE, *, first: bool = False) -> None:
    """Write sections, title -> text below the title; they replace sections of the same title, and all others stay.

    first: put them at the beginning of the page.
    """
    kept = dict(part.split("\n", 1) for part in page.read_text(encoding="utf-8").split("\n## ")[1:])
    kept = {title: text.strip() for title, text in kept.items()}
    written = {**sections, **kept, **sections} if first else {**kept, **sections}
    parts = [HEAD, *(f"## {title}\n\n{text}" for title, text in written.items())]
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
