"""Writes a page for each name in the tables of the API overview: docs/api/NAME.rst, before Sphinx reads its sources.

The agents of algorithms have pages in docs/algorithms.

A page has the signature and the description (autodoc), the example of this name from docs/api_examples/*.md, and the
sections of the guide that mention `mt.NAME`. Only pages whose text changes are written: a second build is short.
"""

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from plain_docstrings import inline
from sphinx.application import Sphinx

import marltrain
from marltrain.policies.agents.registry import ALGORITHMS

OVERVIEW, FOLDER, EXAMPLES = "api", "api", "api_examples"
HEADING = re.compile(r"^(?P<title>[^\n]+)\n-{4,}\n", re.MULTILINE)
ENTRY = re.compile(r"^   (\w+)$", re.MULTILINE)
SECTION = re.compile(r"^#{2,3} (.+)$", re.MULTILINE)
FENCE = re.compile(
    r"^```(?:(?P<kind>\w+)|\{literalinclude\} (?P<file>\S+))\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
COMMENT = re.compile(r"^<!--.*-->\n", re.MULTILINE)
OPTIONS = {
    "Algorithm": "   :exclude-members: Settings\n",
    "JobHandle": "   :members:\n",
    "AgentHandle": "   :members:\n",
    "EvaluationResult": "   :members: matrix\n",
    "FindResult": "   :members: plot\n",
    "TuneResult": "   :members: save, plot\n",
}
"""Further options of autodoc."""
NO_GUIDE = ("index.md", "changelog.md", "decisions.md", "architecture.md")
MOST = 5
"""Sections of the guide that a page lists at most."""


def names_by_section(overview: str) -> dict[str, list[str]]:
    """Return the names in the tables of the overview, by the heading above them."""
    found = list(HEADING.finditer(overview))
    ends = [*(match.start() for match in found[1:]), len(overview)]
    return {
        match["title"]: ENTRY.findall(overview, match.end(), end)
        for match, end in zip(found, ends, strict=True)
    }


def page_name(name: str) -> str:
    """Return the name of a page; file systems may not tell `Replay` from `replay`."""
    twins = [other for other in marltrain.__all__ if other.lower() == name.lower()]
    return f"{name}-function" if len(twins) > 1 and name.islower() else name


def sections_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield title and text of each section of a Markdown page."""
    parts = SECTION.split(text)
    yield from zip(parts[1::2], parts[2::2], strict=True)


def restructured(markdown: str) -> str:
    """Return paragraphs and code blocks of Markdown as reStructuredText."""
    text, end, out = COMMENT.sub("", markdown), 0, ""
    for fence in FENCE.finditer(text):
        out += _prose(text[end : fence.start()])
        code = fence["code"].rstrip()
        if fence["file"]:
            out += f".. literalinclude:: {fence['file']}\n{_indented(code)}\n\n"
        else:
            kind = "python" if fence["kind"] == "py" else fence["kind"]
            out += f".. code-block:: {kind}\n\n{_indented(code)}\n\n"
        end = fence.end()
    return out + _prose(text[end:])


def _prose(text: str) -> str:
    return "\n".join(map(inline, text.strip().splitlines())) + "\n\n"


def _indented(text: str) -> str:
    return "\n".join(f"   {line}" if line else "" for line in text.splitlines())


def examples_of(folder: Path) -> dict[str, str]:
    """Return the examples by name."""
    pages = (path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md")))
    return {
        name: restructured(text) for page in pages for name, text in sections_of(page)
    }


def mentions_of(docs: Path) -> dict[str, list[str]]:
    """Return links to the sections that mention each name, those with the most mentions first."""
    counts: dict[str, Counter[str]] = {}
    for path in sorted(docs.rglob("*.md")):
        place = path.relative_to(docs)
        if place.name in NO_GUIDE or place.parts[0] in (EXAMPLES, "_build"):
            continue
        page = path.read_text(encoding="utf-8")
        title = page.partition("\n")[0].removeprefix("# ")
        for heading, text in sections_of(page):
            shown = heading.replace("`", "")
            anchor = f"../{place.with_suffix('.html')}#{nodes.make_id(shown)}"
            link = f"`{title}: {shown} <{anchor}>`__"
            for name in re.findall(r"\bmt\.(\w+)", text):
                counts.setdefault(name, Counter())[link] += 1
    return {
        name: [link for link, _ in count.most_common(MOST)]
        for name, count in counts.items()
    }


def page_of(name: str, section: str, example: str, mentions: list[str]) -> str:
    """Return the page of a public name."""
    found = getattr(marltrain, name)
    kind = "function"
    if inspect.isclass(found):
        kind = "exception" if issubclass(found, BaseException) else "class"
    bases = getattr(found, "__bases__", ())
    inherits = any(
        base.__name__ in marltrain.__all__ or base is Exception for base in bases
    )
    anchor = nodes.make_id(section)
    text = f":orphan:\n\n{name}\n{'=' * len(name)}\n\n"
    text += f"`API reference <../{OVERVIEW}.html>`__: "
    text += f"`{section} <../{OVERVIEW}.html#{anchor}>`__\n\n"
    text += f".. currentmodule:: marltrain\n\n.. auto{kind}:: {name}\n"
    text += "   :show-inheritance:\n" * inherits + OPTIONS.get(name, "") + "\n"
    if example:
        text += f"Example\n-------\n\n{example}"
    if mentions:
        links = "".join(f"- {link}\n" for link in mentions)
        text += f"In the guide\n------------\n\n{links}"
    return text.rstrip() + "\n"


def _write(app: Sphinx) -> None:
    docs = Path(app.srcdir)
    folder = docs / FOLDER
    folder.mkdir(exist_ok=True)
    examples, mentions = examples_of(docs / EXAMPLES), mentions_of(docs)
    overview = (docs / f"{OVERVIEW}.rst").read_text(encoding="utf-8")
    agents = {agent for _, agent in ALGORITHMS.values()}
    pages = {
        folder / f"{page_name(name)}.rst": page_of(
            name, section, examples.get(name, ""), mentions.get(name, [])
        )
        for section, names in names_by_section(overview).items()
        for name in names
        if name not in agents
    }
    for stale in set(folder.glob("*.rst")) - set(pages):
        stale.unlink()
    for path, text in pages.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


class SharedSidebar:
    """The sidebar of the pages, made once: none of them is in it, so that it is the same on all."""

    def __init__(self) -> None:
        """Begin without a sidebar."""
        self._made: dict[str, str] = {}

    def __call__(
        self,
        _app: Sphinx,
        name: str,
        _template: str,
        context: dict[str, Any],
        _doctree: Any,
    ) -> None:
        """Replace the function that makes the sidebar of a page."""
        if not name.startswith(f"{FOLDER}/"):
            return
        make = context["toctree"]

        def toctree(**options: Any) -> str:
            key = repr(sorted(options.items()))
            if key not in self._made:
                self._made[key] = make(**options)
            return self._made[key]

        context["toctree"] = toctree


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.setup_extension("sphinx.ext.autosummary")
    app.connect("builder-inited", _write)
    app.connect("html-page-context", SharedSidebar(), priority=400)  # before the theme
    return {"parallel_read_safe": True, "parallel_write_safe": True}
