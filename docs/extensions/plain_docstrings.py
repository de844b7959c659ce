"""Turns marltrain's docstrings, which are plain text, into what autodoc expects.

A docstring is paragraphs; entries "name: meaning", or "name, name: meaning"; examples that begin with ">>>"; and
indented blocks, shown as they are. Only backticks mark code, so that shapes like [P, E, *O] are written as such.
In signatures the names of `marltrain.core.layout` stand for the types that they abbreviate, and values for constants.
"""

import re
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from sphinx.application import Sphinx

import marltrain

_NAME = r"(?!(?:None|True|False):)[A-Za-z_][\w.]*(?:\([\w ,\[\]]*\)(?: -> \w+)?)?"
_ENTRY = re.compile(rf"{_NAME}(?:, {_NAME})*: ")
_ENTRY_NAMES = re.compile(_NAME)
_NEXT_ENTRY = re.compile(rf"(?<=\S)  +(?={_ENTRY.pattern})")
_CODE = re.compile(r"(`[^`]+`)")
_SPECIAL = re.compile(r"([\\*|]|_(?!\w))")
_CONSTANT = re.compile(r"= ([A-Z][A-Z_]+)\b")
_ARRAY = re.compile(
    r"~?(?:numpy\.)?ndarray\[tuple\[~?(?:typing\.)?Any, \.\.\.\], ~?(?:numpy\.)?dtype\[~?(?:typing\.)?Any\]\]"
)


def restructured(lines: list[str]) -> list[str]:
    """Return the lines of a plain docstring as reStructuredText."""
    blocks = [
        list(block)
        for filled, block in groupby(lines, key=lambda line: bool(line.strip()))
        if filled
    ]
    return [line for block in blocks for line in (*_block(block), "")]


def _block(block: list[str]) -> Iterator[str]:
    if block[0].startswith(">>>"):
        yield from block
    elif block[0].startswith(" "):
        yield from ("::", "", *(f"  {line}" for line in block))
    elif _ENTRY.match(block[0]):
        for line in block:
            first, *more = _NEXT_ENTRY.split(line)
            yield f"  {inline(first.strip())}" if first[0] == " " else _entry(first)
            yield from map(_entry, more)
    else:
        for line in block:
            yield inline(line)


def _entry(text: str) -> str:
    found = _ENTRY.match(text)
    if found is None:
        return f"  {inline(text.strip())}"
    names = ", ".join(f"``{name}``" for name in _ENTRY_NAMES.findall(found.group()))
    return f"- {names}: {inline(text[found.end() :])}"


def inline(text: str) -> str:
    """Return a line of plain text, with code in backticks, as reStructuredText."""
    parts = _CODE.split(text)
    return "".join(
        _code(part[1:-1]) if i % 2 else _SPECIAL.sub(r"\\\1", part)
        for i, part in enumerate(parts)
    )


def _code(text: str) -> str:
    name = text.removeprefix("marltrain.").removeprefix("mt.").removesuffix("()")
    return (
        f":py:obj:`{text} <marltrain.{name}>`"
        if name in marltrain.__all__
        else f"``{text}``"
    )


def _rewrite(
    _app: Sphinx, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]
) -> None:
    lines[:] = restructured(lines)


def _abbreviated(text: str | None) -> str | None:
    return text and _ARRAY.sub("Array", text).replace("Array | dict[str, Array]", "Obs")


def _with_values(text: str | None, obj: Any) -> str | None:
    """Write the values of constants of the module in the place of their names."""
    module = sys.modules.get(getattr(obj, "__module__", ""))

    def value(found: re.Match[str]) -> str:
        known = hasattr(module, found[1])
        return f"= {getattr(module, found[1])!r}" if known else found[0]

    return text and _CONSTANT.sub(value, text)


def _shorten(
    _app: Sphinx,
    _what: str,
    _name: str,
    obj: Any,
    _options: Any,
    signature: str | None,
    returned: str | None,
) -> tuple[str | None, str | None]:
    return _with_values(_abbreviated(signature), obj), _abbreviated(returned)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("autodoc-process-docstring", _rewrite)
    app.connect("autodoc-process-signature", _shorten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
