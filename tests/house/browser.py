"""The built documentation in a browser: `make docs-test` (`python -m tests.house.browser [--shots DIR]`).

Opens every page of docs/_build/html in headless Chromium, at the widths of a desktop and of a phone. A page must not be
wider than its window, its pictures must load, its links to other pages and sections must lead somewhere, and nothing
may fail in the console. No code is cut on a desktop, and no word is broken in the first column of a table. The search
must find a page by a word. Links to other hosts are not opened.
"""

from __future__ import annotations

import argparse
import functools
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

from bs4 import BeautifulSoup

from tests.house.repository import ROOT

BUILT = ROOT / "docs" / "_build" / "html"
PHONE = "phone"
WIDTHS = {"desktop": (1280, 900), "large": (1560, 900), PHONE: (390, 844)}
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SEARCHED = {
    "hindsight": "memory.html", "rivals connect four": "tutorials/self_play.html",
    "random partner": "tutorials/first_game.html", "EarlyStopping": "api/EarlyStopping.html",
}  # fmt: skip
"""Words, and a page that the search must find by them."""
OUTSIDE = """() => {
    const scrolls = e => e.tagName !== 'ARTICLE'
        && (['auto', 'scroll'].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
    return [...document.querySelectorAll('article *')].filter(
        e => e.getBoundingClientRect().right > window.innerWidth + 1 && !scrolls(e)
    ).slice(0, 3).map(e => e.tagName.toLowerCase() + ' ' + e.textContent.trim().slice(0, 60));
}"""
"""Elements that reach beyond the window, and are in no part of it that scrolls by itself (code, wide tables)."""
CUT = """() => [...document.querySelectorAll('article div.highlight pre')]
    .filter(code => code.scrollWidth > code.clientWidth + 1).map(code => code.textContent.trim().slice(0, 60))"""
"""Code that is wider than its column."""
BROKEN_WORDS = """() => {
    const broken = [];
    for (const cell of document.querySelectorAll('article :is(td, th):first-child')) {
        const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
        for (let text = texts.nextNode(); text; text = texts.nextNode())
            for (const word of text.data.matchAll(/[A-Za-z0-9_]+/g)) {
                const range = document.createRange();
                range.setStart(text, word.index);
                range.setEnd(text, word.index + word[0].length);
                const lines = new Set([...range.getClientRects()].map(line => Math.round(line.top)));
                if (lines.size > 1) broken.push(word[0]);
            }
    }
    return broken;
}"""
"""Words in the first columns of tables that go on in another line."""
BROKEN = "() => [...document.images].filter(i => i.loading !== 'lazy' && !i.naturalWidth).map(i => i.src)"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and prints nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine; yield its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()


def dead_links(pages: list[Path]) -> list[str]:
    """Return the links of pages to files or sections that do not exist."""
    parsed = {page: BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser") for page in pages}
    anchors = {page: {tag["id"] for tag in soup.find_all(id=True)} for page, soup in parsed.items()}
    dead = []
    for page, soup in parsed.items():
        for link in soup.find_all("a", href=True):
            target, anchor = urldefrag(str(link["href"]))
            if "://" in target or target.startswith("mailto:"):
                continue
            file = (page.parent / unquote(target)).resolve() if target else page
            if not file.is_file() or (anchor and file in anchors and unquote(anchor) not in anchors[file]):
                dead.append(f"{page.relative_to(BUILT)}: link to {link['href']}")
    return dead


def faults_of(tab: Any, address: str, shot: Path | None, *, scrolls: bool) -> list[str]:
    """Open a page; return what is wrong with it, and write its picture to `shot`.

    scrolls: whether code may be wider than its column, as on a phone.
    """
    said: list[str] = []

    def hear(message: Any) -> None:
        if message.type == "error":
            said.append(message.text)

    tab.on("console", hear)
    tab.goto(address)
    faults = [f"console: {text}" for text in said]
    tab.remove_listener("console", hear)
    width, window = tab.evaluate("() => [document.documentElement.scrollWidth, window.innerWidth]")
    if width > window:
        faults.append(f"is {width} pixels wide in a window of {window}")
    faults += [f"reaches beyond the window: {element}" for element in tab.evaluate(OUTSIDE)]
    faults += [f"the word {word!r} of a first column is broken" for word in tab.evaluate(BROKEN_WORDS)]
    faults += [] if scrolls else [f"code is cut: {code}" for code in tab.evaluate(CUT)]
    faults += [f"picture {source} does not load" for source in tab.evaluate(BROKEN)]
    if shot is not None:
        shot.parent.mkdir(parents=True, exist_ok=True)
        tab.screenshot(path=shot, full_page=True)
    return faults


def search_faults(tab: Any, address: str) -> list[str]:
    """Search for words; return which page was not found."""
    faults = []
    for words, wanted in SEARCHED.items():
        tab.goto(f"{address}/index.html")
        box = tab.locator("input[name=q]:visible").first
        box.fill(words)
        box.press("Enter")
        tab.wait_for_selector("#search-results li a", timeout=20_000)
        found = tab.eval_on_selector_all("#search-results li a", "links => links.map(link => link.href)")
        if not any(wanted in link for link in found):
            faults.append(f"the search for {words!r} finds {found[:5]} and not {wanted}")
    return faults


def main() -> int:
    """Check all pages; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shots", type=Path, help="folder for a picture of every page at every width")
    parser.add_argument("pages", nargs="*", help="pages such as tutorials/teams.html; all by default")
    args = parser.parse_args()
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print("docs-test needs Chromium, which is not installed: apt-get install chromium", file=sys.stderr)
        return 1
    from playwright.sync_api import sync_playwright

    pages = sorted(BUILT.rglob("*.html"))
    faults = dead_links(pages)
    opened = args.pages or [str(page.relative_to(BUILT)) for page in pages]
    with served(BUILT) as address, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for name, (width, height) in WIDTHS.items():
            tab = chromium.new_page(viewport={"width": width, "height": height})
            for page in opened:
                shot = args.shots and args.shots / name / Path(page).with_suffix(".png")
                found = faults_of(tab, f"{address}/{page}", shot, scrolls=name == PHONE)
                faults += [f"{page} ({name}): {fault}" for fault in found]
        faults += search_faults(chromium.new_page(viewport={"width": 1280, "height": 900}), address)
        chromium.close()
    print(f"{len(opened)} pages at {len(WIDTHS)} widths, {len(faults)} faults", *faults, sep="\n")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
