"""The code of the pages: blocks of Python and commands, run in order as one script in an empty folder.

`python -m tests.house.pages docs/tutorials/*.md` (`make tutorials`) runs pages as a reader would, at full length. It
prints what their blocks print and their processor time, and copies their pictures into docs/images/tutorials.
"""

import contextlib
import io
import re
import shlex
import shutil
import sys
import time
import types
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from marltrain.cli import main
from tests.house.repository import ROOT

BLOCK = re.compile(
    r"(?:^<!-- test: (?P<mark>[^\n]*) -->\n)?"
    r"^```(?P<kind>python|bash|\{literalinclude\} (?P<file>\S+))\n(?P<code>.*?)^```$"
    r"(?:\n\n<!-- printed -->\n```text\n(?P<printed>.*?)^```$)?",
    re.MULTILINE | re.DOTALL,
)
ELSEWHERE = ("cd ", "git clone ", "pip install ", "tensorboard ")
"""Commands that are not executed."""
PICTURES = ROOT / "docs" / "images" / "tutorials"
COLORS = 32
"""Colors of a copied picture, which keep its file small."""


@dataclass(frozen=True)
class Block:
    """An executable block of a page. line: the first line of its code, counted from 1."""

    kind: str
    code: str
    line: int
    printed: str | None


def blocks_of(page: Path, *, shortened: bool = True) -> list[Block]:
    """Return the executable blocks of a page. shortened: according to the page's marks."""
    text, found = page.read_text(encoding="utf-8"), []
    for match in BLOCK.finditer(text):
        code = (page.parent / match["file"]).read_text(encoding="utf-8") if match["file"] else match["code"]
        for change in (match["mark"] or "").split("; ") if match["mark"] and shortened else ():
            shown, run = change.split(" => ")
            assert shown in code, f"{page.name}: the mark names {shown!r}, which its block does not hold"
            code = code.replace(shown, run)
        kind = "python" if match["file"] else match["kind"]
        found.append(Block(kind, code, text[: match.start("kind")].count("\n") + 2, match["printed"]))
    return found


def run_commands(block: Block) -> None:
    """Run the `marltrain` commands of a block; check that other commands name existing files and targets."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for line in block.code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words or line.startswith(ELSEWHERE):
            continue
        if words[0] == "make":
            assert words[1] in targets, line
        elif words[0] == "python":
            module = ROOT.joinpath(*words[2].split(".")) if words[1] == "-m" else ROOT / words[1]
            assert module.exists() or module.with_suffix(".py").exists(), line
        else:
            assert words[0] == "marltrain", f"{line}: not a command that a page should hold"
            try:
                assert main(words[1:]) == 0, line
            except SystemExit as done:  # --help
                assert done.code == 0, line


def run_block(page: Path, block: Block, script: types.ModuleType) -> None:
    """Run a block in the script of its page, in the working folder."""
    if block.kind == "bash":
        run_commands(block)
    else:
        place = "\n" * (block.line - 1)  # so that a traceback names the page's own line
        exec(compile(place + block.code, str(page), "exec"), script.__dict__)


def run_at_length(page: Path) -> None:
    """Run a page at full length in runs/pages, print the output and the time of its blocks, and copy its pictures."""
    folder = ROOT / "runs" / "pages" / page.stem
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    sys.modules["__main__"] = script = types.ModuleType("__main__")
    with contextlib.chdir(folder):
        started = time.process_time()
        for block in blocks_of(page, shortened=False):
            said, before = io.StringIO(), time.process_time()
            with contextlib.redirect_stdout(said):
                run_block(page, block, script)
            print(f"{page.name}:{block.line}  {time.process_time() - before:.1f} s\n{said.getvalue()}", flush=True)
    print(f"{page.name}: {time.process_time() - started:.0f} s of processor time")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for picture in folder.glob("*.png"):
        image = Image.open(picture).convert("RGB")
        image.quantize(COLORS).save(PICTURES / picture.name, optimize=True)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "examples"))
    for name in sys.argv[1:]:
        run_at_length(Path(name).resolve())
