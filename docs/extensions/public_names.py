"""Fails the build unless the API pages document exactly the public names, and links a name from wherever it stands.

In the pages of the guide, code such as `mt.Checkpoint` or `mt.save(path, agents)` in a sentence becomes a link.
"""

import importlib
import re
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.errors import SphinxError
from sphinx.transforms import SphinxTransform

import marltrain

MENTION = re.compile(r"mt\.(\w+)(?:\(.*\))?")


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


class Mentions(SphinxTransform):
    """Turns `mt.NAME` in sentences into links; headings and the texts of links stay as they are."""

    default_priority = 400

    def apply(self, **kwargs: Any) -> None:
        """Put a reference around each literal of a public name."""
        for literal in list(self.document.findall(nodes.literal)):
            found = MENTION.fullmatch(literal.astext())
            if not found or found[1] not in marltrain.__all__ or _in_link(literal):
                continue
            link = pending_xref(
                "",
                refdomain="py",
                reftype="obj",
                reftarget=f"marltrain.{found[1]}",
                refexplicit=True,
                refwarn=True,
                refdoc=self.env.docname,
            )
            literal.replace_self(link)
            link += literal


def _in_link(node: nodes.Node) -> bool:
    while node.parent is not None:
        node = node.parent
        if isinstance(node, (nodes.reference, nodes.title, pending_xref)):
            return True
    return False


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
    app.add_transform(Mentions)
    app.connect("env-check-consistency", _check)
    app.connect("missing-reference", _resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
