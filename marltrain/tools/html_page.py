"""HTML pages in one file: text, tables and pictures, without scripts and other files."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from pathlib import Path

from marltrain.core.errors import ConfigError
from marltrain.storage.files import path_of, replacing

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
th, td { padding: .3rem .8rem .3rem 0; text-align: right; white-space: nowrap; border-bottom: 1px solid #e4e4e4; }
th.text, td.text { text-align: left; } img { max-width: 100%; height: auto; }
p, li { overflow-wrap: anywhere; } footer { color: #666; font-size: .85rem; margin: 3rem 0 1rem; }
"""


def write_page(path: str | Path, title: str, parts: Sequence[str]) -> Path:
    """Write a page of HTML parts; return its path. Raises ConfigError unless the name ends in .html."""
    file = page_file(path)
    head = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n<h1>{escape(title)}</h1>"
    )
    with replacing(file) as beside:
        beside.write_text("\n".join([head, *parts, "</body></html>\n"]), encoding="utf-8")
    return file


def page_file(path: str | Path) -> Path:
    """Return the path of a page; raises ConfigError unless the name ends in .html."""
    file = path_of(path, "the report", ConfigError)
    if file.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"a report's name must end in .html, got {str(path)!r}")
    return file


def heading(text: str) -> str:
    """Return a heading of the second level."""
    return f"<h2>{escape(text)}</h2>"


def paragraph(text: str) -> str:
    """Return a paragraph of plain text."""
    return f"<p>{escape(text)}</p>"


def listing(items: Sequence[str]) -> str:
    """Return a list of plain texts."""
    return f"<ul>{''.join(f'<li>{escape(item)}</li>' for item in items)}</ul>"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> str:
    """Return a table of plain texts; texts: number of first columns that are no numbers."""

    def line(kind: str, cells: Sequence[str]) -> str:
        marks = (' class="text"' if i < texts else "" for i in range(len(cells)))
        return f"<tr>{''.join(f'<{kind}{m}>{escape(c)}</{kind}>' for m, c in zip(marks, cells, strict=True))}</tr>"

    body = "\n".join(line("td", row) for row in rows)
    return f'<div class="wide"><table><thead>{line("th", header)}</thead><tbody>\n{body}\n</tbody></table></div>'


def picture(png: bytes, alt: str) -> str:
    """Return a picture, which the page holds itself; alt: the text for readers that do not see it."""
    return f'<p><img alt="{escape(alt)}" src="data:image/png;base64,{b64encode(png).decode()}"></p>'
