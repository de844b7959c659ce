"""The code of the pages and the README is executed: every block of Python and every command, page by page.

A page's blocks run in order, as one script in an empty folder. Above a block, `<!-- test: a => b; c => d -->` makes its
run small: the test, not the reader, sees b in place of a. A run's test has `TEST_EPISODES` episodes at most. Below a
block, a text block after `<!-- printed -->` is what the block prints, word for word.
Code of other libraries is marked `py` in place of `python`, and is not executed.
"""

import ast
import contextlib
import io
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from marltrain.trainer.settings import TrainerSettings
from tests.house.pages import blocks_of, run_block
from tests.house.repository import PACKAGE, ROOT, python_files
from tests.policies.agents.tianshou.interpreted import interpret
from tests.tiers import LONG
from tests.trainer.running import without_pictures

LONG_ONLY = ["docs/api_examples/tools.md", "docs/learning_together.md", "docs/rivals.md"]
"""Pages that are executed in the long tier only: other pages execute their functions, and they take longest."""
MARKDOWN = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in MARKDOWN if LONG or page not in LONG_ONLY]
TEST_EPISODES = 4
AT_LENGTH = ("docs/environments.md",)
"""Pages that print the faults of complete tests."""
OF_TIANSHOU = "docs/from_tianshou.md"
"""A page that trains by tianshou alone, too."""
WITH_PICTURES = ("README.md", "docs/quickstart.md")
"""Pages whose runs draw their plots."""


def run_page(page: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> int:
    """Run a page's blocks as one script in an empty folder; return their number."""
    script = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", script)  # definitions of a script are sent to workers by value
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.chdir(folder)
    blocks = blocks_of(page)
    for block in blocks:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            run_block(page, block, script)
        if block.printed is not None:
            assert said.getvalue().rstrip() == block.printed.rstrip(), f"{page.name}:{block.line} prints something else"
    return len(blocks)


@pytest.mark.parametrize("page", PAGES)
def test_page_runs(page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    result = TrainerSettings.__post_init__

    def with_short_tests(settings: TrainerSettings) -> None:
        object.__setattr__(settings, "episodes_per_test", min(settings.episodes_per_test, TEST_EPISODES))
        result(settings)

    if page not in AT_LENGTH:
        monkeypatch.setattr(TrainerSettings, "__post_init__", with_short_tests)
    if page not in WITH_PICTURES:
        without_pictures(monkeypatch)
    if page == OF_TIANSHOU:
        interpret(monkeypatch)
    run_page(ROOT / page, monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("```python\nraise LookupError\n```\n", LookupError),
        ("```python\nprint(1)\n```\n\n<!-- printed -->\n```text\n2\n```\n", AssertionError),
        ("<!-- test: 100 => 1 -->\n```python\nx = 200\n```\n", AssertionError),
        ("```bash\nmarltrain train nowhere --algo ppo\n```\n", AssertionError),
        ("```bash\nmake nothing\n```\n", AssertionError),
        ("```bash\npython -m benchmarks.nothing\n```\n", AssertionError),
        ("```bash\nrm -rf x\n```\n", AssertionError),
    ],
)
def test_failing_code_block_is_detected(
    text: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(error):
        run_page(page, monkeypatch, tmp_path)


def test_test_marks_shorten_a_block(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- test: 100 => 1; 20 => 2 -->\n```python\nx = 100 + 20\n```\n\n"
        "```python\nprint(x)\n```\n\n<!-- printed -->\n```text\n3\n```\n"
    )
    assert run_page(page, monkeypatch, tmp_path) == 2


def test_all_fenced_code_blocks_are_found() -> None:
    for page in MARKDOWN:
        text = (ROOT / page).read_text(encoding="utf-8")
        fenced = re.findall(r"^```(?:python|bash|\{literalinclude\})", text, re.MULTILINE)
        assert len(blocks_of(ROOT / page)) == len(fenced), page


def test_example_files_are_short_and_shown_unchanged_in_the_readme() -> None:
    script = (ROOT / "examples" / "first_run.py").read_text(encoding="utf-8")
    game = (ROOT / "examples" / "own_game.py").read_text(encoding="utf-8")
    assert len(script.splitlines()) <= 15
    assert len(game.splitlines()) <= 45
    assert script in (ROOT / "README.md").read_text(encoding="utf-8")
    included = re.findall(r"\{literalinclude\} \.\./(\S+)", (ROOT / "docs" / "quickstart.md").read_text("utf-8"))
    assert included == ["examples/own_game.py", "examples/first_run.py"]


def test_architecture_page_names_all_folders_and_only_existing_files() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    files = [path.relative_to(PACKAGE) for path in python_files("marltrain")]
    told_as_one = Path("envs/native"), Path("policies/agents/tianshou")  # a folder for each family of games
    folders = {path.parent for path in files if not any(whole in path.parent.parents for whole in told_as_one)}
    missing = [str(folder) for folder in folders - {Path(), told_as_one[1]} if f"{folder.name}/" not in page]
    assert not missing, f"docs/architecture.md does not name {missing}"
    named = set(re.findall(r"\b(\w+\.py)\b", page))
    assert named <= {path.name for path in files} | {
        "path.py",
        "test_path.py",
        "test_imports.py",
        "test_backends_parity.py",
    }
    assert len(named) > 20


def test_the_table_of_formulas_names_functions_that_exist() -> None:
    page = (ROOT / "docs/architecture.md").read_text()
    rows = re.findall(
        r"^\| [^|]+ \| `([\w/]+\.py)` \| (`.*`) \|$", page[page.index("## Where each formula is") :], re.MULTILINE
    )
    assert len(rows) > 25
    for file, names in rows:
        defined = {".".join(names) for names in _definitions(ast.parse((PACKAGE / "policies" / file).read_text()).body)}
        for name in re.findall(r"`([\w.]+)`", names):
            assert name in defined, f"docs/architecture.md: {file} defines no {name}"


def _definitions(body: list[ast.stmt]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of names of functions, classes and their methods, and of annotated constants."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield (node.name,)
            yield from ((node.name, *names) for names in _definitions(node.body))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield (node.target.id,)
