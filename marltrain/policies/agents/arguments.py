"""Arguments of agents for type checkers, signatures and help: those of every agent, and its algorithm's settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, MISSING, Field, dataclass, field, fields
from inspect import Parameter, Signature
from typing import Any, Concatenate, ParamSpec, cast

from marltrain.core.layout import Space
from marltrain.core.settings import hints_of, setting
from marltrain.policies.backends.base import JitCompile

P = ParamSpec("P")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Backend, device and compilation of an agent; `make_backend` checks the backend and the device."""

    backend: str = setting("torch", doc="framework, torch or tensorflow")
    device: str = setting("auto", doc="auto (a GPU for large networks, if there is one), cpu, cuda or cuda:1")
    jit_compile: JitCompile = setting(False, doc="compile the gradient passes; 'require': by marltrain's own code only")
    frame_stack: int = setting(1, doc="number of stacked frames of images", low=1)
    identity: Sequence[str] = setting((), doc="players whose one-hot is added to the observations of a shared agent")


@dataclass(frozen=True)
class AgentArguments(Place):
    """Arguments of every agent that learns with an `Algorithm`.

    A class that inherits from this class and from a settings class has all arguments of an agent class; see `accepts`.
    """

    observation_space: Space = field(metadata={"doc": "space of the observations"})
    action_space: Space = field(metadata={"doc": "space of the actions"})
    _: KW_ONLY
    strategy: Any = setting(None, doc="distribution of minibatches over devices or processes; None: no distribution")
    seed: int | None = setting(None, doc="seed of the weights and of all random numbers; None: drawn")


def accepts(arguments: Callable[P, object]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Decorate the `__init__` of an agent class: type checkers then accept the arguments of a dataclass, and no others.

    arguments: a dataclass that inherits from `AgentArguments` and from the settings class of the algorithm, or from the
        settings class of a `CustomAgent`. Calls do not change: the decorated function is returned as it is.
    """

    def typed(init: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        return cast("Callable[Concatenate[Any, P], None]", init)

    return typed


def settings_of(kind: Any) -> Any:
    """Return the settings class of an agent class; None for a base class without an algorithm."""
    algorithm = getattr(kind, "algorithm_class", None)
    return None if algorithm is None else algorithm.Settings


class AgentSignature:
    """Descriptor for `__signature__` of agent classes, which `inspect`, `help` and completion in notebooks read."""

    def __init__(self, arguments: type = AgentArguments, settings: Callable[[Any], Any] = settings_of) -> None:
        """Store the dataclass of the arguments, and a function that returns the settings class of an agent class."""
        self.arguments, self.settings = arguments, settings

    def __get__(self, agent: object, kind: Any) -> Signature:
        """Return the arguments of `kind.__init__`; its *args and **kwargs are replaced by those that they may hold."""
        own = list(inspect.signature(kind.__init__).parameters.values())[1:]
        kinds, settings = {parameter.kind for parameter in own}, self.settings(kind)
        if settings is None or Parameter.VAR_KEYWORD not in kinds:
            return Signature(own)
        named = [each for each in own if each.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)]
        common = [*_parameters(self.arguments)]
        if Parameter.VAR_POSITIONAL not in kinds:
            common = [each for each in common if each.kind is Parameter.KEYWORD_ONLY]
        taken = {parameter.name for parameter in named}
        added = {each.name: each for each in (*common, *_parameters(settings)) if each.name not in taken}
        return Signature(sorted([*named, *added.values()], key=lambda parameter: parameter.kind))


def described(doc: str | None, settings: Any) -> str:
    """Return the docstring of an agent class with a line for each argument and setting."""
    lines = [f"{f.name}: {f.metadata['doc']}" for f in (*_in_order(AgentArguments), *fields(settings))]
    return "\n".join([*([inspect.cleandoc(doc), ""] if doc else []), *lines])


def _parameters(kind: Any) -> Iterable[Parameter]:
    hints = hints_of(kind)
    for f in _in_order(kind):
        default = Parameter.empty if f.default is MISSING else f.default
        how = Parameter.KEYWORD_ONLY if f.kw_only else Parameter.POSITIONAL_OR_KEYWORD
        yield Parameter(f.name, how, default=default, annotation=hints[f.name])


def _in_order(kind: Any) -> list[Field[Any]]:
    """Return the fields of a dataclass, positional ones first, as its constructor takes them."""
    return sorted(fields(kind), key=lambda f: f.kw_only is True)
