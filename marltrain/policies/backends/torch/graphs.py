"""A function of tensors as compiled torch graphs, one graph for each structure and shape of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from marltrain.jit.notices import compiling
from marltrain.policies.backends.traces import Key, Traces, compiler_errors


class Graph(Traces):
    """Compiles a function that returns one tensor by `torch.compile`, for the exact shapes of its arguments.

    Other tensors that the function reads (weights, moments) must stay the same tensors of the same shapes. Torch's
    checks of them (guards) and its lookup of a graph are skipped; with both, a small gradient step takes a fifth longer
    (`benchmarks/kernels.py`).
    """

    def leaf(self, given: Tensor) -> tuple[Any, Key]:
        """See `Traces`."""
        return given, (given.dtype, given.device, given.shape, given.stride())

    def traced(self, call: Callable[..., Any], leaves: list[Any]) -> Callable[..., Any]:
        """See `Traces`."""
        on_cpu = all(leaf.device.type == "cpu" for leaf in leaves)
        return _Compiled(call, _options_on_a_cpu() if on_cpu else {})


def _options_on_a_cpu() -> dict[str, Any]:
    """Return options of the compiler: kernels are called from C++, not from Python; large products use oneDNN."""
    from marltrain.policies.backends.torch.products import LargeProducts  # slow to import

    return {"cpp_wrapper": True, "post_grad_custom_pre_pass": LargeProducts()}


def _compiler_error() -> type[Exception]:
    """Return the base class of the errors of torch's compiler; errors of the traced code keep their own."""
    from torch._dynamo.exc import TorchDynamoException  # slow to import

    return TorchDynamoException


class _Compiled:
    """A trace that is compiled at its first call; later calls run the compiled program without torch's wrappers."""

    def __init__(self, call: Callable[..., Tensor], options: dict[str, Any]) -> None:
        self._options = options
        self._program: Callable[..., Sequence[Tensor]] | None = None
        self._given: list[Any] = []  # arguments of the program: weights and leaves
        self._places: list[tuple[int, int]] = []  # (index of an argument, index of the same tensor among the leaves)
        # torch caches graphs by code object and, without guards, takes the first: every trace has its own code object
        own = FunctionType(call.__code__.replace(), call.__globals__, closure=call.__closure__)
        options = {"guard_filter_fn": torch.compiler.skip_all_guards_unsafe}
        self._compiled = torch.compile(own, backend=self._build, dynamic=False, fullgraph=True, options=options)

    def __call__(self, *leaves: Tensor) -> Tensor:
        if self._program is None or not self._places:
            return self._first(leaves)
        given = self._given.copy()
        for place, leaf in self._places:
            given[place] = leaves[leaf]
        return self._program(*given)[0]

    def _build(self, graph: Any, examples: Any) -> Callable[..., Any]:
        """Compile the traced graph; record the arguments of its call."""
        from torch._dynamo.eval_frame import innermost_fn  # slow to import
        from torch._inductor.compile_fx import compile_fx

        wrapped: Any = compile_fx(graph, examples, config_patches=self._options)
        program: Any = innermost_fn(wrapped)
        self._program = program

        def noting(*given: Any) -> Any:
            self._given = list(given)
            return program(*given)

        return noting

    def _first(self, leaves: Sequence[Tensor]) -> Tensor:
        apart = [leaf.clone() if any(leaf is other for other in leaves[:i]) else leaf for i, leaf in enumerate(leaves)]
        with compiling("a gradient pass (torch.compile)"), compiler_errors("torch", _compiler_error()):
            result: Tensor = self._compiled(*apart)
        numbers = {id(leaf): i for i, leaf in enumerate(apart)}
        self._places = [(i, numbers[id(tensor)]) for i, tensor in enumerate(self._given) if id(tensor) in numbers]
        for place, _ in self._places:
            self._given[place] = None  # keeps no batch alive
        return result
