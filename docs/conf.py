"""How Sphinx builds this documentation; `make docs` treats every warning as an error."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

import marltrain

# No page needs TensorFlow; tianshou would import it with TensorBoard, which takes longer than all other imports.
sys.modules["tensorflow"] = None  # type: ignore[assignment]

project = "marltrain"
author = "The marltrain authors"
project_copyright = author
version = release = marltrain.__version__

extensions = [
    "myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "sphinx_design",
    "api_pages", "generated", "plain_docstrings", "public_names",
]  # fmt: skip
myst_enable_extensions = ["colon_fence"]
# Examples are parts of the pages that api_pages writes.
exclude_patterns = ["_build", "api_examples"]

html_theme = "furo"
html_title = f"marltrain {version}"
html_static_path = ["static"]
html_css_files = ["tables_and_code.css"]

myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 100  # longer ones have a line for each argument
autodoc_typehints_format = "short"
autosummary_generate = False

nitpicky = True
# Other projects' objects have no page here; what belongs to marltrain must be found.
nitpick_ignore_regex = [(r"py:\w+", r"(?!marltrain\.).*")]
