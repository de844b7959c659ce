"""Tables and texts that pages take from the package itself, so that a default or an option stands in one place.

settings-table module:Class: the fields of a settings dataclass, each with its default, values and meaning.
tuned-table: what `marltrain.tuned` returns, for every pair it knows.
command-help [command]: what `marltrain [command] --help` prints.
"""

import importlib
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import MISSING, Field, fields
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from marltrain.cli import main
from marltrain.policies.hyperparameters.schedules import Schedule
from marltrain.trainer.tuned import tuned, tuned_pairs

KINDS = {
    "float": "number",
    "int": "integer",
    "bool": "True or False",
    "Schedule": "schedule",
    "str": "string",
    "tuple[float, ...]": "numbers",
}
WIDTH = "100"
"""Columns that a command's help is printed in."""


class SettingsTable(SphinxDirective):
    """One row a field: its name, default, allowed values and meaning."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Build the table."""
        module, _, name = self.arguments[0].partition(":")
        shown = fields(getattr(importlib.import_module(module), name))
        changing = [f.metadata["per_row"] or f.metadata["per_learner"] for f in shown]
        head = [
            "setting",
            "default",
            "values",
            "meaning",
            *(["may change"] if any(changing) else []),
        ]
        rows: list[list[Sequence[nodes.Node]]] = []
        for f, changes in zip(shown, changing, strict=True):
            row: list[Sequence[nodes.Node]] = [
                [_code(f.name)],
                [_code(_spoken(f.default))],
                [*_inline(_values(f))],
            ]
            row.append([*_inline(f.metadata["doc"])])
            if any(changing):
                row.append([nodes.Text("yes" if changes else "")])
            rows.append(row)
        return [_table(head, rows)]


class TunedTable(SphinxDirective):
    """One row a pair of algorithm and environment."""

    def run(self) -> list[nodes.Node]:
        """Build the table."""
        rows: list[list[Sequence[nodes.Node]]] = []
        for algo, env in tuned_pairs():
            sides = ([_arguments(settings)] for settings in tuned(algo, env).values())
            rows.append([[_code(algo)], [_code(env)], *sides])
        return [
            _table(
                [
                    "algorithm",
                    "environment",
                    "DecentralizedTrainer(...)",
                    "make_agents(...)",
                ],
                rows,
            )
        ]


class CommandHelp(SphinxDirective):
    """The help of a command, word for word."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Run the command line with --help."""
        said, before = (
            io.StringIO(),
            {name: os.environ.get(name) for name in ("COLUMNS", "NO_COLOR")},
        )
        os.environ.update(COLUMNS=WIDTH, NO_COLOR="1")
        try:
            with redirect_stdout(said):
                main([*self.arguments, "--help"])
        except SystemExit as done:
            if done.code:
                raise self.error(
                    f"marltrain {self.arguments} --help ended with {done.code}"
                ) from done
        finally:
            for name, value in before.items():
                os.environ.pop(name)
                if value is not None:
                    os.environ[name] = value
        return [nodes.literal_block(said.getvalue(), said.getvalue(), language="text")]


def _spoken(value: Any) -> str:
    """Write a value as a user would."""
    if value is MISSING:
        return "required"
    if isinstance(value, Schedule):
        return f"{value.kind}({value.start:g}, {value.stop:g}, {value.steps})"
    return repr(value)


def _values(field: Field[Any]) -> str:
    """Say which values a field takes: its types, bounds and choices."""
    meta = field.metadata
    if meta["choices"]:
        return ", ".join(f"`{choice!r}`" for choice in meta["choices"])
    kinds = [KINDS[kind] for kind in str(field.type).split(" | ") if kind in KINDS]
    bounds = [
        (meta["low"], "at least"),
        (meta["above"], "greater than"),
        (meta["high"], "at most"),
    ]
    data = [f"{words} {_number(bound)}" for bound, words in bounds if bound is not None]
    nothing = " or `None`" if kinds and field.default is None else ""
    return " or ".join(kinds) + (f", {' and '.join(data)}" if data else "") + nothing


def _number(value: float) -> str:
    """Write a bound: 16,777,216 or 1e-08."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:g}"


def _inline(text: str) -> Iterator[nodes.Node]:
    """Turn `code` into literals."""
    for i, part in enumerate(text.split("`")):
        if part:
            yield _code(part) if i % 2 else nodes.Text(part)


def _code(text: str) -> nodes.Node:
    return nodes.literal(text, text)


def _arguments(values: dict[str, Any]) -> nodes.Node:
    """One line a keyword argument."""
    text = ",\n".join(f"{name}={_spoken(value)}" for name, value in values.items())
    return nodes.literal_block(text, text, language="python")


def _table(
    head: Sequence[str], rows: Sequence[Sequence[Sequence[nodes.Node]]]
) -> nodes.table:
    group = nodes.tgroup(cols=len(head))
    group += [nodes.colspec(colwidth=1) for _ in head]
    top, body = nodes.thead(), nodes.tbody()
    top += _row([[nodes.Text(name)] for name in head])
    body += [_row(row) for row in rows]
    group += [top, body]
    table = nodes.table(classes=["colwidths-auto"])
    table += group
    return table


def _row(cells: Sequence[Sequence[nodes.Node]]) -> nodes.row:
    result = nodes.row()
    for cell in cells:
        entry = nodes.entry()
        blocks = isinstance(cell[0], nodes.literal_block) if cell else False
        entry += list(cell) if blocks else nodes.paragraph("", "", *cell)
        result += entry
    return result


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("settings-table", SettingsTable)
    app.add_directive("tuned-table", TunedTable)
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
