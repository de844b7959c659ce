"""How Sphinx builds this documentation; `make docs` treats every warning as an error."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

import marltrain

project = "marltrain"
author = "The marltrain authors"
project_copyright = author
version = release = marltrain.__version__

extensions = [
    "myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "sphinx_design",
    "api_summaries", "generated", "plain_docstrings", "public_names",
]  # fmt: skip
myst_enable_extensions = ["colon_fence"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"marltrain {version}"
html_static_path = ["static"]
html_css_files = ["tables_and_code.css"]

myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
autosummary_generate = False

nitpicky = True
# Other projects' objects have no page here; what belongs to marltrain must be found.
nitpick_ignore_regex = [(r"py:\w+", r"(?!marltrain\.).*")]
