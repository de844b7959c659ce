"""An evaluation as text: its table and its cross-play matrix."""

from __future__ import annotations

from marltrain.tools.evaluating.result import EvaluationResult
from marltrain.tools.text_table import interval, number, text_table


def as_text(found: EvaluationResult) -> str:
    """Return the table of matches and players, and with opponents the cross-play matrix, as plain text."""
    kind = ", sampled actions" if found.sampled else ""
    parts = [f"{len(found.matches)} match(es), seed {found.seed}{kind}", _matches(found)]
    if len(found.competitors) > 1:
        value = "won" if found.has_winners else "return"
        matrix = found.matrix(value)
        header = (f"{'share of wins' if value == 'won' else 'mean return'} of", *(f"vs {n}" for n in matrix.columns))
        shown = (lambda v: f"{v:.1%}") if value == "won" else number
        rows = [(str(name), *map(shown, row)) for name, row in zip(matrix.index, matrix.to_numpy(), strict=True)]
        parts.append(text_table(header, rows, 1))
    return "\n\n".join(parts)


def _matches(found: EvaluationResult) -> str:
    table, opponents = found.table, len(found.competitors) > 1
    records = [name for name in table.columns if name.startswith("record/")]
    names = (*found.grid, "player", *(("agent", "against") if opponents else ()))
    header = (*names, "episodes", "length", "return", "95 % interval")
    shares = ("won", "drawn", "lost") if found.has_winners else ()
    rows = [
        (*(str(row[name]) for name in names), str(row["episodes"]), number(row["length"]), number(row["return"]),
         interval(row["low"], row["high"]), *(f"{row[name]:.1%}" for name in shares),
         *("" if row[name] is None else number(row[name]) for name in records))
        for row in table.to_dict("records")
    ]  # fmt: skip
    return text_table((*header, *shares, *(name.removeprefix("record/") for name in records)), rows, len(names))
