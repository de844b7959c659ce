"""Detection of a user's model's framework, without importing a framework."""

from __future__ import annotations

from typing import Any


def framework_of(model: object) -> str | None:
    """Return "torch" for a PyTorch module, "tensorflow" for a layer or model of Keras 3, else None."""
    roots = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    return "torch" if "torch" in roots else "tensorflow" if "keras" in roots else None


def makes_models(given: object) -> bool:
    """Return whether `given` is a function or class that makes a model, not a model, which is callable too."""
    return callable(given) and framework_of(given) is None


def named(value: Any) -> str:
    """Return a value's type with its package, such as "torch.Adam", for messages."""
    kind, root = type(value).__name__, type(value).__module__.partition(".")[0]
    return kind if root in ("builtins", "__main__") else f"{root}.{kind}"
