"""Fails the build unless the API page documents exactly the public names, and links a name from wherever it stands."""

import importlib
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import SphinxError

import marltrain


def _check(_app: Sphinx, env: BuildEnvironment) -> None:
    documented = {
        name for name in env.domains.python_domain.objects if name.count(".") == 1
    }
    public = {f"marltrain.{name}" for name in marltrain.__all__}
    if missing := sorted(public - documented):
        raise SphinxError(f"docs/api.rst does not document {', '.join(missing)}")
    if extra := sorted(documented - public):
        raise SphinxError(
            f"docs/api.rst documents {', '.join(extra)}, not in marltrain.__all__"
        )


def _resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> Any:
    """Link a public name written as its defining module has it; leave other objects of marltrain as plain text."""
    target = str(node.get("reftarget", ""))
    name = target.rpartition(".")[2]
    if node.get("refdomain") != "py" or (
        target != name and not target.startswith("marltrain.")
    ):
        return None
    if name in marltrain.__all__ and target in (
        name,
        f"{marltrain._HOME[name]}.{name}",
    ):
        found = f"marltrain.{name}"
        domain = env.domains.python_domain
        return domain.resolve_xref(
            env, node["refdoc"], app.builder, "obj", found, node, content
        )
    return content if target != name and _exists(target) else None


def _exists(target: str) -> bool:
    """Whether `target` names an object that can be imported, though it is not public."""
    module, _, name = target.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), name)
    except ImportError:
        return False


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("env-check-consistency", _check)
    app.connect("missing-reference", _resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
