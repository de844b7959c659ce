"""Detection and trials of users' models, without importing a framework."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from marltrain.core.errors import AgentError, shown
from marltrain.core.remedies import written
from marltrain.policies.networks.specs import NetworkDefinition


def framework_of(model: object) -> str | None:
    """Return "torch" for a PyTorch module, "tensorflow" for a layer or model of Keras 3, else None."""
    roots = {base.__module__.partition(".")[0] for base in type(model).__mro__}
    return "torch" if "torch" in roots else "tensorflow" if "keras" in roots else None


def makes_models(given: object) -> bool:
    """Return whether `given` is a function or class that makes a model, not a model, which is callable too."""
    return callable(given) and framework_of(given) is None


def other_backend(model: object, backend: str) -> str:
    """Return a sentence with the setting for a model of another framework than the backend's; else ""."""
    own = framework_of(model)
    if own is None or own == backend:
        return ""
    setting = written(f'backend="{own}"', f"--backend {own}")
    return f". This is a model of {own}: give {setting}"


def named(value: Any) -> str:
    """Return a value's type with its package, such as "torch.Adam", for messages."""
    kind, root = type(value).__name__, type(value).__module__.partition(".")[0]
    return kind if root in ("builtins", "__main__") else f"{root}.{kind}"


def name_of(given: Any) -> str:
    """Return the name of a function or class, or of the class of another object."""
    return str(getattr(given, "__name__", type(given).__name__))


def made_by(make: Any, kind: type[Any], kind_name: str) -> Any:
    """Return the model that a user's function makes; raises AgentError unless it is of this kind."""
    model = make()
    if not isinstance(model, kind):
        remedy = other_backend(model, "torch" if kind_name.startswith("torch") else "tensorflow")
        raise AgentError(
            f"{name_of(make)} was given as a network: it must make a {kind_name}, it made {shown(model)}{remedy}"
        )
    return model


@contextmanager
def trial(what: str, definition: NetworkDefinition, errors: tuple[type[Exception], ...]) -> Iterator[None]:
    """Turn `errors` of a model's first call, on two rows of zeros, into AgentErrors; what: names the model."""
    try:
        yield
    except AgentError:
        raise
    except errors as error:
        observed = {} if definition.layout is None else definition.layout.shapes
        shapes = {name: (2, *shape) for name, (shape, _) in observed.items()}
        further = "".join(f", and a vector of shape (2, {width})" for width in definition.vectors)
        raise AgentError(
            f"{what} cannot take this player's observations, of shapes {shapes}{further}: {type(error).__name__}: "
            f"{error}"
        ) from error
